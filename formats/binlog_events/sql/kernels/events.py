"""Row events as kernels: BINLOG statements with the TABLE_MAP, and base64 lines of large statements."""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import TABLE_MAP, TRANSACTION_PAYLOAD
from binlogtool.formats.binlog_events.sql.kernels.base64 import put_base64
from binlogtool.formats.binlog_events.sql.kernels.columns import EventSpans, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.frequent import (
    BINLOG,
    BINLOG_SIZE,
    CLOSE,
    CLOSE_SIZE,
    MAX_BINLOG_BYTES,
    has_matching_rows,
    is_uncompressed_rows,
)
from binlogtool.formats.binlog_events.sql.kernels.slots import BYTES_WRITTEN, CHECKSUM_BYTES, TABLE_ID_SIZE
from binlogtool.formats.binlog_events.sql.kernels.walk import has_valid_images
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.binlog_events.wire.header import EVENT_SIZE_AT, TYPE_AT
from binlogtool.formats.crc32 import compute_crc32
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian


@kernel(compute_crc32)
def put_checksum(checksum_size: int, texts: UInt8s, out: MutableUInt8s, o: int, p: int) -> int:
    """Write the checksum of the event `out[p:o]`, if events have one."""
    if checksum_size > 0:
        crc = compute_crc32(out, p, o, texts)
        for i in range(4):
            out[o + i] = crc >> 8 * i & 255
    return o + checksum_size


@kernel(copy_text, put_checksum, load_word)
def put_table_map(
    header: int, buf: UInt8s, texts: UInt8s, template: int, out: MutableUInt8s, o: int, checksum_size: int
) -> int:
    """Write the TABLE_MAP of a template with the time and origin of the event whose header is at `buf[header]`."""
    length = load_word(texts, template + 20)
    size = 19 + length + checksum_size
    for i in range(19):
        out[o + i] = buf[header + i] + 0
    out[o + TYPE_AT] = TABLE_MAP
    for i in range(4):
        out[o + EVENT_SIZE_AT + i] = size >> 8 * i & 255
    return put_checksum(
        checksum_size, texts, out, copy_text(texts, template + load_word(texts, template + 16), length, out, o + 19), o
    )


@kernel(put_checksum)
def put_last_event(
    p: int, n: int, flags: int, buf: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, checksum_size: int
) -> int:
    """Write the row event `buf[p:n]` with the STMT_END flag.

    Args:
        flags: offset of the event's flags.
    """
    for i in range(n - p - checksum_size):
        out[o + i] = buf[p + i] + 0
    out[o + flags - p] = buf[flags] | 1
    return put_checksum(checksum_size, texts, out, o + n - p - checksum_size, o)


@kernel(copy_text, has_valid_images, put_base64, put_last_event, put_table_map, load_word)
def put_rows_with_map(p: int, start: int, n: int, code: int, memory: ScriptMemory, template: int, o: int) -> int:
    """Write the row event `buf[p:n]` after its TABLE_MAP as one BINLOG statement.

    Events are assembled at the end of the output buffer before they are encoded.

    Args:
        start: offset of the event's body.

    Returns:
        The end offset; -1 if the buffer is too small, -2 if the event does not fit its table.
    """
    checksum_size = memory.state[CHECKSUM_BYTES] + 0
    if n - checksum_size - start < memory.state[TABLE_ID_SIZE] + 2 or not has_valid_images(
        memory.buf, start, n - checksum_size, code, memory.texts, template, memory.state[TABLE_ID_SIZE] + 0
    ):
        return -2
    event = n - p
    table = 19 + load_word(memory.texts, template + 20) + checksum_size
    if memory.z - o < (event + table) // 3 * 4 + event + table + 256:
        return -1
    o = copy_text(memory.texts, BINLOG, BINLOG_SIZE, memory.out, o)
    at = memory.z - table - 16
    put_table_map(p, memory.buf, memory.texts, template, memory.out, at, checksum_size)
    o = put_base64(memory.out, at, at + table, memory.texts, memory.out, o)
    flags = start + memory.state[TABLE_ID_SIZE]
    if memory.buf[flags] & 1:
        o = put_base64(memory.buf, p, n, memory.texts, memory.out, o)
    else:
        at = memory.z - event - 16
        put_last_event(p, n, flags, memory.buf, memory.texts, memory.out, at, checksum_size)
        o = put_base64(memory.out, at, at + event, memory.texts, memory.out, o)
    return copy_text(memory.texts, CLOSE, CLOSE_SIZE, memory.out, o)


@kernel(copy_text, put_checksum)
def put_checksummed(
    buf: UInt8s, p: int, size: int, texts: UInt8s, out: MutableUInt8s, o: int, checksum_size: int
) -> int:
    """Write the event of `size` bytes at `buf[p]`, which has no checksum, with one of `checksum_size` bytes."""
    whole = size & -8
    copy_text(buf, p, whole, out, o)
    for k in range(whole, size):
        out[o + k] = buf[p + k] + 0
    for k in range(4):
        out[o + EVENT_SIZE_AT + k] = size + checksum_size >> 8 * k & 255
    return put_checksum(checksum_size, texts, out, o + size, o)


@kernel(copy_text, put_checksummed)
def copy_events(
    count: int,
    spans: EventSpans,
    holders: Int64s,
    bases: Int64s,
    buf: UInt8s,
    texts: UInt8s,
    out: MutableUInt8s,
    checksum_size: int,
) -> int:
    """Copy events one after the other to `out`, and set the columns to their offsets there.

    Nested events get checksums of `checksum_size` bytes; the events that contain them become empty.

    Args:
        bases: number to add to an offset to find it in `buf`.

    Returns:
        The number of events; an invalid one ends it.
    """
    o = 0
    for i in range(count):
        p = spans.offsets[i] + bases[i]
        size = spans.stops[i] - spans.offsets[i]
        body = spans.starts[i] - spans.offsets[i]
        body_end = spans.ends[i] - spans.offsets[i]
        if size < 19 or body != 19 or body_end < body or size < body_end:
            return i
        spans.offsets[i] = o
        spans.starts[i] = o + body
        spans.ends[i] = o + body_end
        if holders[i] >= 0:
            if body_end != size:
                return i
            o = put_checksummed(buf, p, size, texts, out, o, checksum_size)
        elif spans.codes[i] == TRANSACTION_PAYLOAD:
            spans.starts[i] = o
            spans.ends[i] = o
        else:
            whole = size & -8
            copy_text(buf, p, whole, out, o)
            for k in range(whole, size):
                out[o + k] = buf[p + k] + 0
            o += size
        spans.stops[i] = o
    return count


@kernel(load_little_endian)
def is_statement_table(buf: UInt8s, p: int, id_size: int, ids: Int64s, count: int) -> bool:
    """Return whether the table id at `buf[p]` belongs to the statement."""
    number = load_little_endian(buf, p, id_size)
    is_found = 0
    for i in range(count):
        is_found |= 1 if ids[i] == number else 0
    return is_found > 0


@kernel(is_statement_table, is_uncompressed_rows, has_matching_rows, put_base64)
def write_base64_lines(
    i: int, stop: int, spans: EventSpans, maps: Int64s, memory: ScriptMemory, ids: Int64s, count: int, size: int
) -> int:
    """Write the row events from `i` on that continue the statement, except the last of them, in base64.

    Args:
        size: bytes of the statement so far.

    Returns:
        The index after the last event.
    """
    first = i
    done = 0
    while (
        i < stop
        and is_uncompressed_rows(spans.codes[i])
        and spans.stops[i] - spans.ends[i] == memory.state[CHECKSUM_BYTES]
        and spans.ends[i] - spans.starts[i] >= 10
    ):
        size += spans.stops[i] - spans.offsets[i]
        if (
            size > MAX_BINLOG_BYTES
            or memory.buf[spans.starts[i] + memory.state[TABLE_ID_SIZE]] & 1
            or not is_statement_table(memory.buf, spans.starts[i], memory.state[TABLE_ID_SIZE], ids, count)
            or not has_matching_rows(
                spans.codes[i], spans.starts[i], spans.ends[i], maps[i], memory.buf, memory.texts, memory.state
            )
        ):
            break
        if i > first:
            if memory.z - done < (spans.stops[i - 1] - spans.offsets[i - 1]) // 3 * 4 + 64:
                break
            done = put_base64(memory.buf, spans.offsets[i - 1], spans.stops[i - 1], memory.texts, memory.out, done)
        i += 1
    memory.state[BYTES_WRITTEN] = done
    return i
