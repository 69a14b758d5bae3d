"""MariaDB's compressed row events, as kernels: find the compressed block and write the uncompressed event."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    COMPRESSED_V1_OFFSET,
    COMPRESSED_V2_OFFSET,
    DELETE_COMPRESSED_V2,
    ROW_KINDS,
    UPDATED,
    WRITE_COMPRESSED_V1,
    WRITE_COMPRESSED_V2,
)
from binlogtool.formats.binlog_events.rows.table_map import MAX_COLUMNS
from binlogtool.formats.binlog_events.sql.kernels.columns import EventSpans
from binlogtool.formats.binlog_events.sql.kernels.events import put_checksum
from binlogtool.formats.binlog_events.sql.kernels.texts import put_text
from binlogtool.formats.binlog_events.wire.header import EVENT_SIZE_AT, TYPE_AT
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_big_endian, load_little_endian


@kernel(load_little_endian)
def find_block(buf: UInt8s, p: int, n: int, code: int, id_size: int) -> int:
    """Find the compressed block in the row event body `buf[p:n]`; -1 if its header is malformed."""
    p += id_size + 2
    if code >= WRITE_COMPRESSED_V2:
        extra = load_little_endian(buf, p, 2) if n - p >= 2 else 0
        if extra < 2:
            return -1
        p += extra
    if n - p < 3:
        return -1
    columns = buf[p] + 0
    p += 1
    if columns == 0xFC:
        columns = load_little_endian(buf, p, 2)
        p += 2
    elif columns > 0xFA:
        return -1
    if columns > MAX_COLUMNS:
        return -1
    size = (columns + 7) >> 3
    p += 2 * size if (code - WRITE_COMPRESSED_V1) % ROW_KINDS == UPDATED else size
    return p if p < n else -1


@kernel(find_block, load_big_endian)
def find_blocks(
    count: int,
    spans: EventSpans,
    buf: UInt8s,
    id_size: int,
    checksum_size: int,
    max_size: int,
    data_offsets: MutableInt64s,
    sizes: MutableInt64s,
) -> int:
    """Find the compressed data and its uncompressed size in each compressed row event.

    The size is -1 for all other events, for malformed ones, and for those larger than `max_size`.

    Returns:
        The number of compressed events.
    """
    found = 0
    for i in range(count):
        code = spans.codes[i]
        sizes[i] = -1
        if (
            code < WRITE_COMPRESSED_V1
            or code > DELETE_COMPRESSED_V2
            or spans.stops[i] - spans.ends[i] != checksum_size
            or spans.starts[i] - spans.offsets[i] != 19
        ):
            continue
        n = spans.ends[i] + 0
        p = find_block(buf, spans.starts[i] + 0, n, code, id_size)
        width = buf[p] & 7 if p >= 0 else 0
        if width < 1 or width > 4 or buf[p] & 0xF8 != 0x80 or n - p <= width:
            continue
        size = load_big_endian(buf, p + 1, width)
        if size <= max_size:
            data_offsets[i] = p + 1 + width
            sizes[i] = size
            found += 1
    return found


@kernel(find_block, put_checksum, put_text)
def write_uncompressed(
    count: int,
    spans: EventSpans,
    sizes: Int64s,
    buf: UInt8s,
    data: UInt8s,
    id_size: int,
    checksum_size: int,
    texts: UInt8s,
    out: MutableUInt8s,
    o: int,
) -> int:
    """Write the events of `find_blocks` uncompressed one after the other from `out[o]` on, and update the columns.

    Args:
        data: the uncompressed blocks.

    Returns:
        The end offset in `out`.
    """
    d = 0
    for i in range(count):
        if sizes[i] >= 0:
            code = spans.codes[i] + 0
            at = spans.offsets[i] + 0
            block = find_block(buf, spans.starts[i] + 0, spans.ends[i] + 0, code, id_size)
            code -= COMPRESSED_V2_OFFSET if code >= WRITE_COMPRESSED_V2 else COMPRESSED_V1_OFFSET
            end = put_text(data, d, d + sizes[i], out, put_text(buf, at, block, out, o))
            out[o + TYPE_AT] = code
            for k in range(4):
                out[o + EVENT_SIZE_AT + k] = end + checksum_size - o >> 8 * k & 255
            spans.codes[i] = code
            spans.offsets[i] = o
            spans.starts[i] = o + 19
            spans.ends[i] = end
            d += sizes[i]
            o = put_checksum(checksum_size, texts, out, end, o)
            spans.stops[i] = o
    return o
