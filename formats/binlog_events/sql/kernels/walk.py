"""Row images as kernels over the templates of `sql.plans`: find them and check that they fit."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    NEXT_VERSION,
    UPDATED,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.rows.image_kernels import bounds_of
from binlogtool.formats.binlog_events.rows.kernels import present_count
from binlogtool.formats.binlog_events.values.kernels import word_at
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.loads import load_little

HEAD_SIZE, COLUMN_SIZE = 24, 40
"""Of a record."""
GENERATED, KEY, CAST, HEX, NO_CONDITION, NUMBER, STAMPED = 1, 2, 4, 8, 16, 32, 64
"""What else a record says of a column. GENERATED: no statement names it. KEY: it is part of the primary key. CAST: a
condition that is not on a key compares its bytes; HEX: and these as X'…'. NO_CONDITION: there is none. NUMBER: a
condition is on the number of it. STAMPED: an UPDATE that does not name it may set it to the current time."""


@kernel(word_at)
def plan_of(texts: UInt8s, plans: int, number: int) -> int:
    """Return the offset of the template of a TABLE_MAP; 0 if there is none.

    Args:
        table_at: offset of the table of templates.
    """
    place = word_at(texts, plans + 8 + 4 * number) if number >= 0 else 0
    return plans + place if place > 0 else 0


@kernel(bounds_of, word_at)
def skip_image(buf: UInt8s, p: int, n: int, bitmap: int, present: int, texts: UInt8s, r: int) -> int:
    """Return the offset after an image; -2 if it does not fit."""
    nulls = p
    p += (present + 7) >> 3
    if p > n:
        return -2
    c = r + HEAD_SIZE
    place = 0
    for i in range(word_at(texts, r)):
        if buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            if not buf[nulls + (place >> 3)] >> (place & 7) & 1:
                _, p = bounds_of(buf, p, n, word_at(texts, c + 8), word_at(texts, c + 12))
                if p < 0:
                    return -2
            place += 1
        c += COLUMN_SIZE
    return p


@kernel(load_little)
def images_at(buf: UInt8s, p: int, n: int, code: int, columns: int) -> tuple[int, int]:
    """Return (offset of the first bitmap, of the images) of an uncompressed row event with its flags at `buf[p]`.

    The second one is -2 if the event has other columns or no rows.
    """
    size = (columns + 7) >> 3
    if n - p < 6 + size:
        return p, -2
    p += 2
    if code >= WRITE_ROWS_V2:
        extra = load_little(buf, p, 2)
        if extra < 2 or extra > n - p - size - 1:
            return p, -2
        p += extra
    count = buf[p] + 0
    p += 1
    if count == 0xFC and n - p >= 2:
        count = load_little(buf, p, 2)
        p += 2
    images = p + size
    if (code - WRITE_ROWS_V1) % NEXT_VERSION == UPDATED:
        images += size
    return p, -2 if count != columns or images >= n else images


@kernel(images_at, present_count, skip_image, word_at)
def fits(buf: UInt8s, p: int, n: int, code: int, texts: UInt8s, r: int, id_size: int) -> bool:
    """Return whether `buf[p:n]` is the body of a row event whose rows fit the template at `texts[r]`."""
    if code > DELETE_ROWS_V2 or (code > DELETE_ROWS_V1 and code < WRITE_ROWS_V2):
        return False
    columns = word_at(texts, r)
    before, p = images_at(buf, p + id_size, n, code, columns)
    if p < 0:
        return False
    kind = (code - WRITE_ROWS_V1) % NEXT_VERSION
    after = before + ((columns + 7) >> 3) if kind == UPDATED else before
    befores = present_count(buf, before, columns)
    afters = present_count(buf, after, columns)
    while p < n:
        start = p
        p = skip_image(buf, p, n, before, befores, texts, r)
        if p >= 0 and kind == UPDATED:
            p = skip_image(buf, p, n, after, afters, texts, r)
        if p <= start:
            return False
    return p == n
