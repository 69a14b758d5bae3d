"""Decoders of the values of row images, each written once, for any sink.

A decoder reads the bytes of one value and calls one method of a sink (`ValueSink`), or several for a value that has
parts. The build makes a kernel of each decoder and sink (`schema_fields.bind_sink`). The sinks: JSON text
(`rows.write_rows_json_kernels.JsonValue`), SQL literals (`sql.format_literals.SqlValue`), cells of columns
(`changes.typed_column_kernels.CellValue`).

A new value type is a decoder here and its kind in `column_types`; no sink changes. See docs/schema.md#add-a-value-type.
"""

from __future__ import annotations

from typing import Protocol

from binlogtool.format_api.schema_fields import (
    UInt8s,
    kernel,
    kernel_template,
    load_big_endian,
    load_little_endian,
)
from binlogtool.formats.binlog_events.values.column_types import FIRST_SIZED, ValueKind

# ruff: noqa: D102 - methods are described in their class; kernels have no `in`

UNSUPPORTED = -2
"""The general writer must take the value: a sink has no form of it, or it is not valid."""


class ValueSink(Protocol):
    """A place where decoded values go.

    Each method writes at a position `at` and returns the next one, or a code below 0: -1 if there is no space left,
    UNSUPPORTED. Sinks of text do not check the space of numbers, dates and short texts: a caller leaves 136 bytes or
    more. Unsigned integers are bit patterns, with their `size` in bytes; floats are their bits.

    - A decimal is groups of up to nine digits and a point; `start` is the position after `begin_decimal`.
    - A date is year << 9 | month << 5 | day, a clock hour << 12 | minute << 6 | second; `micros` is the fraction of a
      second in microseconds, of which the column keeps `digits` digits. A TIMESTAMP counts from 1970; 0: the zero date.
    - `write_utf8`: text that should be UTF-8. `write_text`: one byte per character; bytes up to `highest` equal their
      Unicode characters. `write_bytes`: of a column that pads them with zero bytes to `width`.
    - `begin_text` to `end_text`: at most 64 ASCII characters, none of which needs an escape.
    """

    def write_signed(self, value: int, at: int) -> int: ...
    def write_unsigned(self, value: int, size: int, at: int) -> int: ...
    def write_bits(self, value: int, count: int, at: int) -> int: ...
    def write_float(self, bits: int, at: int) -> int: ...
    def write_double(self, bits: int, at: int) -> int: ...
    def begin_decimal(self, is_negative: bool, at: int) -> int: ...
    def write_digits(self, value: int, digits: int, start: int, at: int) -> int: ...
    def write_point(self, start: int, at: int) -> int: ...
    def end_decimal(self, is_negative: bool, start: int, at: int) -> int: ...
    def write_date(self, date: int, at: int) -> int: ...
    def write_time(self, is_negative: bool, clock: int, micros: int, digits: int, at: int) -> int: ...
    def write_datetime(self, date: int, clock: int, micros: int, digits: int, at: int) -> int: ...
    def write_timestamp(self, seconds: int, micros: int, digits: int, at: int) -> int: ...
    def write_enum(self, ordinal: int, at: int) -> int: ...
    def write_set(self, mask: int, at: int) -> int: ...
    def write_utf8(self, buf: UInt8s, pos: int, limit: int, at: int) -> int: ...
    def write_text(self, buf: UInt8s, pos: int, limit: int, highest: int, at: int) -> int: ...
    def write_bytes(self, buf: UInt8s, pos: int, limit: int, width: int, at: int) -> int: ...
    def write_geometry(self, buf: UInt8s, pos: int, limit: int, at: int) -> int: ...
    def begin_text(self, at: int) -> int: ...
    def write_char(self, char: int, at: int) -> int: ...
    def end_text(self, at: int) -> int: ...


# --- Numbers ---


@kernel(load_little_endian)
def load_signed(buf: UInt8s, pos: int, size: int) -> int:
    """Load a signed integer of up to 8 bytes, little-endian."""
    value = load_little_endian(buf, pos, size)
    if size < 8:
        sign = 1 << 8 * size - 1
        value = (value ^ sign) - sign
    return value


@kernel()
def digit_group_size(digits: int) -> int:
    """Return the bytes of a group of `digits` digits."""
    return min((digits + 1) >> 1, 4)


@kernel(digit_group_size, load_big_endian)
def load_digit_group(buf: UInt8s, pos: int, digits: int, is_first: bool, mask: int) -> int:
    """Load the number of a group of digits; -1 if it has more than its digits.

    Args:
        is_first: it is the first group, which holds the sign bit.
        mask: 255 for a negative decimal, whose bits are inverted; else 0.
    """
    size = digit_group_size(digits)
    value = load_big_endian(buf, pos, size) ^ (mask * 0x1010101 & (1 << 8 * size) - 1)
    if is_first:
        value ^= 0x80 << 8 * (size - 1)
    bound = 1
    for _ in range(digits):
        bound *= 10
    return -1 if value >= bound else value


@kernel_template(load_digit_group, digit_group_size)
def decode_decimal(buf: UInt8s, pos: int, precision: int, scale: int, sink: ValueSink, at: int) -> int:
    """Decode a packed decimal: groups of nine digits, the first and the last may be shorter."""
    mask = 0 if buf[pos] >= 128 else 255
    at = sink.begin_decimal(mask > 0, at)
    if at < 0:
        return at
    start = at
    first = pos
    digits_left = precision
    while digits_left > 0:
        if digits_left == scale:
            at = sink.write_point(start, at)
        digits = min(digits_left, 9)
        if digits_left > scale:
            digits = (digits_left - scale) % 9
            digits = 9 if digits == 0 else digits
        value = load_digit_group(buf, pos, digits, pos == first, mask)
        if value < 0:
            return UNSUPPORTED
        at = sink.write_digits(value, digits, start, at)
        pos += digit_group_size(digits)
        digits_left -= digits
    return sink.end_decimal(mask > 0, start, at)


# --- Dates and times ---


@kernel()
def scale_fraction(units: int, digits: int) -> int:
    """Return the stored fraction of a second in microseconds; -1 if it is out of range."""
    width = (digits + 1) >> 1
    factor = 1
    if width < 3:
        factor = 10000 if width < 2 else 100
    return units * factor if units * factor < 1000000 else -1


@kernel(load_big_endian, scale_fraction)
def load_micros(buf: UInt8s, pos: int, digits: int) -> int:
    """Load the fraction of a second as microseconds; -1 if it is out of range."""
    if digits == 0:
        return 0
    return scale_fraction(load_big_endian(buf, pos, (digits + 1) >> 1), digits)


@kernel_template(load_big_endian, load_micros)
def decode_datetime2(buf: UInt8s, pos: int, digits: int, sink: ValueSink, at: int) -> int:
    """Decode a DATETIME2: 40 bits, then the fraction."""
    packed = load_big_endian(buf, pos, 5) - 0x8000000000
    micros = load_micros(buf, pos + 5, digits)
    if packed < 0 or micros < 0:
        return UNSUPPORTED
    months = packed >> 22
    year = months // 13
    date = year << 9 | (months - 13 * year) << 5 | packed >> 17 & 31
    return sink.write_datetime(date, packed & 0x1FFFF, micros, digits, at)


@kernel_template(load_big_endian, load_micros)
def decode_timestamp2(buf: UInt8s, pos: int, digits: int, sink: ValueSink, at: int) -> int:
    """Decode a TIMESTAMP2: seconds since 1970, then the fraction."""
    micros = load_micros(buf, pos + 4, digits)
    return UNSUPPORTED if micros < 0 else sink.write_timestamp(load_big_endian(buf, pos, 4), micros, digits, at)


@kernel_template(load_big_endian, scale_fraction)
def decode_time2(buf: UInt8s, pos: int, digits: int, sink: ValueSink, at: int) -> int:
    """Decode a TIME2: 24 bits and the fraction are one number, which is negated for a negative time."""
    shift = 8 * ((digits + 1) >> 1)
    packed = load_big_endian(buf, pos, 3 + (shift >> 3)) - (0x800000 << shift)
    is_negative = packed < 0
    if is_negative:
        packed = -packed
    micros = scale_fraction(packed & ((1 << shift) - 1), digits) if digits > 0 else 0
    return UNSUPPORTED if micros < 0 else sink.write_time(is_negative, packed >> shift & 0x3FFFFF, micros, digits, at)


@kernel()
def pack_clock(number: int) -> int:
    """Return the clock of the decimal number HHMMSS; -1 if a part is too large."""
    minute = number // 100 % 100
    second = number % 100
    return -1 if minute > 63 or second > 63 else (number // 10000) << 12 | minute << 6 | second


@kernel_template(load_signed, load_little_endian, pack_clock)
def decode_old_temporal(buf: UInt8s, pos: int, kind: int, sink: ValueSink, at: int) -> int:
    """Decode a TIME, DATETIME or TIMESTAMP of MySQL before 5.6: decimal numbers, and seconds since 1970."""
    if kind == ValueKind.TIMESTAMP:
        return sink.write_timestamp(load_little_endian(buf, pos, 4), 0, 0, at)
    if kind == ValueKind.TIME:
        number = load_signed(buf, pos, 3)
        clock = pack_clock(abs(number))
        return UNSUPPORTED if clock < 0 else sink.write_time(number < 0, clock, 0, 0, at)
    number = load_little_endian(buf, pos, 8)
    date = number // 1000000
    clock = pack_clock(number - date * 1000000)
    month = date // 100 % 100
    day = date % 100
    if number < 0 or clock < 0 or month > 15 or day > 31 or date > 99999999:
        return UNSUPPORTED
    return sink.write_datetime((date // 10000) << 9 | month << 5 | day, clock, 0, 0, at)


# --- Texts that are stored as numbers ---


@kernel_template()
def decode_uuid(buf: UInt8s, pos: int, sink: ValueSink, at: int) -> int:
    """Decode the 16 bytes of a UUID."""
    at = sink.begin_text(at)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            at = sink.write_char(45, at)
        high = buf[pos + i] >> 4
        low = buf[pos + i] & 15
        at = sink.write_char(48 + high + (39 if high > 9 else 0), at)
        at = sink.write_char(48 + low + (39 if low > 9 else 0), at)
    return sink.end_text(at)


@kernel_template()
def decode_inet4(buf: UInt8s, pos: int, sink: ValueSink, at: int) -> int:
    """Decode the 4 bytes of an IPv4 address."""
    at = sink.begin_text(at)
    for i in range(4):
        byte = buf[pos + i] + 0
        if i > 0:
            at = sink.write_char(46, at)
        if byte > 99:
            at = sink.write_char(48 + byte // 100, at)
        if byte > 9:
            at = sink.write_char(48 + byte // 10 % 10, at)
        at = sink.write_char(48 + byte % 10, at)
    return sink.end_text(at)


# --- Any value ---


@kernel_template(decode_uuid, decode_inet4)
def decode_sized_value(buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, sink: ValueSink, at: int) -> int:
    """Decode a value that has a length; the general writer takes the kinds that have no branch here, such as JSON.

    Args:
        parameter: of TEXT, the highest byte that equals its Unicode character; of BYTES, the width of the column.
    """
    if kind == ValueKind.UTF8 or kind == ValueKind.GUESS:
        return sink.write_utf8(buf, pos, limit, at)
    if kind == ValueKind.TEXT:
        return sink.write_text(buf, pos, limit, parameter, at)
    if kind == ValueKind.BYTES:
        return sink.write_bytes(buf, pos, limit, parameter, at)
    if kind == ValueKind.GEOMETRY and limit - pos > 4:
        return sink.write_geometry(buf, pos, limit, at)
    if kind == ValueKind.UUID and limit - pos == 16:
        return decode_uuid(buf, pos, sink, at)
    if kind == ValueKind.INET4 and limit - pos == 4:
        return decode_inet4(buf, pos, sink, at)
    return UNSUPPORTED


@kernel_template(
    decode_datetime2, decode_decimal, decode_old_temporal, decode_sized_value, decode_time2, decode_timestamp2,
    load_big_endian, load_little_endian, load_signed,
)  # fmt: skip
def decode_value(buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, sink: ValueSink, at: int) -> int:
    """Decode the value `buf[pos:limit]` to a sink; kind and parameter: see `column_types.ValueKind`."""
    if kind >= FIRST_SIZED:
        return decode_sized_value(buf, pos, limit, kind, parameter, sink, at)
    if kind == ValueKind.SIGNED:
        return sink.write_signed(load_signed(buf, pos, limit - pos), at)
    if kind == ValueKind.UNSIGNED:
        return sink.write_unsigned(load_little_endian(buf, pos, limit - pos), limit - pos, at)
    if kind == ValueKind.DATETIME2:
        return decode_datetime2(buf, pos, parameter, sink, at)
    if kind == ValueKind.TIMESTAMP2:
        return decode_timestamp2(buf, pos, parameter, sink, at)
    if kind == ValueKind.DECIMAL:
        return decode_decimal(buf, pos, parameter >> 8, parameter & 255, sink, at)
    if kind == ValueKind.DOUBLE:
        return sink.write_double(load_little_endian(buf, pos, 8), at)
    if kind == ValueKind.FLOAT:
        return sink.write_float(load_little_endian(buf, pos, 4), at)
    if kind == ValueKind.DATE:
        return sink.write_date(load_little_endian(buf, pos, 3), at)
    if kind == ValueKind.TIME2:
        return decode_time2(buf, pos, parameter, sink, at)
    if kind == ValueKind.YEAR:
        return sink.write_unsigned(1900 + buf[pos] if buf[pos] else 0, 1, at)
    if kind == ValueKind.BIT:
        return sink.write_bits(load_big_endian(buf, pos, limit - pos), parameter, at)
    if kind == ValueKind.ENUM:
        return sink.write_enum(load_little_endian(buf, pos, limit - pos), at)
    if kind == ValueKind.SET:
        return sink.write_set(load_little_endian(buf, pos, limit - pos), at)
    if parameter == 0 and (kind == ValueKind.TIME or kind == ValueKind.DATETIME or kind == ValueKind.TIMESTAMP):
        return decode_old_temporal(buf, pos, kind, sink, at)
    return UNSUPPORTED
