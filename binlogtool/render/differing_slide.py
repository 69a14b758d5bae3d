"""`hexdump-annotate --diff OTHER -O svg`: the differences of two logs as a picture for a slide.

Below each record that differs are its differing fields, as they are in A and in B, with the differing bytes in
colour.
A picture shows the first differences only, and the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from binlogtool.log.compare import DiffPart, LogComparison, UnitDiff
from binlogtool.log.differing import FieldDiff, diff_sign, join_equal_ranges, match_fields, path_in_record, row_bytes
from binlogtool.render.differing import describe_unit
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import format_value
from binlogtool.render.slide import byte_character, draw_text, shorten_label, svg_head
from binlogtool.report.words import format_count, format_offset, format_quantity
from binlogtool.schema.annotation import AnnotatedPiece, FieldRow

MAX_LINES = 48
"""What a picture shows."""

_TOP_HEIGHT, _LINE_HEIGHT, _MAX_BYTES = 64, 22, 16
_SIGN_X, _OFFSET_X, _HEX_X, _TEXT_X, _VALUE_X = 24, 44, 140, 548, 704
_BYTE_WIDTH, _CHARACTER_WIDTH = 25, 9
_COLOURS = {"-": "#ffd7d5", "+": "#d3edd3"}
_STRONG_COLOURS = {"-": "#ff9c9c", "+": "#86d08e"}


class DiffPicture(msgspec.Struct):
    """Draw the picture, and count the differences."""

    comparison: LogComparison
    difference_count: int = 0
    _lines: list[list[str]] = msgspec.field(default_factory=list)
    _omitted_count: int = 0
    """Places that have no line any more."""
    _cut: bool = False
    """Is a line missing?"""

    def render(self, parts: Iterable[DiffPart]) -> bytes:
        """Return the whole picture as SVG."""
        for kind, group in groupby(parts, diff_sign):
            for line in self._draw_equal(group) if kind == "=" else self._draw_different(kind, group):
                if len(self._lines) < MAX_LINES:
                    self._lines.append(line)
        if self._omitted_count:
            omitted_text = (
                f"not in this picture: {format_quantity(self._omitted_count, 'more place')} that "
                f"differ; -O text, html and json have all"
            )
            self._lines.append([draw_text(_SIGN_X, 15, omitted_text, "b")])
        elif not self.difference_count:
            self._lines.append([draw_text(_SIGN_X, 15, "nothing differs")])
        names = (escape(one.path.rpartition("/")[2]) for one in (self.comparison.a, self.comparison.b))
        title = "A {} · B {}".format(*names)
        height = _TOP_HEIGHT + _LINE_HEIGHT * len(self._lines) + 16
        rows = (
            f'<g transform="translate(0 {_TOP_HEIGHT + _LINE_HEIGHT * i})">{"".join(row)}</g>'
            for i, row in enumerate(self._lines)
        )
        return "".join(f"{line}\n" for line in (*svg_head(title, height), *rows, "</svg>")).encode("utf-8")

    def _draw_equal(self, parts: Iterable[DiffPart]) -> Iterator[list[str]]:
        for equal_range in join_equal_ranges(parts):
            records = f", {format_quantity(equal_range.record_count, 'record')}" if equal_range.record_count else ""
            text = (
                f"{format_offset(equal_range.start)}..{format_offset(equal_range.end)}  the "
                f"same{records}, {format_count(equal_range.end - equal_range.start)} bytes"
            )
            yield [draw_text(_SIGN_X, 15, "=", "d"), draw_text(_OFFSET_X, 15, text, "d")]

    def _draw_different(self, kind: str, parts: Iterable[DiffPart]) -> Iterator[list[str]]:
        for part in parts:
            assert isinstance(part, UnitDiff)
            self.difference_count += 1
            if len(self._lines) >= MAX_LINES:
                self._omitted_count += 1
            elif kind == "~":
                yield from self._draw_changed(part)
            else:
                yield self._draw_one_sided(kind, part)

    def _draw_one_sided(self, kind: str, part: UnitDiff) -> list[str]:
        side = part.a or part.b
        assert side is not None
        side_name, size = "A" if part.b is None else "B", format_count(side.unit.end - side.unit.start)
        text = (
            f"{format_offset(side.unit.start)}  {escape(describe_unit(side, side.piece()))} only in "
            f"{side_name}, {size} bytes"
        )
        background = f'<rect x="{_SIGN_X - 4}" y="0" width="1228" height="20" rx="3" fill="{_COLOURS[kind]}"/>'
        return [background, draw_text(_SIGN_X, 15, kind), draw_text(_OFFSET_X, 15, text)]

    def _draw_changed(self, part: UnitDiff) -> Iterator[list[str]]:
        assert part.a is not None and part.b is not None
        left, right = part.a.piece(), part.b.piece()
        field_diffs = match_fields(left, right)
        differing = [one for one in field_diffs if not one.same]
        summary = (
            f"{len(differing)} of {format_quantity(len(field_diffs), 'field')} differ"
            if differing
            else "only bytes differ, nothing that is read"
        )
        text = f"{format_offset(part.a.unit.start)}  {escape(describe_unit(part.a, left))}: {summary}"
        yield [draw_text(_SIGN_X, 15, "~", "b"), draw_text(_OFFSET_X, 15, text, "b")]
        for field_diff in differing:
            for sign, row, piece in (("-", field_diff.a, left), ("+", field_diff.b, right)):
                if row is not None:
                    yield list(_draw_field_side(sign, row, piece, field_diff))


def _draw_field_side(sign: str, row: FieldRow, piece: AnnotatedPiece, field_diff: FieldDiff) -> Iterator[str]:
    """Yield one side of a field: its bytes from the first difference on, and its meaning."""
    first = max(0, field_diff.ranges[0][0] - 2) if field_diff.ranges and row.end - row.start > _MAX_BYTES else 0
    data = row_bytes(row, piece)[first : first + _MAX_BYTES]
    yield draw_text(_SIGN_X, 15, sign)
    yield draw_text(_OFFSET_X, 15, format_offset(row.start + first), "d")
    for number, byte in enumerate(data):
        at = first + number
        is_different = not field_diff.ranges or any(low <= at < high for low, high in field_diff.ranges)
        colour = (_STRONG_COLOURS if is_different else _COLOURS)[sign]
        x, text = _HEX_X + _BYTE_WIDTH * number, _TEXT_X + _CHARACTER_WIDTH * number
        yield f'<rect x="{x - 4}" y="0" width="{_BYTE_WIDTH}" height="20" fill="{colour}"/>'
        yield f'<rect x="{text}" y="0" width="{_CHARACTER_WIDTH}" height="20" fill="{colour}"/>'
        yield draw_text(x, 15, f"{byte:02x}")
        yield draw_text(text, 15, byte_character(byte))
    remaining_bytes = row.end - row.start - len(data)
    value = format_value(row.value)
    label = escape(path_in_record(row).removesuffix(".value")) + (f" = {value}" if value else "")
    yield draw_text(
        _VALUE_X,
        15,
        shorten_label(f"{label}  ({format_count(remaining_bytes)} bytes more)" if remaining_bytes > 0 else label),
        "" if row.ok else "b",
    )
