"""Values of row images as SQL literals that a server turns into the same bytes again.

They are valid in a session whose client charset is utf8mb4, whose sql_mode allows backslash escapes, and
whose time_zone is +00:00.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

from binlogtool.formats.binlog_events.rows.image_source import Cell
from binlogtool.formats.binlog_events.values.binary_json import decode_json, holds_opaque
from binlogtool.formats.binlog_events.values.columns import Column, ColumnType, Kind
from binlogtool.formats.binlog_events.values.decoding import Budget

_ESCAPES = {"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
_ESCAPED = re.compile(r"['\\\x00\n\r\x1a]")
PLAIN_TEXT = ("utf8mb4", "utf8mb3", "ascii", "latin1")
"""Character sets whose text comes through utf8mb4 unchanged in every server."""
SAME_BYTES = ("utf8mb4", "utf8mb3", "ascii")
"""Those whose bytes are the same in utf8mb4."""
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?\Z")
_TEMPORAL = (Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME2, Kind.DATETIME2, Kind.TIMESTAMP2)
_ADDRESSES = (Kind.UUID, Kind.INET4, Kind.INET6)


def name(text: str) -> bytes:
    """Return an identifier between backticks."""
    return b"`" + text.replace("`", "``").encode("utf-8", "backslashreplace") + b"`"


def quoted(text: str) -> bytes:
    """Return a string literal."""
    return b"'" + _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text).encode() + b"'"


def in_hex(raw: bytes) -> bytes:
    """Return bytes as a hexadecimal literal, X'…'."""
    return b"X'" + raw.hex().encode() + b"'"


def double(value: float) -> bytes | None:
    """Return a floating-point literal with all digits; None for NaN and infinity."""
    if not math.isfinite(value):
        return None
    text = repr(value)
    return (text if "e" in text else f"{text}e0").encode()


def literal(cell: Cell, column: Column, raw: bytes, budget: Budget) -> bytes | None:
    """Return a value as an SQL literal; None if no literal has exactly this value.

    Args:
        raw: the value's bytes in the row image.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    kind = cell.kind.kind
    if kind == Kind.BYTES and column.type == ColumnType.STRING:
        return in_hex(raw.ljust(column.metadata, b"\0"))  # zeros at the end are not logged; a UUID column needs them
    if kind == Kind.FLOAT:
        return double(struct.unpack("<f", raw)[0])
    if kind == Kind.DOUBLE:
        return double(struct.unpack("<d", raw)[0])
    if kind in (Kind.ENUM, Kind.SET):
        return _choice(kind, column, int.from_bytes(raw, "little"))
    if kind == Kind.GEOMETRY:
        return in_hex(raw) if len(raw) > 4 else None
    if kind == Kind.VECTOR:
        return in_hex(raw)
    if kind == Kind.JSON:
        return json_text(raw, budget)
    if kind in (Kind.TEXT, Kind.UTF8) and column.charset not in PLAIN_TEXT:
        return f"_{column.charset} ".encode() + in_hex(raw)
    return _by_value(kind, column, cell.convert(raw, budget))


def _by_value(kind: int, column: Column, value: Any) -> bytes | None:
    """Return a decoded value as an SQL literal; None if there is none."""
    if kind in (Kind.SIGNED, Kind.UNSIGNED):
        return str(value).encode() if column.unsigned is not None else None
    if kind == Kind.YEAR:
        return str(value).encode()
    if kind == Kind.BIT:
        return f"b'{value:b}'".encode()
    if kind == Kind.DECIMAL:
        return str(value).encode() if _DECIMAL.match(str(value)) else None
    if kind in _TEMPORAL or kind in _ADDRESSES:
        return quoted(value) if isinstance(value, str) else None
    if kind == Kind.BYTES:
        return in_hex(value)
    if kind in (Kind.TEXT, Kind.UTF8, Kind.COMPRESSED) and column.charset is not None:
        return _text(column.charset, value)
    return b"NULL" if kind == Kind.NOTHING else None


def _text(charset: str, value: str | bytes) -> bytes | None:
    """Return text as a string literal; None if its character set is not safe in utf8mb4."""
    if isinstance(value, bytes):
        return in_hex(value) if charset == "binary" else None
    return quoted(value) if charset in PLAIN_TEXT else None


def _choice(kind: int, column: Column, number: int) -> bytes | None:
    """Return an ENUM or SET value by its texts, or as a number if these are unknown; None for the invalid ENUM
    value 0.
    """
    if kind == Kind.ENUM and not number:
        return None
    values = column.values
    if values is None:
        return str(number).encode()
    if kind == Kind.ENUM:
        return quoted(values[number - 1]) if number <= len(values) else None
    if number >> len(values):
        return None
    return quoted(",".join(text for bit, text in enumerate(values) if number >> bit & 1))


def json_text(raw: bytes, budget: Budget) -> bytes | None:
    """Return binary JSON as a string literal; None if its text would not keep all values with their types.

    Raises:
        MalformedError: the bytes are not binary JSON.
    """
    if holds_opaque(raw, budget.max_depth):
        return None
    try:
        value = decode_json(raw, budget.max_depth)
        return quoted(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_refuse))
    except (TypeError, ValueError, RecursionError):
        return None


def _refuse(_value: Any) -> Any:
    """Reject a value that JSON text cannot express."""
    raise TypeError


def condition(cell: Cell, column: Column, raw: bytes | None, budget: Budget, *, key: bool) -> bytes | None:
    """Return a condition that is true for exactly this value of a column; None if there is none.

    Args:
        raw: the value's bytes in the row image; None for NULL.
        is_key: whether the column is part of the primary key; no two rows then have values that compare equal.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    left = name(cell.key)
    if raw is None:
        return left + b" IS NULL"
    kind = cell.kind.kind
    if kind in (Kind.JSON, Kind.GEOMETRY, Kind.VECTOR, Kind.COMPRESSED):
        return None
    if kind in (Kind.ENUM, Kind.SET):
        return left + b" <=> %d" % int.from_bytes(raw, "little")
    right = literal(cell, column, raw, budget)
    if right is None:
        return None
    if kind in (Kind.TEXT, Kind.UTF8) and not key:
        left = b"CAST(" + left + b" AS BINARY)"
        right = right if column.charset in SAME_BYTES else in_hex(raw)
    return left + b" <=> " + right
