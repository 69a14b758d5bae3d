"""Kernels that write numbers, times and text as JSON.

All write to `out[o:z]` and return the end of the written bytes, or a code: NO_SPACE, or UNSUPPORTED (the value needs
more than plain JSON, or a text form that is not worth a kernel; the general writer writes it). They write the same
bytes as `msgspec.json`, except for characters that reports escape in addition.

`texts` is a table of `build_text_table` or `build_name_table`: 32-bit big-endian numbers, then the texts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from binlogtool.format_api.schema_fields import Int64s, MutableUInt8s, UInt8s, kernel, write_hex_digits

# --- Kernels that write numbers and times as JSON ---

_LIMB = (1 << 56) - 1
_ONE = 1 << 56
_HALF = 1 << 55


@kernel()
def write_json_null(out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write `null`."""
    if out_limit - out_pos < 4:
        return -1
    out[out_pos] = 110
    out[out_pos + 1] = 117
    out[out_pos + 2] = 108
    out[out_pos + 3] = 108
    return out_pos + 4


@kernel()
def write_json_bool(value: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write `true` or `false`."""
    if out_limit - out_pos < 5:
        return -1
    out[out_pos] = 116 if value else 102
    out[out_pos + 1] = 114 if value else 97
    out[out_pos + 2] = 117 if value else 108
    out[out_pos + 3] = 101 if value else 115
    out[out_pos + 4] = 101
    return out_pos + 5 - value


@kernel()
def write_last_digits(value: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write the last `size` (1 to 8) digits of a number below 10**8; always writes eight bytes.

    The number is split into halves three times; each step splits all parts with one multiplication.
    """
    high = (value * 109951163) >> 40
    fours = high + ((value - high * 10000) << 32)
    hundreds = ((fours * 10486) >> 20) & 0x7F0000007F
    pairs = hundreds + ((fours - hundreds * 100) << 16)
    tens = ((pairs * 103) >> 10) & 0xF000F000F000F
    digits = tens + ((pairs - tens * 10) << 8) + 0x3030303030303030
    digits = digits >> (64 - 8 * size)
    for i in range(8):
        out[out_pos + i] = (digits >> (8 * i)) & 255
    return out_pos + size


@kernel()
def count_digits(value: int) -> int:
    """Return the number of digits of a number below 10**8."""
    size = 1 + (value >= 10) + (value >= 100) + (value >= 1000)
    return size + (value >= 10000) + (value >= 100000) + (value >= 1000000) + (value >= 10000000)


@kernel(count_digits, write_last_digits)
def write_json_unsigned(value: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write an unsigned 64-bit number, given as its bit pattern."""
    if out_limit - out_pos < 24:
        return -1
    if value < 0 or value >= 10000000000000000:
        upper = 0
        if value < 0:
            upper = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) // 5000000000000000
        else:
            upper = value // 10000000000000000
        lower = (value - upper * 10000000000000000) & 0x7FFFFFFFFFFFFFFF
        out_pos = write_last_digits(upper, 1 + (upper >= 10) + (upper >= 100) + (upper >= 1000), out, out_pos)
        upper = lower // 100000000
        out_pos = write_last_digits(upper, 8, out, out_pos)
        return write_last_digits(lower - upper * 100000000, 8, out, out_pos)
    if value >= 100000000:
        upper = value // 100000000
        value -= upper * 100000000
        out_pos = write_last_digits(upper, count_digits(upper), out, out_pos)
        return write_last_digits(value, 8, out, out_pos)
    return write_last_digits(value, count_digits(value), out, out_pos)


@kernel(write_json_unsigned)
def write_json_signed(value: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write a signed number."""
    if value >= 0:
        return write_json_unsigned(value, out, out_pos, out_limit)
    if out_limit - out_pos < 1:
        return -1
    out[out_pos] = 45
    return write_json_unsigned(-value, out, out_pos + 1, out_limit)


@kernel()
def write_uint32_hex(value: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the low 32 bits as eight hexadecimal digits."""
    if out_limit - out_pos < 8:
        return -1
    for i in range(8):
        digit = (value >> (28 - 4 * i)) & 15
        out[out_pos + i] = 48 + digit + (39 if digit > 9 else 0)
    return out_pos + 8


@kernel()
def write_shortest_fraction(
    high: int,
    low: int,
    above_high: int,
    above_low: int,
    below_high: int,
    below_low: int,
    out: MutableUInt8s,
    out_pos: int,
) -> int:
    """Write the fewest digits of a fraction that lie between its two bounds, with the last digit rounded to nearest.

    All are numbers of 112 bits after the binary point, in two limbs of 56: the fraction, and the distances of the
    bounds above and below it (Steele and White, 1990, "How to print floating-point numbers accurately"; ties to even).
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
            out[out_pos] = 48 + digit + (1 if is_high and (nearer or not is_low) else 0)
            return out_pos + 1
        out[out_pos] = 48 + digit
        out_pos += 1


@kernel(write_shortest_fraction, write_json_unsigned)
def write_json_binary_fraction(
    number: int, k: int, lowest: bool, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the shortest decimal that reads back as the float `number / 2**k`, for k up to 68 and number below 2**53.

    Its neighbours are half a unit of number away, or a quarter below a power of 2 (lowest).
    """
    if out_limit - out_pos < 64:
        return -1
    whole = 0
    if k <= 52:
        whole = number >> k
        number &= (1 << k) - 1
    out_pos = write_json_unsigned(whole, out, out_pos, out_limit)
    out[out_pos] = 46
    out_pos += 1
    if number == 0:
        out[out_pos] = 48
        return out_pos + 1
    if k <= 55:
        high, low = number << (56 - k), 0
        above_high, above_low = 1 << (55 - k), 0
    else:
        high, low = number >> (k - 56), (number & ((1 << (k - 56)) - 1)) << (112 - k)
        above_high, above_low = 0, 1 << (111 - k)
    if not lowest:
        return write_shortest_fraction(high, low, above_high, above_low, above_high, above_low, out, out_pos)
    below_low = (above_high & 1) << 55 | above_low >> 1
    return write_shortest_fraction(high, low, above_high, above_low, above_high >> 1, below_low, out, out_pos)


@kernel(write_json_binary_fraction)
def write_json_double(bits: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the shortest decimal that reads back as this double (bit pattern), for 0 and magnitudes 2**-16 to 2**53."""
    if out_limit - out_pos < 65:
        return -1
    if bits < 0:
        out[out_pos] = 45
        out_pos += 1
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0 and mantissa == 0:
        return write_json_binary_fraction(0, 0, False, out, out_pos, out_limit)
    if exponent < 1007 or exponent > 1075:
        return -2
    return write_json_binary_fraction(
        mantissa + 0x10000000000000, 1075 - exponent, mantissa == 0, out, out_pos, out_limit
    )


@kernel()
def widen_float_bits_to_double(bits: int) -> int:
    """Return the bits of the double that equals a float; those of infinity unless it is a normal number or 0."""
    exponent = bits >> 23 & 0xFF
    widened_bits = (bits & 0x7FFFFF) << 29
    if exponent == 255 or (exponent == 0 and widened_bits != 0):
        return 0x7FF0000000000000
    if exponent > 0:
        widened_bits |= (exponent + 896) << 52
    return widened_bits | -0x8000000000000000 if bits >= 0x80000000 else widened_bits


@kernel(write_last_digits)
def write_json_date(days: int, out: MutableUInt8s, out_pos: int) -> int:
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
    out_pos = write_last_digits(year, 4, out, out_pos)
    out[out_pos] = 45
    out_pos = write_last_digits(month, 2, out, out_pos + 1)
    out[out_pos] = 45
    return write_last_digits(day, 2, out, out_pos + 1)


@kernel(write_json_date, write_last_digits)
def write_json_time(microseconds: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write microseconds since 1970-01-01 UTC as a quoted RFC 3339 time, for the years 1970 to 9999."""
    if out_limit - out_pos < 40:
        return -1
    if microseconds < 0 or microseconds >= 253402300800000000:
        return -2
    seconds = microseconds // 1000000
    days = seconds // 86400
    out[out_pos] = 34
    out_pos = write_json_date(days, out, out_pos + 1)
    out[out_pos] = 84
    minutes = (seconds - days * 86400) // 60
    hours = minutes // 60
    out_pos = write_last_digits(hours, 2, out, out_pos + 1)
    out[out_pos] = 58
    out_pos = write_last_digits(minutes - hours * 60, 2, out, out_pos + 1)
    out[out_pos] = 58
    out_pos = write_last_digits(seconds - days * 86400 - minutes * 60, 2, out, out_pos + 1)
    out[out_pos] = 46
    out_pos = write_last_digits(microseconds - seconds * 1000000, 6, out, out_pos + 1)
    out[out_pos] = 90
    out[out_pos + 1] = 34
    return out_pos + 2


# --- Kernels that write JSON ---

NO_SPACE = -1
UNSUPPORTED = -2


# -- tables ------------------------------------------------------------------------------------------------------------


def build_text_table(texts: Mapping[int, bytes]) -> bytes:
    """Build the table of `write_text_of_table`: texts by small numbers; numbers without a text are UNSUPPORTED."""
    count = max(texts, default=-1) + 1
    return _pack_texts([texts.get(number, b"") for number in range(count)])


def build_name_table(names: Mapping[int, bytes]) -> bytes:
    """Build the table of `write_text_of_number`: texts by any signed 64-bit numbers."""
    numbers = sorted(names)
    return struct.pack(f">I{len(numbers)}q", len(numbers), *numbers) + _pack_texts(
        [names[number] for number in numbers]
    )


def _pack_texts(texts: list[bytes]) -> bytes:
    at, places = 8 + 4 * len(texts), []
    for text in texts:
        places.append(at)
        at += len(text)
    return struct.pack(f">{len(texts) + 2}I", len(texts), *places, at) + b"".join(texts)


@kernel()
def _load_uint32(texts: UInt8s, p: int) -> int:
    return texts[p] * 0x1000000 + texts[p + 1] * 0x10000 + texts[p + 2] * 0x100 + texts[p + 3]


@kernel(_load_uint32)
def write_entry_of_text_table(
    text_table: UInt8s, base: int, index: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write entry number `index` of the table of texts at `texts[base]`."""
    if index < 0 or index >= _load_uint32(text_table, base):
        return -2
    start = _load_uint32(text_table, base + 4 + 4 * index)
    size = _load_uint32(text_table, base + 8 + 4 * index) - start
    if size == 0:
        return -2
    if size > out_limit - out_pos:
        return -1
    start += base
    for i in range(size):
        out[out_pos + i] = text_table[start + i]
    return out_pos + size


@kernel(write_entry_of_text_table)
def write_text_of_table(text_table: UInt8s, index: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write text number `index` of a table of `build_text_table`."""
    return write_entry_of_text_table(text_table, 0, index, out, out_pos, out_limit)


@kernel(_load_uint32, write_entry_of_text_table)
def write_text_of_number(text_table: UInt8s, number: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the text of a number in a table of `build_name_table`; UNSUPPORTED if the number has no text."""
    count = _load_uint32(text_table, 0)
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        top = _load_uint32(text_table, 4 + 8 * middle)
        if top >= 0x80000000:
            top -= 0x100000000
        if top * 0x100000000 + _load_uint32(text_table, 8 + 8 * middle) < number:
            low = middle + 1
        else:
            high = middle
    if low == count:
        return -2
    top = _load_uint32(text_table, 4 + 8 * low)
    if top >= 0x80000000:
        top -= 0x100000000
    if top * 0x100000000 + _load_uint32(text_table, 8 + 8 * low) != number:
        return -2
    return write_entry_of_text_table(text_table, 4 + 8 * count, low, out, out_pos, out_limit)


# -- text --------------------------------------------------------------------------------------------------------------


@kernel()
def _utf8_sequence_size(buf: UInt8s, pos: int, limit: int) -> int:
    """Return the size of the UTF-8 sequence at `buf[pos]`; 0 if it is invalid, or a character that reports escape."""
    first = buf[pos] + 0
    if first < 0xC2 or first > 0xF4 or limit - pos < 2:
        return 0
    second = buf[pos + 1] + 0
    if second < 0x80 or second > 0xBF:
        return 0
    if first < 0xE0:
        if (first == 0xC2 and second < 0xA0) or (first == 0xD8 and second == 0x9C):
            return 0
        return 2
    if limit - pos < 3:
        return 0
    third = buf[pos + 2] + 0
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
    if limit - pos < 4 or buf[pos + 3] < 0x80 or buf[pos + 3] > 0xBF:
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@kernel()
def write_json_control_escape(c: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write a character below 0x20 as a JSON escape sequence; writes up to six bytes."""
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
    out[out_pos] = 92
    if short > 0:
        out[out_pos + 1] = short
        return out_pos + 2
    out[out_pos + 1] = 117
    out[out_pos + 2] = 48
    out[out_pos + 3] = 48
    out[out_pos + 4] = 48 + (c >> 4)
    digit = c & 15
    out[out_pos + 5] = 48 + digit + (39 if digit > 9 else 0)
    return out_pos + 6


@kernel(_utf8_sequence_size, write_json_control_escape)
def write_json_string(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write the text `buf[pos:limit]` as a JSON string; UNSUPPORTED if it is not UTF-8 or reports escape it."""
    if out_limit - out_pos < 6 * (limit - pos) + 2:
        return -1
    out[out_pos] = 34
    out_pos += 1
    while pos < limit:
        c = buf[pos] + 0
        if c >= 0x20 and c < 0x7F:
            if c == 0x22 or c == 0x5C:
                out[out_pos] = 92
                out_pos += 1
            out[out_pos] = c
            out_pos += 1
            pos += 1
        elif c < 0x20:
            out_pos = write_json_control_escape(c, out, out_pos)
            pos += 1
        else:
            size = _utf8_sequence_size(buf, pos, limit)
            if size == 0:
                return -2
            for i in range(size):
                out[out_pos + i] = buf[pos + i]
            out_pos += size
            pos += size
    out[out_pos] = 34
    return out_pos + 1


@kernel()
def is_utf8(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return True if the bytes are valid UTF-8."""
    while pos < limit:
        first = buf[pos] + 0
        pos += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        low = 0x80
        high = 0xBF
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
        elif first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
        if more > limit - pos:
            return False
        for _ in range(more):
            c = buf[pos] + 0
            pos += 1
            if c < low or c > high:
                return False
            low = 0x80
            high = 0xBF
    return True


@kernel(write_hex_digits)
def write_json_bytes(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write bytes as `{"$bytes":"…"}`, in hexadecimal digits."""
    if out_limit - out_pos < 2 * (limit - pos) + 16:
        return -1
    mark = 0x73657479622422
    out[out_pos] = 123
    for i in range(7):
        out[out_pos + 1 + i] = (mark >> 8 * i) & 255
    out[out_pos + 8] = 34
    out[out_pos + 9] = 58
    out[out_pos + 10] = 34
    out_pos = write_hex_digits(buf, pos, limit, out, out_pos + 11)
    out[out_pos] = 34
    out[out_pos + 1] = 125
    return out_pos + 2


@kernel(is_utf8, write_json_bytes, write_json_string)
def write_json_text_or_bytes(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write valid UTF-8 as a string, other bytes as `$bytes`."""
    reached = write_json_string(buf, pos, limit, out, out_pos, out_limit)
    if reached != -2 or is_utf8(buf, pos, limit):
        return reached
    return write_json_bytes(buf, pos, limit, out, out_pos, out_limit)


# -- members -----------------------------------------------------------------------------------------------------------


@kernel(write_json_null)
def write_null_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a member that is always null."""
    return write_json_null(out, out_pos, out_limit)


@kernel(write_text_of_table)
def write_text_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, index: int
) -> int:
    """Write a member that is one of the member's texts."""
    return write_text_of_table(text_table, index, out, out_pos, out_limit)


@kernel(write_json_unsigned)
def write_unsigned_member(
    buf: UInt8s, text_table: UInt8s, scratch: Int64s, out: MutableUInt8s, out_pos: int, out_limit: int, value: int
) -> int:
    """Write a member that is an unsigned column."""
    return write_json_unsigned(value, out, out_pos, out_limit)
