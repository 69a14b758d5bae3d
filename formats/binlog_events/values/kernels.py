"""Kernels that write values of row images as JSON, exactly as `values.decoding` and the JSON writer do.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.values.numbers import put_decimal, put_float
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_date, put_double, put_eight, put_signed, put_unsigned
from binlogtool.formats.jsontext import put_any_text, put_bytes, put_control, put_entry
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big, load_little

# -- texts -------------------------------------------------------------------------------------------------------------


@kernel()
def word_at(texts: UInt8s, p: int) -> int:
    """Load a big-endian number of four bytes."""
    return texts[p] << 24 | texts[p + 1] << 16 | texts[p + 2] << 8 | texts[p + 3]


@kernel()
def copy_text(texts: UInt8s, p: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Copy `size` bytes in steps of eight: reads and writes up to seven bytes more, so both buffers need the space."""
    at = 0
    while at < size:
        word = texts[p + at] | texts[p + at + 1] << 8 | texts[p + at + 2] << 16 | texts[p + at + 3] << 24
        more = texts[p + at + 4] | texts[p + at + 5] << 8 | texts[p + at + 6] << 16 | texts[p + at + 7] << 24
        word |= more << 32
        for i in range(8):
            out[o + at + i] = (word >> 8 * i) & 255
        at += 8
    return o + size


@kernel(put_control)
def put_latin(buf: UInt8s, p: int, n: int, most: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write text of one byte per character as a JSON string; bytes up to `highest` equal their Unicode characters.

    Other bytes return -2.
    """
    if z - o < 6 * (n - p) + 2:
        return -1
    out[o] = 34
    o += 1
    while p < n:
        c = buf[p] + 0
        p += 1
        if c > most or (c >= 0x7F and c < 0xA0):
            return -2
        if c < 0x20:
            o = put_control(c, out, o)
            continue
        if c == 0x22 or c == 0x5C:
            out[o] = 92
            o += 1
        if c >= 0x80:
            out[o] = 0xC0 | c >> 6
            o += 1
            c = 0x80 | c & 0x3F
        out[o] = c
        o += 1
    out[o] = 34
    return o + 1


# -- dates and times ---------------------------------------------------------------------------------------------------


@kernel(put_eight)
def put_day(year: int, month: int, day: int, out: MutableUInt8s, o: int) -> int:
    """Write a quote and YYYY-MM-DD; -2 for years of more than four digits."""
    if year > 9999:
        return -2
    out[o] = 34
    o = put_eight(year, 4, out, o + 1)
    out[o] = 45
    o = put_eight(month, 2, out, o + 1)
    out[o] = 45
    return put_eight(day, 2, out, o + 1)


@kernel(put_eight)
def put_clock(hour: int, minute: int, second: int, out: MutableUInt8s, o: int) -> int:
    """Write HH:MM:SS; hours may have up to four digits."""
    digits = 2 + (hour >= 100) + (hour >= 1000)
    o = put_eight(hour, digits, out, o)
    out[o] = 58
    o = put_eight(minute, 2, out, o + 1)
    out[o] = 58
    return put_eight(second, 2, out, o + 1)


@kernel(put_eight)
def put_parts(units: int, digits: int, out: MutableUInt8s, o: int) -> int:
    """Write the fraction of a second, if `digits` > 0, and the closing quote."""
    if digits > 0:
        width = (digits + 1) >> 1
        most = 100
        if width == 2:
            most = 10000
        elif width == 3:
            most = 1000000
        if units >= most:
            return -2
        out[o] = 46
        put_eight(units, 2 * width, out, o + 1)
        o += 1 + digits
    out[o] = 34
    return o + 1


@kernel(load_big, put_clock, put_day, put_parts)
def put_datetime(buf: UInt8s, p: int, digits: int, out: MutableUInt8s, o: int) -> int:
    """Write a DATETIME2 as a JSON string."""
    packed = load_big(buf, p, 5) - 0x8000000000
    if packed < 0:
        return -2
    months = packed >> 22
    year = months // 13
    o = put_day(year, months - 13 * year, packed >> 17 & 31, out, o)
    if o < 0:
        return o
    out[o] = 32
    o = put_clock(packed >> 12 & 31, packed >> 6 & 63, packed & 63, out, o + 1)
    return put_parts(load_big(buf, p + 5, (digits + 1) >> 1), digits, out, o)


@kernel(load_big, put_clock, put_parts)
def put_duration(buf: UInt8s, p: int, digits: int, out: MutableUInt8s, o: int) -> int:
    """Write a TIME2 as a JSON string."""
    width = (digits + 1) >> 1
    packed = load_big(buf, p, 3 + width) - (0x800000 << 8 * width)
    out[o] = 34
    o += 1
    if packed < 0:
        packed = -packed
        out[o] = 45
        o += 1
    whole = packed >> 8 * width
    o = put_clock(whole >> 12 & 1023, whole >> 6 & 63, whole & 63, out, o)
    return put_parts(packed & ((1 << 8 * width) - 1), digits, out, o)


@kernel(load_big, put_clock, put_date, put_day, put_parts)
def put_timestamp(buf: UInt8s, p: int, digits: int, out: MutableUInt8s, o: int) -> int:
    """Write a TIMESTAMP2 as a JSON string."""
    seconds = load_big(buf, p, 4)
    days = seconds // 86400
    if seconds == 0:
        o = put_day(0, 0, 0, out, o)
    else:
        out[o] = 34
        o = put_date(days, out, o + 1)
    out[o] = 32
    minutes = (seconds - days * 86400) // 60
    o = put_clock(minutes // 60, minutes % 60, seconds % 60, out, o + 1)
    return put_parts(load_big(buf, p + 4, (digits + 1) >> 1), digits, out, o)


# -- choices -----------------------------------------------------------------------------------------------------------


@kernel(put_entry, put_unsigned, word_at)
def put_enum(ordinal: int, texts: UInt8s, base: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the text of an ENUM, or its number if it has no text.

    Args:
        base: position of the texts in `texts`; -1 = they are unknown.
    """
    if base < 0 or ordinal < 0 or ordinal > word_at(texts, base):
        return put_unsigned(ordinal, out, o, z)
    if ordinal == 0:
        out[o] = 34
        out[o + 1] = 34
        return o + 2
    return put_entry(texts, base, ordinal - 1, out, o, z)


@kernel(put_entry, put_unsigned, word_at)
def put_set(mask: int, texts: UInt8s, base: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the texts of a SET as a JSON array, or its mask if a bit has no text.

    Args:
        base: position of the texts in `texts`; -1 = they are unknown.
    """
    if base < 0:
        return put_unsigned(mask, out, o, z)
    count = word_at(texts, base)
    if count < 64 and (mask < 0 or mask >> count != 0):
        return put_unsigned(mask, out, o, z)
    mark = 91
    if mask == 0:
        out[o] = 91
        o += 1
    for i in range(64):
        if mask >> i & 1:
            out[o] = mark
            o += 1
            mark = 44
            o = put_entry(texts, base, i, out, o, z)
            if o < 0:
                return o
            if z - o < 8:
                return -1
    out[o] = 93
    return o + 1


# -- any value ---------------------------------------------------------------------------------------------------------


@kernel(put_any_text, put_bytes, put_latin)
def put_sized(buf: UInt8s, p: int, n: int, kind: int, parameter: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a value that has a length: text or bytes.

    Args:
        parameter: of TEXT, the highest byte that equals its Unicode character.
    """
    if kind == 33 or kind == 34:
        return put_any_text(buf, p, n, out, o, z)
    if kind == 35:
        return put_bytes(buf, p, n, out, o, z)
    if kind == 32:
        return put_latin(buf, p, n, parameter, out, o, z)
    return -2


@kernel(
    load_big, load_little, put_datetime, put_day, put_decimal, put_double, put_duration, put_enum, put_float, put_parts,
    put_set, put_signed, put_timestamp, put_unsigned,
)  # fmt: skip
def put_fixed(
    buf: UInt8s,
    p: int,
    size: int,
    kind: int,
    parameter: int,
    texts: UInt8s,
    base: int,
    out: MutableUInt8s,
    o: int,
    z: int,
) -> int:
    """Write a value of fixed width.

    Args:
        base: position of the texts of an ENUM or SET in `texts`; -1 = none.
    """
    if kind == 1:
        value = load_little(buf, p, size)
        if size < 8:
            sign = 1 << 8 * size - 1
            value = (value ^ sign) - sign
        return put_signed(value, out, o, z)
    if kind == 2:
        return put_unsigned(load_little(buf, p, size), out, o, z)
    if kind == 12:
        return put_datetime(buf, p, parameter, out, o)
    if kind == 13:
        return put_timestamp(buf, p, parameter, out, o)
    if kind == 5:
        return put_decimal(buf, p, parameter >> 8, parameter & 255, out, o, z)
    if kind == 4:
        return put_double(load_little(buf, p, 8), out, o, z)
    if kind == 3:
        return put_float(load_little(buf, p, 4), out, o, z)
    if kind == 10:
        packed = load_little(buf, p, 3)
        o = put_day(packed >> 9, packed >> 5 & 15, packed & 31, out, o)
        return o if o < 0 else put_parts(0, 0, out, o)
    if kind == 11:
        return put_duration(buf, p, parameter, out, o)
    if kind == 9:
        return put_unsigned(1900 + buf[p] if buf[p] else 0, out, o, z)
    if kind == 6:
        return put_unsigned(load_big(buf, p, size), out, o, z)
    if kind == 7:
        return put_enum(load_little(buf, p, size), texts, base, out, o, z)
    if kind == 8:
        return put_set(load_little(buf, p, size), texts, base, out, o, z)
    return -2
