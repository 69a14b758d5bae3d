"""Create, for each column, the function that decodes the bytes of a value to a JSON-able Python value.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
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
from binlogtool.formats.binlog_events.values.charsets import as_bytes, decoder_of
from binlogtool.formats.binlog_events.values.columns import Column, ColumnKind, Kind
from binlogtool.formats.binlog_events.values.decimals import decimal_reader
from binlogtool.formats.binlog_events.wire.compression import unpack_column
from binlogtool.formats.fields import MalformedError
from binlogtool.limits import Limits


class Budget:
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


Convert = Callable[[bytes, Budget], Any]
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


def _float(raw: bytes) -> float:
    return shortest_float(_FLOAT.unpack(raw)[0])


def _double(raw: bytes) -> float:
    value: float = _DOUBLE.unpack(raw)[0]
    return value


def _year(raw: bytes) -> int:
    return 1900 + raw[0] if raw[0] else 0


def _nothing(_raw: bytes) -> None:
    return None


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _bits(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _geometry(raw: bytes) -> Any:
    """Decode a geometry to {"srid", "wkb"}; the empty value of a column that was never set stays bytes."""
    return {"srid": int.from_bytes(raw[:4], "little"), "wkb": raw[4:]} if len(raw) > 4 else raw


def _vector(raw: bytes) -> Any:
    """Decode a list of 32-bit floats; bytes that are not such a list stay unchanged."""
    if len(raw) % 4:
        return raw
    return [shortest_float(value) for (value,) in _FLOAT.iter_unpack(raw)]


def _padded(size: int, read: Callable[[bytes], str], raw: bytes) -> str | bytes:
    """Decode a value whose trailing zero bytes are not stored."""
    return read(raw.ljust(size, b"\0")) if len(raw) <= size else raw


def _uuid(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def _inet4(raw: bytes) -> str:
    from ipaddress import IPv4Address  # a large module that few tables need

    return str(IPv4Address(raw))


def _inet6(raw: bytes) -> str:
    """Format an IPv6 address, with the last four bytes as an IPv4 address if it embeds one."""
    head, tail = raw[:12], _inet4(raw[12:])
    if head == bytes(10) + b"\xff\xff":
        return f"::ffff:{tail}"
    if head == bytes(12) and raw[12:14] != b"\0\0":
        return f"::{tail}"
    from ipaddress import IPv6Address

    return str(IPv6Address(raw))


def _enum(values: tuple[str, ...], raw: bytes) -> str | int:
    """Return the text of an ENUM; its number if it has no text; "" for 0, the value of a rejected insert."""
    ordinal = int.from_bytes(raw, "little")
    if not ordinal:
        return ""
    return values[ordinal - 1] if ordinal <= len(values) else ordinal


def _set(values: tuple[str, ...], raw: bytes) -> list[str] | int:
    """Return the texts of a SET; its mask if a bit has no text."""
    mask = int.from_bytes(raw, "little")
    if mask >> len(values):
        return mask
    return [text for bit, text in enumerate(values) if mask >> bit & 1]


def _json(raw: bytes, budget: Budget) -> Any:
    """Decode JSON; JSON null becomes `JSON_NULL`, to tell it from SQL's NULL."""
    value = decode_json(raw, budget.max_depth)
    return JSON_NULL if value is None else value


def _compressed(decode: Callable[[bytes], str | bytes], raw: bytes, budget: Budget) -> str | bytes:
    unpacked = unpack_column(raw, budget.inflate)
    budget.inflate -= len(unpacked)
    return decode(unpacked)


_SIMPLE: Mapping[int, Callable[[bytes], Any]] = MappingProxyType(
    {
        Kind.NOTHING: _nothing,
        Kind.SIGNED: _signed,
        Kind.UNSIGNED: _unsigned,
        Kind.FLOAT: _float,
        Kind.DOUBLE: _double,
        Kind.BIT: _bits,
        Kind.YEAR: _year,
        Kind.DATE: temporal.date,
        Kind.TIME: temporal.old_time,
        Kind.DATETIME: temporal.old_datetime,
        Kind.TIMESTAMP: temporal.old_timestamp,
        Kind.BYTES: as_bytes,
        Kind.GEOMETRY: _geometry,
        Kind.VECTOR: _vector,
        Kind.UUID: partial(_padded, 16, _uuid),
        Kind.INET4: partial(_padded, 4, _inet4),
        Kind.INET6: partial(_padded, 16, _inet6),
    }
)
_MARIA: Mapping[int, Callable[[int], Callable[[bytes], str]]] = MappingProxyType(
    {Kind.TIME: temporal.maria_time, Kind.DATETIME: temporal.maria_datetime, Kind.TIMESTAMP: temporal.maria_timestamp}
)
_FRACTIONS: Mapping[int, Callable[[int], Callable[[bytes], str]]] = MappingProxyType(
    {Kind.TIME2: temporal.time2, Kind.DATETIME2: temporal.datetime2, Kind.TIMESTAMP2: temporal.timestamp2}
)


def reader_of(column: Column, kind: ColumnKind) -> Callable[[bytes], Any] | None:
    """Return the function that decodes a value from its bytes; None if it needs a budget (JSON, compressed)."""
    if kind.kind in _MARIA and kind.parameter:
        return _MARIA[kind.kind](kind.parameter)
    if kind.kind in _SIMPLE:
        return _SIMPLE[kind.kind]
    if kind.kind in _FRACTIONS:
        return _FRACTIONS[kind.kind](kind.parameter)
    if kind.kind == Kind.DECIMAL:
        return decimal_reader(kind.parameter >> 8, kind.parameter & 0xFF)
    if kind.kind in (Kind.ENUM, Kind.SET):
        if column.values is None:
            return _unsigned
        return partial(_enum if kind.kind == Kind.ENUM else _set, column.values)
    if kind.kind in (Kind.TEXT, Kind.UTF8, Kind.GUESS):
        return decoder_of(column.charset)
    return None


def converter(column: Column, kind: ColumnKind) -> Convert:
    """Return the function that decodes the values of a column from bytes and a budget."""
    read = reader_of(column, kind)
    if read is not None:
        return _without_budget(read)
    if kind.kind == Kind.JSON:
        return _json
    if kind.kind == Kind.COMPRESSED:
        return partial(_compressed, decoder_of(column.charset))
    raise MalformedError(f"columns of kind {kind.kind} cannot be read")


def _without_budget(read: Callable[[bytes], Any]) -> Convert:
    def convert(raw: bytes, _budget: Budget) -> Any:
        return read(raw)

    return convert
