"""Decoders of the values of row images, each written once, for any sink.

A decoder reads the bytes of one value and calls one method of a sink (`ValueSink`), or several for a value that has
parts. The build makes a kernel of each decoder and sink (`schema_fields.bind_sink`). The sinks: JSON text
(`rows.write_rows_json_kernels.JsonValueSink`), SQL literals (`sql.format_literals.SqlValueSink`), cells of columns
(`changes.typed_column_kernels.CellValueSink`).

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
    - `write_utf8`: text that should be UTF-8. `write_single_byte_text`: one byte per character; bytes up to `highest`
    equal their
      Unicode characters. `write_bytes`: of a column that pads them with zero bytes to `width`.
    - `begin_text` to `end_text`: at most 64 ASCII characters, none of which needs an escape.
    """

    def write_signed(self, value: int, out_pos: int) -> int: ...
    def write_unsigned(self, value: int, size: int, out_pos: int) -> int: ...
    def write_bits(self, value: int, count: int, out_pos: int) -> int: ...
    def write_float(self, bits: int, out_pos: int) -> int: ...
    def write_double(self, bits: int, out_pos: int) -> int: ...
    def begin_decimal(self, is_negative: bool, out_pos: int) -> int: ...
    def write_digit_group(self, value: int, digit_count: int, number_start: int, out_pos: int) -> int: ...
    def write_decimal_point(self, number_start: int, out_pos: int) -> int: ...
    def end_decimal(self, is_negative: bool, number_start: int, out_pos: int) -> int: ...
    def write_date(self, packed_date: int, out_pos: int) -> int: ...
    def write_time(
        self, is_negative: bool, packed_time: int, micros: int, fraction_digits: int, out_pos: int
    ) -> int: ...
    def write_datetime(
        self, packed_date: int, packed_time: int, micros: int, fraction_digits: int, out_pos: int
    ) -> int: ...
    def write_timestamp(self, seconds: int, micros: int, fraction_digits: int, out_pos: int) -> int: ...
    def write_enum(self, ordinal: int, out_pos: int) -> int: ...
    def write_set(self, mask: int, out_pos: int) -> int: ...
    def write_utf8(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int: ...
    def write_single_byte_text(
        self, buf: UInt8s, pos: int, limit: int, highest_unicode_byte: int, out_pos: int
    ) -> int: ...
    def write_bytes(self, buf: UInt8s, pos: int, limit: int, padded_width: int, out_pos: int) -> int: ...
    def write_geometry(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int: ...
    def begin_text(self, out_pos: int) -> int: ...
    def write_char(self, char: int, out_pos: int) -> int: ...
    def end_text(self, out_pos: int) -> int: ...


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
def digit_group_size(digit_count: int) -> int:
    """Return the bytes of a group of `digit_count` digits."""
    return min((digit_count + 1) >> 1, 4)


@kernel(digit_group_size, load_big_endian)
def load_digit_group(buf: UInt8s, pos: int, digit_count: int, is_first: bool, inversion_mask: int) -> int:
    """Load the number of a group of digits; -1 if it has more than its digits.

    Args:
        is_first: it is the first group, which holds the sign bit.
        inversion_mask: 255 for a negative decimal, whose bits are inverted; else 0.
    """
    size = digit_group_size(digit_count)
    value = load_big_endian(buf, pos, size) ^ (inversion_mask * 0x1010101 & (1 << 8 * size) - 1)
    if is_first:
        value ^= 0x80 << 8 * (size - 1)
    bound = 1
    for _ in range(digit_count):
        bound *= 10
    return -1 if value >= bound else value


@kernel_template(load_digit_group, digit_group_size)
def decode_decimal(buf: UInt8s, pos: int, precision: int, scale: int, sink: ValueSink, out_pos: int) -> int:
    """Decode a packed decimal: groups of nine digits, the first and the last may be shorter."""
    mask = 0 if buf[pos] >= 128 else 255
    out_pos = sink.begin_decimal(mask > 0, out_pos)
    if out_pos < 0:
        return out_pos
    start = out_pos
    first = pos
    digits_left = precision
    while digits_left > 0:
        if digits_left == scale:
            out_pos = sink.write_decimal_point(start, out_pos)
        digits = min(digits_left, 9)
        if digits_left > scale:
            digits = (digits_left - scale) % 9
            digits = 9 if digits == 0 else digits
        value = load_digit_group(buf, pos, digits, pos == first, mask)
        if value < 0:
            return UNSUPPORTED
        out_pos = sink.write_digit_group(value, digits, start, out_pos)
        pos += digit_group_size(digits)
        digits_left -= digits
    return sink.end_decimal(mask > 0, start, out_pos)


# --- Dates and times ---


@kernel()
def scale_fraction_to_microseconds(units: int, fraction_digits: int) -> int:
    """Return the stored fraction of a second in microseconds; -1 if it is out of range."""
    width = (fraction_digits + 1) >> 1
    factor = 1
    if width < 3:
        factor = 10000 if width < 2 else 100
    return units * factor if units * factor < 1000000 else -1


@kernel(load_big_endian, scale_fraction_to_microseconds)
def load_microseconds(buf: UInt8s, pos: int, fraction_digits: int) -> int:
    """Load the fraction of a second as microseconds; -1 if it is out of range."""
    if fraction_digits == 0:
        return 0
    return scale_fraction_to_microseconds(load_big_endian(buf, pos, (fraction_digits + 1) >> 1), fraction_digits)


@kernel_template(load_big_endian, load_microseconds)
def decode_datetime2(buf: UInt8s, pos: int, fraction_digits: int, sink: ValueSink, out_pos: int) -> int:
    """Decode a DATETIME2: 40 bits, then the fraction."""
    packed = load_big_endian(buf, pos, 5) - 0x8000000000
    micros = load_microseconds(buf, pos + 5, fraction_digits)
    if packed < 0 or micros < 0:
        return UNSUPPORTED
    months = packed >> 22
    year = months // 13
    date = year << 9 | (months - 13 * year) << 5 | packed >> 17 & 31
    return sink.write_datetime(date, packed & 0x1FFFF, micros, fraction_digits, out_pos)


@kernel_template(load_big_endian, load_microseconds)
def decode_timestamp2(buf: UInt8s, pos: int, fraction_digits: int, sink: ValueSink, out_pos: int) -> int:
    """Decode a TIMESTAMP2: seconds since 1970, then the fraction."""
    micros = load_microseconds(buf, pos + 4, fraction_digits)
    return (
        UNSUPPORTED
        if micros < 0
        else sink.write_timestamp(load_big_endian(buf, pos, 4), micros, fraction_digits, out_pos)
    )


@kernel_template(load_big_endian, scale_fraction_to_microseconds)
def decode_time2(buf: UInt8s, pos: int, fraction_digits: int, sink: ValueSink, out_pos: int) -> int:
    """Decode a TIME2: 24 bits and the fraction are one number, which is negated for a negative time."""
    shift = 8 * ((fraction_digits + 1) >> 1)
    packed = load_big_endian(buf, pos, 3 + (shift >> 3)) - (0x800000 << shift)
    is_negative = packed < 0
    if is_negative:
        packed = -packed
    micros = scale_fraction_to_microseconds(packed & ((1 << shift) - 1), fraction_digits) if fraction_digits > 0 else 0
    return (
        UNSUPPORTED
        if micros < 0
        else sink.write_time(is_negative, packed >> shift & 0x3FFFFF, micros, fraction_digits, out_pos)
    )


@kernel()
def pack_decimal_time(decimal_hhmmss: int) -> int:
    """Return the clock of the decimal number HHMMSS; -1 if a part is too large."""
    minute = decimal_hhmmss // 100 % 100
    second = decimal_hhmmss % 100
    return -1 if minute > 63 or second > 63 else (decimal_hhmmss // 10000) << 12 | minute << 6 | second


@kernel_template(load_signed, load_little_endian, pack_decimal_time)
def decode_old_temporal(buf: UInt8s, pos: int, kind: int, sink: ValueSink, out_pos: int) -> int:
    """Decode a TIME, DATETIME or TIMESTAMP of MySQL before 5.6: decimal numbers, and seconds since 1970."""
    if kind == ValueKind.TIMESTAMP:
        return sink.write_timestamp(load_little_endian(buf, pos, 4), 0, 0, out_pos)
    if kind == ValueKind.TIME:
        number = load_signed(buf, pos, 3)
        clock = pack_decimal_time(abs(number))
        return UNSUPPORTED if clock < 0 else sink.write_time(number < 0, clock, 0, 0, out_pos)
    number = load_little_endian(buf, pos, 8)
    date = number // 1000000
    clock = pack_decimal_time(number - date * 1000000)
    month = date // 100 % 100
    day = date % 100
    if number < 0 or clock < 0 or month > 15 or day > 31 or date > 99999999:
        return UNSUPPORTED
    return sink.write_datetime((date // 10000) << 9 | month << 5 | day, clock, 0, 0, out_pos)


# --- Texts that are stored as numbers ---


@kernel_template()
def decode_uuid(buf: UInt8s, pos: int, sink: ValueSink, out_pos: int) -> int:
    """Decode the 16 bytes of a UUID."""
    out_pos = sink.begin_text(out_pos)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out_pos = sink.write_char(45, out_pos)
        high = buf[pos + i] >> 4
        low = buf[pos + i] & 15
        out_pos = sink.write_char(48 + high + (39 if high > 9 else 0), out_pos)
        out_pos = sink.write_char(48 + low + (39 if low > 9 else 0), out_pos)
    return sink.end_text(out_pos)


@kernel_template()
def decode_inet4(buf: UInt8s, pos: int, sink: ValueSink, out_pos: int) -> int:
    """Decode the 4 bytes of an IPv4 address."""
    out_pos = sink.begin_text(out_pos)
    for i in range(4):
        byte = buf[pos + i] + 0
        if i > 0:
            out_pos = sink.write_char(46, out_pos)
        if byte > 99:
            out_pos = sink.write_char(48 + byte // 100, out_pos)
        if byte > 9:
            out_pos = sink.write_char(48 + byte // 10 % 10, out_pos)
        out_pos = sink.write_char(48 + byte % 10, out_pos)
    return sink.end_text(out_pos)


# --- Any value ---


@kernel_template(decode_uuid, decode_inet4)
def decode_length_prefixed_value(
    buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, sink: ValueSink, out_pos: int
) -> int:
    """Decode a value that has a length; the general writer takes the kinds that have no branch here, such as JSON.

    Args:
        parameter: of TEXT, the highest byte that equals its Unicode character; of BYTES, the width of the column.
    """
    if kind == ValueKind.UTF8 or kind == ValueKind.GUESS:
        return sink.write_utf8(buf, pos, limit, out_pos)
    if kind == ValueKind.TEXT:
        return sink.write_single_byte_text(buf, pos, limit, parameter, out_pos)
    if kind == ValueKind.BYTES:
        return sink.write_bytes(buf, pos, limit, parameter, out_pos)
    if kind == ValueKind.GEOMETRY and limit - pos > 4:
        return sink.write_geometry(buf, pos, limit, out_pos)
    if kind == ValueKind.UUID and limit - pos == 16:
        return decode_uuid(buf, pos, sink, out_pos)
    if kind == ValueKind.INET4 and limit - pos == 4:
        return decode_inet4(buf, pos, sink, out_pos)
    return UNSUPPORTED


@kernel_template(
    decode_datetime2, decode_decimal, decode_old_temporal, decode_length_prefixed_value, decode_time2,
    decode_timestamp2,
    load_big_endian, load_little_endian, load_signed,
)  # fmt: skip
def decode_value_to_sink(
    buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, sink: ValueSink, out_pos: int
) -> int:
    """Decode the value `buf[pos:limit]` to a sink; kind and parameter: see `column_types.ValueKind`."""
    if kind >= FIRST_SIZED:
        return decode_length_prefixed_value(buf, pos, limit, kind, parameter, sink, out_pos)
    if kind == ValueKind.SIGNED:
        return sink.write_signed(load_signed(buf, pos, limit - pos), out_pos)
    if kind == ValueKind.UNSIGNED:
        return sink.write_unsigned(load_little_endian(buf, pos, limit - pos), limit - pos, out_pos)
    if kind == ValueKind.DATETIME2:
        return decode_datetime2(buf, pos, parameter, sink, out_pos)
    if kind == ValueKind.TIMESTAMP2:
        return decode_timestamp2(buf, pos, parameter, sink, out_pos)
    if kind == ValueKind.DECIMAL:
        return decode_decimal(buf, pos, parameter >> 8, parameter & 255, sink, out_pos)
    if kind == ValueKind.DOUBLE:
        return sink.write_double(load_little_endian(buf, pos, 8), out_pos)
    if kind == ValueKind.FLOAT:
        return sink.write_float(load_little_endian(buf, pos, 4), out_pos)
    if kind == ValueKind.DATE:
        return sink.write_date(load_little_endian(buf, pos, 3), out_pos)
    if kind == ValueKind.TIME2:
        return decode_time2(buf, pos, parameter, sink, out_pos)
    if kind == ValueKind.YEAR:
        return sink.write_unsigned(1900 + buf[pos] if buf[pos] else 0, 1, out_pos)
    if kind == ValueKind.BIT:
        return sink.write_bits(load_big_endian(buf, pos, limit - pos), parameter, out_pos)
    if kind == ValueKind.ENUM:
        return sink.write_enum(load_little_endian(buf, pos, limit - pos), out_pos)
    if kind == ValueKind.SET:
        return sink.write_set(load_little_endian(buf, pos, limit - pos), out_pos)
    if parameter == 0 and (kind == ValueKind.TIME or kind == ValueKind.DATETIME or kind == ValueKind.TIMESTAMP):
        return decode_old_temporal(buf, pos, kind, sink, out_pos)
    return UNSUPPORTED
