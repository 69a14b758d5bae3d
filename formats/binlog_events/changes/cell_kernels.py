"""Kernels that store the rows of row events in typed column buffers, following the plan of `cells`.

A cell of fixed width is one integer, of a decimal two (its low and its high half); of a text it is the end of the text,
which starts at the end of the row before. Flags say which cells have a value. Kernels return UNSUPPORTED for values
that only the general Python code can decode, and FULL if the buffers have no space left.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.rows.image_kernels import find_value_bounds
from binlogtool.formats.binlog_events.values.kernels import put_time2
from binlogtool.formats.binlog_events.values.numbers import digit_group_size, load_digit_group, next_group_digits
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import is_utf8
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big_endian, load_little_endian

PLAN_HEAD_WORDS, PLAN_COLUMN_WORDS = 4, 12
"""Words of a plan: before the columns (how many there are, and how many the images before and after have), and of each:
kind, parameter, bytes, bytes of the length; then for the image before and the one after: place of its cells, of its
flags, of its texts; room for these; in which images it is (1 = before, 2 = after, 3 = both)."""
SIGNED, UNSIGNED, WIDE, BITS, WIDE_BITS, REAL, ENUM_OR_SET, YEAR, DATE, DATETIME, TIMESTAMP, DECIMAL = range(1, 13)
"""Kinds of fixed width. WIDE: two words. CHOICE: an ENUM or SET; the parameter is the highest number that it has."""
TIME, UTF8, SINGLE_BYTE_TEXT, BYTES, RAW = range(32, 37)
"""Kinds of texts. LATIN: the parameter is the highest byte that stands for itself. BYTES: the parameter is the least
size, with zero bytes at the end. RAW: bytes as they are stored."""
FIRST_TEXT_KIND = TIME
"""Kinds from here on are those of texts."""
FULL, UNSUPPORTED = -1, -2


@kernel()
def days_since_epoch(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; -10000000 for an invalid date."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return -10000000
    month_days = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        month_days = 28 + (1 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 0)
    if day > month_days:
        return -10000000
    if month < 3:
        month += 12
        year -= 1
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719469


@kernel(load_big_endian)
def load_microseconds(buf: UInt8s, pos: int, digits: int) -> int:
    """Load the fraction of a second as microseconds; -1 if it is out of range."""
    width = (digits + 1) >> 1
    value = load_big_endian(buf, pos, width)
    if width == 1:
        return value * 10000 if value < 100 else -1
    if width == 2:
        return value * 100 if value < 10000 else -1
    return value if value < 1000000 else -1


@kernel(days_since_epoch, load_big_endian, load_microseconds)
def store_moment(buf: UInt8s, pos: int, kind: int, digits: int, cells: MutableInt64s, cell: int) -> int:
    """Store a DATETIME or TIMESTAMP as microseconds since 1970 in `cells[cell]`: 0, or UNSUPPORTED."""
    if kind == TIMESTAMP:
        seconds = load_big_endian(buf, pos, 4)
        pos += 4
        if seconds == 0:
            return -2
    else:
        packed = load_big_endian(buf, pos, 5) - 0x8000000000
        pos += 5
        if packed < 0:
            return -2
        months = packed >> 22
        days = days_since_epoch(months // 13, months - 13 * (months // 13), packed >> 17 & 31)
        hour = packed >> 12 & 31
        minute = packed >> 6 & 63
        second = packed & 63
        if days < -9999999 or hour > 23 or minute > 59 or second > 59:
            return -2
        seconds = days * 86400 + hour * 3600 + minute * 60 + second
    microseconds = load_microseconds(buf, pos, digits) if digits > 0 else 0
    if microseconds < 0:
        return -2
    cells[cell] = seconds * 1000000 + microseconds
    return 0


@kernel(load_digit_group, next_group_digits, digit_group_size)
def store_decimal(buf: UInt8s, pos: int, precision: int, scale: int, cells: MutableInt64s, cell: int) -> int:
    """Store a packed decimal of up to 38 digits, without its point, as 128 bits in two words from `cells[cell]`.

    It is computed in four parts of 32 bits. Returns 0, or UNSUPPORTED.
    """
    mask = 0 if buf[pos] >= 128 else 255
    first = pos
    a = 0
    b = 0
    c = 0
    d = 0
    digits_left = precision
    while digits_left > 0:
        digits = next_group_digits(digits_left, scale)
        value = load_digit_group(buf, pos, digits, pos == first, mask)
        if value < 0:
            return -2
        pos += digit_group_size(digits)
        digits_left -= digits
        factor = 1
        for _ in range(digits):
            factor *= 10
        value += a * factor
        a = value & 0xFFFFFFFF
        value = (value >> 32) + b * factor
        b = value & 0xFFFFFFFF
        value = (value >> 32) + c * factor
        c = value & 0xFFFFFFFF
        d = ((value >> 32) + d * factor) & 0xFFFFFFFF
    low = a | b << 32
    high = c | d << 32
    if mask:
        low = -low
        high = -high - 1
        if low == 0:
            high += 1
    cells[cell] = low
    cells[cell + 1] = high
    return 0 if precision >= scale else -2


@kernel(days_since_epoch, load_big_endian, load_little_endian, store_decimal, store_moment)
def store_fixed_value(
    buf: UInt8s, pos: int, size: int, kind: int, parameter: int, cells: MutableInt64s, cell: int
) -> int:
    """Store a value of fixed width in `cells[cell]`: 0, or UNSUPPORTED."""
    if kind == SIGNED:
        value = load_little_endian(buf, pos, size)
        if size < 8:
            sign = 1 << 8 * size - 1
            value = (value ^ sign) - sign
        cells[cell] = value
        return 0
    if kind == UNSIGNED or kind == REAL:
        cells[cell] = load_little_endian(buf, pos, size)
        return 0
    if kind == DECIMAL:
        return store_decimal(buf, pos, parameter >> 8, parameter & 255, cells, cell)
    if kind == DATETIME or kind == TIMESTAMP:
        return store_moment(buf, pos, kind, parameter, cells, cell)
    if kind == DATE:
        packed = load_little_endian(buf, pos, 3)
        days = days_since_epoch(packed >> 9, packed >> 5 & 15, packed & 31)
        cells[cell] = days
        return 0 if days > -9999999 else -2
    if kind == BITS:
        cells[cell] = load_big_endian(buf, pos, size)
        return 0
    if kind == WIDE or kind == WIDE_BITS:
        cells[cell] = load_little_endian(buf, pos, size) if kind == WIDE else load_big_endian(buf, pos, size)
        cells[cell + 1] = 0
        return 0
    if kind == YEAR:
        cells[cell] = 1900 + buf[pos] if buf[pos] else 0
        return 0
    value = load_little_endian(buf, pos, size)
    cells[cell] = value
    return 0 if value >= 0 and value <= parameter else -2


@kernel(is_utf8, put_time2)
def store_text_value(
    buf: UInt8s, pos: int, limit: int, kind: int, parameter: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Store a text at `out[out_pos:out_limit]`; returns its end, or FULL, or UNSUPPORTED."""
    if out_limit - out_pos < 2 * (limit - pos) + 64 + parameter:
        return -1
    if kind == TIME:
        text_end = put_time2(buf, pos, parameter, out, out_pos)
        if text_end < 0:
            return -2
        for i in range(out_pos, text_end - 2):
            byte = out[i + 1] + 0
            out[i] = byte
        return text_end - 2
    if kind == UTF8 and not is_utf8(buf, pos, limit):
        return -2
    if kind == SINGLE_BYTE_TEXT:
        while pos < limit:
            char = buf[pos] + 0
            pos += 1
            if char > parameter or (char >= 0x80 and char < 0xA0):
                return -2
            if char >= 0x80:
                out[out_pos] = 0xC0 | char >> 6
                out_pos += 1
                char = 0x80 | char & 0x3F
            out[out_pos] = char
            out_pos += 1
        return out_pos
    for i in range(limit - pos):
        out[out_pos + i] = buf[pos + i] + 0
    out_pos += limit - pos
    if kind == BYTES:
        for _ in range(limit - pos, parameter):
            out[out_pos] = 0
            out_pos += 1
    return out_pos


@kernel()
def store_missing_value(
    plan: Int64s, column: int, side: int, row: int, cells: MutableInt64s, out: MutableUInt8s
) -> int:
    """Store the cell of a column without a value; `column` is the position of the column in the plan."""
    out[plan[column + 6 + side] + row] = 0
    if plan[column] >= FIRST_TEXT_KIND:
        at = plan[column + 4 + side] + row
        text_end = cells[at] + 0
        cells[at + 1] = text_end
    return 0


@kernel(store_missing_value)
def store_missing_image(
    plan: Int64s, plan_at: int, side: int, row: int, cells: MutableInt64s, out: MutableUInt8s
) -> int:
    """Store the cells of an image that the event does not have.

    Args:
        plan_at: position of the plan in `plan`.
    """
    column = plan_at + PLAN_HEAD_WORDS
    for _ in range(plan[plan_at]):
        column += PLAN_COLUMN_WORDS + store_missing_value(plan, column, side, row, cells, out)
    return 0


@kernel(find_value_bounds, store_missing_value, store_fixed_value, store_text_value)
def store_image(
    buf: UInt8s, pos: int, limit: int, plan: Int64s, plan_at: int, side: int, row: int, cells: MutableInt64s,
    out: MutableUInt8s
) -> tuple[int, int]:  # fmt: skip
    """Store the image at `buf[pos]`; returns (end of the image, 0 or FULL or UNSUPPORTED).

    Args:
        plan_at: position of the plan in `plan`.
        side: 0 = before image, 1 = after image.
    """
    count = plan[plan_at]
    nulls = pos
    bit = 0
    pos += (plan[plan_at + 1 + side] + 7) >> 3
    if pos > limit:
        return pos, -2
    column = plan_at + PLAN_HEAD_WORDS
    for _ in range(count):
        kind = plan[column]
        at = plan[column + 4 + side]
        is_null = 1
        if plan[column + 11] >> side & 1:
            is_null = buf[nulls + (bit >> 3)] >> (bit & 7) & 1
            bit += 1
        if is_null:
            store_missing_value(plan, column, side, row, cells, out)
        else:
            pos, end = find_value_bounds(buf, pos, limit, plan[column + 2], plan[column + 3])
            if end < 0:
                return pos, -2
            out[plan[column + 6 + side] + row] = 1
            if kind >= FIRST_TEXT_KIND:
                base = plan[column + 8 + side]
                text_end = store_text_value(
                    buf, pos, end, kind, plan[column + 1], out, base + cells[at + row], base + plan[column + 10]
                )
                if text_end < 0:
                    return pos, text_end
                cells[at + row + 1] = text_end - base
            else:
                wide_shift = 1 if kind == WIDE or kind == WIDE_BITS or kind == DECIMAL else 0
                status = store_fixed_value(buf, pos, end - pos, kind, plan[column + 1], cells, at + (row << wide_shift))
                if status < 0:
                    return pos, status
            pos = end
        column += PLAN_COLUMN_WORDS
    return pos, 0


class CellTarget(NamedTuple):
    """Where cells are written, and how many rows there is room for."""

    capacity: int
    cells: MutableInt64s
    out: MutableUInt8s


@kernel(store_image, store_missing_image)
def store_rows(
    buf: UInt8s,
    pos: int,
    limit: int,
    texts: UInt8s,
    plan: Int64s,
    plan_at: int,
    sides: int,
    row: int,
    target: CellTarget,
) -> int:
    """Store all rows of the images `buf[pos:limit]`, from row `row` on; returns the next row, or FULL, or
    UNSUPPORTED.

    Args:
        texts: one zero byte; only there because kernels of this signature take it.
        plan_at: position of the plan in `plan`.
        sides: 1 = there is a before image, 2 = there is an after image.
    """
    if texts[0] != 0:
        return -2
    while pos < limit:
        if row >= target.capacity:
            return -1
        start = pos
        status = 0
        if sides & 1:
            pos, status = store_image(buf, pos, limit, plan, plan_at, 0, row, target.cells, target.out)
        else:
            status = store_missing_image(plan, plan_at, 0, row, target.cells, target.out)
        if sides & 2 and status == 0:
            pos, status = store_image(buf, pos, limit, plan, plan_at, 1, row, target.cells, target.out)
        elif status == 0:
            status = store_missing_image(plan, plan_at, 1, row, target.cells, target.out)
        if status < 0:
            return status
        if pos <= start:
            return -2
        row += 1
    return row


class PickedEvents(NamedTuple):
    """The row events of one table.

    picks: numbers of entries of `which` and `layouts` (`run_kernels.FoundRows`). starts, ends: of the bodies of all
    events.
    """

    picks: Int64s
    which: Int64s
    layouts: Int64s
    starts: Int64s
    ends: Int64s


class RowLayouts(NamedTuple):
    """shapes: of each layout three words: the sides, where the images are in the body, where the plan is in `plans`."""

    shapes: Int64s
    plans: Int64s


@kernel(store_rows)
def store_events(
    pick: int,
    stop: int,
    picked: PickedEvents,
    buf: UInt8s,
    texts: UInt8s,
    row_layouts: RowLayouts,
    row: int,
    max_rows: int,
    target: CellTarget,
    sizes: MutableInt64s,
) -> tuple[int, int, int]:
    """Store the rows of the events `picks[first:stop]` until there are `max_rows` rows.

    Args:
        found_events, layouts: found events and their layouts, see `run_kernels.follow_row_events`.
        shapes: three words per layout: the sides, offset of the images in the body, position of the plan in `plans`.
        sizes: receives the number of rows of each event.
        texts: see `store_rows`.

    Returns:
        (first event that was not stored, next row, 0 or FULL or UNSUPPORTED: why that event was not stored).
    """
    while pick < stop and row < max_rows:
        event = picked.picks[pick]
        batch_index = picked.which[event]
        shape = 3 * picked.layouts[event]
        next_row = store_rows(
            buf,
            picked.starts[batch_index] + row_layouts.shapes[shape + 1],
            picked.ends[batch_index],
            texts,
            row_layouts.plans,
            row_layouts.shapes[shape + 2] + 0,
            row_layouts.shapes[shape] + 0,
            row,
            target,
        )
        if next_row < 0:
            return pick, row, next_row
        if next_row == row:
            return pick, row, -2
        sizes[event] = next_row - row
        row = next_row
        pick += 1
    return pick, row, 0
