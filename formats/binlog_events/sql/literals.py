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

from binlogtool.formats.binlog_events.rows.image_source import ColumnReader
from binlogtool.formats.binlog_events.values.binary_json import decode_json, has_opaque_value
from binlogtool.formats.binlog_events.values.columns import ColumnType, TableMapColumn, ValueKind
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget

_ESCAPES = {"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
_ESCAPED = re.compile(r"['\\\x00\n\r\x1a]")
UTF8MB4_SAFE_CHARSETS = ("utf8mb4", "utf8mb3", "ascii", "latin1")
"""Character sets whose text comes through utf8mb4 unchanged in every server."""
UTF8MB4_COMPATIBLE_CHARSETS = ("utf8mb4", "utf8mb3", "ascii")
"""Those whose bytes are the same in utf8mb4."""
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?\Z")
_TEMPORAL = (
    ValueKind.DATE,
    ValueKind.TIME,
    ValueKind.DATETIME,
    ValueKind.TIMESTAMP,
    ValueKind.TIME2,
    ValueKind.DATETIME2,
    ValueKind.TIMESTAMP2,
)
_ADDRESSES = (ValueKind.UUID, ValueKind.INET4, ValueKind.INET6)


def quote_identifier(text: str) -> bytes:
    """Return an identifier between backticks."""
    return b"`" + text.replace("`", "``").encode("utf-8", "backslashreplace") + b"`"


def quote_string(text: str) -> bytes:
    """Return a string literal."""
    return b"'" + _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text).encode() + b"'"


def format_hex(raw: bytes) -> bytes:
    """Return bytes as a hexadecimal literal, X'…'."""
    return b"X'" + raw.hex().encode() + b"'"


def format_double(value: float) -> bytes | None:
    """Return a floating-point literal with all digits; None for NaN and infinity."""
    if not math.isfinite(value):
        return None
    text = repr(value)
    return (text if "e" in text else f"{text}e0").encode()


def format_literal(cell: ColumnReader, column: TableMapColumn, raw: bytes, budget: DecodeBudget) -> bytes | None:
    """Return a value as an SQL literal; None if no literal has exactly this value.

    Args:
        raw: the value's bytes in the row image.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    kind = cell.kind.kind
    if kind == ValueKind.BYTES and column.type == ColumnType.STRING:
        return format_hex(
            raw.ljust(column.metadata, b"\0")
        )  # zeros at the end are not logged; a UUID column needs them
    if kind == ValueKind.FLOAT:
        return format_double(struct.unpack("<f", raw)[0])
    if kind == ValueKind.DOUBLE:
        return format_double(struct.unpack("<d", raw)[0])
    if kind in (ValueKind.ENUM, ValueKind.SET):
        return _format_enum_or_set(kind, column, int.from_bytes(raw, "little"))
    if kind == ValueKind.GEOMETRY:
        return format_hex(raw) if len(raw) > 4 else None
    if kind == ValueKind.VECTOR:
        return format_hex(raw)
    if kind == ValueKind.JSON:
        return format_json(raw, budget)
    if kind in (ValueKind.TEXT, ValueKind.UTF8) and column.charset not in UTF8MB4_SAFE_CHARSETS:
        return f"_{column.charset} ".encode() + format_hex(raw)
    return _format_decoded(kind, column, cell.convert(raw, budget))


def _format_decoded(kind: int, column: TableMapColumn, value: Any) -> bytes | None:
    """Return a decoded value as an SQL literal; None if there is none."""
    if kind in (ValueKind.SIGNED, ValueKind.UNSIGNED):
        return str(value).encode() if column.unsigned is not None else None
    if kind == ValueKind.YEAR:
        return str(value).encode()
    if kind == ValueKind.BIT:
        return f"b'{value:b}'".encode()
    if kind == ValueKind.DECIMAL:
        return str(value).encode() if _DECIMAL.match(str(value)) else None
    if kind in _TEMPORAL or kind in _ADDRESSES:
        return quote_string(value) if isinstance(value, str) else None
    if kind == ValueKind.BYTES:
        return format_hex(value)
    if kind in (ValueKind.TEXT, ValueKind.UTF8, ValueKind.COMPRESSED) and column.charset is not None:
        return _format_text(column.charset, value)
    return b"NULL" if kind == ValueKind.NOTHING else None


def _format_text(charset: str, value: str | bytes) -> bytes | None:
    """Return text as a string literal; None if its character set is not safe in utf8mb4."""
    if isinstance(value, bytes):
        return format_hex(value) if charset == "binary" else None
    return quote_string(value) if charset in UTF8MB4_SAFE_CHARSETS else None


def _format_enum_or_set(kind: int, column: TableMapColumn, number: int) -> bytes | None:
    """Return an ENUM or SET value by its texts, or as a number if these are unknown; None for the invalid ENUM
    value 0.
    """
    if kind == ValueKind.ENUM and not number:
        return None
    values = column.values
    if values is None:
        return str(number).encode()
    if kind == ValueKind.ENUM:
        return quote_string(values[number - 1]) if number <= len(values) else None
    if number >> len(values):
        return None
    return quote_string(",".join(text for bit, text in enumerate(values) if number >> bit & 1))


def format_json(raw: bytes, budget: DecodeBudget) -> bytes | None:
    """Return binary JSON as a string literal; None if its text would not keep all values with their types.

    Raises:
        MalformedError: the bytes are not binary JSON.
    """
    if has_opaque_value(raw, budget.max_depth):
        return None
    try:
        value = decode_json(raw, budget.max_depth)
        return quote_string(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_reject_value))
    except (TypeError, ValueError, RecursionError):
        return None


def _reject_value(_value: Any) -> Any:
    """Reject a value that JSON text cannot express."""
    raise TypeError


def format_condition(
    cell: ColumnReader, column: TableMapColumn, raw: bytes | None, budget: DecodeBudget, *, is_key: bool
) -> bytes | None:
    """Return a condition that is true for exactly this value of a column; None if there is none.

    Args:
        raw: the value's bytes in the row image; None for NULL.
        is_key: whether the column is part of the primary key; no two rows then have values that compare equal.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    left = quote_identifier(cell.key)
    if raw is None:
        return left + b" IS NULL"
    kind = cell.kind.kind
    if kind in (ValueKind.JSON, ValueKind.GEOMETRY, ValueKind.VECTOR, ValueKind.COMPRESSED):
        return None
    if kind in (ValueKind.ENUM, ValueKind.SET):
        return left + b" <=> %d" % int.from_bytes(raw, "little")
    right = format_literal(cell, column, raw, budget)
    if right is None:
        return None
    if kind in (ValueKind.TEXT, ValueKind.UTF8) and not is_key:
        left = b"CAST(" + left + b" AS BINARY)"
        right = right if column.charset in UTF8MB4_COMPATIBLE_CHARSETS else format_hex(raw)
    return left + b" <=> " + right
