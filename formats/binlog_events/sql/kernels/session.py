"""SET statements, and MySQL's BEGIN after them, as kernels over the table of `sql.moves`."""

from __future__ import annotations

from binlogtool.formats.binlog_events.sql.kernels.base64 import TABLES_SIZE as TABLES
from binlogtool.formats.binlog_events.sql.kernels.columns import ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.slots import (
    AFTER_GTID,
    IN_TRANSACTION,
    SESSION_CHANGED,
    SESSION_NUMBER,
    THREAD_ID,
    TIMESTAMP_US,
    TRANSACTION_STATE,
)
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.binlog_events.values.numbers import put_padded_digits
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian

SESSION_PIECES = (b"SET ", b"TIMESTAMP=", b", ", b"@@session.pseudo_thread_id=", b"\n/*!*/;\n", b"BEGIN\n/*!*/;\n")
SESSION_PIECES_SIZE = sum(map(len, SESSION_PIECES))
PIECES_AT = TABLES
"""Where these stand in the texts."""
_SESSION_PIECE_OFFSETS = [
    PIECES_AT + sum(len(piece) for piece in SESSION_PIECES[:i]) for i in range(len(SESSION_PIECES))
]
_SET, _TIMESTAMP, _COMMA, _THREAD, _SESSION_END, _BEGIN = _SESSION_PIECE_OFFSETS
_SET_S, _TIMESTAMP_S, _COMMA_S, _THREAD_S, _SESSION_END_SIZE, _BEGIN_S = map(len, SESSION_PIECES)


@kernel()
def is_same_block(texts: UInt8s, at: int, size: int, gap: int, buf: UInt8s, p: int) -> bool:
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


@kernel(is_begin, is_same_block, load_word)
def find_query_request(p: int, n: int, inside: int, buf: UInt8s, transitions: UInt8s) -> int:
    """Find the request of the QUERY body `buf[p:n]`, a BEGIN unless `inside` is set; -1 if it is unknown."""
    if n - p < 19:
        return -1
    size = buf[p + 11] | buf[p + 12] << 8
    text = p + 14 + size + buf[p + 8]
    if text >= n or (inside == 0 and not is_begin(buf, text, n)):
        return -1
    for request in range(load_word(transitions, 0)):
        at = 16 + 12 * request
        more = load_word(transitions, at + 8)
        if load_word(transitions, at + 4) != size or more >> 16 & 1 != inside:
            continue
        if is_same_block(transitions, load_word(transitions, at), size, (more & 0xFFFF) - 1, buf, p + 13):
            return request
    return -1


@kernel(load_word)
def find_rows_request(flags: int, transitions: UInt8s) -> int:
    """Find the request of rows with these flags; -1 if it is unknown."""
    for request in range(load_word(transitions, 0), load_word(transitions, 4)):
        if load_word(transitions, 16 + 12 * request) == flags:
            return request
    return -1


@kernel(load_word)
def find_transition(session: int, request: int, transitions: UInt8s) -> int:
    """Find the cell of a session and a request; -1 if there is none."""
    if session < 0 or request < 0:
        return -1
    at = load_word(transitions, 8) + 12 * (session * load_word(transitions, 4) + request)
    return at if load_word(transitions, at) > 0 else -1


@kernel(copy_text, put_padded_digits, put_unsigned)
def put_timestamp(time: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write `TIMESTAMP=…` from microseconds."""
    seconds = time // 1000000
    microseconds = time - 1000000 * seconds
    o = put_unsigned(seconds, out, copy_text(texts, _TIMESTAMP, _TIMESTAMP_S, out, o), z)
    if microseconds > 0:
        out[o] = 46
        o = put_padded_digits(microseconds, 6, out, o + 1)
    return o


@kernel(copy_text, put_timestamp, put_unsigned, load_word)
def put_begin_session(
    cell: int,
    time: int,
    thread: int,
    transitions: UInt8s,
    texts: UInt8s,
    out: MutableUInt8s,
    o: int,
    z: int,
    state: MutableInt64s,
) -> int:
    """Write the SET statement for the session of a BEGIN."""
    start = o
    if time > 0 and time != state[TIMESTAMP_US]:
        o = put_timestamp(time, texts, out, copy_text(texts, _SET, _SET_S, out, o), z)
        state[TIMESTAMP_US] = time
    if thread != state[THREAD_ID]:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = put_unsigned(thread, out, copy_text(texts, _THREAD, _THREAD_S, out, o), z)
        state[THREAD_ID] = thread
    size = load_word(transitions, cell + 8)
    if size > 0:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = copy_text(transitions, load_word(transitions, cell + 4), size, out, o)
    if o > start:
        o = copy_text(texts, _SESSION_END, _SESSION_END_SIZE, out, o)
    state[SESSION_NUMBER] = load_word(transitions, cell) - 1
    state[SESSION_CHANGED] = 1
    return o


@kernel(copy_text, put_timestamp, load_word)
def put_rows_session(
    cell: int, time: int, transitions: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, z: int, state: Int64s
) -> int:
    """Write the SET statement for the statements of a row event; the state stays unchanged."""
    start = o
    size = load_word(transitions, cell + 8)
    if size > 0:
        o = copy_text(texts, _SET, _SET_S, out, o)
        o = copy_text(transitions, load_word(transitions, cell + 4), size, out, o)
    if time > 0 and time != state[TIMESTAMP_US]:
        at = _SET if o == start else _COMMA
        o = copy_text(texts, at, _SET_S if o == start else _COMMA_S, out, o)
        o = put_timestamp(time, texts, out, o, z)
    return copy_text(texts, _SESSION_END, _SESSION_END_SIZE, out, o) if o > start else o


@kernel(load_little_endian, put_begin_session, load_word)
def put_query_session(p: int, time: int, request: int, cell: int, memory: ScriptMemory, o: int) -> int:
    """Write the SET statement for the QUERY body at `buf[p]`; -1 if its microseconds are invalid."""
    gap = load_word(memory.moves, 16 + 12 * request + 8) & 0xFFFF
    microseconds = load_little_endian(memory.buf, p + 12 + gap, 3) if gap > 0 else 0
    if microseconds >= 1000000:
        return -1
    moment = 1000000 * time + microseconds if time > 0 else 0
    return put_begin_session(
        cell,
        moment,
        load_little_endian(memory.buf, p, 4),
        memory.moves,
        memory.texts,
        memory.out,
        o,
        memory.z,
        memory.state,
    )


@kernel(find_transition, copy_text, put_query_session, find_query_request)
def put_begin(p: int, n: int, time: int, memory: ScriptMemory, o: int) -> int:
    """Write a BEGIN after its GTID, in its session; -1 if it is unsupported."""
    if memory.state[TRANSACTION_STATE] != AFTER_GTID:
        return -1
    request = find_query_request(p, n, 0, memory.buf, memory.moves)
    cell = find_transition(memory.state[SESSION_NUMBER] + 0, request, memory.moves)
    if cell < 0:
        return -1
    o = put_query_session(p, time, request, cell, memory, o)
    if o < 0:
        return -1
    memory.state[TRANSACTION_STATE] = IN_TRANSACTION
    return copy_text(memory.texts, _BEGIN, _BEGIN_S, memory.out, o)
