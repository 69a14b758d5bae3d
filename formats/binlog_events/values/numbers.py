"""Numbers of row images as JSON, as kernels; see `formats.jsontext` for what they return."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import digits_of, put_eight, put_fraction, put_unsigned
from binlogtool.formats.loads import load_big


@kernel(put_eight)
def put_padded(value: int, size: int, out: Any, o: int) -> int:
    """The last `size` (1 to 9) digits of a number below 10**9; writes up to nine bytes."""
    if size < 9:
        return put_eight(value, size, out, o)
    top = value // 100000000
    out[o] = 48 + top
    return put_eight(value - top * 100000000, 8, out, o + 1)


@kernel(put_fraction, put_unsigned)
def put_float(bits: int, out: Any, o: int, z: int) -> int:
    """The shortest decimal that reads back as the 32-bit float with these bits, for 0 and magnitudes from 2**-16 to
    2**24: below that no border between neighbours is as short as a shortest decimal, so all ways to it agree.
    """
    if z - o < 64:
        return -1
    if bits >= 0x80000000:
        out[o] = 45
        o += 1
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if (exponent < 111 or exponent > 150) and (exponent != 0 or mantissa != 0):
        return -2
    k = 150 - exponent
    number = mantissa + 0x800000
    whole = 0
    if exponent == 0:
        number = 0
    elif k <= 23:
        whole = number >> k
        number &= (1 << k) - 1
    o = put_unsigned(whole, out, o, z)
    out[o] = 46
    o += 1
    if number == 0:
        out[o] = 48
        return o + 1
    above = 1 << (55 - k)
    below = above >> 1 if mantissa == 0 else above
    return put_fraction(number << (56 - k), 0, above, 0, below, 0, out, o)


@kernel(digits_of, put_padded)
def put_group(value: int, digits: int, started: int, out: Any, o: int) -> int:
    """A group of nine or fewer digits; without its leading zeros where no digit stands before it."""
    if started == 0:
        if value == 0:
            return o
        digits = 9 if value >= 100000000 else digits_of(value)
    return put_padded(value, digits, out, o)


@kernel()
def too_large(value: int, digits: int) -> bool:
    """Has the number more than so many (up to nine) digits?"""
    most = 1
    for _ in range(digits):
        most *= 10
    return value >= most


@kernel(load_big, put_group, put_padded, too_large)
def put_packed(buf: Any, p: int, precision: int, scale: int, out: Any, o: int, z: int) -> int:
    """A packed decimal (see `decimals`)."""
    if z - o < 110:
        return -1
    mask = 0 if buf[p] >= 128 else 255
    if mask:
        out[o] = 45
        o += 1
    start = o
    first = p
    left = precision - scale
    while left > 0:
        digits = left % 9
        if digits == 0:
            digits = 9
        left -= digits
        size = min((digits + 1) >> 1, 4)
        value = load_big(buf, p, size) ^ (mask * 0x1010101 & (1 << 8 * size) - 1)
        if p == first:
            value ^= 0x80 << 8 * (size - 1)
        p += size
        if too_large(value, digits):
            return -2
        o = put_group(value, digits, o - start, out, o)
    if o == start:
        out[o] = 48
        o += 1
    if scale > 0:
        out[o] = 46
        o += 1
    left = scale
    while left > 0:
        digits = min(left, 9)
        left -= digits
        size = min((digits + 1) >> 1, 4)
        value = load_big(buf, p, size) ^ (mask * 0x1010101 & (1 << 8 * size) - 1)
        if p == first:
            value ^= 0x80 << 8 * (size - 1)
        p += size
        if too_large(value, digits):
            return -2
        o = put_padded(value, digits, out, o)
    return o


@kernel(put_packed)
def put_decimal(buf: Any, p: int, precision: int, scale: int, out: Any, o: int, z: int) -> int:
    """A packed decimal in quotation marks."""
    if z - o < 112:
        return -1
    out[o] = 34
    o = put_packed(buf, p, precision, scale, out, o + 1, z)
    if o < 0:
        return o
    out[o] = 34
    return o + 1
