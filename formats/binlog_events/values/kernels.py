"""Values of row images as JSON, as kernels: what `values.decoding` makes of the same bytes, or NOT_MINE."""

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
    """Four bytes, big-endian."""
    return texts[p] << 24 | texts[p + 1] << 16 | texts[p + 2] << 8 | texts[p + 3]


@kernel()
def copy_text(texts: UInt8s, p: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Copies in steps of eight, so perhaps up to seven bytes more; there must be room for them on both sides."""
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
    """Text of one byte per character, whose characters up to `most` are those of Unicode; others are not ours."""
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
    """YYYY-MM-DD behind a quote, for years of four digits."""
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
    """HH:MM:SS"""
    digits = 2 + (hour >= 100) + (hour >= 1000)
    o = put_eight(hour, digits, out, o)
    out[o] = 58
    o = put_eight(minute, 2, out, o + 1)
    out[o] = 58
    return put_eight(second, 2, out, o + 1)


@kernel(put_eight)
def put_parts(units: int, digits: int, out: MutableUInt8s, o: int) -> int:
    """The fraction of a second, and the closing quote."""
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
    """DATETIME2"""
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
    """TIME2"""
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
    """TIMESTAMP2"""
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
    """The text of an ENUM, or its number."""
    if base < 0 or ordinal < 0 or ordinal > word_at(texts, base):
        return put_unsigned(ordinal, out, o, z)
    if ordinal == 0:
        out[o] = 34
        out[o + 1] = 34
        return o + 2
    return put_entry(texts, base, ordinal - 1, out, o, z)


@kernel(put_entry, put_unsigned, word_at)
def put_set(mask: int, texts: UInt8s, base: int, out: MutableUInt8s, o: int, z: int) -> int:
    """The texts of a SET, or the number."""
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
    """A value that has a length: text and bytes. parameter: of TEXT, the highest byte that is ours."""
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
    """A value of fixed width. base: where the texts of an ENUM or SET are, or -1."""
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
