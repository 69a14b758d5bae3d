"""Row images as kernels over the templates of `sql.plans`: find them and check that they fit."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    UPDATED,
    VERSION_OFFSET,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.rows.image_kernels import find_value_bounds
from binlogtool.formats.binlog_events.rows.kernels import count_present_columns
from binlogtool.formats.binlog_events.values.kernels import load_word
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.loads import load_little_endian

EVENT_RECORD_HEAD_SIZE, EVENT_RECORD_COLUMN_SIZE = 24, 40
"""Of a record."""
GENERATED, KEY, CAST, HEX, NO_CONDITION, NUMBER, STAMPED = 1, 2, 4, 8, 16, 32, 64
"""What else a record says of a column. GENERATED: no statement names it. KEY: it is part of the primary key. CAST: a
condition that is not on a key compares its bytes; HEX: and these as X'…'. NO_CONDITION: there is none. NUMBER: a
condition is on the number of it. STAMPED: an UPDATE that does not name it may set it to the current time."""


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
