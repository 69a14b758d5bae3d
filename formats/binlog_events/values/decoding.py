"""Create, for each column, the function that decodes the bytes of a value to a JSON-able Python value.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from binlogtool.formats.binlog_events.values import temporal
from binlogtool.formats.binlog_events.values.binary_json import JSON_NULL, decode_json
from binlogtool.formats.binlog_events.values.charsets import charset_decoder, keep_bytes
from binlogtool.formats.binlog_events.values.columns import ColumnKind, TableMapColumn, ValueKind
from binlogtool.formats.binlog_events.values.decimals import make_decimal_reader
from binlogtool.formats.binlog_events.wire.compression import unpack_column
from binlogtool.formats.fields import MalformedError
from binlogtool.limits import Limits


class DecodeBudget:
    """What the values of one event may still use.

    Attributes:
        inflate: bytes that compressed columns may still unpack to; at first an eighth of the limit, because a value
            is
            copied several times on its way to the output.
        max_depth: allowed nesting of JSON.
    """

    __slots__ = ("inflate", "max_depth")

    def __init__(self, limits: Limits) -> None:
        self.inflate = limits.max_inflate // 8
        self.max_depth = limits.max_depth


ValueConverter = Callable[[bytes, DecodeBudget], Any]
"""The bytes of a value (without the length before them) -> the value. Raises `MalformedError` or `CodecError`."""

_FLOAT = struct.Struct("<f")
_SMALLEST_NORMAL = 2.0**-126
_DOUBLE = struct.Struct("<d")


def shortest_float(value: float) -> float:
    """Return the number with the fewest decimal digits that is still this 32-bit float.

    Six digits always survive in a normal float, so shorter ones are only tried below that.
    """
    for digits in range(6 if abs(value) >= _SMALLEST_NORMAL else 1, 9):
        shorter = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.unpack(_FLOAT.pack(shorter))[0] == value:
                return shorter
        except OverflowError:
            continue
    return float(f"{value:.9g}")


def _read_float(raw: bytes) -> float:
    return shortest_float(_FLOAT.unpack(raw)[0])


def _read_double(raw: bytes) -> float:
    value: float = _DOUBLE.unpack(raw)[0]
    return value


def _read_year(raw: bytes) -> int:
    return 1900 + raw[0] if raw[0] else 0


def _read_nothing(_raw: bytes) -> None:
    return None


def _read_unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _read_signed(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _read_bits(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _read_geometry(raw: bytes) -> Any:
    """Decode a geometry to {"srid", "wkb"}; the empty value of a column that was never set stays bytes."""
    return {"srid": int.from_bytes(raw[:4], "little"), "wkb": raw[4:]} if len(raw) > 4 else raw


def _read_vector(raw: bytes) -> Any:
    """Decode a list of 32-bit floats; bytes that are not such a list stay unchanged."""
    if len(raw) % 4:
        return raw
    return [shortest_float(value) for (value,) in _FLOAT.iter_unpack(raw)]


def _read_padded(size: int, read: Callable[[bytes], str], raw: bytes) -> str | bytes:
    """Decode a value whose trailing zero bytes are not stored."""
    return read(raw.ljust(size, b"\0")) if len(raw) <= size else raw


def _read_uuid(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def _read_inet4(raw: bytes) -> str:
    from ipaddress import IPv4Address  # a large module that few tables need

    return str(IPv4Address(raw))


def _read_inet6(raw: bytes) -> str:
    """Format an IPv6 address, with the last four bytes as an IPv4 address if it embeds one."""
    head, tail = raw[:12], _read_inet4(raw[12:])
    if head == bytes(10) + b"\xff\xff":
        return f"::ffff:{tail}"
    if head == bytes(12) and raw[12:14] != b"\0\0":
        return f"::{tail}"
    from ipaddress import IPv6Address

    return str(IPv6Address(raw))


def _read_enum(values: tuple[str, ...], raw: bytes) -> str | int:
    """Return the text of an ENUM; its number if it has no text; "" for 0, the value of a rejected insert."""
    ordinal = int.from_bytes(raw, "little")
    if not ordinal:
        return ""
    return values[ordinal - 1] if ordinal <= len(values) else ordinal


def _read_set(values: tuple[str, ...], raw: bytes) -> list[str] | int:
    """Return the texts of a SET; its mask if a bit has no text."""
    mask = int.from_bytes(raw, "little")
    if mask >> len(values):
        return mask
    return [text for bit, text in enumerate(values) if mask >> bit & 1]


def _read_json(raw: bytes, budget: DecodeBudget) -> Any:
    """Decode JSON; JSON null becomes `JSON_NULL`, to tell it from SQL's NULL."""
    value = decode_json(raw, budget.max_depth)
    return JSON_NULL if value is None else value


def _read_compressed(decode: Callable[[bytes], str | bytes], raw: bytes, budget: DecodeBudget) -> str | bytes:
    unpacked = unpack_column(raw, budget.inflate)
    budget.inflate -= len(unpacked)
    return decode(unpacked)


_READERS: Mapping[int, Callable[[bytes], Any]] = MappingProxyType(
    {
        ValueKind.NOTHING: _read_nothing,
        ValueKind.SIGNED: _read_signed,
        ValueKind.UNSIGNED: _read_unsigned,
        ValueKind.FLOAT: _read_float,
        ValueKind.DOUBLE: _read_double,
        ValueKind.BIT: _read_bits,
        ValueKind.YEAR: _read_year,
        ValueKind.DATE: temporal.format_date,
        ValueKind.TIME: temporal.format_old_time,
        ValueKind.DATETIME: temporal.format_old_datetime,
        ValueKind.TIMESTAMP: temporal.format_old_timestamp,
        ValueKind.BYTES: keep_bytes,
        ValueKind.GEOMETRY: _read_geometry,
        ValueKind.VECTOR: _read_vector,
        ValueKind.UUID: partial(_read_padded, 16, _read_uuid),
        ValueKind.INET4: partial(_read_padded, 4, _read_inet4),
        ValueKind.INET6: partial(_read_padded, 16, _read_inet6),
    }
)
_MARIADB_TEMPORAL: Mapping[int, Callable[[int], Callable[[bytes], str]]] = MappingProxyType(
    {
        ValueKind.TIME: temporal.make_mariadb_time_reader,
        ValueKind.DATETIME: temporal.make_mariadb_datetime_reader,
        ValueKind.TIMESTAMP: temporal.make_mariadb_timestamp_reader,
    }
)
_FRACTION_READERS: Mapping[int, Callable[[int], Callable[[bytes], str]]] = MappingProxyType(
    {
        ValueKind.TIME2: temporal.make_time2_reader,
        ValueKind.DATETIME2: temporal.make_datetime2_reader,
        ValueKind.TIMESTAMP2: temporal.make_timestamp2_reader,
    }
)


def value_reader(column: TableMapColumn, kind: ColumnKind) -> Callable[[bytes], Any] | None:
    """Return the function that decodes a value from its bytes; None if it needs a budget (JSON, compressed)."""
    if kind.kind in _MARIADB_TEMPORAL and kind.parameter:
        return _MARIADB_TEMPORAL[kind.kind](kind.parameter)
    if kind.kind in _READERS:
        return _READERS[kind.kind]
    if kind.kind in _FRACTION_READERS:
        return _FRACTION_READERS[kind.kind](kind.parameter)
    if kind.kind == ValueKind.DECIMAL:
        return make_decimal_reader(kind.parameter >> 8, kind.parameter & 0xFF)
    if kind.kind in (ValueKind.ENUM, ValueKind.SET):
        if column.values is None:
            return _read_unsigned
        return partial(_read_enum if kind.kind == ValueKind.ENUM else _read_set, column.values)
    if kind.kind in (ValueKind.TEXT, ValueKind.UTF8, ValueKind.GUESS):
        return charset_decoder(column.charset)
    return None


def value_converter(column: TableMapColumn, kind: ColumnKind) -> ValueConverter:
    """Return the function that decodes the values of a column from bytes and a budget."""
    read = value_reader(column, kind)
    if read is not None:
        return _ignore_budget(read)
    if kind.kind == ValueKind.JSON:
        return _read_json
    if kind.kind == ValueKind.COMPRESSED:
        return partial(_read_compressed, charset_decoder(column.charset))
    raise MalformedError(f"columns of kind {kind.kind} cannot be read")


def _ignore_budget(read: Callable[[bytes], Any]) -> ValueConverter:
    def convert(raw: bytes, _budget: DecodeBudget) -> Any:
        return read(raw)

    return convert
