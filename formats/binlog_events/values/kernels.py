"""Kernels that write values of row images as JSON, exactly as `values.decoding` and the JSON writer do.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.values.numbers import put_float, put_quoted_decimal
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_date, put_double, put_last_digits, put_signed, put_unsigned
from binlogtool.formats.jsontext import put_any_text, put_bytes, put_control, put_entry
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big_endian, load_little_endian

# -- texts -------------------------------------------------------------------------------------------------------------


@kernel()
def load_word(texts: UInt8s, pos: int) -> int:
    """Load a big-endian number of four bytes."""
    return texts[pos] << 24 | texts[pos + 1] << 16 | texts[pos + 2] << 8 | texts[pos + 3]


@kernel()
def copy_text(texts: UInt8s, pos: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Copy `size` bytes in steps of eight: reads and writes up to seven bytes more, so both buffers need the space."""
    copied = 0
    while copied < size:
        word = (
            texts[pos + copied]
            | texts[pos + copied + 1] << 8
            | texts[pos + copied + 2] << 16
            | texts[pos + copied + 3] << 24
        )
        high_word = (
            texts[pos + copied + 4]
            | texts[pos + copied + 5] << 8
            | texts[pos + copied + 6] << 16
            | texts[pos + copied + 7] << 24
        )
        word |= high_word << 32
        for i in range(8):
            out[out_pos + copied + i] = (word >> 8 * i) & 255
        copied += 8
    return out_pos + size


@kernel(put_control)
def put_single_byte_text(
    buf: UInt8s, pos: int, limit: int, highest: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write text of one byte per character as a JSON string; bytes up to `highest` equal their Unicode characters.

    Other bytes return -2.
    """
    if out_limit - out_pos < 6 * (limit - pos) + 2:
        return -1
    out[out_pos] = 34
    out_pos += 1
    while pos < limit:
        byte = buf[pos] + 0
        pos += 1
        if byte > highest or (byte >= 0x7F and byte < 0xA0):
            return -2
        if byte < 0x20:
            out_pos = put_control(byte, out, out_pos)
            continue
        if byte == 0x22 or byte == 0x5C:
            out[out_pos] = 92
            out_pos += 1
        if byte >= 0x80:
            out[out_pos] = 0xC0 | byte >> 6
            out_pos += 1
            byte = 0x80 | byte & 0x3F
        out[out_pos] = byte
        out_pos += 1
    out[out_pos] = 34
    return out_pos + 1


# -- dates and times ---------------------------------------------------------------------------------------------------


@kernel(put_last_digits)
def put_year_month_day(year: int, month: int, day: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a quote and YYYY-MM-DD; -2 for years of more than four digits."""
    if year > 9999:
        return -2
    out[out_pos] = 34
    out_pos = put_last_digits(year, 4, out, out_pos + 1)
    out[out_pos] = 45
    out_pos = put_last_digits(month, 2, out, out_pos + 1)
    out[out_pos] = 45
    return put_last_digits(day, 2, out, out_pos + 1)


@kernel(put_last_digits)
def put_clock(hour: int, minute: int, second: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write HH:MM:SS; hours may have up to four digits."""
    digits = 2 + (hour >= 100) + (hour >= 1000)
    out_pos = put_last_digits(hour, digits, out, out_pos)
    out[out_pos] = 58
    out_pos = put_last_digits(minute, 2, out, out_pos + 1)
    out[out_pos] = 58
    return put_last_digits(second, 2, out, out_pos + 1)


@kernel(put_last_digits)
def put_fraction(units: int, digits: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write the fraction of a second, if `digits` > 0, and the closing quote."""
    if digits > 0:
        width = (digits + 1) >> 1
        unit_limit = 100
        if width == 2:
            unit_limit = 10000
        elif width == 3:
            unit_limit = 1000000
        if units >= unit_limit:
            return -2
        out[out_pos] = 46
        put_last_digits(units, 2 * width, out, out_pos + 1)
        out_pos += 1 + digits
    out[out_pos] = 34
    return out_pos + 1


@kernel(load_big_endian, put_clock, put_year_month_day, put_fraction)
def put_datetime2(buf: UInt8s, pos: int, digits: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a DATETIME2 as a JSON string."""
    packed = load_big_endian(buf, pos, 5) - 0x8000000000
    if packed < 0:
        return -2
    months = packed >> 22
    year = months // 13
    out_pos = put_year_month_day(year, months - 13 * year, packed >> 17 & 31, out, out_pos)
    if out_pos < 0:
        return out_pos
    out[out_pos] = 32
    out_pos = put_clock(packed >> 12 & 31, packed >> 6 & 63, packed & 63, out, out_pos + 1)
    return put_fraction(load_big_endian(buf, pos + 5, (digits + 1) >> 1), digits, out, out_pos)


@kernel(load_big_endian, put_clock, put_fraction)
def put_time2(buf: UInt8s, pos: int, digits: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a TIME2 as a JSON string."""
    width = (digits + 1) >> 1
    packed = load_big_endian(buf, pos, 3 + width) - (0x800000 << 8 * width)
    out[out_pos] = 34
    out_pos += 1
    if packed < 0:
        packed = -packed
        out[out_pos] = 45
        out_pos += 1
    whole = packed >> 8 * width
    out_pos = put_clock(whole >> 12 & 1023, whole >> 6 & 63, whole & 63, out, out_pos)
    return put_fraction(packed & ((1 << 8 * width) - 1), digits, out, out_pos)


@kernel(load_big_endian, put_clock, put_date, put_year_month_day, put_fraction)
def put_timestamp2(buf: UInt8s, pos: int, digits: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a TIMESTAMP2 as a JSON string."""
    seconds = load_big_endian(buf, pos, 4)
    days = seconds // 86400
    if seconds == 0:
        out_pos = put_year_month_day(0, 0, 0, out, out_pos)
    else:
        out[out_pos] = 34
        out_pos = put_date(days, out, out_pos + 1)
    out[out_pos] = 32
    minutes = (seconds - days * 86400) // 60
    out_pos = put_clock(minutes // 60, minutes % 60, seconds % 60, out, out_pos + 1)
    return put_fraction(load_big_endian(buf, pos + 4, (digits + 1) >> 1), digits, out, out_pos)


# -- choices -----------------------------------------------------------------------------------------------------------


@kernel(put_entry, put_unsigned, load_word)
def put_enum(ordinal: int, texts: UInt8s, base: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the text of an ENUM, or its number if it has no text.

    Args:
        base: position of the texts in `texts`; -1 = they are unknown.
    """
    if base < 0 or ordinal < 0 or ordinal > load_word(texts, base):
        return put_unsigned(ordinal, out, out_pos, out_limit)
    if ordinal == 0:
        out[out_pos] = 34
        out[out_pos + 1] = 34
        return out_pos + 2
    return put_entry(texts, base, ordinal - 1, out, out_pos, out_limit)


@kernel(put_entry, put_unsigned, load_word)
def put_set(mask: int, texts: UInt8s, base: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the texts of a SET as a JSON array, or its mask if a bit has no text.

    Args:
        base: position of the texts in `texts`; -1 = they are unknown.
    """
    if base < 0:
        return put_unsigned(mask, out, out_pos, out_limit)
    count = load_word(texts, base)
    if count < 64 and (mask < 0 or mask >> count != 0):
        return put_unsigned(mask, out, out_pos, out_limit)
    separator = 91
    if mask == 0:
        out[out_pos] = 91
        out_pos += 1
    for i in range(64):
        if mask >> i & 1:
            out[out_pos] = separator
            out_pos += 1
            separator = 44
            out_pos = put_entry(texts, base, i, out, out_pos, out_limit)
            if out_pos < 0:
                return out_pos
            if out_limit - out_pos < 8:
                return -1
    out[out_pos] = 93
    return out_pos + 1


# -- any value ---------------------------------------------------------------------------------------------------------


@kernel(put_any_text, put_bytes, put_single_byte_text)
def put_sized_value(
    buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a value that has a length: text or bytes.

    Args:
        parameter: of TEXT, the highest byte that equals its Unicode character.
    """
    if kind == 33 or kind == 34:
        return put_any_text(buf, pos, limit, out, out_pos, out_limit)
    if kind == 35:
        return put_bytes(buf, pos, limit, out, out_pos, out_limit)
    if kind == 32:
        return put_single_byte_text(buf, pos, limit, parameter, out, out_pos, out_limit)
    return -2


@kernel(
    load_big_endian, load_little_endian, put_datetime2, put_year_month_day, put_quoted_decimal, put_double,
    put_time2, put_enum, put_float, put_fraction,
    put_set, put_signed, put_timestamp2, put_unsigned,
)  # fmt: skip
def put_fixed_value(
    buf: UInt8s,
    pos: int,
    size: int,
    kind: int,
    parameter: int,
    texts: UInt8s,
    base: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> int:
    """Write a value of fixed width.

    Args:
        base: position of the texts of an ENUM or SET in `texts`; -1 = none.
    """
    if kind == 1:
        value = load_little_endian(buf, pos, size)
        if size < 8:
            sign = 1 << 8 * size - 1
            value = (value ^ sign) - sign
        return put_signed(value, out, out_pos, out_limit)
    if kind == 2:
        return put_unsigned(load_little_endian(buf, pos, size), out, out_pos, out_limit)
    if kind == 12:
        return put_datetime2(buf, pos, parameter, out, out_pos)
    if kind == 13:
        return put_timestamp2(buf, pos, parameter, out, out_pos)
    if kind == 5:
        return put_quoted_decimal(buf, pos, parameter >> 8, parameter & 255, out, out_pos, out_limit)
    if kind == 4:
        return put_double(load_little_endian(buf, pos, 8), out, out_pos, out_limit)
    if kind == 3:
        return put_float(load_little_endian(buf, pos, 4), out, out_pos, out_limit)
    if kind == 10:
        packed = load_little_endian(buf, pos, 3)
        out_pos = put_year_month_day(packed >> 9, packed >> 5 & 15, packed & 31, out, out_pos)
        return out_pos if out_pos < 0 else put_fraction(0, 0, out, out_pos)
    if kind == 11:
        return put_time2(buf, pos, parameter, out, out_pos)
    if kind == 9:
        return put_unsigned(1900 + buf[pos] if buf[pos] else 0, out, out_pos, out_limit)
    if kind == 6:
        return put_unsigned(load_big_endian(buf, pos, size), out, out_pos, out_limit)
    if kind == 7:
        return put_enum(load_little_endian(buf, pos, size), texts, base, out, out_pos, out_limit)
    if kind == 8:
        return put_set(load_little_endian(buf, pos, size), texts, base, out, out_pos, out_limit)
    return -2
