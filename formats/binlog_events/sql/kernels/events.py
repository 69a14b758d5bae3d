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
    MOST,
    is_rows,
    is_whole,
)
from binlogtool.formats.binlog_events.sql.kernels.slots import ID_SIZE, TAIL, WRITTEN
from binlogtool.formats.binlog_events.sql.kernels.walk import fits
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.binlog_events.wire.header import SIZE_AT, TYPE_AT
from binlogtool.formats.crc32 import crc_of
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little


@kernel(crc_of)
def put_end(tail: int, texts: UInt8s, out: MutableUInt8s, o: int, p: int) -> int:
    """Write the checksum of the event `out[p:o]`, if events have one."""
    if tail > 0:
        crc = crc_of(out, p, o, texts)
        for i in range(4):
            out[o + i] = crc >> 8 * i & 255
    return o + tail


@kernel(copy_text, put_end, word_at)
def put_map(header: int, buf: UInt8s, texts: UInt8s, r: int, out: MutableUInt8s, o: int, tail: int) -> int:
    """Write the TABLE_MAP of a template with the time and origin of the event whose header is at `buf[header]`."""
    length = word_at(texts, r + 20)
    size = 19 + length + tail
    for i in range(19):
        out[o + i] = buf[header + i] + 0
    out[o + TYPE_AT] = TABLE_MAP
    for i in range(4):
        out[o + SIZE_AT + i] = size >> 8 * i & 255
    return put_end(tail, texts, out, copy_text(texts, r + word_at(texts, r + 16), length, out, o + 19), o)


@kernel(put_end)
def put_closed(p: int, n: int, flags: int, buf: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, tail: int) -> int:
    """Write the row event `buf[p:n]` with the STMT_END flag.

    Args:
        flags: offset of the event's flags.
    """
    for i in range(n - p - tail):
        out[o + i] = buf[p + i] + 0
    out[o + flags - p] = buf[flags] | 1
    return put_end(tail, texts, out, o + n - p - tail, o)


@kernel(copy_text, fits, put_base64, put_closed, put_map, word_at)
def put_own(p: int, start: int, n: int, code: int, memory: ScriptMemory, r: int, o: int) -> int:
    """Write the row event `buf[p:n]` after its TABLE_MAP as one BINLOG statement.

    Events are assembled at the end of the output buffer before they are encoded.

    Args:
        start: offset of the event's body.

    Returns:
        The end offset; -1 if the buffer is too small, -2 if the event does not fit its table.
    """
    tail = memory.state[TAIL] + 0
    if n - tail - start < memory.state[ID_SIZE] + 2 or not fits(
        memory.buf, start, n - tail, code, memory.texts, r, memory.state[ID_SIZE] + 0
    ):
        return -2
    event = n - p
    table = 19 + word_at(memory.texts, r + 20) + tail
    if memory.z - o < (event + table) // 3 * 4 + event + table + 256:
        return -1
    o = copy_text(memory.texts, BINLOG, BINLOG_SIZE, memory.out, o)
    at = memory.z - table - 16
    put_map(p, memory.buf, memory.texts, r, memory.out, at, tail)
    o = put_base64(memory.out, at, at + table, memory.texts, memory.out, o)
    flags = start + memory.state[ID_SIZE]
    if memory.buf[flags] & 1:
        o = put_base64(memory.buf, p, n, memory.texts, memory.out, o)
    else:
        at = memory.z - event - 16
        put_closed(p, n, flags, memory.buf, memory.texts, memory.out, at, tail)
        o = put_base64(memory.out, at, at + event, memory.texts, memory.out, o)
    return copy_text(memory.texts, CLOSE, CLOSE_SIZE, memory.out, o)


@kernel(copy_text, put_end)
def put_sealed(buf: UInt8s, p: int, size: int, texts: UInt8s, out: MutableUInt8s, o: int, tail: int) -> int:
    """Write the event of `size` bytes at `buf[p]`, which has no checksum, with one of `checksum_size` bytes."""
    whole = size & -8
    copy_text(buf, p, whole, out, o)
    for k in range(whole, size):
        out[o + k] = buf[p + k] + 0
    for k in range(4):
        out[o + SIZE_AT + k] = size + tail >> 8 * k & 255
    return put_end(tail, texts, out, o + size, o)


@kernel(copy_text, put_sealed)
def lay(
    count: int,
    spans: EventSpans,
    holders: Int64s,
    bases: Int64s,
    buf: UInt8s,
    texts: UInt8s,
    out: MutableUInt8s,
    tail: int,
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
        room = spans.ends[i] - spans.offsets[i]
        if size < 19 or body != 19 or room < body or size < room:
            return i
        spans.offsets[i] = o
        spans.starts[i] = o + body
        spans.ends[i] = o + room
        if holders[i] >= 0:
            if room != size:
                return i
            o = put_sealed(buf, p, size, texts, out, o, tail)
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


@kernel(load_little)
def is_open(buf: UInt8s, p: int, id_size: int, ids: Int64s, count: int) -> bool:
    """Return whether the table id at `buf[p]` belongs to the statement."""
    number = load_little(buf, p, id_size)
    found = 0
    for i in range(count):
        found |= 1 if ids[i] == number else 0
    return found > 0


@kernel(is_open, is_rows, is_whole, put_base64)
def write_lines(
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
        and is_rows(spans.codes[i])
        and spans.stops[i] - spans.ends[i] == memory.state[TAIL]
        and spans.ends[i] - spans.starts[i] >= 10
    ):
        size += spans.stops[i] - spans.offsets[i]
        if (
            size > MOST
            or memory.buf[spans.starts[i] + memory.state[ID_SIZE]] & 1
            or not is_open(memory.buf, spans.starts[i], memory.state[ID_SIZE], ids, count)
            or not is_whole(
                spans.codes[i], spans.starts[i], spans.ends[i], maps[i], memory.buf, memory.texts, memory.state
            )
        ):
            break
        if i > first:
            if memory.z - done < (spans.stops[i - 1] - spans.offsets[i - 1]) // 3 * 4 + 64:
                break
            done = put_base64(memory.buf, spans.offsets[i - 1], spans.stops[i - 1], memory.texts, memory.out, done)
        i += 1
    memory.state[WRITTEN] = done
    return i
