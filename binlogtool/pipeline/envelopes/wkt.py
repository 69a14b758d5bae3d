"""Convert well-known binary to well-known text (OGC Simple Feature Access, part 1, 7 and 8), in the form of JTS."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal

_POINT, _LINE, _POLYGON, _POINTS, _LINES, _POLYGONS, _COLLECTION = range(1, 8)
_GEOMETRY_NAMES = {
    _POINT: "POINT", _LINE: "LINESTRING", _POLYGON: "POLYGON", _POINTS: "MULTIPOINT", _LINES: "MULTILINESTRING",
    _POLYGONS: "MULTIPOLYGON", _COLLECTION: "GEOMETRYCOLLECTION",
}  # fmt: skip
_MIN_STEP = Decimal(1).scaleb(-16)
_MAX_DEPTH = 32
"""Maximum nesting of collections."""


def wkb_to_wkt(data: bytes) -> str | None:
    """Return the text of a geometry; None if the bytes are invalid, or a coordinate is not finite."""
    reader = _WkbReader(data)
    try:
        text = reader.read_geometry(_MAX_DEPTH)
    except (struct.error, ValueError):
        return None
    return text if reader.offset == len(data) else None


class _WkbReader:
    """Reads well-known binary. at: current offset."""

    def __init__(self, data: bytes) -> None:
        self._data, self.offset, self._byte_order = data, 0, "<"

    def read_geometry(self, depth: int) -> str:
        """Return the text of the next geometry.

        Raises:
            ValueError, struct.error: the bytes are invalid.
        """
        kind, body = self._read_kind_and_body(depth)
        return f"{_GEOMETRY_NAMES[kind]} {body}"

    def _read_kind_and_body(self, depth: int) -> tuple[int, str]:
        if not depth:
            raise ValueError("too deep")
        self._byte_order = "<" if self._data[self.offset : self.offset + 1] == b"\1" else ">"
        self.offset += 1
        kind = self._read_count()
        if kind not in _GEOMETRY_NAMES:
            raise ValueError("no geometry")
        return kind, self._read_body(kind, depth)

    def _read_body(self, kind: int, depth: int) -> str:
        if kind == _POINT:
            return f"({self._read_coordinates()})"
        if kind == _LINE:
            return self._read_list(self._read_coordinates)
        if kind == _POLYGON:
            return self._read_list(lambda: self._read_list(self._read_coordinates))
        if kind == _COLLECTION:
            return self._read_list(lambda: self.read_geometry(depth - 1))
        return self._read_list(lambda: self._read_kind_and_body(depth - 1)[1])

    def _read_list(self, read_member: Callable[[], str]) -> str:
        count = self._read_count()
        if count > len(self._data) - self.offset:
            raise ValueError("more than there is")
        return f"({', '.join([read_member() for _ in range(count)])})" if count else "EMPTY"

    def _read_count(self) -> int:
        (count,) = struct.unpack_from(f"{self._byte_order}I", self._data, self.offset)
        self.offset += 4
        return int(count)

    def _read_coordinates(self) -> str:
        x, y = struct.unpack_from(f"{self._byte_order}2d", self._data, self.offset)
        self.offset += 16
        return f"{_format_number(x)} {_format_number(y)}"


def _format_number(value: float) -> str:
    """Return a number with up to 16 decimal places, never in exponent notation."""
    if not math.isfinite(value):
        raise ValueError("no place")
    text = repr(value)
    exact = Decimal(text)
    if -exact.as_tuple().exponent > 16:  # type: ignore[operator]
        exact = exact.quantize(_MIN_STEP, ROUND_HALF_EVEN)
    digits = f"{exact:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
