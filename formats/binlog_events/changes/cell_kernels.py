"""Kernels that store the rows of row events in typed column buffers, following the plan of `cells`.

A cell of fixed width is one integer, of a decimal two (its low and its high half); of a text it is the end of the
text,
which starts at the end of the row before. Flags say which cells have a value. Kernels return UNSUPPORTED for values
that only the general Python code can decode, and FULL if the buffers have no space left.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.rows.image_kernels import bounds_of
from binlogtool.formats.binlog_events.values.kernels import put_duration
from binlogtool.formats.binlog_events.values.numbers import group_at, group_digits, group_size
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import is_utf8
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big, load_little

HEAD, COLUMN = 4, 12
"""Words of a plan: before the columns (how many there are, and how many the images before and after have), and of each:
kind, parameter, bytes, bytes of the length; then for the image before and the one after: place of its cells, of its
flags, of its texts; room for these; in which images it is (1 = before, 2 = after, 3 = both)."""
SIGNED, UNSIGNED, WIDE, BITS, WIDE_BITS, REAL, CHOICE, YEAR, DATE, DATETIME, TIMESTAMP, DECIMAL = range(1, 13)
"""Kinds of fixed width. WIDE: two words. CHOICE: an ENUM or SET; the parameter is the highest number that it has."""
DURATION, UTF8, LATIN, BYTES, RAW = range(32, 37)
"""Kinds of texts. LATIN: the parameter is the highest byte that stands for itself. BYTES: the parameter is the least
size, with zero bytes at the end. RAW: bytes as they are stored."""
TEXTS = DURATION
"""Kinds from here on are those of texts."""
FULL, NOT_MINE = -1, -2


@kernel()
def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; -10000000 for an invalid date."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return -10000000
    most = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        most = 28 + (1 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 0)
    if day > most:
        return -10000000
    if month < 3:
        month += 12
        year -= 1
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719469


@kernel(load_big)
def microseconds_at(buf: UInt8s, p: int, digits: int) -> int:
    """Load the fraction of a second as microseconds; -1 if it is out of range."""
    width = (digits + 1) >> 1
    value = load_big(buf, p, width)
    if width == 1:
        return value * 10000 if value < 100 else -1
    if width == 2:
        return value * 100 if value < 10000 else -1
    return value if value < 1000000 else -1


@kernel(days_of, load_big, microseconds_at)
def put_time(buf: UInt8s, p: int, kind: int, digits: int, cells: MutableInt64s, at: int) -> int:
    """Store a DATETIME or TIMESTAMP as microseconds since 1970 in `cells[cell]`: 0, or UNSUPPORTED."""
    if kind == TIMESTAMP:
        seconds = load_big(buf, p, 4)
        p += 4
        if seconds == 0:
            return -2
    else:
        packed = load_big(buf, p, 5) - 0x8000000000
        p += 5
        if packed < 0:
            return -2
        months = packed >> 22
        days = days_of(months // 13, months - 13 * (months // 13), packed >> 17 & 31)
        hour = packed >> 12 & 31
        minute = packed >> 6 & 63
        second = packed & 63
        if days < -9999999 or hour > 23 or minute > 59 or second > 59:
            return -2
        seconds = days * 86400 + hour * 3600 + minute * 60 + second
    part = microseconds_at(buf, p, digits) if digits > 0 else 0
    if part < 0:
        return -2
    cells[at] = seconds * 1000000 + part
    return 0


@kernel(group_at, group_digits, group_size)
def put_digits(buf: UInt8s, p: int, precision: int, scale: int, cells: MutableInt64s, at: int) -> int:
    """Store a packed decimal of up to 38 digits, without its point, as 128 bits in two words from `cells[cell]`.

    It is computed in four parts of 32 bits. Returns 0, or UNSUPPORTED.
    """
    mask = 0 if buf[p] >= 128 else 255
    first = p
    a = 0
    b = 0
    c = 0
    d = 0
    left = precision
    while left > 0:
        digits = group_digits(left, scale)
        value = group_at(buf, p, digits, p == first, mask)
        if value < 0:
            return -2
        p += group_size(digits)
        left -= digits
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
    cells[at] = low
    cells[at + 1] = high
    return 0 if precision >= scale else -2


@kernel(days_of, load_big, load_little, put_digits, put_time)
def put_plain(buf: UInt8s, p: int, size: int, kind: int, parameter: int, cells: MutableInt64s, at: int) -> int:
    """Store a value of fixed width in `cells[cell]`: 0, or UNSUPPORTED."""
    if kind == SIGNED:
        value = load_little(buf, p, size)
        if size < 8:
            sign = 1 << 8 * size - 1
            value = (value ^ sign) - sign
        cells[at] = value
        return 0
    if kind == UNSIGNED or kind == REAL:
        cells[at] = load_little(buf, p, size)
        return 0
    if kind == DECIMAL:
        return put_digits(buf, p, parameter >> 8, parameter & 255, cells, at)
    if kind == DATETIME or kind == TIMESTAMP:
        return put_time(buf, p, kind, parameter, cells, at)
    if kind == DATE:
        packed = load_little(buf, p, 3)
        days = days_of(packed >> 9, packed >> 5 & 15, packed & 31)
        cells[at] = days
        return 0 if days > -9999999 else -2
    if kind == BITS:
        cells[at] = load_big(buf, p, size)
        return 0
    if kind == WIDE or kind == WIDE_BITS:
        cells[at] = load_little(buf, p, size) if kind == WIDE else load_big(buf, p, size)
        cells[at + 1] = 0
        return 0
    if kind == YEAR:
        cells[at] = 1900 + buf[p] if buf[p] else 0
        return 0
    value = load_little(buf, p, size)
    cells[at] = value
    return 0 if value >= 0 and value <= parameter else -2


@kernel(is_utf8, put_duration)
def put_text(buf: UInt8s, p: int, n: int, kind: int, parameter: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Store a text at `out[out_pos:out_limit]`; returns its end, or FULL, or UNSUPPORTED."""
    if z - o < 2 * (n - p) + 64 + parameter:
        return -1
    if kind == DURATION:
        end = put_duration(buf, p, parameter, out, o)
        if end < 0:
            return -2
        for i in range(o, end - 2):
            byte = out[i + 1] + 0
            out[i] = byte
        return end - 2
    if kind == UTF8 and not is_utf8(buf, p, n):
        return -2
    if kind == LATIN:
        while p < n:
            c = buf[p] + 0
            p += 1
            if c > parameter or (c >= 0x80 and c < 0xA0):
                return -2
            if c >= 0x80:
                out[o] = 0xC0 | c >> 6
                o += 1
                c = 0x80 | c & 0x3F
            out[o] = c
            o += 1
        return o
    for i in range(n - p):
        out[o + i] = buf[p + i] + 0
    o += n - p
    if kind == BYTES:
        for _ in range(n - p, parameter):
            out[o] = 0
            o += 1
    return o


@kernel()
def put_nothing(plan: Int64s, c: int, side: int, row: int, cells: MutableInt64s, out: MutableUInt8s) -> int:
    """Store the cell of a column without a value; `column` is the position of the column in the plan."""
    out[plan[c + 6 + side] + row] = 0
    if plan[c] >= TEXTS:
        at = plan[c + 4 + side] + row
        before = cells[at] + 0
        cells[at + 1] = before
    return 0


@kernel(put_nothing)
def skip_image(plan: Int64s, at: int, side: int, row: int, cells: MutableInt64s, out: MutableUInt8s) -> int:
    """Store the cells of an image that the event does not have.

    Args:
        plan_at: position of the plan in `plan`.
    """
    c = at + HEAD
    for _ in range(plan[at]):
        c += COLUMN + put_nothing(plan, c, side, row, cells, out)
    return 0


@kernel(bounds_of, put_nothing, put_plain, put_text)
def fill_image(
    buf: UInt8s, p: int, n: int, plan: Int64s, begin: int, side: int, row: int, cells: MutableInt64s, out: MutableUInt8s
) -> tuple[int, int]:  # fmt: skip
    """Store the image at `buf[pos]`; returns (end of the image, 0 or FULL or UNSUPPORTED).

    Args:
        plan_at: position of the plan in `plan`.
        side: 0 = before image, 1 = after image.
    """
    count = plan[begin]
    nulls = p
    bit = 0
    p += (plan[begin + 1 + side] + 7) >> 3
    if p > n:
        return p, -2
    c = begin + HEAD
    for _ in range(count):
        kind = plan[c]
        at = plan[c + 4 + side]
        empty = 1
        if plan[c + 11] >> side & 1:
            empty = buf[nulls + (bit >> 3)] >> (bit & 7) & 1
            bit += 1
        if empty:
            put_nothing(plan, c, side, row, cells, out)
        else:
            p, end = bounds_of(buf, p, n, plan[c + 2], plan[c + 3])
            if end < 0:
                return p, -2
            out[plan[c + 6 + side] + row] = 1
            if kind >= TEXTS:
                base = plan[c + 8 + side]
                o = put_text(buf, p, end, kind, plan[c + 1], out, base + cells[at + row], base + plan[c + 10])
                if o < 0:
                    return p, o
                cells[at + row + 1] = o - base
            else:
                wide = 1 if kind == WIDE or kind == WIDE_BITS or kind == DECIMAL else 0
                status = put_plain(buf, p, end - p, kind, plan[c + 1], cells, at + (row << wide))
                if status < 0:
                    return p, status
            p = end
        c += COLUMN
    return p, 0


class CellTarget(NamedTuple):
    """Where cells are written, and how many rows there is room for."""

    capacity: int
    cells: MutableInt64s
    out: MutableUInt8s


@kernel(fill_image, skip_image)
def fill_rows(
    buf: UInt8s, p: int, n: int, texts: UInt8s, plan: Int64s, at: int, sides: int, row: int, target: CellTarget
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
    while p < n:
        if row >= target.capacity:
            return -1
        start = p
        status = 0
        if sides & 1:
            p, status = fill_image(buf, p, n, plan, at, 0, row, target.cells, target.out)
        else:
            status = skip_image(plan, at, 0, row, target.cells, target.out)
        if sides & 2 and status == 0:
            p, status = fill_image(buf, p, n, plan, at, 1, row, target.cells, target.out)
        elif status == 0:
            status = skip_image(plan, at, 1, row, target.cells, target.out)
        if status < 0:
            return status
        if p <= start:
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


@kernel(fill_rows)
def fill_events(
    k: int,
    stop: int,
    picked: PickedEvents,
    buf: UInt8s,
    texts: UInt8s,
    row_layouts: RowLayouts,
    row: int,
    most: int,
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
    while k < stop and row < most:
        event = picked.picks[k]
        i = picked.which[event]
        shape = 3 * picked.layouts[event]
        reached = fill_rows(
            buf,
            picked.starts[i] + row_layouts.shapes[shape + 1],
            picked.ends[i],
            texts,
            row_layouts.plans,
            row_layouts.shapes[shape + 2] + 0,
            row_layouts.shapes[shape] + 0,
            row,
            target,
        )
        if reached < 0:
            return k, row, reached
        if reached == row:
            return k, row, -2
        sizes[event] = reached - row
        row = reached
        k += 1
    return k, row, 0
