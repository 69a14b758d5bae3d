"""Kernels that write numbers and times as JSON; conventions as in `formats.jsontext`."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableUInt8s

_LIMB = (1 << 56) - 1
_ONE = 1 << 56
_HALF = 1 << 55


@kernel()
def put_null(out: MutableUInt8s, o: int, z: int) -> int:
    """Write `null`."""
    if z - o < 4:
        return -1
    out[o] = 110
    out[o + 1] = 117
    out[o + 2] = 108
    out[o + 3] = 108
    return o + 4


@kernel()
def put_last_digits(value: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Write the last `size` (1 to 8) digits of a number below 10**8; always writes eight bytes.

    The number is split in halves three times, all halves of one step by one multiplication.
    """
    high = (value * 109951163) >> 40
    fours = high + ((value - high * 10000) << 32)
    hundreds = ((fours * 10486) >> 20) & 0x7F0000007F
    pairs = hundreds + ((fours - hundreds * 100) << 16)
    tens = ((pairs * 103) >> 10) & 0xF000F000F000F
    digits = tens + ((pairs - tens * 10) << 8) + 0x3030303030303030
    digits = digits >> (64 - 8 * size)
    for i in range(8):
        out[o + i] = (digits >> (8 * i)) & 255
    return o + size


@kernel()
def count_digits(value: int) -> int:
    """Return the number of digits of a number below 10**8."""
    size = 1 + (value >= 10) + (value >= 100) + (value >= 1000)
    return size + (value >= 10000) + (value >= 100000) + (value >= 1000000) + (value >= 10000000)


@kernel(count_digits, put_last_digits)
def put_unsigned(value: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write an unsigned 64-bit number, given as its bit pattern."""
    if z - o < 24:
        return -1
    if value < 0 or value >= 10000000000000000:
        upper = 0
        if value < 0:
            upper = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) // 5000000000000000
        else:
            upper = value // 10000000000000000
        lower = (value - upper * 10000000000000000) & 0x7FFFFFFFFFFFFFFF
        o = put_last_digits(upper, 1 + (upper >= 10) + (upper >= 100) + (upper >= 1000), out, o)
        upper = lower // 100000000
        o = put_last_digits(upper, 8, out, o)
        return put_last_digits(lower - upper * 100000000, 8, out, o)
    if value >= 100000000:
        upper = value // 100000000
        value -= upper * 100000000
        o = put_last_digits(upper, count_digits(upper), out, o)
        return put_last_digits(value, 8, out, o)
    return put_last_digits(value, count_digits(value), out, o)


@kernel(put_unsigned)
def put_signed(value: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a signed number."""
    if value >= 0:
        return put_unsigned(value, out, o, z)
    if z - o < 1:
        return -1
    out[o] = 45
    return put_unsigned(-value, out, o + 1, z)


@kernel()
def put_hex8(value: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the low 32 bits as eight hexadecimal digits."""
    if z - o < 8:
        return -1
    for i in range(8):
        digit = (value >> (28 - 4 * i)) & 15
        out[o + i] = 48 + digit + (39 if digit > 9 else 0)
    return o + 8


@kernel()
def put_fraction(
    high: int, low: int, above_high: int, above_low: int, below_high: int, below_low: int, out: MutableUInt8s, o: int
) -> int:
    """Write the fewest digits of a fraction that lie between its two bounds, the last one rounded to the nearest.

    All are numbers of 112 bits after the binary point, in two limbs of 56: the fraction, and the distances of the
    bounds above and below it (Steele and White, 1990, "How to print floating-point numbers accurately"; ties to
    even).
    """
    while True:
        low *= 10
        high = high * 10 + (low >> 56)
        low &= _LIMB
        digit = high >> 56
        high &= _LIMB
        above_low *= 10
        above_high = above_high * 10 + (above_low >> 56)
        above_low &= _LIMB
        below_low *= 10
        below_high = below_high * 10 + (below_low >> 56)
        below_low &= _LIMB
        is_low = high < below_high or (high == below_high and low < below_low)
        rest = low + above_low
        total = high + above_high + (rest >> 56)
        is_high = total > _ONE or (total == _ONE and rest & _LIMB != 0)
        if is_low or is_high:
            nearer = high > _HALF or (high == _HALF and (low > 0 or digit & 1 != 0))
            out[o] = 48 + digit + (1 if is_high and (nearer or not is_low) else 0)
            return o + 1
        out[o] = 48 + digit
        o += 1


@kernel(put_fraction, put_unsigned)
def put_binary_fraction(number: int, k: int, lowest: bool, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the shortest decimal that reads back as the float `number / 2**k`, for k up to 68 and number below 2**53.

    Its neighbours are half a unit of number away, or a quarter below a power of 2 (lowest).
    """
    if z - o < 64:
        return -1
    whole = 0
    if k <= 52:
        whole = number >> k
        number &= (1 << k) - 1
    o = put_unsigned(whole, out, o, z)
    out[o] = 46
    o += 1
    if number == 0:
        out[o] = 48
        return o + 1
    if k <= 55:
        high, low = number << (56 - k), 0
        above_high, above_low = 1 << (55 - k), 0
    else:
        high, low = number >> (k - 56), (number & ((1 << (k - 56)) - 1)) << (112 - k)
        above_high, above_low = 0, 1 << (111 - k)
    if not lowest:
        return put_fraction(high, low, above_high, above_low, above_high, above_low, out, o)
    below_low = (above_high & 1) << 55 | above_low >> 1
    return put_fraction(high, low, above_high, above_low, above_high >> 1, below_low, out, o)


@kernel(put_binary_fraction)
def put_double(bits: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the shortest decimal that reads back as this double (bit pattern), for 0 and magnitudes 2**-16 to 2**53."""
    if z - o < 65:
        return -1
    if bits < 0:
        out[o] = 45
        o += 1
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0 and mantissa == 0:
        return put_binary_fraction(0, 0, False, out, o, z)
    if exponent < 1007 or exponent > 1075:
        return -2
    return put_binary_fraction(mantissa + 0x10000000000000, 1075 - exponent, mantissa == 0, out, o, z)


@kernel(put_last_digits)
def put_date(days: int, out: MutableUInt8s, o: int) -> int:
    """Write days since 1970-01-01 as YYYY-MM-DD; computed in eras of 400 years that begin in March."""
    days += 719468
    era = days // 146097
    day = days - era * 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month += 3
    year += era * 400
    if month > 12:
        month -= 12
        year += 1
    o = put_last_digits(year, 4, out, o)
    out[o] = 45
    o = put_last_digits(month, 2, out, o + 1)
    out[o] = 45
    return put_last_digits(day, 2, out, o + 1)


@kernel(put_date, put_last_digits)
def put_time(microseconds: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write microseconds since 1970-01-01 UTC as a quoted RFC 3339 time, for the years 1970 to 9999."""
    if z - o < 40:
        return -1
    if microseconds < 0 or microseconds >= 253402300800000000:
        return -2
    seconds = microseconds // 1000000
    days = seconds // 86400
    out[o] = 34
    o = put_date(days, out, o + 1)
    out[o] = 84
    minutes = (seconds - days * 86400) // 60
    hours = minutes // 60
    o = put_last_digits(hours, 2, out, o + 1)
    out[o] = 58
    o = put_last_digits(minutes - hours * 60, 2, out, o + 1)
    out[o] = 58
    o = put_last_digits(seconds - days * 86400 - minutes * 60, 2, out, o + 1)
    out[o] = 46
    o = put_last_digits(microseconds - seconds * 1000000, 6, out, o + 1)
    out[o] = 90
    out[o + 1] = 34
    return o + 2
