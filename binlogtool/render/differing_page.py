"""`hexdump-annotate --diff OTHER -O html`: the page of `-O html`, with both sides of each difference below each
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby

from binlogtool.errors import LimitError
from binlogtool.log.compare import DiffPart, DiffSide, EqualRange, LogComparison, UnitDiff
from binlogtool.log.differing import FieldDiff, diff_sign, join_equal_ranges, match_fields
from binlogtool.render.annotated import SCRIPT, STYLE, TOOLS, AnnotationPage, DiffPieceStyle
from binlogtool.render.differing import MAX_SHOWN_RECORDS, describe_unit
from binlogtool.render.page import escape_html, html_head, render_end
from binlogtool.report.words import format_count, format_offset, format_quantity


class DiffPage:
    """The differences as an HTML page, written while the parts come. shows_all: everything that one side has."""

    def __init__(self, comparison: LogComparison, *, shows_all: bool) -> None:
        self._comparison = comparison
        self._shows_all = shows_all
        self._page = AnnotationPage(comparison.a.path, comparison.a.format.name, comparison.a.size, anchor="a")
        self._is_full = False
        self.difference_count = 0
        """Places that differ."""

    def render_start(self) -> str:
        """Return the page up to the parts."""
        a, b = self._comparison.a, self._comparison.b
        names = f"{os.path.basename(a.path)} → {os.path.basename(b.path)}"
        sides = "".join(
            (
                f'<p class="about"><b class="side-{side.lower()}">{side}</b> {escape_html(file.path)} '
                f"{file.size or 0:,} bytes</p>"
            )
            for side, file in (("A", a), ("B", b))
        )
        tools = TOOLS.replace("next damage</", "next difference</")
        return (
            f"{html_head(names, STYLE, SCRIPT)}<header><h1>{escape_html(names)}</h1>"
            f'<p class="about">{escape_html(a.format.name)}</p>{sides}{tools}</header>\n<main>\n'
        )

    def render_parts(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield the sections of all parts."""
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                yield from (self._render_line(_describe_equal(one)) for one in join_equal_ranges(group))
            else:
                yield from self._render_run(group)

    def render_end(self) -> str:
        """Return the page after the parts."""
        return f"</main>\n{render_end(SCRIPT)}"

    def _render_run(self, group: Iterable[DiffPart]) -> Iterator[str]:
        """Yield differences of one kind; of what only one side has, the first records are shown."""
        rest: list[DiffSide] = []
        for number, part in enumerate(group):
            assert isinstance(part, UnitDiff)
            self.difference_count += 1
            sides = [side for side in (part.a, part.b) if side is not None]
            if self._is_full or (len(sides) == 1 and number >= MAX_SHOWN_RECORDS and not self._shows_all):
                rest = [rest[0] if rest else sides[0], sides[-1]]
                continue
            try:
                yield from self._render_diff(part)
            except LimitError:
                self._is_full = True
                yield self._render_line("more differs than a page shows; without -O html all of it is told")
        if rest and not self._is_full:
            yield self._render_line(
                f"{format_offset(rest[0].unit.start)}..{format_offset(rest[1].unit.end)} more of the same; "
                f"--all draws it"
            )

    def _render_diff(self, part: UnitDiff) -> Iterator[str]:
        pieces = [None if side is None else side.piece() for side in (part.a, part.b)]
        left, right = pieces
        field_diffs = match_fields(left, right) if left is not None and right is not None else []
        differing_count = sum(not one.same for one in field_diffs)
        for name, side, piece in zip("AB", (part.a, part.b), pieces, strict=True):
            if side is None or piece is None:
                continue
            summary = (
                f"{format_count(differing_count)} of {format_quantity(len(field_diffs), 'field')} differ"
                if field_diffs
                else f"only in {name}"
            )
            style = DiffPieceStyle(
                f"{name}: {describe_unit(side, piece)}",
                summary,
                f"side-{name.lower()}",
                _differing_fields(field_diffs, name),
            )
            yield from self._page.render_piece(piece, style)

    @staticmethod
    def _render_line(line: str) -> str:
        return f'<p class="same">{escape_html(line)}</p>\n'


def _describe_equal(equal_range: EqualRange) -> str:
    moved_text = (
        "" if equal_range.start == equal_range.other_start else f", in B from {format_offset(equal_range.other_start)}"
    )
    records = f", {format_quantity(equal_range.record_count, 'record')}" if equal_range.record_count else ""
    return (
        f"= {format_offset(equal_range.start)}..{format_offset(equal_range.end)} the same{records}, "
        f"{format_count(equal_range.end - equal_range.start)} bytes{moved_text}"
    )


def _differing_fields(field_diffs: Iterable[FieldDiff], side: str) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
    """Return the fields that differ, and the byte ranges that do."""
    fields_of_side: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for field_diff in field_diffs:
        row = field_diff.a if side == "A" else field_diff.b
        if row is not None and not field_diff.same:
            sizes = {0 if of is None else of.end - of.start for of in (field_diff.a, field_diff.b)}
            ranges = field_diff.ranges or (((0, row.end - row.start),) if len(sizes) > 1 else ())
            fields_of_side[row.space, row.path, row.start] = [(row.start + i, row.start + j) for i, j in ranges]
    return fields_of_side
