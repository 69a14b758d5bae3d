"""`hexdump-annotate --diff OTHER -O html`: the page of `-O html`, with both sides of each difference below each
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby

from binlogtool.errors import LimitError
from binlogtool.log.compare import Compared, Differs, Part, Same, Side
from binlogtool.log.differing import Field, fields, joined, kind_of
from binlogtool.render.annotated import SCRIPT, STYLE, TOOLS, AnnotatedPage, Marked
from binlogtool.render.differing import FEW, name_of
from binlogtool.render.page import end, head, text
from binlogtool.report.words import count, counted, place


class DifferencesPage:
    """The differences as an HTML page, written while the parts come. shows_all: everything that one side has."""

    def __init__(self, compared: Compared, *, whole: bool) -> None:
        self._about = compared
        self._whole = whole
        self._page = AnnotatedPage(compared.a.path, compared.a.format.name, compared.a.size, anchor="a")
        self._full = False
        self.found = 0
        """Places that differ."""

    def begin(self) -> str:
        """Return the page up to the parts."""
        a, b = self._about.a, self._about.b
        names = f"{os.path.basename(a.path)} → {os.path.basename(b.path)}"
        sides = "".join(
            f'<p class="about"><b class="side-{side.lower()}">{side}</b> {text(file.path)} {file.size or 0:,} bytes</p>'
            for side, file in (("A", a), ("B", b))
        )
        tools = TOOLS.replace("next damage</", "next difference</")
        return (
            f"{head(names, STYLE, SCRIPT)}<header><h1>{text(names)}</h1>"
            f'<p class="about">{text(a.format.name)}</p>{sides}{tools}</header>\n<main>\n'
        )

    def parts(self, parts: Iterable[Part]) -> Iterator[str]:
        """Yield the sections of all parts."""
        for kind, some in groupby(parts, kind_of):
            if kind == "=":
                yield from (self._line(_same(one)) for one in joined(some))
            else:
                yield from self._run(some)

    def end(self) -> str:
        """Return the page after the parts."""
        return f"</main>\n{end(SCRIPT)}"

    def _run(self, some: Iterable[Part]) -> Iterator[str]:
        """Yield differences of one kind; of what only one side has, the first records are shown."""
        left: list[Side] = []
        for number, part in enumerate(some):
            assert isinstance(part, Differs)
            self.found += 1
            sides = [side for side in (part.a, part.b) if side is not None]
            if self._full or (len(sides) == 1 and number >= FEW and not self._whole):
                left = [left[0] if left else sides[0], sides[-1]]
                continue
            try:
                yield from self._drawn(part)
            except LimitError:
                self._full = True
                yield self._line("more differs than a page shows; without -O html all of it is told")
        if left and not self._full:
            yield self._line(f"{place(left[0].unit.start)}..{place(left[1].unit.end)} more of the same; --all draws it")

    def _drawn(self, part: Differs) -> Iterator[str]:
        pieces = [None if side is None else side.piece() for side in (part.a, part.b)]
        left, right = pieces
        told = fields(left, right) if left is not None and right is not None else []
        differ = sum(not one.same for one in told)
        for name, side, piece in zip("AB", (part.a, part.b), pieces, strict=True):
            if side is None or piece is None:
                continue
            what = f"{count(differ)} of {counted(len(told), 'field')} differ" if told else f"only in {name}"
            marked = Marked(f"{name}: {name_of(side, piece)}", what, f"side-{name.lower()}", _marks(told, name))
            yield from self._page.piece(piece, marked)

    @staticmethod
    def _line(said: str) -> str:
        return f'<p class="same">{text(said)}</p>\n'


def _same(one: Same) -> str:
    moved = "" if one.start == one.other else f", in B from {place(one.other)}"
    records = f", {counted(one.records, 'record')}" if one.records else ""
    return f"= {place(one.start)}..{place(one.end)} the same{records}, {count(one.end - one.start)} bytes{moved}"


def _marks(told: Iterable[Field], side: str) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
    """Return the fields that differ, and the byte ranges that do."""
    marks: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for one in told:
        row = one.a if side == "A" else one.b
        if row is not None and not one.same:
            sizes = {0 if of is None else of.end - of.start for of in (one.a, one.b)}
            ranges = one.ranges or (((0, row.end - row.start),) if len(sizes) > 1 else ())
            marks[row.space, row.path, row.start] = [(row.start + i, row.start + j) for i, j in ranges]
    return marks
