"""Kernels that write row events as JSON, using the table of maps built by `rows.table_map_bytes`.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.rows.image_kernels import bounds_of
from binlogtool.formats.binlog_events.rows.row_memory import RowMemory
from binlogtool.formats.binlog_events.values.kernels import copy_text, put_fixed, put_sized, word_at
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little


@kernel()
def put_mark(mark: int, size: int, out: MutableUInt8s, o: int) -> int:
    """Write up to eight characters packed into an integer, the first one in the lowest byte.

    Always writes eight bytes; returns the position after the first `size`.
    """
    for i in range(8):
        out[o + i] = (mark >> 8 * i) & 255
    return o + size


@kernel()
def present_count(buf: UInt8s, bitmap: int, count: int) -> int:
    """Count the set bits among the first `count` bits of the bitmap at `buf[bitmap]`."""
    total = 0
    for i in range(count):
        total += buf[bitmap + (i >> 3)] >> (i & 7) & 1
    return total


@kernel(bounds_of, copy_text, put_fixed, put_mark, put_sized, word_at)
def put_image(
    buf: UInt8s, p: int, n: int, bitmap: int, present: int, texts: UInt8s, r: int, out: MutableUInt8s, o: int, z: int
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
    nulls = p
    p += (present + 7) >> 3
    if p > n:
        return p, -2
    if z - o < 16:
        return p, -1
    out[o] = 123
    o += 1
    c = r + 40
    place = 0
    shown = 0
    for i in range(word_at(texts, r)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            size = word_at(texts, c + 20)
            is_null = buf[nulls + (place >> 3)] >> (place & 7) & 1
            place += 1
            if z - o < size + 136:
                return p, -1
            start = o
            if size > 0:
                first = 1 if shown == 0 else 0
                o = copy_text(texts, r + word_at(texts, c + 16) + first, size - first, out, o)
                shown = 1
            if is_null:
                o = put_mark(0x6C6C756E, 4, out, o)
            else:
                kind = word_at(texts, c)
                p, end = bounds_of(buf, p, n, word_at(texts, c + 8), word_at(texts, c + 12))
                if end < 0:
                    return p, -2
                if kind >= 32:
                    o = put_sized(buf, p, end, kind, word_at(texts, c + 4), out, o, z)
                elif kind > 0 or size > 0:
                    base = word_at(texts, c + 24)
                    base = base + r if base > 0 else -1
                    o = put_fixed(buf, p, end - p, kind, word_at(texts, c + 4), texts, base, out, o, z)
                if o < 0:
                    return p, o
                p = end
            if size == 0:
                o = start
        c += 32
    if z - o < 16:
        return p, -1
    out[o] = 125
    return p, o + 1


@kernel(put_image, put_mark)
def put_row(memory: RowMemory, p: int, before: int, befores: int, after: int, afters: int, o: int) -> tuple[int, int]:
    """Write one row as a JSON object with its images.

    Args:
        before, after: positions of the bitmaps of present columns; -1 = no such image.
        before_count, after_count: numbers of columns present.

    Returns:
        (end of the images, end of the output or an error).
    """
    if memory.z - o < 64:
        return p, -1
    memory.out[o] = 123
    o += 1
    if before >= 0:
        memory.out[o] = 34
        o = put_mark(0x3A2265726F666562, 8, memory.out, o + 1)
        p, o = put_image(memory.buf, p, memory.n, before, befores, memory.texts, memory.r, memory.out, o, memory.z)
        if o < 0:
            return p, o
        if memory.z - o < 64:
            return p, -1
        if after >= 0:
            memory.out[o] = 44
            o += 1
    if after >= 0:
        o = put_mark(0x3A22726574666122, 8, memory.out, o)
        p, o = put_image(memory.buf, p, memory.n, after, afters, memory.texts, memory.r, memory.out, o, memory.z)
        if o < 0:
            return p, o
    if memory.z - o < 16:
        return p, -1
    memory.out[o] = 125
    return p, o + 1


@kernel(put_row)
def put_rows(memory: RowMemory, p: int, before: int, befores: int, after: int, afters: int, o: int) -> int:
    """Write all rows up to the end of the event, separated by commas."""
    start = p
    while p < memory.n:
        if p > start:
            if memory.z - o < 1:
                return -1
            memory.out[o] = 44
            o += 1
        behind, o = put_row(memory, p, before, befores, after, afters, o)
        if o < 0:
            return o
        if behind == p:
            return -2
        p = behind
    return o


@kernel(copy_text, load_little, present_count, put_mark, put_rows, put_unsigned, word_at)
def put_rows_event(
    buf: UInt8s, p: int, n: int, code: int, texts: UInt8s, r: int, out: MutableUInt8s, o: int, z: int
) -> int:  # fmt: skip
    """Write the body of a WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS event as JSON.

    Version 1, or version 2 without extra data.

    Args:
        code: type code of the event.
        texts: the table of maps.
        record: position of the record of the event's table map.
    """
    columns = word_at(texts, r)
    head = word_at(texts, r + 4)
    extra = 2 if code >= 30 else 0
    size = (columns + 7) >> 3
    if n - p < head + 2 + extra + 1 + size:
        return -2
    flags = load_little(buf, p + head, 2)
    p += head + 2
    if extra > 0 and load_little(buf, p, 2) != 2:
        return -2
    p += extra
    count = buf[p] + 0
    p += 1
    if count == 0xFC and n - p >= 2:
        count = load_little(buf, p, 2)
        p += 2
    kind = (code - 23) % 7
    before = -1
    after = -1
    if kind > 0:
        before = p
        p += size
    if kind < 2:
        after = p
        p += size
    if count != columns or p > n:
        return -2
    befores = present_count(buf, before, columns) if before >= 0 else 0
    afters = present_count(buf, after, columns) if after >= 0 else 0
    title = word_at(texts, r + 28)
    names = word_at(texts, r + 36)
    if z - o < title + names + 64:
        return -1
    o = copy_text(texts, r + word_at(texts, r + 24), title, out, o)
    o = put_unsigned(flags, out, o, z)
    o = copy_text(texts, r + word_at(texts, r + 32), names, out, o)
    o = put_rows(RowMemory(buf, n, texts, r, out, z), p, before, befores, after, afters, o)
    if o < 0:
        return o
    if z - o < 16:
        return -1
    return put_mark(0x7D5D, 2, out, o)
