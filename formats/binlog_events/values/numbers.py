"""Kernels that write numbers of row images as JSON; see `formats.jsontext` for the values that they return."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import digits_of, put_binary, put_eight
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big


@kernel(put_eight)
def put_padded(value: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Write the last `size` (1 to 9) digits of a number below 10**9, with leading zeros; may write up to nine bytes."""
    if size < 9:
        return put_eight(value, size, out, o)
    top = value // 100000000
    out[o] = 48 + top
    return put_eight(value - top * 100000000, 8, out, o + 1)


@kernel(put_binary)
def put_float(bits: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the shortest decimal that reads back as the 32-bit float with these bits.

    Only for 0 and magnitudes from 2**-16 to 2**24, else -2: there all algorithms for the shortest decimal agree,
    because no boundary between neighbours is as short as a shortest decimal.
    """
    if z - o < 65:
        return -1
    if bits >= 0x80000000:
        out[o] = 45
        o += 1
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if exponent == 0 and mantissa == 0:
        return put_binary(0, 0, False, out, o, z)
    if exponent < 111 or exponent > 150:
        return -2
    return put_binary(mantissa + 0x800000, 150 - exponent, mantissa == 0, out, o, z)


@kernel(digits_of, put_padded)
def put_group(value: int, digits: int, started: int, out: MutableUInt8s, o: int) -> int:
    """Write a group of up to nine digits; without leading zeros if no digit precedes it (`started` is 0)."""
    if started == 0:
        if value == 0:
            return o
        digits = 9 if value >= 100000000 else digits_of(value)
    return put_padded(value, digits, out, o)


@kernel()
def too_large(value: int, digits: int) -> bool:
    """Check if a number has more than `digits` (up to nine) digits."""
    most = 1
    for _ in range(digits):
        most *= 10
    return value >= most


@kernel()
def put_point(out: MutableUInt8s, o: int, bare: bool) -> int:
    """Write a decimal point, with a zero before it if no digit precedes it (`needs_zero`)."""
    if bare:
        out[o] = 48
        o += 1
    out[o] = 46
    return o + 1


@kernel()
def group_digits(left: int, scale: int) -> int:
    """Return the number of digits in the next group of a packed decimal; the first and the last group may be short.

    Args:
        digits_left: digits not yet read.
        scale: digits after the point.
    """
    if left <= scale:
        return min(left, 9)
    digits = (left - scale) % 9
    return 9 if digits == 0 else digits


@kernel()
def group_size(digits: int) -> int:
    """Return the bytes of a group of `digits` digits."""
    return min((digits + 1) >> 1, 4)


@kernel(group_size, load_big, too_large)
def group_at(buf: UInt8s, p: int, digits: int, leads: bool, mask: int) -> int:
    """Load the number of a group of digits; -1 if it has more than its digits.

    Args:
        is_first: it is the first group, which holds the sign bit.
        mask: 255 for a negative decimal, whose bits are inverted; else 0.
    """
    size = group_size(digits)
    value = load_big(buf, p, size) ^ (mask * 0x1010101 & (1 << 8 * size) - 1)
    if leads:
        value ^= 0x80 << 8 * (size - 1)
    return -1 if too_large(value, digits) else value


@kernel(group_at, group_digits, group_size, put_group, put_point)
def put_packed(buf: UInt8s, p: int, precision: int, scale: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a packed decimal (see `decimals`) as digits."""
    if z - o < 110:
        return -1
    mask = 0 if buf[p] >= 128 else 255
    if mask:
        out[o] = 45
        o += 1
    start = o
    first = p
    left = precision
    while left > 0:
        if left == scale:
            o = put_point(out, o, o == start)
        digits = group_digits(left, scale)
        value = group_at(buf, p, digits, p == first, mask)
        if value < 0:
            return -2
        o = put_group(value, digits, o - start, out, o)
        p += group_size(digits)
        left -= digits
    if o == start:
        out[o] = 48
        o += 1
    return o


@kernel(put_packed)
def put_decimal(buf: UInt8s, p: int, precision: int, scale: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a packed decimal as a JSON string."""
    if z - o < 112:
        return -1
    out[o] = 34
    o = put_packed(buf, p, precision, scale, out, o + 1, z)
    if o < 0:
        return o
    out[o] = 34
    return o + 1
