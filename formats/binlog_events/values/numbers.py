"""Kernels that write numbers of row images as JSON; see `formats.jsontext` for the values that they return."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import count_digits, put_binary_fraction, put_last_digits
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big_endian


@kernel(put_last_digits)
def put_padded_digits(value: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write the last `size` (1 to 9) digits of a number below 10**9, with leading zeros; may write up to nine bytes."""
    if size < 9:
        return put_last_digits(value, size, out, out_pos)
    top = value // 100000000
    out[out_pos] = 48 + top
    return put_last_digits(value - top * 100000000, 8, out, out_pos + 1)


@kernel(put_binary_fraction)
def put_float(bits: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the shortest decimal that reads back as the 32-bit float with these bits.

    Only for 0 and magnitudes from 2**-16 to 2**24, else -2: there all algorithms for the shortest decimal agree,
    because no boundary between neighbours is as short as a shortest decimal.
    """
    if out_limit - out_pos < 65:
        return -1
    if bits >= 0x80000000:
        out[out_pos] = 45
        out_pos += 1
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if exponent == 0 and mantissa == 0:
        return put_binary_fraction(0, 0, False, out, out_pos, out_limit)
    if exponent < 111 or exponent > 150:
        return -2
    return put_binary_fraction(mantissa + 0x800000, 150 - exponent, mantissa == 0, out, out_pos, out_limit)


@kernel(count_digits, put_padded_digits)
def put_digit_group(value: int, digits: int, started: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a group of up to nine digits; without leading zeros if no digit precedes it (`started` is 0)."""
    if started == 0:
        if value == 0:
            return out_pos
        digits = 9 if value >= 100000000 else count_digits(value)
    return put_padded_digits(value, digits, out, out_pos)


@kernel()
def has_more_digits(value: int, digits: int) -> bool:
    """Check if a number has more than `digits` (up to nine) digits."""
    bound = 1
    for _ in range(digits):
        bound *= 10
    return value >= bound


@kernel()
def put_decimal_point(out: MutableUInt8s, out_pos: int, needs_zero: bool) -> int:
    """Write a decimal point, with a zero before it if no digit precedes it (`needs_zero`)."""
    if needs_zero:
        out[out_pos] = 48
        out_pos += 1
    out[out_pos] = 46
    return out_pos + 1


@kernel()
def next_group_digits(digits_left: int, scale: int) -> int:
    """Return the number of digits in the next group of a packed decimal; the first and the last group may be short.

    Args:
        digits_left: digits not yet read.
        scale: digits after the point.
    """
    if digits_left <= scale:
        return min(digits_left, 9)
    digits = (digits_left - scale) % 9
    return 9 if digits == 0 else digits


@kernel()
def digit_group_size(digits: int) -> int:
    """Return the bytes of a group of `digits` digits."""
    return min((digits + 1) >> 1, 4)


@kernel(digit_group_size, load_big_endian, has_more_digits)
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
    return -1 if has_more_digits(value, digits) else value


@kernel(load_digit_group, next_group_digits, digit_group_size, put_digit_group, put_decimal_point)
def put_packed_decimal(
    buf: UInt8s, pos: int, precision: int, scale: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a packed decimal (see `decimals`) as digits."""
    if out_limit - out_pos < 110:
        return -1
    mask = 0 if buf[pos] >= 128 else 255
    if mask:
        out[out_pos] = 45
        out_pos += 1
    start = out_pos
    first = pos
    digits_left = precision
    while digits_left > 0:
        if digits_left == scale:
            out_pos = put_decimal_point(out, out_pos, out_pos == start)
        digits = next_group_digits(digits_left, scale)
        value = load_digit_group(buf, pos, digits, pos == first, mask)
        if value < 0:
            return -2
        out_pos = put_digit_group(value, digits, out_pos - start, out, out_pos)
        pos += digit_group_size(digits)
        digits_left -= digits
    if out_pos == start:
        out[out_pos] = 48
        out_pos += 1
    return out_pos


@kernel(put_packed_decimal)
def put_quoted_decimal(
    buf: UInt8s, pos: int, precision: int, scale: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a packed decimal as a JSON string."""
    if out_limit - out_pos < 112:
        return -1
    out[out_pos] = 34
    out_pos = put_packed_decimal(buf, pos, precision, scale, out, out_pos + 1, out_limit)
    if out_pos < 0:
        return out_pos
    out[out_pos] = 34
    return out_pos + 1
