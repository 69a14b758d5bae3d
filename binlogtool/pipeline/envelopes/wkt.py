"""Convert well-known binary to well-known text (OGC Simple Feature Access, part 1, 7 and 8), in the form of JTS."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal

_POINT, _LINE, _POLYGON, _POINTS, _LINES, _POLYGONS, _COLLECTION = range(1, 8)
_NAMES = {
    _POINT: "POINT", _LINE: "LINESTRING", _POLYGON: "POLYGON", _POINTS: "MULTIPOINT", _LINES: "MULTILINESTRING",
    _POLYGONS: "MULTIPOLYGON", _COLLECTION: "GEOMETRYCOLLECTION",
}  # fmt: skip
_DIGITS = Decimal(1).scaleb(-16)
_DEPTH = 32
"""Maximum nesting of collections."""


def wkt(data: bytes) -> str | None:
    """Return the text of a geometry; None if the bytes are invalid, or a coordinate is not finite."""
    reader = _Reader(data)
    try:
        made = reader.geometry(_DEPTH)
    except (struct.error, ValueError):
        return None
    return made if reader.at == len(data) else None


class _Reader:
    """Reads well-known binary. at: current offset."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at, self._order = data, 0, "<"

    def geometry(self, depth: int) -> str:
        """Return the text of the next geometry.

        Raises:
            ValueError, struct.error: the bytes are invalid.
        """
        kind, body = self._kind_and_body(depth)
        return f"{_NAMES[kind]} {body}"

    def _kind_and_body(self, depth: int) -> tuple[int, str]:
        if not depth:
            raise ValueError("too deep")
        self._order = "<" if self._data[self.at : self.at + 1] == b"\1" else ">"
        self.at += 1
        kind = self._count()
        if kind not in _NAMES:
            raise ValueError("no geometry")
        return kind, self._body(kind, depth)

    def _body(self, kind: int, depth: int) -> str:
        if kind == _POINT:
            return f"({self._pair()})"
        if kind == _LINE:
            return self._list(self._pair)
        if kind == _POLYGON:
            return self._list(lambda: self._list(self._pair))
        if kind == _COLLECTION:
            return self._list(lambda: self.geometry(depth - 1))
        return self._list(lambda: self._kind_and_body(depth - 1)[1])

    def _list(self, member: Callable[[], str]) -> str:
        count = self._count()
        if count > len(self._data) - self.at:
            raise ValueError("more than there is")
        return f"({', '.join([member() for _ in range(count)])})" if count else "EMPTY"

    def _count(self) -> int:
        (found,) = struct.unpack_from(f"{self._order}I", self._data, self.at)
        self.at += 4
        return int(found)

    def _pair(self) -> str:
        x, y = struct.unpack_from(f"{self._order}2d", self._data, self.at)
        self.at += 16
        return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    """Return a number with up to 16 decimal places, never in exponent notation."""
    if not math.isfinite(value):
        raise ValueError("no place")
    text = repr(value)
    exact = Decimal(text)
    if -exact.as_tuple().exponent > 16:  # type: ignore[operator]
        exact = exact.quantize(_DIGITS, ROUND_HALF_EVEN)
    made = f"{exact:f}"
    return made.rstrip("0").rstrip(".") if "." in made else made
