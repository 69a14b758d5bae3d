"""Values of row images as SQL literals, as kernels: the text of `sql.literals`, or -2 where kernels have none."""

from __future__ import annotations

from binlogtool.formats.binlog_events.values.kernels import (
    copy_text,
    load_word,
    put_datetime2,
    put_fraction,
    put_time2,
    put_timestamp2,
    put_year_month_day,
)
from binlogtool.formats.binlog_events.values.kind_codes import (
    BIT,
    BYTES,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FIRST_TEMPORAL,
    FLOAT,
    GEOMETRY,
    SIGNED,
    TEXT,
    TIME2,
    TIMESTAMP2,
    UTF8,
    UUID,
    YEAR,
)
from binlogtool.formats.binlog_events.values.numbers import put_packed_decimal
from binlogtool.formats.bodies import put_uuid
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_double, put_unsigned
from binlogtool.formats.jsontext import is_utf8, put_entry
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big_endian, load_little_endian

SMALLEST_WITHOUT_EXPONENT = 0x3F1A36E2EB1C432D
"""The bits of 1e-4: Python writes smaller numbers with an exponent."""


@kernel()
def put_hex(buf: UInt8s, p: int, n: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Write `X'…'`, padded to `size` bytes with zeros."""
    out[o] = 88
    out[o + 1] = 39
    o += 2
    for i in range(max(size, n - p)):
        c = buf[p + i] + 0 if p + i < n else 0
        high = c >> 4
        low = c & 15
        out[o] = 48 + high + (39 if high > 9 else 0)
        out[o + 1] = 48 + low + (39 if low > 9 else 0)
        o += 2
    out[o] = 39
    return o + 1


@kernel()
def escape_byte(c: int) -> int:
    """Return what follows the backslash for this byte; 0 if it needs no escape."""
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


@kernel(escape_byte)
def put_quoted(buf: UInt8s, p: int, n: int, highest_byte: int, out: MutableUInt8s, o: int) -> int:
    """Write a text as a string literal in UTF-8.

    Text that may contain a client's delimiter (see `sql.client`) is rejected.

    Args:
        highest_byte: the highest byte that equals the code point of its character; 256 if the text is UTF-8
            itself.
    """
    out[o] = 39
    o += 1
    while p < n:
        c = buf[p] + 0
        p += 1
        if c >= 0x80 and highest_byte < 256:
            if c > highest_byte or c < 0xA0:
                return -2
            out[o] = 0xC0 | c >> 6
            o += 1
            c = 0x80 | c & 0x3F
        escape = escape_byte(c)
        if escape > 0:
            out[o] = 92
            o += 1
            c = escape
        elif c == 39:
            out[o] = 39
            o += 1
        elif c == 47 and n - p > 1 and buf[p] == 42 and buf[p + 1] == 33:
            return -2
        out[o] = c
        o += 1
    out[o] = 39
    return o + 1


@kernel()
def put_bits(value: int, out: MutableUInt8s, o: int) -> int:
    """Write `b'…'` without leading zeros."""
    out[o] = 98
    out[o + 1] = 39
    o += 2
    started = 0
    for i in range(64):
        bit = value >> (63 - i) & 1
        started |= bit
        if started > 0 or i == 63:
            out[o] = 48 + bit
            o += 1
    out[o] = 39
    return o + 1


@kernel(put_double)
def put_floating(bits: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the double with these bits, as `1.5e0`."""
    size = bits & 0x7FFFFFFFFFFFFFFF
    if size != 0 and size < SMALLEST_WITHOUT_EXPONENT:
        return -2
    o = put_double(bits, out, o, z)
    if o < 0:
        return o
    out[o] = 101
    out[o + 1] = 48
    return o + 2


@kernel()
def widen_float(bits: int) -> int:
    """Return the bits of a float as a double; those of infinity where this does not work."""
    exponent = bits >> 23 & 0xFF
    widened_bits = (bits & 0x7FFFFF) << 29
    if exponent == 255 or (exponent == 0 and widened_bits != 0):
        return 0x7FF0000000000000
    if exponent > 0:
        widened_bits |= (exponent + 896) << 52
    return widened_bits | -0x8000000000000000 if bits >= 0x80000000 else widened_bits


@kernel(put_entry, load_word)
def put_set_members(mask: int, texts: UInt8s, base: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the texts of a SET."""
    count = load_word(texts, base)
    if count < 64 and (mask < 0 or mask >> count != 0):
        return -2
    out[o] = 39
    o += 1
    start = o
    for i in range(count):
        if mask >> i & 1:
            if o > start:
                out[o] = 44
                o += 1
            o = put_entry(texts, base, i, out, o, z)
            if o < 0:
                return o
            if z - o < 8:
                return -1
    out[o] = 39
    return o + 1


@kernel(load_big_endian, load_little_endian)
def load_number(buf: UInt8s, p: int, size: int, kind: int) -> int:
    """Load the number in the bytes of a value."""
    if kind == BIT:
        return load_big_endian(buf, p, size)
    if kind == YEAR:
        return 1900 + buf[p] if buf[p] else 0
    value = load_little_endian(buf, p, size)
    if kind == SIGNED and size < 8:
        sign = 1 << 8 * size - 1
        return (value ^ sign) - sign
    return value


@kernel(load_little_endian, put_datetime2, put_year_month_day, put_time2, put_fraction, put_timestamp2)
def put_temporal(buf: UInt8s, p: int, kind: int, parameter: int, out: MutableUInt8s, o: int) -> int:
    """Write a date or time literal."""
    start = o
    if kind == DATETIME2:
        o = put_datetime2(buf, p, parameter, out, o)
    elif kind == TIMESTAMP2:
        o = put_timestamp2(buf, p, parameter, out, o)
    elif kind == TIME2:
        o = put_time2(buf, p, parameter, out, o)
    else:
        packed = load_little_endian(buf, p, 3)
        o = put_year_month_day(packed >> 9, packed >> 5 & 15, packed & 31, out, o)
        if o >= 0:
            o = put_fraction(0, 0, out, o)
    if o >= 0:
        out[start] = 39
        out[o - 1] = 39
    return o


@kernel(
    load_number,
    put_bits,
    put_set_members,
    put_entry,
    put_floating,
    put_temporal,
    put_packed_decimal,
    put_unsigned,
    widen_float,
)
def put_fixed_literal(
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
        base: offset of the texts of an ENUM or SET, or -1.
    """
    if kind >= FIRST_TEMPORAL:
        return put_temporal(buf, p, kind, parameter, out, o)
    if kind == DECIMAL:
        return put_packed_decimal(buf, p, parameter >> 8, parameter & 255, out, o, z)
    value = load_number(buf, p, size, kind)
    if kind == FLOAT or kind == DOUBLE:  # noqa: SIM109
        return put_floating(widen_float(value) if kind == FLOAT else value, out, o, z)
    if kind == BIT:
        return put_bits(value, out, o)
    if kind == ENUM and value == 0:
        return -2
    if base >= 0:
        if kind == ENUM:
            return put_entry(texts, base, value - 1, out, o, z)
        return put_set_members(value, texts, base, out, o, z)
    if kind == SIGNED and value < 0:
        out[o] = 45
        o += 1
        value = -value
    return put_unsigned(value, out, o, z)


@kernel(copy_text, is_utf8, put_hex, put_quoted, put_uuid)
def put_sized_literal(
    buf: UInt8s,
    p: int,
    n: int,
    kind: int,
    parameter: int,
    texts: UInt8s,
    intro: int,
    length: int,
    out: MutableUInt8s,
    o: int,
) -> int:
    """Write a value that has a length.

    Args:
        intro: offset of what precedes its hexadecimal digits.
        length: size of that.
    """
    if kind == TEXT or kind == UTF8:  # noqa: SIM109
        if kind == UTF8 and not is_utf8(buf, p, n):
            return -2
        return put_quoted(buf, p, n, 256 if kind == UTF8 else parameter, out, o)
    if (kind == BYTES or kind == GEOMETRY) and (kind == BYTES or n - p > 4):  # noqa: SIM109
        return put_hex(buf, p, n, parameter, out, copy_text(texts, intro, length, out, o))
    if kind == UUID and n - p == 16:
        out[o] = 39
        o = put_uuid(buf, p, out, o + 1)
        out[o] = 39
        return o + 1
    return -2
