"""`hexdump-annotate --diff OTHER -O svg`: the differences of two logs as a picture for a slide.

Below each record that differs are its differing fields, as they are in A and in B, with the differing bytes in
colour.
A picture shows the first differences only, and the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from binlogtool.log.compare import Compared, Differs, Part
from binlogtool.log.differing import Field, bare_path, fields, held, joined, kind_of
from binlogtool.render.differing import name_of
from binlogtool.render.escape import escape
from binlogtool.render.hexdump import shown
from binlogtool.render.slide import head, shortened, sign_of, text_at
from binlogtool.report.words import count, counted, place
from binlogtool.schema.annotation import FieldRow, Piece

MOST_LINES = 48
"""What a picture shows."""

_TOP, _LINE, _BYTES = 64, 22, 16
_SIGN, _PLACE, _HEX, _TEXT, _VALUE = 24, 44, 140, 548, 704
_BYTE, _CHARACTER = 25, 9
_LEFT = {"-": "#ffd7d5", "+": "#d3edd3"}
_STRONG = {"-": "#ff9c9c", "+": "#86d08e"}


class DifferencesSlide(msgspec.Struct):
    """Draw the picture, and count the differences."""

    about: Compared
    found: int = 0
    _lines: list[list[str]] = msgspec.field(default_factory=list)
    _left: int = 0
    """Places that have no line any more."""
    _cut: bool = False
    """Is a line missing?"""

    def picture(self, parts: Iterable[Part]) -> bytes:
        """Return the whole picture as SVG."""
        for kind, some in groupby(parts, kind_of):
            for line in self._same(some) if kind == "=" else self._different(kind, some):
                if len(self._lines) < MOST_LINES:
                    self._lines.append(line)
        if self._left:
            left = (
                f"not in this picture: {counted(self._left, 'more place')} that differ; -O text, html and json have all"
            )
            self._lines.append([text_at(_SIGN, 15, left, "b")])
        elif not self.found:
            self._lines.append([text_at(_SIGN, 15, "nothing differs")])
        names = (escape(one.path.rpartition("/")[2]) for one in (self.about.a, self.about.b))
        title = "A {} · B {}".format(*names)
        height = _TOP + _LINE * len(self._lines) + 16
        rows = (
            f'<g transform="translate(0 {_TOP + _LINE * i})">{"".join(row)}</g>' for i, row in enumerate(self._lines)
        )
        return "".join(f"{line}\n" for line in (*head(title, height), *rows, "</svg>")).encode("utf-8")

    def _same(self, some: Iterable[Part]) -> Iterator[list[str]]:
        for one in joined(some):
            records = f", {counted(one.records, 'record')}" if one.records else ""
            said = f"{place(one.start)}..{place(one.end)}  the same{records}, {count(one.end - one.start)} bytes"
            yield [text_at(_SIGN, 15, "=", "d"), text_at(_PLACE, 15, said, "d")]

    def _different(self, kind: str, some: Iterable[Part]) -> Iterator[list[str]]:
        for part in some:
            assert isinstance(part, Differs)
            self.found += 1
            if len(self._lines) >= MOST_LINES:
                self._left += 1
            elif kind == "~":
                yield from self._changed(part)
            else:
                yield self._only(kind, part)

    def _only(self, kind: str, part: Differs) -> list[str]:
        side = part.a or part.b
        assert side is not None
        where, size = "A" if part.b is None else "B", count(side.unit.end - side.unit.start)
        said = f"{place(side.unit.start)}  {escape(name_of(side, side.piece()))} only in {where}, {size} bytes"
        paint = f'<rect x="{_SIGN - 4}" y="0" width="1228" height="20" rx="3" fill="{_LEFT[kind]}"/>'
        return [paint, text_at(_SIGN, 15, kind), text_at(_PLACE, 15, said)]

    def _changed(self, part: Differs) -> Iterator[list[str]]:
        assert part.a is not None and part.b is not None
        left, right = part.a.piece(), part.b.piece()
        told = fields(left, right)
        other = [one for one in told if not one.same]
        what = (
            f"{len(other)} of {counted(len(told), 'field')} differ"
            if other
            else "only bytes differ, nothing that is read"
        )
        said = f"{place(part.a.unit.start)}  {escape(name_of(part.a, left))}: {what}"
        yield [text_at(_SIGN, 15, "~", "b"), text_at(_PLACE, 15, said, "b")]
        for one in other:
            for sign, row, piece in (("-", one.a, left), ("+", one.b, right)):
                if row is not None:
                    yield list(_field(sign, row, piece, one))


def _field(sign: str, row: FieldRow, piece: Piece, one: Field) -> Iterator[str]:
    """Yield one side of a field: its bytes from the first difference on, and its meaning."""
    first = max(0, one.ranges[0][0] - 2) if one.ranges and row.end - row.start > _BYTES else 0
    data = held(row, piece)[first : first + _BYTES]
    yield text_at(_SIGN, 15, sign)
    yield text_at(_PLACE, 15, place(row.start + first), "d")
    for number, byte in enumerate(data):
        at = first + number
        differs = not one.ranges or any(low <= at < high for low, high in one.ranges)
        colour = (_STRONG if differs else _LEFT)[sign]
        x, text = _HEX + _BYTE * number, _TEXT + _CHARACTER * number
        yield f'<rect x="{x - 4}" y="0" width="{_BYTE}" height="20" fill="{colour}"/>'
        yield f'<rect x="{text}" y="0" width="{_CHARACTER}" height="20" fill="{colour}"/>'
        yield text_at(x, 15, f"{byte:02x}")
        yield text_at(text, 15, sign_of(byte))
    more = row.end - row.start - len(data)
    value = shown(row.value)
    words = escape(bare_path(row).removesuffix(".value")) + (f" = {value}" if value else "")
    yield text_at(
        _VALUE, 15, shortened(f"{words}  ({count(more)} bytes more)" if more > 0 else words), "" if row.ok else "b"
    )
