"""Kernels that write row events as JSON, using the table of maps built by `rows.table_map_bytes`.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.rows.image_kernels import find_value_bounds
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word, put_fixed_value, put_sized_value
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian


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
