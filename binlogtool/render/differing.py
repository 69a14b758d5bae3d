"""`hexdump-annotate --diff OTHER` as text lines: `=` the same, `~` differs, `-` only in A, `+` only in B.

Below a record that differs are its differing fields, as they are in A and in B; `^` marks the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
from msgspec.structs import replace

from binlogtool.log.compare import Differs, Part, Side
from binlogtool.log.differing import Field, fields, joined, kind_of
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import HexdumpOptions, hexdump, marks
from binlogtool.report.words import count, counted, place
from binlogtool.schema.annotation import FieldRow, Piece

FEW = 4
"""Records in a row that one side alone has and whose bytes are drawn; the others are counted."""
_MOST_LINES = 64
"""Lines of a field, or of what one side alone has."""
_PAINT = {"-": "31", "+": "32", "~": "33"}


class Differences(msgspec.Struct):
    """Render differences as text and count them. shows_all: also equal parts, and all that only one side has."""

    options: HexdumpOptions
    whole: bool = False
    found: int = 0
    """Places that differ."""

    def lines(self, parts: Iterable[Part]) -> Iterator[str]:
        """Yield lines without line ends."""
        for kind, some in groupby(parts, kind_of):
            if kind == "=":
                yield from self._same(some)
            elif kind == "~":
                for part in some:
                    yield from self._changed(part)
            else:
                yield from self._only(kind, some)

    def _same(self, some: Iterable[Part]) -> Iterator[str]:
        for one in joined(some):
            moved = "" if one.start == one.other else f", in B from {place(one.other)}"
            records = f", {counted(one.records, 'record')}" if one.records else ""
            size = count(one.end - one.start)
            yield f"= {place(one.start)}..{place(one.end)}  the same{records}, {size} bytes{moved}"

    def _changed(self, part: Part) -> Iterator[str]:
        assert isinstance(part, Differs) and part.a is not None and part.b is not None
        self.found += 1
        left, right = part.a.piece(), part.b.piece()
        told = fields(left, right)
        other = sum(not one.same for one in told)
        moved = "" if part.a.unit.start == part.b.unit.start else f", in B at {place(part.b.unit.start)}"
        name, there = name_of(part.a, left), name_of(part.b, right)
        kind = name if name == there else f"{name}, in B {there}"
        what = f"{count(other)} of {counted(len(told), 'field')} differ"
        if not other:
            what = "what is read is the same, the bytes in the files are not"
        said = f"{place(part.a.unit.start)}  {kind}{moved}: {what}"
        yield self._painted("~", said)
        for same, some in groupby(told, lambda one: one.same):
            if same and not self.whole:
                yield f"    {counted(sum(1 for _ in some), 'field')} the same"
            else:
                for one in some:
                    yield from self._field(one, left, right)

    def _field(self, one: Field, left: Piece, right: Piece) -> Iterator[str]:
        if one.same:
            assert one.a is not None
            yield from (f"  {line}" for line in self._drawn(one.a, left))
        else:
            for sign, row, piece in (("-", one.a, left), ("+", one.b, right)):
                if row is not None:
                    yield from self._marked(sign, row, piece, one)

    def _marked(self, sign: str, row: FieldRow, piece: Piece, one: Field) -> Iterator[str]:
        """Yield the lines of a field, each with `^` under its differing bytes."""
        places = [(row.start + first, row.start + last) for first, last in one.ranges]
        if places == [(row.start, row.end)]:
            places = []
        if places and row.end - row.start > self.options.width:
            row = row._replace(start=places[0][0], end=places[-1][1])
        at = row.start - row.start % self.options.width
        for line in self._drawn(row, piece):
            yield self._painted(sign, line)
            if under := marks(self.options, line, at, places):
                yield f"  {under}"
            at += self.options.width

    def _drawn(self, row: FieldRow, piece: Piece) -> Iterator[str]:
        squeezed = replace(self.options, squeeze=False)
        yield from _bounded(hexdump([row], piece.spaces, squeezed, heading=False), None if self.whole else _MOST_LINES)

    def _only(self, sign: str, some: Iterable[Part]) -> Iterator[str]:
        """Yield what only one side has: the first records with their bytes, the number of the others."""
        where, drawn = "A" if sign == "-" else "B", 0
        left: list[int] = []
        for part in some:
            self.found += 1
            assert isinstance(part, Differs)
            side = part.a or part.b
            assert side is not None
            if drawn >= FEW and not self.whole:
                left = [left[0] if left else side.unit.start, side.unit.end, (left[2] if left else 0) + 1]
                continue
            drawn += 1
            piece = side.piece()
            size = count(side.unit.end - side.unit.start)
            yield self._painted(sign, f"{place(side.unit.start)}  {name_of(side, piece)} only in {where}, {size} bytes")
            lines = hexdump(piece.rows, piece.spaces, self.options, heading=False)
            for line in _bounded(lines, None if self.whole else _MOST_LINES):
                yield self._painted(sign, line)
        if left:
            start, end, more = left
            said = f"{place(start)}..{place(end)}  {count(more)} more only in {where}, {count(end - start)} bytes"
            yield self._painted(sign, said)

    def _painted(self, sign: str, line: str) -> str:
        return f"\x1b[{_PAINT[sign]}m{sign}\x1b[0m {line}" if self.options.color else f"{sign} {line}"


def _bounded(lines: Iterable[str], most: int | None) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == most:
            yield "... more lines; --all shows them"
            return
        yield line


def name_of(side: Side, piece: Piece) -> str:
    """Return the name of a unit: its records with their types, or the name of its bytes."""
    unit = side.unit
    if unit.kind != "frame":
        return escape(piece.rows[0].path.partition(".")[0]) if piece.rows else unit.kind
    types = [type_ for type_, _, _ in unit.says]
    kinds = escape(", ".join(dict.fromkeys(types)))
    if unit.records == 0:
        return escape(piece.rows[0].path)
    numbers = f"record {count(unit.record)}"
    if unit.records > 1:
        numbers = f"records {count(unit.record)} to {count(unit.record + unit.records - 1)}"
    return f"{numbers} {kinds}".rstrip()
