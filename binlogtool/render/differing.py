"""`hexdump-annotate --diff OTHER` as text lines: `=` the same, `~` differs, `-` only in A, `+` only in B.

Below a record that differs are its differing fields, as they are in A and in B; `^` marks the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
from msgspec.structs import replace

from binlogtool.log.compare import DiffPart, DiffSide, UnitDiff
from binlogtool.log.differing import FieldDiff, diff_sign, join_equal_ranges, match_fields
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import HexdumpOptions, render_hexdump, render_markers
from binlogtool.report.words import format_count, format_offset, format_quantity
from binlogtool.schema.annotation import AnnotatedPiece, FieldRow

MAX_SHOWN_RECORDS = 4
"""Records in a row that one side alone has and whose bytes are drawn; the others are counted."""
_MAX_FIELD_LINES = 64
"""Lines of a field, or of what one side alone has."""
_COLORS = {"-": "31", "+": "32", "~": "33"}


class DiffText(msgspec.Struct):
    """Render differences as text and count them. shows_all: also equal parts, and all that only one side has."""

    options: HexdumpOptions
    shows_all: bool = False
    difference_count: int = 0
    """Places that differ."""

    def render(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield lines without line ends."""
        for kind, group in groupby(parts, diff_sign):
            if kind == "=":
                yield from self._render_equal(group)
            elif kind == "~":
                for part in group:
                    yield from self._render_changed(part)
            else:
                yield from self._render_one_sided(kind, group)

    def _render_equal(self, parts: Iterable[DiffPart]) -> Iterator[str]:
        for equal_range in join_equal_ranges(parts):
            moved_text = (
                ""
                if equal_range.start == equal_range.other_start
                else f", in B from {format_offset(equal_range.other_start)}"
            )
            records = f", {format_quantity(equal_range.record_count, 'record')}" if equal_range.record_count else ""
            size = format_count(equal_range.end - equal_range.start)
            yield (
                f"= {format_offset(equal_range.start)}..{format_offset(equal_range.end)}  the "
                f"same{records}, {size} bytes{moved_text}"
            )

    def _render_changed(self, part: DiffPart) -> Iterator[str]:
        assert isinstance(part, UnitDiff) and part.a is not None and part.b is not None
        self.difference_count += 1
        left, right = part.a.piece(), part.b.piece()
        field_diffs = match_fields(left, right)
        differing_count = sum(not one.same for one in field_diffs)
        moved_text = "" if part.a.unit.start == part.b.unit.start else f", in B at {format_offset(part.b.unit.start)}"
        name, name_in_b = describe_unit(part.a, left), describe_unit(part.b, right)
        kind = name if name == name_in_b else f"{name}, in B {name_in_b}"
        summary = f"{format_count(differing_count)} of {format_quantity(len(field_diffs), 'field')} differ"
        if not differing_count:
            summary = "what is read is the same, the bytes in the files are not"
        heading = f"{format_offset(part.a.unit.start)}  {kind}{moved_text}: {summary}"
        yield self._paint_line("~", heading)
        for same, group in groupby(field_diffs, lambda one: one.same):
            if same and not self.shows_all:
                yield f"    {format_quantity(sum(1 for _ in group), 'field')} the same"
            else:
                for field_diff in group:
                    yield from self._render_field(field_diff, left, right)

    def _render_field(self, field_diff: FieldDiff, left: AnnotatedPiece, right: AnnotatedPiece) -> Iterator[str]:
        if field_diff.same:
            assert field_diff.a is not None
            yield from (f"  {line}" for line in self._render_row(field_diff.a, left))
        else:
            for sign, row, piece in (("-", field_diff.a, left), ("+", field_diff.b, right)):
                if row is not None:
                    yield from self._render_field_side(sign, row, piece, field_diff)

    def _render_field_side(
        self, sign: str, row: FieldRow, piece: AnnotatedPiece, field_diff: FieldDiff
    ) -> Iterator[str]:
        """Yield the lines of a field, each with `^` under its differing bytes."""
        ranges = [(row.start + first, row.start + last) for first, last in field_diff.ranges]
        if ranges == [(row.start, row.end)]:
            ranges = []
        if ranges and row.end - row.start > self.options.width:
            row = row._replace(start=ranges[0][0], end=ranges[-1][1])
        line_offset = row.start - row.start % self.options.width
        for line in self._render_row(row, piece):
            yield self._paint_line(sign, line)
            if markers := render_markers(self.options, line, line_offset, ranges):
                yield f"  {markers}"
            line_offset += self.options.width

    def _render_row(self, row: FieldRow, piece: AnnotatedPiece) -> Iterator[str]:
        options = replace(self.options, squeeze=False)
        yield from _limit_lines(
            render_hexdump([row], piece.spaces, options, heading=False), None if self.shows_all else _MAX_FIELD_LINES
        )

    def _render_one_sided(self, sign: str, parts: Iterable[DiffPart]) -> Iterator[str]:
        """Yield what only one side has: the first records with their bytes, the number of the others."""
        side_name, shown_count = "A" if sign == "-" else "B", 0
        rest: list[int] = []
        for part in parts:
            self.difference_count += 1
            assert isinstance(part, UnitDiff)
            side = part.a or part.b
            assert side is not None
            if shown_count >= MAX_SHOWN_RECORDS and not self.shows_all:
                rest = [rest[0] if rest else side.unit.start, side.unit.end, (rest[2] if rest else 0) + 1]
                continue
            shown_count += 1
            piece = side.piece()
            size = format_count(side.unit.end - side.unit.start)
            yield self._paint_line(
                sign,
                f"{format_offset(side.unit.start)}  {describe_unit(side, piece)} only in {side_name}, {size} bytes",
            )
            lines = render_hexdump(piece.rows, piece.spaces, self.options, heading=False)
            for line in _limit_lines(lines, None if self.shows_all else _MAX_FIELD_LINES):
                yield self._paint_line(sign, line)
        if rest:
            start, end, rest_count = rest
            rest_text = (
                f"{format_offset(start)}..{format_offset(end)}  {format_count(rest_count)} more only "
                f"in {side_name}, {format_count(end - start)} bytes"
            )
            yield self._paint_line(sign, rest_text)

    def _paint_line(self, sign: str, line: str) -> str:
        return f"\x1b[{_COLORS[sign]}m{sign}\x1b[0m {line}" if self.options.color else f"{sign} {line}"


def _limit_lines(lines: Iterable[str], max_lines: int | None) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == max_lines:
            yield "... more lines; --all shows them"
            return
        yield line


def describe_unit(side: DiffSide, piece: AnnotatedPiece) -> str:
    """Return the name of a unit: its records with their types, or the name of its bytes."""
    unit = side.unit
    if unit.kind != "frame":
        return escape(piece.rows[0].path.partition(".")[0]) if piece.rows else unit.kind
    types = [type_ for type_, _, _ in unit.content]
    kinds = escape(", ".join(dict.fromkeys(types)))
    if unit.record_count == 0:
        return escape(piece.rows[0].path)
    numbers = f"record {format_count(unit.record)}"
    if unit.record_count > 1:
        numbers = f"records {format_count(unit.record)} to {format_count(unit.record + unit.record_count - 1)}"
    return f"{numbers} {kinds}".rstrip()
