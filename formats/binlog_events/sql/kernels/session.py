"""SET statements, and MySQL's BEGIN after them, as kernels over the table of `sql.moves`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.sql.kernels.base64 import SIZE as TABLES
from binlogtool.formats.binlog_events.sql.kernels.columns import ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.slots import BEHIND_GTID, INSIDE, MOVED, OPEN, SESSION, THREAD, TIME
from binlogtool.formats.binlog_events.values.kernels import copy_text, word_at
from binlogtool.formats.binlog_events.values.numbers import put_padded
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little

PIECES = (b"SET ", b"TIMESTAMP=", b", ", b"@@session.pseudo_thread_id=", b"\n/*!*/;\n", b"BEGIN\n/*!*/;\n")
SIZE = sum(map(len, PIECES))
PIECES_AT = TABLES
"""Where these stand in the texts."""
_STARTS = [PIECES_AT + sum(len(piece) for piece in PIECES[:i]) for i in range(len(PIECES))]
_SET, _TIMESTAMP, _COMMA, _THREAD, _END, _BEGIN = _STARTS
_SET_S, _TIMESTAMP_S, _COMMA_S, _THREAD_S, _END_S, _BEGIN_S = map(len, PIECES)


@kernel()
def is_same(texts: UInt8s, at: int, size: int, gap: int, buf: UInt8s, p: int) -> bool:
    """Return whether two status blocks are equal, except for the three bytes at `gap`."""
    same = 0
    for i in range(size):
        if texts[at + i] == buf[p + i] or (gap >= 0 and i >= gap and i < gap + 3):
            same += 1
    return same == size


@kernel()
def is_begin(buf: UInt8s, p: int, n: int) -> bool:
    """Return whether this text is BEGIN."""
    if n - p != 5 or buf[p] != 66 or buf[p + 1] != 69 or buf[p + 2] != 71:
        return False
    return buf[p + 3] == 73 and buf[p + 4] == 78


@kernel(is_begin, is_same, word_at)
def wish_of(p: int, n: int, inside: int, buf: UInt8s, moves: UInt8s) -> int:
    """Find the request of the QUERY body `buf[p:n]`, a BEGIN unless `inside` is set; -1 if it is unknown."""
    if n - p < 19:
        return -1
    size = buf[p + 11] | buf[p + 12] << 8
    text = p + 14 + size + buf[p + 8]
    if text >= n or (inside == 0 and not is_begin(buf, text, n)):
        return -1
    for w in range(word_at(moves, 0)):
        at = 16 + 12 * w
        more = word_at(moves, at + 8)
        if word_at(moves, at + 4) != size or more >> 16 & 1 != inside:
            continue
        if is_same(moves, word_at(moves, at), size, (more & 0xFFFF) - 1, buf, p + 13):
            return w
    return -1


@kernel(word_at)
def rows_wish(flags: int, moves: UInt8s) -> int:
    """Find the request of rows with these flags; -1 if it is unknown."""
    for w in range(word_at(moves, 0), word_at(moves, 4)):
        if word_at(moves, 16 + 12 * w) == flags:
            return w
    return -1


@kernel(word_at)
def cell_of(session: int, wish: int, moves: UInt8s) -> int:
    """Find the cell of a session and a request; -1 if there is none."""
    if session < 0 or wish < 0:
        return -1
    at = word_at(moves, 8) + 12 * (session * word_at(moves, 4) + wish)
    return at if word_at(moves, at) > 0 else -1


@kernel(copy_text, put_padded, put_unsigned)
def put_time(time: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write `TIMESTAMP=…` from microseconds."""
    seconds = time // 1000000
    part = time - 1000000 * seconds
    o = put_unsigned(seconds, out, copy_text(texts, _TIMESTAMP, _TIMESTAMP_S, out, o), z)
    if part > 0:
        out[o] = 46
        o = put_padded(part, 6, out, o + 1)
    return o


@kernel(copy_text, put_time, put_unsigned, word_at)
def put_begin_session(
    cell: int,
    time: int,
    thread: int,
    moves: UInt8s,
    texts: UInt8s,
    out: MutableUInt8s,
    o: int,
    z: int,
    state: MutableInt64s,
) -> int:
    """Write the SET statement for the session of a BEGIN."""
    start = o
    if time > 0 and time != state[TIME]:
        o = put_time(time, texts, out, copy_text(texts, _SET, _SET_S, out, o), z)
        state[TIME] = time
    if thread != state[THREAD]:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = put_unsigned(thread, out, copy_text(texts, _THREAD, _THREAD_S, out, o), z)
        state[THREAD] = thread
    size = word_at(moves, cell + 8)
    if size > 0:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = copy_text(moves, word_at(moves, cell + 4), size, out, o)
    if o > start:
        o = copy_text(texts, _END, _END_S, out, o)
    state[SESSION] = word_at(moves, cell) - 1
    state[MOVED] = 1
    return o


@kernel(copy_text, put_time, word_at)
def put_rows_session(
    cell: int, time: int, moves: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, z: int, state: Int64s
) -> int:
    """Write the SET statement for the statements of a row event; the state stays unchanged."""
    start = o
    size = word_at(moves, cell + 8)
    if size > 0:
        o = copy_text(texts, _SET, _SET_S, out, o)
        o = copy_text(moves, word_at(moves, cell + 4), size, out, o)
    if time > 0 and time != state[TIME]:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = put_time(time, texts, out, o, z)
    return copy_text(texts, _END, _END_S, out, o) if o > start else o


@kernel(load_little, put_begin_session, word_at)
def put_query_session(p: int, time: int, wish: int, cell: int, memory: ScriptMemory, o: int) -> int:
    """Write the SET statement for the QUERY body at `buf[p]`; -1 if its microseconds are invalid."""
    gap = word_at(memory.moves, 16 + 12 * wish + 8) & 0xFFFF
    part = load_little(memory.buf, p + 12 + gap, 3) if gap > 0 else 0
    if part >= 1000000:
        return -1
    moment = 1000000 * time + part if time > 0 else 0
    return put_begin_session(
        cell, moment, load_little(memory.buf, p, 4), memory.moves, memory.texts, memory.out, o, memory.z, memory.state
    )


@kernel(cell_of, copy_text, put_query_session, wish_of)
def put_begin(p: int, n: int, time: int, memory: ScriptMemory, o: int) -> int:
    """Write a BEGIN after its GTID, in its session; -1 if it is unsupported."""
    if memory.state[OPEN] != BEHIND_GTID:
        return -1
    wish = wish_of(p, n, 0, memory.buf, memory.moves)
    cell = cell_of(memory.state[SESSION] + 0, wish, memory.moves)
    if cell < 0:
        return -1
    o = put_query_session(p, time, wish, cell, memory, o)
    if o < 0:
        return -1
    memory.state[OPEN] = INSIDE
    return copy_text(memory.texts, _BEGIN, _BEGIN_S, memory.out, o)
