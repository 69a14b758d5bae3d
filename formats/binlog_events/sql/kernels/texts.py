"""INSERT, UPDATE, DELETE and REPLACE as they were logged, with INTVAR and RAND before them, as kernels.

Only texts that every client reads the same way are supported.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import INTVAR, QUERY, RAND, SUPPRESS_USE
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.session import find_query_request, find_transition, put_query_session
from binlogtool.formats.binlog_events.sql.kernels.slots import DATABASE_SIZE, DATABASE_TEXT, SESSION_NUMBER
from binlogtool.formats.binlog_events.values.kernels import copy_text, load_word
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import Int64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian

APOSTROPHE, BACKTICK = b"'`"
_INSERT, _UPDATE, _DELETE, _REPLACE = (
    int.from_bytes(word, "big") for word in (b"INSERT", b"UPDATE", b"DELETE", b"REPLACE")
)
VARIABLE_PIECES = (b"SET INSERT_ID=", b"SET LAST_INSERT_ID=", b"SET @@RAND_SEED1=", b", @@RAND_SEED2=", b"\n/*!*/;\n")
VARIABLE_PIECES_SIZE = sum(map(len, VARIABLE_PIECES))
_VARIABLE_PIECE_OFFSETS = [sum(map(len, VARIABLE_PIECES[:i])) for i in range(len(VARIABLE_PIECES))]
_INSERT_ID, _LAST_ID, _SEED1, _SEED2, _VARIABLE_END = _VARIABLE_PIECE_OFFSETS
_INSERT_ID_S, _LAST_ID_S, _SEED1_S, _SEED2_S, _VARIABLE_END_SIZE = map(len, VARIABLE_PIECES)


@kernel()
def is_row_change(buf: UInt8s, p: int, n: int) -> bool:
    """Return whether the first word of a text is one of these four."""
    word = 0
    at = p
    while at < n and at < p + 8 and ((buf[at] | 32) >= 97 and (buf[at] | 32) <= 122):
        word = word << 8 | (buf[at] & 223)
        at += 1
    if at == n or at - p > 7:
        return False
    matches = 1 if word == _INSERT else 0
    matches |= 1 if word == _UPDATE else 0
    matches |= 1 if word == _DELETE else 0
    matches |= 1 if word == _REPLACE else 0
    return matches > 0


@kernel(native="plain_text")
def check_plain_text(buf: UInt8s, p: int, n: int, escapes: int) -> int:
    """Return whether a text closes its quotation marks and contains no comment, command or client mark.

    A line that begins with D counts as a possible command.

    Args:
        escapes: whether a backslash in a string begins an escape; if not, texts with backslashes are rejected.

    Returns:
        0: no; 1: yes, in every sql_mode; 2: yes, in its own sql_mode.
    """
    mark = 0
    result = 1
    while p < n:
        c = buf[p] + 0
        p += 1
        next_byte = buf[p] + 0 if p < n else 0
        if c == 10:
            if next_byte | 32 == 100:
                return 0
        elif c == 92:
            if mark != APOSTROPHE or escapes == 0 or next_byte == 0 or next_byte == 10:
                return 0
            if next_byte == APOSTROPHE:
                result = 2
            p += 1
        elif c == 47 and next_byte == 42:
            return 0
        elif mark > 0:
            if c == mark:
                mark = 0
        elif c == 34 or c == 39 or c == 96:
            mark = c
        elif c == 35 or c == 36 or c == 59 or (c == 45 and next_byte == 45):
            return 0
    return result if mark == 0 and p == n else 0


@kernel()
def is_same_database(buf: UInt8s, p: int, size: int, state: Int64s) -> bool:
    """Return whether the database name at `buf[p]` is empty or the session's."""
    if size == 0:
        return True
    if size != state[DATABASE_SIZE] or buf[p + size] != 0:
        return False
    same = 0
    for i in range(size):
        if buf[p + i] == state[DATABASE_TEXT + (i >> 3)] >> 8 * (i & 7) & 255:
            same += 1
    return same == size


@kernel(load_little_endian)
def is_supported_variable(code: int, p: int, size: int, buf: UInt8s) -> bool:
    """Return whether it is an INTVAR or RAND whose numbers kernels can write."""
    if code == INTVAR and size == 9:
        return buf[p] >= 1 and buf[p] <= 2 and load_little_endian(buf, p + 1, 8) >= 0
    return code == RAND and size == 16 and load_little_endian(buf, p, 8) >= 0 and load_little_endian(buf, p + 8, 8) >= 0


@kernel(is_supported_variable)
def find_statement(i: int, stop: int, codes: Int64s, starts: Int64s, ends: Int64s, holders: Int64s, buf: UInt8s) -> int:
    """Return the index of the statement for which the variables from event `i` on are set.

    -1 if it is missing, is in another container, or a variable is malformed.
    """
    holder = holders[i] + 0
    while i < stop and codes[i] != QUERY:
        size = ends[i] - starts[i]
        if not is_supported_variable(codes[i], starts[i], size, buf):
            return -1
        i += 1
    return i if i < stop and holders[i] == holder else -1


@kernel(copy_text, load_little_endian, put_unsigned)
def put_variable(code: int, p: int, buf: UInt8s, texts: UInt8s, at: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the SET statement of INTVAR or RAND.

    Args:
        at: offset of this module's pieces in the texts.
    """
    if code == RAND:
        o = put_unsigned(load_little_endian(buf, p, 8), out, copy_text(texts, at + _SEED1, _SEED1_S, out, o), z)
        o = put_unsigned(load_little_endian(buf, p + 8, 8), out, copy_text(texts, at + _SEED2, _SEED2_S, out, o), z)
    else:
        last = buf[p] == 1
        place = _LAST_ID if last else _INSERT_ID
        o = copy_text(texts, at + place, _LAST_ID_S if last else _INSERT_ID_S, out, o)
        o = put_unsigned(load_little_endian(buf, p + 1, 8), out, o, z)
    return copy_text(texts, at + _VARIABLE_END, _VARIABLE_END_SIZE, out, o)


@kernel(copy_text)
def put_text(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int) -> int:
    """Copy bytes unchanged, reading nothing after them."""
    size = n - p
    o = copy_text(buf, p, size - (size & 7), out, o)
    for i in range(n - (size & 7), n):
        out[o] = buf[i] + 0
        o += 1
    return o


@kernel(is_row_change, is_same_database, check_plain_text, find_query_request, load_word)
def find_text_request(p: int, n: int, flags: int, transitions: UInt8s, buf: UInt8s, state: Int64s) -> int:
    """Find the request of the QUERY `buf[p:n]`, plus 1 << 16 if clients read it by sql_mode; -1 if it is
    unsupported.
    """
    request = find_query_request(p, n, 1, buf, transitions)
    if request < 0 or flags & SUPPRESS_USE:
        return -1
    size = buf[p + 8] + 0
    names = p + 13 + (buf[p + 11] | buf[p + 12] << 8)
    escapes = load_word(transitions, 16 + 12 * request + 8) >> 17 & 1
    if not is_same_database(buf, names, size, state) or not is_row_change(buf, names + size + 1, n):
        return -1
    plain = check_plain_text(buf, names + size + 1, n, escapes)
    return -1 if plain == 0 else request + (plain >> 1 << 16)


@kernel(find_transition, copy_text, put_query_session, put_text, put_variable, find_text_request, load_word)
def put_statement(i: int, last: int, events: EventColumns, at: int, memory: ScriptMemory, o: int) -> int:
    """Write the statement `last` after the variables from event `i` on; -1 if it is unsupported."""
    p = events.starts[last] + 0
    n = events.ends[last] + 0
    found = find_text_request(p, n, events.flags[last], memory.moves, memory.buf, memory.state)
    if found < 0:
        return -1
    request = found & 65535
    cell = find_transition(memory.state[SESSION_NUMBER] + 0, request, memory.moves)
    if cell < 0:
        return -1
    for k in range(i, last):
        o = put_variable(events.codes[k], events.starts[k], memory.buf, memory.texts, at, memory.out, o, memory.z)
    o = put_query_session(p, events.times[last], request, cell, memory, o)
    if o < 0:
        return -1
    if found > request:
        request_at = 16 + 12 * request
        mode = load_word(memory.moves, request_at) + load_word(memory.moves, request_at + 4)
        o = copy_text(memory.moves, mode, load_word(memory.moves, request_at + 8) >> 18, memory.out, o)
    text = p + 14 + (memory.buf[p + 11] | memory.buf[p + 12] << 8) + memory.buf[p + 8]
    return copy_text(
        memory.texts, at + _VARIABLE_END, _VARIABLE_END_SIZE, memory.out, put_text(memory.buf, text, n, memory.out, o)
    )
