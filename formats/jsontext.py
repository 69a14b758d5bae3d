"""Kernels that write JSON: numbers, texts, times. What a format's own kernels are made of (`formats.base.JsonLine`).

All write to `out[o:z]` and return the place behind what they wrote, or say why there is nothing: NO_ROOM, or NOT_MINE
(the value needs more than plain JSON, or a text form that is not worth a kernel: the general writer does it). What they
write is what `msgspec.json` writes for the same value, less the characters that reports escape in addition.

`texts` is a table made by `text_table` or `name_table`: 32-bit big-endian numbers, then the texts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from binlogtool.formats.fields import kernel

NO_ROOM = -1
NOT_MINE = -2

_LIMB = (1 << 56) - 1
_ONE = 1 << 56


# -- tables ------------------------------------------------------------------------------------------------------------


def text_table(texts: Mapping[int, bytes]) -> bytes:
    """For `put_text`: texts by small numbers. Numbers without a text are not the kernel's."""
    count = max(texts, default=-1) + 1
    return _table([texts.get(number, b"") for number in range(count)])


def name_table(names: Mapping[int, bytes]) -> bytes:
    """For `put_name`: texts by any signed 64-bit numbers."""
    numbers = sorted(names)
    return struct.pack(f">I{len(numbers)}q", len(numbers), *numbers) + _table([names[number] for number in numbers])


def _table(texts: list[bytes]) -> bytes:
    at, places = 8 + 4 * len(texts), []
    for text in texts:
        places.append(at)
        at += len(text)
    return struct.pack(f">{len(texts) + 2}I", len(texts), *places, at) + b"".join(texts)


@kernel()
def _number(texts: Any, p: int) -> int:
    return texts[p] * 0x1000000 + texts[p + 1] * 0x10000 + texts[p + 2] * 0x100 + texts[p + 3]  # type: ignore[no-any-return]


@kernel(_number)
def put_entry(texts: Any, base: int, index: int, out: Any, o: int, z: int) -> int:
    """Entry number `index` of the table of texts at `texts[base]`."""
    if index < 0 or index >= _number(texts, base):
        return -2
    start = _number(texts, base + 4 + 4 * index)
    size = _number(texts, base + 8 + 4 * index) - start
    if size == 0:
        return -2
    if size > z - o:
        return -1
    start += base
    for i in range(size):
        out[o + i] = texts[start + i]
    return o + size


@kernel(put_entry)
def put_text(texts: Any, index: int, out: Any, o: int, z: int) -> int:
    """A text of a table made by `text_table`."""
    return put_entry(texts, 0, index, out, o, z)


@kernel(_number, put_entry)
def put_name(texts: Any, number: int, out: Any, o: int, z: int) -> int:
    """The text of a number in a table made by `name_table`; NOT_MINE if it has none."""
    count = _number(texts, 0)
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        top = _number(texts, 4 + 8 * middle)
        if top >= 0x80000000:
            top -= 0x100000000
        if top * 0x100000000 + _number(texts, 8 + 8 * middle) < number:
            low = middle + 1
        else:
            high = middle
    if low == count:
        return -2
    top = _number(texts, 4 + 8 * low)
    if top >= 0x80000000:
        top -= 0x100000000
    if top * 0x100000000 + _number(texts, 8 + 8 * low) != number:
        return -2
    return put_entry(texts, 4 + 8 * count, low, out, o, z)


# -- numbers -----------------------------------------------------------------------------------------------------------


@kernel()
def put_null(out: Any, o: int, z: int) -> int:
    """`null`."""
    if z - o < 4:
        return -1
    out[o] = 110
    out[o + 1] = 117
    out[o + 2] = 108
    out[o + 3] = 108
    return o + 4


@kernel()
def put_eight(value: int, size: int, out: Any, o: int) -> int:
    """The last `size` (1 to 8) digits of a number below 10**8; writes eight bytes whatever the size.

    The number is cut in halves three times, all halves of one step by one multiplication.
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
def digits_of(value: int) -> int:
    """How many digits a number below 10**8 has."""
    size = 1 + (value >= 10) + (value >= 100) + (value >= 1000)
    return size + (value >= 10000) + (value >= 100000) + (value >= 1000000) + (value >= 10000000)


@kernel(digits_of, put_eight)
def put_unsigned(value: int, out: Any, o: int, z: int) -> int:
    """The unsigned number with these 64 bits."""
    if z - o < 24:
        return -1
    if value < 0 or value >= 10000000000000000:
        upper = 0
        if value < 0:
            upper = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) // 5000000000000000
        else:
            upper = value // 10000000000000000
        lower = (value - upper * 10000000000000000) & 0x7FFFFFFFFFFFFFFF
        o = put_eight(upper, 1 + (upper >= 10) + (upper >= 100) + (upper >= 1000), out, o)
        upper = lower // 100000000
        o = put_eight(upper, 8, out, o)
        return put_eight(lower - upper * 100000000, 8, out, o)
    if value >= 100000000:
        upper = value // 100000000
        value -= upper * 100000000
        o = put_eight(upper, digits_of(upper), out, o)
        return put_eight(value, 8, out, o)
    return put_eight(value, digits_of(value), out, o)


@kernel(put_unsigned)
def put_signed(value: int, out: Any, o: int, z: int) -> int:
    """A signed number."""
    if value >= 0:
        return put_unsigned(value, out, o, z)
    if z - o < 1:
        return -1
    out[o] = 45
    return put_unsigned(-value, out, o + 1, z)


@kernel()
def put_hex8(value: int, out: Any, o: int, z: int) -> int:
    """The low 32 bits as eight hexadecimal digits."""
    if z - o < 8:
        return -1
    for i in range(8):
        digit = (value >> (28 - 4 * i)) & 15
        out[o + i] = 48 + digit + (39 if digit > 9 else 0)
    return o + 8


@kernel(put_unsigned)
def put_double(bits: int, out: Any, o: int, z: int) -> int:
    """The shortest decimal that reads back as the double with these bits, for 0 and magnitudes from 2**-16 to 2**53.

    Digit by digit in exact fixed-point arithmetic: the rest of the fraction and the distance to the borders of the
    rounding interval are numbers of 112 bits in two limbs (Steele and White, 1990; the last digit is rounded to the
    nearest, ties to even).
    """
    if z - o < 64:
        return -1
    if bits < 0:
        out[o] = 45
        o += 1
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent < 1007 or exponent > 1075:
        if exponent != 0 or mantissa != 0:
            return -2
        exponent = 1075
        number = 0
    else:
        number = mantissa + 0x10000000000000
    k = 1075 - exponent
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
    if k <= 56:
        high = number << (56 - k)
        low = 0
    else:
        high = number >> (k - 56)
        low = (number & ((1 << (k - 56)) - 1)) << (112 - k)
    above_high = 0
    above_low = 0
    if k <= 55:
        above_high = 1 << (55 - k)
    else:
        above_low = 1 << (111 - k)
    below_high = above_high
    below_low = above_low
    if mantissa == 0:
        below_low = (below_high & 1) << 55 | below_low >> 1
        below_high = below_high >> 1
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
        sum_high = high + above_high + (rest >> 56)
        is_high = sum_high > _ONE or (sum_high == _ONE and rest & _LIMB != 0)
        if is_low or is_high:
            half = 1 << 55
            if not is_low:
                digit += 1
            elif is_high and (high > half or (high == half and (low > 0 or digit & 1 != 0))):
                digit += 1
            out[o] = 48 + digit
            return o + 1
        out[o] = 48 + digit
        o += 1


@kernel(put_eight)
def put_time(microseconds: int, out: Any, o: int, z: int) -> int:
    """Microseconds since 1970-01-01 UTC as a quoted RFC 3339 time; for the years 1970 to 9999."""
    if z - o < 40:
        return -1
    if microseconds < 0 or microseconds >= 253402300800000000:
        return -2
    seconds = microseconds // 1000000
    days = seconds // 86400
    rest = seconds - days * 86400
    shifted = days + 719468
    era = shifted // 146097
    day = shifted - era * 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month += 3
    year += era * 400
    if month > 12:
        month -= 12
        year += 1
    out[o] = 34
    o = put_eight(year, 4, out, o + 1)
    out[o] = 45
    o = put_eight(month, 2, out, o + 1)
    out[o] = 45
    o = put_eight(day, 2, out, o + 1)
    out[o] = 84
    hours = rest // 3600
    o = put_eight(hours, 2, out, o + 1)
    out[o] = 58
    minutes = rest // 60
    o = put_eight(minutes - hours * 60, 2, out, o + 1)
    out[o] = 58
    o = put_eight(rest - minutes * 60, 2, out, o + 1)
    out[o] = 46
    o = put_eight(microseconds - seconds * 1000000, 6, out, o + 1)
    out[o] = 90
    out[o + 1] = 34
    return o + 2


# -- text --------------------------------------------------------------------------------------------------------------


@kernel()
def _sequence(buf: Any, p: int, n: int) -> int:
    """The size of the UTF-8 sequence at `buf[p]`; 0 if it is none, or a character that reports escape."""
    first = buf[p] + 0
    if first < 0xC2 or first > 0xF4 or n - p < 2:
        return 0
    second = buf[p + 1] + 0
    if second < 0x80 or second > 0xBF:
        return 0
    if first < 0xE0:
        if (first == 0xC2 and second < 0xA0) or (first == 0xD8 and second == 0x9C):
            return 0
        return 2
    if n - p < 3:
        return 0
    third = buf[p + 2] + 0
    if third < 0x80 or third > 0xBF:
        return 0
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        if first == 0xE2:
            if second == 0x80 and ((third >= 0x8B and third <= 0x8F) or (third >= 0xA8 and third <= 0xAE)):
                return 0
            if second == 0x81 and third >= 0xA0 and third <= 0xA9:
                return 0
        if first == 0xEF:
            if second == 0xBB and third == 0xBF:
                return 0
            if second == 0xBF and third >= 0xB9 and third <= 0xBB:
                return 0
        return 3
    if n - p < 4 or buf[p + 3] < 0x80 or buf[p + 3] > 0xBF:
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@kernel(_sequence)
def put_string(buf: Any, p: int, n: int, out: Any, o: int, z: int) -> int:
    """The text `buf[p:n]` as a JSON string; NOT_MINE if it is no UTF-8 or holds DEL, C1, bidi or invisible characters."""
    if z - o < 6 * (n - p) + 2:
        return -1
    out[o] = 34
    o += 1
    while p < n:
        c = buf[p] + 0
        if c >= 0x20 and c < 0x7F:
            if c == 0x22 or c == 0x5C:
                out[o] = 92
                o += 1
            out[o] = c
            o += 1
            p += 1
        elif c >= 0x80:
            size = _sequence(buf, p, n)
            if size == 0:
                return -2
            for i in range(size):
                out[o + i] = buf[p + i]
            o += size
            p += size
        elif c == 0x7F:
            return -2
        else:
            short = 0
            if c == 8:
                short = 98
            elif c == 9:
                short = 116
            elif c == 10:
                short = 110
            elif c == 12:
                short = 102
            elif c == 13:
                short = 114
            out[o] = 92
            if short > 0:
                out[o + 1] = short
                o += 2
            else:
                out[o + 1] = 117
                out[o + 2] = 48
                out[o + 3] = 48
                out[o + 4] = 48 + (c >> 4)
                c = c & 15
                out[o + 5] = 48 + c + (39 if c > 9 else 0)
                o += 6
            p += 1
    out[o] = 34
    return o + 1


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(put_null)
def null_member(buf: Any, texts: Any, notes: Any, out: Any, o: int, z: int) -> int:
    """A member that is always null."""
    return put_null(out, o, z)


@kernel(put_text)
def text_member(buf: Any, texts: Any, notes: Any, out: Any, o: int, z: int, index: int) -> int:
    """A member that is one of the member's texts."""
    return put_text(texts, index, out, o, z)


@kernel(put_unsigned)
def unsigned_member(buf: Any, texts: Any, notes: Any, out: Any, o: int, z: int, value: int) -> int:
    """A member that is an unsigned column."""
    return put_unsigned(value, out, o, z)
