"""Values of each column type as Debezium's MySQL and MariaDB connectors write them (page "Data type mappings")."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from binlogtool.formats.changes import Column
from binlogtool.formats.tables import padded
from binlogtool.pipeline.envelopes.values import days, json_text, micros_of_datetime, micros_of_time
from binlogtool.pipeline.envelopes.wishes import Options

Write = Callable[[Any], Any]
"""Converts a value that is not NULL for the message; bytes become base64."""

_POINT = struct.Struct("<dd")
_WKB_POINT = 21
_EPOCH_TEXT = "1970-01-01T00:00:00Z"


def writer(column: Column, options: Options) -> Write:
    """Return the conversion function for the values of a column."""
    kind = column.type
    if kind == "bigint" and column.unsigned:
        return _long if options.unsigned_bigint == "long" else _unscaled
    if kind == "decimal":
        return _DECIMALS[options.decimals]
    if kind == "bit":
        return bool if column.size == 1 else partial(_bits, (column.size + 7) // 8)
    if kind in ("date", "time", "datetime", "timestamp"):
        return _time(column, options)
    if kind == "geometry":
        return partial(_geometry, column.geometry == "point")
    if kind == "binary":
        return partial(padded, column.size)
    return _OTHERS.get(kind, _same)


def _time(column: Column, options: Options) -> Write:
    connect = options.times == "connect"
    if column.type == "timestamp":
        return partial(_moment, column.scale)
    none = None if column.nullable else 0  # a NOT NULL column has the epoch for an invalid date
    if column.type == "date":
        return partial(_or, days, 1, none)
    if column.type == "time":
        return partial(_or, micros_of_time, 1000 if connect else 1, none)
    return partial(_or, micros_of_datetime, 1000 if connect or column.scale <= 3 else 1, none)


def _same(value: Any) -> Any:
    return value


def _long(value: int) -> int:
    """Return the bits of an unsigned number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def _unscaled(value: int) -> bytes:
    """Return an integer as big-endian two's complement in as few bytes as possible."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _precise(value: str) -> bytes:
    return _unscaled(int(value.replace(".", "")))


def _bits(size: int, value: int) -> bytes:
    return value.to_bytes(size, "little")


def _or(read: Callable[[Any], int | None], unit: int, none: int | None, value: Any) -> int | None:
    found = read(value)
    return none if found is None else found // unit


def _moment(scale: int, value: Any) -> Any:
    """Return a TIMESTAMP, which is UTC in the log, as ISO 8601; the zero date becomes the epoch."""
    if not isinstance(value, str):
        return value
    return _EPOCH_TEXT if value.startswith("0000") else value.replace(" ", "T") + "Z"


def _joined(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


def _geometry(point: bool, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    wkb, srid = value["wkb"], value["srid"] or None
    if point and len(wkb) == _WKB_POINT and wkb[:1] == b"\x01":
        x, y = _POINT.unpack_from(wkb, 5)
        return {"x": x, "y": y, "wkb": wkb, "srid": srid}
    return {"wkb": wkb, "srid": srid}


_DECIMALS: Mapping[str, Write] = {"precise": _precise, "string": _same, "double": float}
_OTHERS: Mapping[str, Write] = {"set": _joined, "json": json_text}
