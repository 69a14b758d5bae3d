"""Write values of row images as SQL literals, in Python and in compiled kernels.

The literals are valid in a session whose client charset is utf8mb4, whose sql_mode allows backslash escapes, and whose
time_zone is +00:00.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from binlogtool.format_api.json_text_kernels import (
    is_utf8,
    widen_float_bits_to_double,
    write_entry_of_text_table,
    write_json_double,
    write_json_unsigned,
)
from binlogtool.format_api.schema_fields import MutableUInt8s, UInt8s, bind_sink, kernel, write_hex_digits
from binlogtool.formats.binlog_events.rows.rows_event import ColumnReader
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import copy_text, load_word
from binlogtool.formats.binlog_events.values.column_types import HEX_KINDS, ColumnType, TableMapColumn, ValueKind
from binlogtool.formats.binlog_events.values.decode_value_to_sink_kernels import UNSUPPORTED, decode_value_to_sink
from binlogtool.formats.binlog_events.values.decode_values import (
    DecodeBudget,
    JsonDiff,
    decode_binary_json,
    has_opaque_json_value,
    iter_json_diffs,
)
from binlogtool.formats.binlog_events.values.number_and_date_text_kernels import TextValueSink

# ruff: noqa: D102 - `values.decode_value_to_sink_kernels.ValueSink` describes the methods of sinks

# --- Values as SQL literals ---

_ESCAPES = {"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
_ESCAPED = re.compile(r"['\\\x00\n\r\x1a]")
UTF8MB4_SAFE_CHARSETS = ("utf8mb4", "utf8mb3", "ascii", "latin1")
"""Character sets whose text survives a conversion to utf8mb4 and back on all servers."""
UTF8MB4_COMPATIBLE_CHARSETS = ("utf8mb4", "utf8mb3", "ascii")
"""Character sets whose text has the same bytes in utf8mb4."""
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?\Z")


def quote_identifier(text: str) -> bytes:
    """Return an identifier between backticks."""
    return b"`" + text.replace("`", "``").encode("utf-8", "backslashreplace") + b"`"


def quote_string(text: str) -> bytes:
    """Return a string literal."""
    return b"'" + _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text).encode() + b"'"


def format_hex_literal(raw: bytes) -> bytes:
    """Return bytes as a hexadecimal literal, X'…'."""
    return b"X'" + raw.hex().encode() + b"'"


def format_double_literal(value: float) -> bytes | None:
    """Return a floating-point literal with all digits; None for NaN and infinity."""
    if not math.isfinite(value):
        return None
    text = repr(value)
    return (text if "e" in text else f"{text}e0").encode()


def format_value_literal(
    column_reader: ColumnReader, column: TableMapColumn, value_bytes: bytes, budget: DecodeBudget
) -> bytes | None:
    """Return a value as an SQL literal; None if no literal has exactly this value.

    Args:
        value_bytes: the value's bytes in the row image.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    kind = column_reader.kind.kind
    if kind == ValueKind.BYTES and column.type == ColumnType.STRING:
        return format_hex_literal(
            value_bytes.ljust(column.metadata, b"\0")
        )  # zeros at the end are not logged; a UUID column needs them
    if kind == ValueKind.FLOAT:
        return format_double_literal(struct.unpack("<f", value_bytes)[0])
    if kind == ValueKind.DOUBLE:
        return format_double_literal(struct.unpack("<d", value_bytes)[0])
    if kind in (ValueKind.ENUM, ValueKind.SET):
        return _format_enum_or_set(kind, column, int.from_bytes(value_bytes, "little"))
    if kind in HEX_KINDS:
        return format_hex_literal(value_bytes) if len(value_bytes) > 4 or kind != ValueKind.GEOMETRY else None
    if kind == ValueKind.JSON:
        return format_json_literal(value_bytes, budget)
    if kind in (ValueKind.TEXT, ValueKind.UTF8) and column.charset not in UTF8MB4_SAFE_CHARSETS:
        return f"_{column.charset} ".encode() + format_hex_literal(value_bytes)
    return _format_decoded_value(kind, column, column_reader.convert(value_bytes, budget))


def _format_decoded_value(kind: int, column: TableMapColumn, value: Any) -> bytes | None:
    """Return a decoded value as an SQL literal; None if it has no exact literal."""
    if kind in (ValueKind.SIGNED, ValueKind.UNSIGNED) and column.unsigned is None:
        return None
    if kind == ValueKind.BIT:
        return f"b'{value:b}'".encode()
    if kind == ValueKind.DECIMAL:
        return str(value).encode() if _DECIMAL.match(str(value)) else None
    if kind in (ValueKind.TEXT, ValueKind.UTF8, ValueKind.GUESS, ValueKind.COMPRESSED):
        if isinstance(value, bytes):
            return format_hex_literal(value) if column.charset == "binary" else None
        return quote_string(value) if column.charset in UTF8MB4_SAFE_CHARSETS else None
    if isinstance(value, str):
        return quote_string(value)
    if isinstance(value, bytes):
        return format_hex_literal(value) if kind == ValueKind.BYTES else None
    return b"NULL" if value is None else str(value).encode()


def _format_enum_or_set(kind: int, column: TableMapColumn, number: int) -> bytes | None:
    """Return an ENUM or SET value by its texts, or as a number if they are unknown; None for the invalid ENUM 0."""
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


def format_json_literal(binary_json: bytes, budget: DecodeBudget) -> bytes | None:
    """Return binary JSON as a string literal; None if its text would not keep all values with their types.

    Raises:
        MalformedError: the bytes are not binary JSON.
    """
    if has_opaque_json_value(binary_json, budget.max_depth):
        return None
    try:
        value = decode_binary_json(binary_json, budget.max_depth)
        return quote_string(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_reject_value))
    except (TypeError, ValueError, RecursionError):
        return None


def _reject_value(_value: Any) -> Any:
    """Reject a value that JSON text cannot represent."""
    raise TypeError


def format_equality_condition(
    column_reader: ColumnReader,
    column: TableMapColumn,
    value_bytes: bytes | None,
    budget: DecodeBudget,
    *,
    is_key: bool,
) -> bytes | None:
    """Return a condition that is true for exactly this value of a column; None if there is no such condition.

    Args:
        value_bytes: the value's bytes in the row image; None for NULL.
        is_key: whether the column is part of the primary key; no two rows then have values that compare equal.

    Raises:
        MalformedError, DecompressionError: the bytes are not a value of this type.
    """
    left = quote_identifier(column_reader.key)
    if value_bytes is None:
        return left + b" IS NULL"
    kind = column_reader.kind.kind
    if kind in HEX_KINDS or kind in (ValueKind.JSON, ValueKind.COMPRESSED):
        return None
    if kind in (ValueKind.ENUM, ValueKind.SET):
        return left + b" <=> %d" % int.from_bytes(value_bytes, "little")
    right = format_value_literal(column_reader, column, value_bytes, budget)
    if right is None:
        return None
    if kind in (ValueKind.TEXT, ValueKind.UTF8) and not is_key:
        left = b"CAST(" + left + b" AS BINARY)"
        right = right if column.charset in UTF8MB4_COMPATIBLE_CHARSETS else format_hex_literal(value_bytes)
    return left + b" <=> " + right


# --- Partial JSON updates as SQL expressions ---

_MAX_NESTED_CALLS = 50
"""Maximum number of nested function calls; a server's stack allows some hundreds."""


def format_json_update_expression(quoted_column: bytes, json_diffs: bytes, budget: DecodeBudget) -> bytes | None:
    """Return the value of a column with its changes applied, as an expression; None if no expression is exact.

    Args:
        quoted_column: quoted name of the column.

    Raises:
        MalformedError: the changes are malformed.
    """
    calls = [
        (function, list(ones)) for function, ones in groupby(iter_json_diffs(json_diffs), _get_json_update_function)
    ]
    if len(calls) > _MAX_NESTED_CALLS:
        return None
    expression = quoted_column
    for function, grouped_changes in calls:
        arguments = [expression]
        for change in grouped_changes:
            parts = list(_iter_json_function_arguments(change, budget))
            if None in parts:
                return None
            arguments += [part for part in parts if part is not None]
        expression = function + b"(" + b", ".join(arguments) + b")"
    return expression


def _get_json_update_function(change: JsonDiff) -> bytes:
    """Return the JSON function for a change; an INSERT whose path ends in an index moves the elements after it."""
    is_element = change.operation == "INSERT" and change.path.endswith(b"]")
    return b"JSON_ARRAY_INSERT" if is_element else f"JSON_{change.operation}".encode()


def _iter_json_function_arguments(change: JsonDiff, budget: DecodeBudget) -> Iterator[bytes | None]:
    """Yield the arguments for a change; None for an argument without an exact literal."""
    try:
        yield quote_string(change.path.decode())
    except UnicodeDecodeError:
        yield None
    if change.value is not None:
        text = format_json_literal(change.value, budget)
        yield None if text is None else b"CAST(" + text + b" AS JSON)"


# --- Kernels for SQL literals ---

SMALLEST_WITHOUT_EXPONENT = 0x3F1A36E2EB1C432D
"""Bits of the double 1e-4; Python writes smaller numbers with an exponent."""


@kernel(write_hex_digits)
def write_hex_literal(buf: UInt8s, pos: int, limit: int, padded_size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write `X'…'`, padded to `padded_size` bytes with zeros."""
    out[out_pos] = 88
    out[out_pos + 1] = 39
    out_pos = write_hex_digits(buf, pos, limit, out, out_pos + 2)
    for _ in range(2 * (padded_size - (limit - pos))):
        out[out_pos] = 48
        out_pos += 1
    out[out_pos] = 39
    return out_pos + 1


@kernel()
def get_escape_character(c: int) -> int:
    """Return the character after the backslash that escapes this byte; 0 if it needs no escape."""
    if c > 92:
        return 0
    if c == 92:
        return 92
    if c == 0:
        return 48
    if c == 10:
        return 110
    if c == 13:
        return 114
    return 90 if c == 26 else 0


@kernel(get_escape_character)
def write_string_literal(buf: UInt8s, pos: int, limit: int, highest_byte: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a text as a string literal in UTF-8.

    Text that may contain a client's delimiter (see `sql.client_safe_statements`) is rejected.

    Args:
        highest_byte: the highest byte that equals the code point of its character; 256 if the text is UTF-8 itself.
    """
    out[out_pos] = 39
    out_pos += 1
    while pos < limit:
        c = buf[pos] + 0
        pos += 1
        if c >= 0x80 and highest_byte < 256:
            if c > highest_byte or c < 0xA0:
                return -2
            out[out_pos] = 0xC0 | c >> 6
            out_pos += 1
            c = 0x80 | c & 0x3F
        escape = get_escape_character(c)
        if escape > 0:
            out[out_pos] = 92
            out_pos += 1
            c = escape
        elif c == 39:
            out[out_pos] = 39
            out_pos += 1
        elif c == 47 and limit - pos > 1 and buf[pos] == 42 and buf[pos + 1] == 33:
            return -2
        out[out_pos] = c
        out_pos += 1
    out[out_pos] = 39
    return out_pos + 1


@kernel(write_json_double)
def write_double_literal(bits: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the double with these bits, as `1.5e0`."""
    size = bits & 0x7FFFFFFFFFFFFFFF
    if size != 0 and size < SMALLEST_WITHOUT_EXPONENT:
        return -2
    out_pos = write_json_double(bits, out, out_pos, out_limit)
    if out_pos < 0:
        return out_pos
    out[out_pos] = 101
    out[out_pos + 1] = 48
    return out_pos + 2


SQL_QUOTE = 39


class SqlValueSink(TextValueSink):
    """The sink of a value as a literal (`values.decode_value_to_sink_kernels.ValueSink`)."""

    @kernel()
    def write_bits(self, value: int, count: int, out_pos: int) -> int:
        """Write `b'…'` without leading zeros."""
        self.out[out_pos] = 98
        self.out[out_pos + 1] = SQL_QUOTE
        out_pos += 2
        started = 0
        for i in range(64):
            bit = value >> (63 - i) & 1
            started |= bit
            if started > 0 or i == 63:
                self.out[out_pos] = 48 + bit
                out_pos += 1
        self.out[out_pos] = SQL_QUOTE
        return out_pos + 1

    @kernel(write_double_literal, widen_float_bits_to_double)
    def write_float(self, bits: int, out_pos: int) -> int:
        return write_double_literal(widen_float_bits_to_double(bits), self.out, out_pos, self.z)

    @kernel(write_double_literal)
    def write_double(self, bits: int, out_pos: int) -> int:
        return write_double_literal(bits, self.out, out_pos, self.z)

    @kernel(write_entry_of_text_table, write_json_unsigned)
    def write_enum(self, ordinal: int, out_pos: int) -> int:
        if ordinal == 0:
            return UNSUPPORTED
        if self.base < 0:
            return write_json_unsigned(ordinal, self.out, out_pos, self.z)
        return write_entry_of_text_table(self.texts, self.base, ordinal - 1, self.out, out_pos, self.z)

    @kernel(write_entry_of_text_table, write_json_unsigned, load_word)
    def write_set(self, mask: int, out_pos: int) -> int:
        if self.base < 0:
            return write_json_unsigned(mask, self.out, out_pos, self.z)
        count = load_word(self.texts, self.base)
        if count < 64 and (mask < 0 or mask >> count != 0):
            return UNSUPPORTED
        self.out[out_pos] = SQL_QUOTE
        out_pos += 1
        start = out_pos
        for i in range(count):
            if mask >> i & 1:
                if out_pos > start:
                    self.out[out_pos] = 44
                    out_pos += 1
                out_pos = write_entry_of_text_table(self.texts, self.base, i, self.out, out_pos, self.z)
                if out_pos < 0:
                    return out_pos
                if self.z - out_pos < 8:
                    return -1
        self.out[out_pos] = SQL_QUOTE
        return out_pos + 1

    @kernel(is_utf8, write_string_literal)
    def write_utf8(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return (
            write_string_literal(buf, pos, limit, 256, self.out, out_pos) if is_utf8(buf, pos, limit) else UNSUPPORTED
        )

    @kernel(write_string_literal)
    def write_single_byte_text(self, buf: UInt8s, pos: int, limit: int, highest_unicode_byte: int, out_pos: int) -> int:
        return write_string_literal(buf, pos, limit, highest_unicode_byte, self.out, out_pos)

    @kernel(copy_text, write_hex_literal)
    def write_bytes(self, buf: UInt8s, pos: int, limit: int, padded_width: int, out_pos: int) -> int:
        return write_hex_literal(
            buf, pos, limit, padded_width, self.out, copy_text(self.texts, self.base, self.length, self.out, out_pos)
        )

    @kernel(write_hex_literal)
    def write_geometry(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return write_hex_literal(buf, pos, limit, 0, self.out, out_pos)


write_sql_literal = bind_sink(decode_value_to_sink, SqlValueSink, inline=True)
"""Write the value `buf[pos:limit]` as a literal."""
