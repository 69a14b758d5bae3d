"""Values of each column type as Debezium's MySQL and MariaDB connectors write them (page "Data type mappings")."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from binlogtool.formats.changes import SqlColumn
from binlogtool.formats.tables import pad_binary
from binlogtool.pipeline.envelopes.values import date_to_days, datetime_to_micros, document_to_json, time_to_micros
from binlogtool.pipeline.envelopes.wishes import EnvelopeOptions

ValueWriter = Callable[[Any], Any]
"""Converts a value that is not NULL for the message; bytes become base64."""

_POINT = struct.Struct("<dd")
_WKB_POINT_BYTES = 21
_EPOCH_TEXT = "1970-01-01T00:00:00Z"


def create_value_writer(column: SqlColumn, options: EnvelopeOptions) -> ValueWriter:
    """Return the conversion function for the values of a column."""
    kind = column.type
    if kind == "bigint" and column.unsigned:
        return _to_signed_long if options.unsigned_bigint == "long" else _to_unscaled_bytes
    if kind == "decimal":
        return _DECIMAL_WRITERS[options.decimals]
    if kind == "bit":
        return bool if column.size == 1 else partial(_bits_to_bytes, (column.size + 7) // 8)
    if kind in ("date", "time", "datetime", "timestamp"):
        return _create_time_writer(column, options)
    if kind == "geometry":
        return partial(_format_geometry, column.geometry == "point")
    if kind == "binary":
        return partial(pad_binary, column.size)
    return _OTHER_WRITERS.get(kind, _unchanged)


def _create_time_writer(column: SqlColumn, options: EnvelopeOptions) -> ValueWriter:
    is_connect = options.times == "connect"
    if column.type == "timestamp":
        return partial(_format_timestamp, column.scale)
    invalid_value = None if column.nullable else 0  # a NOT NULL column has the epoch for an invalid date
    if column.type == "date":
        return partial(_convert_or_default, date_to_days, 1, invalid_value)
    if column.type == "time":
        return partial(_convert_or_default, time_to_micros, 1000 if is_connect else 1, invalid_value)
    return partial(
        _convert_or_default, datetime_to_micros, 1000 if is_connect or column.scale <= 3 else 1, invalid_value
    )


def _unchanged(value: Any) -> Any:
    return value


def _to_signed_long(value: int) -> int:
    """Return the bits of an unsigned number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def _to_unscaled_bytes(value: int) -> bytes:
    """Return an integer as big-endian two's complement in as few bytes as possible."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal_to_bytes(value: str) -> bytes:
    return _to_unscaled_bytes(int(value.replace(".", "")))


def _bits_to_bytes(size: int, value: int) -> bytes:
    return value.to_bytes(size, "little")


def _convert_or_default(parse: Callable[[Any], int | None], unit: int, default: int | None, value: Any) -> int | None:
    parsed = parse(value)
    return default if parsed is None else parsed // unit


def _format_timestamp(scale: int, value: Any) -> Any:
    """Return a TIMESTAMP, which is UTC in the log, as ISO 8601; the zero date becomes the epoch."""
    if not isinstance(value, str):
        return value
    return _EPOCH_TEXT if value.startswith("0000") else value.replace(" ", "T") + "Z"


def _join_set(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


def _format_geometry(is_point: bool, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    wkb, srid = value["wkb"], value["srid"] or None
    if is_point and len(wkb) == _WKB_POINT_BYTES and wkb[:1] == b"\x01":
        x, y = _POINT.unpack_from(wkb, 5)
        return {"x": x, "y": y, "wkb": wkb, "srid": srid}
    return {"wkb": wkb, "srid": srid}


_DECIMAL_WRITERS: Mapping[str, ValueWriter] = {"precise": _decimal_to_bytes, "string": _unchanged, "double": float}
_OTHER_WRITERS: Mapping[str, ValueWriter] = {"set": _join_set, "json": document_to_json}
