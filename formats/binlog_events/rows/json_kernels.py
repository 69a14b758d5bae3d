"""Walk ROWS events and write their rows and values as JSON, as kernels.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from binlogtool.format_api.json_kernels import (
    count_digits,
    put_any_text,
    put_binary_fraction,
    put_bytes,
    put_control,
    put_date,
    put_double,
    put_entry,
    put_last_digits,
    put_signed,
    put_unsigned,
)
from binlogtool.format_api.schema_fields import (
    Int64s,
    MalformedError,
    MutableUInt8s,
    UInt8s,
    kernel,
    load_big_endian,
    load_little_endian,
)
from binlogtool.formats.binlog_events.rows.table_map import MAX_COMPILED_COLUMNS, PAD, TableMap, column_kinds
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    UPDATED,
    VERSION_OFFSET,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)

# --- Buffers of the kernels for one event ---


class RowMemory(NamedTuple):
    """Buffers that the kernels read and write for the rows of one event.

    buf: bytes of the event; n: end of its rows. texts: constant texts and plans of tables; r: start of the plan of this
    table. out: the text; z: end of its space.
    """

    buf: UInt8s
    n: int
    texts: UInt8s
    r: int
    out: MutableUInt8s
    z: int


# --- Kernels that write numbers of row images as JSON ---


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


# --- Kernels that write values as JSON ---

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


# --- Kernels that find the bounds of values ---


@kernel(load_little_endian)
def find_value_bounds(buf: UInt8s, pos: int, limit: int, fixed: int, prefix: int) -> tuple[int, int]:
    """Find where the value at `buf[pos]` starts and ends.

    Args:
        limit: end of the readable bytes.
        fixed: size of a value of fixed width; used if `prefix` is 0.
        prefix: bytes of the little-endian length before the value.

    Returns:
        (start, end) of the value; the end is -2 if it does not fit.
    """
    if prefix > limit - pos:
        return pos, -2
    size = load_little_endian(buf, pos, prefix) if prefix > 0 else fixed
    pos += prefix
    if size > limit - pos:
        return pos, -2
    return pos, pos + size


@kernel(find_value_bounds)
def skip_row_image(buf: UInt8s, pos: int, limit: int, cells: Int64s, first: int, count: int) -> int:
    """Find the end of the row image at `buf[pos]`; -2 if it does not fit.

    Args:
        limit: end of the readable bytes.
        cells: two numbers per column: the width of a fixed value, and the bytes of the length before a value.
        first: number of the image's first column in `cells`.
        count: number of columns of the image.
    """
    nulls = pos
    pos += (count + 7) >> 3
    if pos > limit:
        return -2
    for i in range(count):
        if not buf[nulls + (i >> 3)] >> (i & 7) & 1:
            _, pos = find_value_bounds(buf, pos, limit, cells[2 * (first + i)], cells[2 * (first + i) + 1])
            if pos < 0:
                return -2
    return pos


@kernel(skip_row_image)
def count_image_rows(buf: UInt8s, pos: int, limit: int, cells: Int64s, first: int, second: int) -> int:
    """Count the rows in `buf[pos:limit]`; -2 if they do not fit.

    Args:
        cells: two numbers per column of both images (see `skip_row_image`).
        first: columns of the before image, or of the only image of a row.
        second: columns of the after image; -1 if a row has only one image.
    """
    rows = 0
    while pos < limit:
        start = pos
        pos = skip_row_image(buf, pos, limit, cells, 0, first)
        if pos >= 0 and second >= 0:
            pos = skip_row_image(buf, pos, limit, cells, first, second)
        if pos <= start:
            return -2
        rows += 1
    return rows


# --- Kernels that write row events as JSON ---


@kernel()
def put_short_text(packed: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write up to eight characters packed into an integer, the first one in the lowest byte.

    Always writes eight bytes; returns the position after the first `size`.
    """
    for i in range(8):
        out[out_pos + i] = (packed >> 8 * i) & 255
    return out_pos + size


@kernel()
def count_present_columns(buf: UInt8s, bitmap: int, count: int) -> int:
    """Count the set bits among the first `count` bits of the bitmap at `buf[bitmap]`."""
    total = 0
    for i in range(count):
        total += buf[bitmap + (i >> 3)] >> (i & 7) & 1
    return total


@kernel(find_value_bounds, copy_text, put_fixed_value, put_short_text, put_sized_value, load_word)
def put_row_image(
    buf: UInt8s,
    pos: int,
    limit: int,
    bitmap: int,
    present: int,
    texts: UInt8s,
    record: int,
    out: MutableUInt8s,
    out_pos: int,
    out_limit: int,
) -> tuple[int, int]:
    """Write the row image at `buf[pos]` as a JSON object.

    Columns whose key has no text are left out; those of kind 0 are not even read.

    Args:
        limit: end of the readable bytes.
        bitmap: position of the bitmap of present columns.
        present: number of columns present.
        texts: the table of maps.
        record: position of the map's record in `texts`.
        out, out_pos, out_limit: the output buffer, where to write, and its end.

    Returns:
        (end of the image, end of the output or an error).
    """
    nulls = pos
    pos += (present + 7) >> 3
    if pos > limit:
        return pos, -2
    if out_limit - out_pos < 16:
        return pos, -1
    out[out_pos] = 123
    out_pos += 1
    column = record + 40
    position = 0
    has_member = 0
    for i in range(load_word(texts, record)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            size = load_word(texts, column + 20)
            is_null = buf[nulls + (position >> 3)] >> (position & 7) & 1
            position += 1
            if out_limit - out_pos < size + 136:
                return pos, -1
            start = out_pos
            if size > 0:
                first = 1 if has_member == 0 else 0
                out_pos = copy_text(texts, record + load_word(texts, column + 16) + first, size - first, out, out_pos)
                has_member = 1
            if is_null:
                out_pos = put_short_text(0x6C6C756E, 4, out, out_pos)
            else:
                kind = load_word(texts, column)
                pos, end = find_value_bounds(
                    buf, pos, limit, load_word(texts, column + 8), load_word(texts, column + 12)
                )
                if end < 0:
                    return pos, -2
                if kind >= 32:
                    out_pos = put_sized_value(
                        buf, pos, end, kind, load_word(texts, column + 4), out, out_pos, out_limit
                    )
                elif kind > 0 or size > 0:
                    base = load_word(texts, column + 24)
                    base = base + record if base > 0 else -1
                    out_pos = put_fixed_value(
                        buf, pos, end - pos, kind, load_word(texts, column + 4), texts, base, out, out_pos, out_limit
                    )
                if out_pos < 0:
                    return pos, out_pos
                pos = end
            if size == 0:
                out_pos = start
        column += 32
    if out_limit - out_pos < 16:
        return pos, -1
    out[out_pos] = 125
    return pos, out_pos + 1


@kernel(put_row_image, put_short_text)
def put_row(
    memory: RowMemory, pos: int, before: int, before_count: int, after: int, after_count: int, out_pos: int
) -> tuple[int, int]:
    """Write one row as a JSON object with its images.

    Args:
        before, after: positions of the bitmaps of present columns; -1 = no such image.
        before_count, after_count: numbers of columns present.

    Returns:
        (end of the images, end of the output or an error).
    """
    if memory.z - out_pos < 64:
        return pos, -1
    memory.out[out_pos] = 123
    out_pos += 1
    if before >= 0:
        memory.out[out_pos] = 34
        out_pos = put_short_text(0x3A2265726F666562, 8, memory.out, out_pos + 1)
        pos, out_pos = put_row_image(
            memory.buf, pos, memory.n, before, before_count, memory.texts, memory.r, memory.out, out_pos, memory.z
        )
        if out_pos < 0:
            return pos, out_pos
        if memory.z - out_pos < 64:
            return pos, -1
        if after >= 0:
            memory.out[out_pos] = 44
            out_pos += 1
    if after >= 0:
        out_pos = put_short_text(0x3A22726574666122, 8, memory.out, out_pos)
        pos, out_pos = put_row_image(
            memory.buf, pos, memory.n, after, after_count, memory.texts, memory.r, memory.out, out_pos, memory.z
        )
        if out_pos < 0:
            return pos, out_pos
    if memory.z - out_pos < 16:
        return pos, -1
    memory.out[out_pos] = 125
    return pos, out_pos + 1


@kernel(put_row)
def put_rows(
    memory: RowMemory, pos: int, before: int, before_count: int, after: int, after_count: int, out_pos: int
) -> int:
    """Write all rows up to the end of the event, separated by commas."""
    start = pos
    while pos < memory.n:
        if pos > start:
            if memory.z - out_pos < 1:
                return -1
            memory.out[out_pos] = 44
            out_pos += 1
        row_end, out_pos = put_row(memory, pos, before, before_count, after, after_count, out_pos)
        if out_pos < 0:
            return out_pos
        if row_end == pos:
            return -2
        pos = row_end
    return out_pos


@kernel(copy_text, load_little_endian, count_present_columns, put_short_text, put_rows, put_unsigned, load_word)
def put_rows_event(
    buf: UInt8s, pos: int, limit: int, code: int, texts: UInt8s, record: int, out: MutableUInt8s, out_pos: int,
    out_limit: int
) -> int:  # fmt: skip
    """Write the body of a WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS event as JSON.

    Version 1, or version 2 without extra data.

    Args:
        code: type code of the event.
        texts: the table of maps.
        record: position of the record of the event's table map.
    """
    columns = load_word(texts, record)
    head = load_word(texts, record + 4)
    extra = 2 if code >= 30 else 0
    size = (columns + 7) >> 3
    if limit - pos < head + 2 + extra + 1 + size:
        return -2
    flags = load_little_endian(buf, pos + head, 2)
    pos += head + 2
    if extra > 0 and load_little_endian(buf, pos, 2) != 2:
        return -2
    pos += extra
    count = buf[pos] + 0
    pos += 1
    if count == 0xFC and limit - pos >= 2:
        count = load_little_endian(buf, pos, 2)
        pos += 2
    kind = (code - 23) % 7
    before = -1
    after = -1
    if kind > 0:
        before = pos
        pos += size
    if kind < 2:
        after = pos
        pos += size
    if count != columns or pos > limit:
        return -2
    before_count = count_present_columns(buf, before, columns) if before >= 0 else 0
    after_count = count_present_columns(buf, after, columns) if after >= 0 else 0
    title = load_word(texts, record + 28)
    names = load_word(texts, record + 36)
    if out_limit - out_pos < title + names + 64:
        return -1
    out_pos = copy_text(texts, record + load_word(texts, record + 24), title, out, out_pos)
    out_pos = put_unsigned(flags, out, out_pos, out_limit)
    out_pos = copy_text(texts, record + load_word(texts, record + 32), names, out, out_pos)
    out_pos = put_rows(
        RowMemory(buf, limit, texts, record, out, out_limit), pos, before, before_count, after, after_count, out_pos
    )
    if out_pos < 0:
        return out_pos
    if out_limit - out_pos < 16:
        return -1
    return put_short_text(0x7D5D, 2, out, out_pos)


# --- Kernels for row images ---

EVENT_RECORD_HEAD_SIZE, EVENT_RECORD_COLUMN_SIZE = 24, 40
"""Bytes of a template's header and of each column's entry."""
GENERATED, KEY, CAST, HEX, NO_CONDITION, NUMBER, STAMPED = 1, 2, 4, 8, 16, 32, 64
"""Flags of a column in a template. GENERATED: no statement names it. KEY: it is part of the primary key. CAST: a
condition that is not on a key compares its bytes; HEX: as X'…'. NO_CONDITION: there is no condition. NUMBER: a
condition compares its number. STAMPED: an UPDATE that does not name it may set it to the current time."""


@kernel(load_word)
def find_template(texts: UInt8s, table_at: int, map_number: int) -> int:
    """Return the offset of the template of a TABLE_MAP; 0 if there is none.

    Args:
        table_at: offset of the table of templates.
    """
    relative = load_word(texts, table_at + 8 + 4 * map_number) if map_number >= 0 else 0
    return table_at + relative if relative > 0 else 0


@kernel(find_value_bounds, load_word)
def skip_image(buf: UInt8s, p: int, n: int, bitmap: int, present: int, texts: UInt8s, template: int) -> int:
    """Return the offset after an image; -2 if it does not fit."""
    nulls = p
    p += (present + 7) >> 3
    if p > n:
        return -2
    entry = template + EVENT_RECORD_HEAD_SIZE
    place = 0
    for i in range(load_word(texts, template)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            if not buf[nulls + (place >> 3)] >> (place & 7) & 1:
                _, p = find_value_bounds(buf, p, n, load_word(texts, entry + 8), load_word(texts, entry + 12))
                if p < 0:
                    return -2
            place += 1
        entry += EVENT_RECORD_COLUMN_SIZE
    return p


@kernel(load_little_endian)
def find_images(buf: UInt8s, p: int, n: int, code: int, columns: int) -> tuple[int, int]:
    """Return (offset of the first bitmap, of the images) of an uncompressed row event with its flags at `buf[p]`.

    The second one is -2 if the event has other columns or no rows.
    """
    size = (columns + 7) >> 3
    if n - p < 6 + size:
        return p, -2
    p += 2
    if code >= WRITE_ROWS_V2:
        extra = load_little_endian(buf, p, 2)
        if extra < 2 or extra > n - p - size - 1:
            return p, -2
        p += extra
    count = buf[p] + 0
    p += 1
    if count == 0xFC and n - p >= 2:
        count = load_little_endian(buf, p, 2)
        p += 2
    images = p + size
    if (code - WRITE_ROWS_V1) % VERSION_OFFSET == UPDATED:
        images += size
    return p, -2 if count != columns or images >= n else images


@kernel(find_images, count_present_columns, skip_image, load_word)
def has_valid_images(buf: UInt8s, p: int, n: int, code: int, texts: UInt8s, template: int, id_size: int) -> bool:
    """Return whether `buf[p:n]` is the body of a row event whose rows fit the template at `texts[r]`."""
    if code > DELETE_ROWS_V2 or (code > DELETE_ROWS_V1 and code < WRITE_ROWS_V2):
        return False
    columns = load_word(texts, template)
    before, p = find_images(buf, p + id_size, n, code, columns)
    if p < 0:
        return False
    kind = (code - WRITE_ROWS_V1) % VERSION_OFFSET
    after = before + ((columns + 7) >> 3) if kind == UPDATED else before
    befores = count_present_columns(buf, before, columns)
    afters = count_present_columns(buf, after, columns)
    while p < n:
        start = p
        p = skip_image(buf, p, n, before, befores, texts, template)
        if p >= 0 and kind == UPDATED:
            p = skip_image(buf, p, n, after, afters, texts, template)
        if p <= start:
            return False
    return p == n


# --- Template of a table whose rows are written as events ---


def build_event_template(table: TableMap) -> bytes:
    """Build the template of a table whose rows are written as events; empty if kernels cannot read them."""
    try:
        kinds = column_kinds(table)
    except MalformedError:
        return b""
    if len(kinds) > MAX_COMPILED_COLUMNS or not kinds:
        return b""
    head = [len(kinds), 0, 0, 0, EVENT_RECORD_HEAD_SIZE + EVENT_RECORD_COLUMN_SIZE * len(kinds), len(table.body)]
    columns = [number for kind in kinds for number in (*kind, 0, 0, 0, 0, 0, 0)]
    return struct.pack(f">{len(head) + len(columns)}I", *head, *columns) + table.body + PAD
