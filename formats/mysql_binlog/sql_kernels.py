"""What `statements.Statements` writes of the events that are frequent, as a kernel over the columns of a batch.

Transactions that begin and end as most do, and row events as BINLOG. The kernel stops at each event that it does not
know enough of, and in front of a statement that does not end in this batch; nothing has happened for that event then.
"""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.mysql_binlog.gtid_kernels import put_uuid
from binlogtool.formats.mysql_binlog.number_kernels import load_little
from binlogtool.formats.mysql_binlog.tracking_kernels import is_known
from binlogtool.formats.mysql_binlog.value_kernels import copy_text

# State: an array of 64-bit integers.
OPEN, BASE, TAIL, GTIDS, DOMAIN, SERVER, SERIAL, BEGIN_SIZE, TIME, MARIADB = range(10)
"""OPEN: 0 outside of transactions, 1 behind MySQL's GTID, 2 in one. BASE: place of the window in the file. TAIL: bytes
of checksums. GTIDS: are they set? DOMAIN, SERVER, SERIAL: of MariaDB's session. BEGIN_SIZE:
bytes of the BEGIN that needs no other session than the last one; TIME: its TIMESTAMP."""
PARALLEL, VERSION, ID_SIZE, WRITTEN, LAST_GTID, FULL, COMMITTED = range(10, 17)
"""PARALLEL: MariaDB's session lets transactions run in parallel. VERSION: of MySQL's servers, as the session knows it.
WRITTEN: bytes that were written. LAST_GTID: index of the last GTID event that was taken, or -1. FULL: no more room.
COMMITTED: original_commit_timestamp of MySQL's session."""
STATE_SIZE = 17

MOST = 8 << 20
"""`sql_binlog.MOST`"""

_PIECES = (
    b"# at ", b" GTID ", b"START TRANSACTION\n/*!*/;\n", b" XID\nCOMMIT\n/*!*/;\n", b"BINLOG '\n", b"'\n/*!*/;\n",
    b"SET @@session.gtid_seq_no=", b"\n/*!*/;\n", b" GTID_LOG ",
    b"/*! *//*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/\n/*!*/;\n",
    b"/*! *//*!80014 SET @@session.original_commit_timestamp=", b"*/\n/*!*/;\n", b"SET @@session.gtid_next='",
    b" QUERY\n", b"SET TIMESTAMP=", b"BEGIN\n/*!*/;\n",
)  # fmt: skip
_STARTS = [8192 + sum(len(piece) for piece in _PIECES[:i]) for i in range(len(_PIECES))]
(
    _AT, _GTID, _START, _XID, _BINLOG, _CLOSE, _SEQ, _END, _GTID_LOG, _ISOLATION, _COMMITTED, _COMMENT_END, _NEXT,
    _QUERY, _TIMESTAMP, _BEGIN,
) = _STARTS  # fmt: skip
(
    _AT_S, _GTID_S, _START_S, _XID_S, _BINLOG_S, _CLOSE_S, _SEQ_S, _END_S, _GTID_LOG_S, _ISOLATION_S, _COMMITTED_S,
    _COMMENT_END_S, _NEXT_S, _QUERY_S, _TIMESTAMP_S, _BEGIN_S,
) = map(len, _PIECES)  # fmt: skip
NAMES_AT = _STARTS[-1] + len(_PIECES[-1])
"""Where the names of row events stand in the texts: 32 bytes each, by type."""


@kernel()
def load_sextet(buf: Any, p: int) -> int:
    """Six bytes, big-endian."""
    return (  # type: ignore[no-any-return]
        buf[p] << 40 | buf[p + 1] << 32 | buf[p + 2] << 24 | buf[p + 3] << 16 | buf[p + 4] << 8 | buf[p + 5]
    )


@kernel()
def pair(texts: Any, number: int) -> int:
    """The two digits of twelve bits in base64."""
    at = 2 * (number & 4095)
    return texts[at] | texts[at + 1] << 8  # type: ignore[no-any-return]


@kernel(load_sextet, pair)
def put_base64(buf: Any, p: int, n: int, texts: Any, out: Any, o: int) -> int:
    """`buf[p:n]` in base64, and a line's end."""
    while n - p >= 6:
        six = load_sextet(buf, p)
        word = pair(texts, six >> 36) | pair(texts, six >> 24) << 16
        word |= pair(texts, six >> 12) << 32
        more = pair(texts, six)
        for i in range(6):
            out[o + i] = (word >> 8 * i) & 255
        out[o + 6] = more & 255
        out[o + 7] = more >> 8
        o += 8
        p += 6
    while n > p:
        three = buf[p] << 16
        if n - p > 1:
            three |= buf[p + 1] << 8
        if n - p > 2:
            three |= buf[p + 2] + 0
        word = pair(texts, three >> 12) | pair(texts, three) << 16
        for i in range(4):
            out[o + i] = (word >> 8 * i) & 255
        if n - p < 3:
            out[o + 3] = 61
        if n - p < 2:
            out[o + 2] = 61
        o += 4
        p += 3
    out[o] = 10
    return o + 1


@kernel(copy_text, put_unsigned)
def put_place(place: int, texts: Any, out: Any, o: int, z: int) -> int:
    """`# at N`"""
    return put_unsigned(place, out, copy_text(texts, _AT, _AT_S, out, o), z)


@kernel()
def is_rows(code: int) -> bool:
    """Is it a row event that servers take as it is?"""
    return (code >= 23 and code <= 25) or (code >= 30 and code <= 32) or code == 39


@kernel(is_rows)
def statement_end(
    i: int, stop: int, codes: Any, starts: Any, ends: Any, offsets: Any, stops: Any, maps: Any, buf: Any, state: Any,
) -> int:  # fmt: skip
    """The index of the last event of the statement whose first TABLE_MAP is event `i`; -1 = it is not taken here."""
    rows = i
    while rows < stop and codes[rows] == 19:
        if maps[rows] < 0 or stops[rows] - ends[rows] != state[2] or rows - i > 15:
            return -1
        rows += 1
    j = rows
    while j < stop and is_rows(codes[j]) and stops[j] - offsets[i] <= MOST:
        if maps[j] < 0 or stops[j] - ends[j] != state[2] or ends[j] - starts[j] < 10:
            return -1
        known = 0
        for k in range(i, rows):
            if maps[k] == maps[j]:
                known = 1
        if known == 0:
            return -1
        if buf[starts[j] + state[12]] & 1:
            return j
        j += 1
    return -1


@kernel(copy_text, put_base64, put_place)
def put_rows(
    i: int, last: int, code: int, offsets: Any, stops: Any, buf: Any, texts: Any, out: Any, o: int, z: int, base: int
) -> int:
    """The events of a statement as BINLOG."""
    o = put_place(base + offsets[last], texts, out, o, z)
    name = NAMES_AT + 32 * code
    o = copy_text(texts, name + 1, texts[name] + 0, out, o)
    o = copy_text(texts, _BINLOG, _BINLOG_S, out, o)
    for j in range(i, last + 1):
        o = put_base64(buf, offsets[j] + 0, stops[j] + 0, texts, out, o)
    return copy_text(texts, _CLOSE, _CLOSE_S, out, o)


@kernel(copy_text, load_little, put_place, put_unsigned)
def put_mariadb(
    server: int, flags: int, p: int, n: int, buf: Any, texts: Any, out: Any, o: int, z: int, state: Any, place: int
) -> int:
    """MariaDB's GTID; -1 = it is not taken here."""
    if n - p < 19 or flags & 0x8000 or state[0] != 0 or state[9] == 0:
        return -1
    more = buf[p + 12] + 0
    if more & 0xE1 or (more >> 3) & 1 != state[10]:
        return -1
    number = load_little(buf, p, 8)
    domain = load_little(buf, p + 8, 4)
    if number < 0 or (state[3] and (domain != state[4] or server != state[5])):
        return -1
    o = copy_text(texts, _GTID, _GTID_S, out, put_place(place, texts, out, o, z))
    o = put_unsigned(domain, out, o, z)
    out[o] = 45
    o = put_unsigned(server, out, o + 1, z)
    out[o] = 45
    o = put_unsigned(number, out, o + 1, z)
    out[o] = 10
    o += 1
    if state[3]:
        o = put_unsigned(number, out, copy_text(texts, _SEQ, _SEQ_S, out, o), z)
        o = copy_text(texts, _END, _END_S, out, o)
        state[6] = number
    state[0] = 2
    return copy_text(texts, _START, _START_S, out, o)


@kernel(copy_text, load_little, put_place, put_unsigned, put_uuid)
def put_mysql(p: int, n: int, buf: Any, texts: Any, out: Any, o: int, z: int, state: Any, place: int) -> int:
    """MySQL's GTID with one commit timestamp and one version; -1 = it is not taken here."""
    if n - p < 54 or state[0] != 0 or state[9]:
        return -1
    time = load_little(buf, p + 42, 7)
    length = buf[p + 49] + 0
    at = p + 50
    if length == 252:
        at += 2
    elif length == 253:
        at += 3
    elif length == 254:
        at += 8
    number = load_little(buf, p + 17, 8)
    if time >= 0x80000000000000 or n - at < 4 or load_little(buf, at, 4) != state[11] or number < 0:
        return -1
    o = copy_text(texts, _GTID_LOG, _GTID_LOG_S, out, put_place(place, texts, out, o, z))
    o = put_uuid(buf, p + 1, out, o)
    out[o] = 58
    o = put_unsigned(number, out, o + 1, z)
    out[o] = 10
    o += 1
    state[0] = 1
    if state[3] == 0:
        return o
    if buf[p] & 1 == 0:
        o = copy_text(texts, _ISOLATION, _ISOLATION_S, out, o)
    if time != state[16]:
        o = put_unsigned(time, out, copy_text(texts, _COMMITTED, _COMMITTED_S, out, o), z)
        o = copy_text(texts, _COMMENT_END, _COMMENT_END_S, out, o)
        state[16] = time
    o = put_uuid(buf, p + 1, out, copy_text(texts, _NEXT, _NEXT_S, out, o))
    out[o] = 58
    o = put_unsigned(number, out, o + 1, z)
    out[o] = 39
    return copy_text(texts, _END, _END_S, out, o + 1)


@kernel(copy_text, is_known, load_little, put_place, put_unsigned)
def put_begin(
    p: int, n: int, time: int, begin: Any, buf: Any, texts: Any, out: Any, o: int, z: int, state: Any, place: int
) -> int:
    """A BEGIN in the session of the one before; -1 = it is not taken here."""
    if state[0] != 1 or n - p < 13 or n - p - 8 != state[7] or load_little(buf, p, 4) != begin[0]:
        return -1
    if not is_known(begin, 1, buf, p + 8, n):
        return -1
    o = copy_text(texts, _QUERY, _QUERY_S, out, put_place(place, texts, out, o, z))
    if time != state[8]:
        o = put_unsigned(time, out, copy_text(texts, _TIMESTAMP, _TIMESTAMP_S, out, o), z)
        o = copy_text(texts, _END, _END_S, out, o)
        state[8] = time
    state[0] = 2
    return copy_text(texts, _BEGIN, _BEGIN_S, out, o)


@kernel(copy_text, put_begin, put_mariadb, put_mysql, put_place, put_rows, statement_end)
def write(
    i: int, stop: int, codes: Any, times: Any, servers: Any, flags: Any, starts: Any, ends: Any, offsets: Any,
    stops: Any, maps: Any, buf: Any, texts: Any, out: Any, z: int, begin: Any, state: Any,
) -> int:  # fmt: skip
    """Writes the events from `i` on; returns where it stopped. The rest of what it tells is in the state."""
    done = 0
    state[14] = -1
    state[15] = 0
    while i < stop:
        code = codes[i]
        place = state[1] + offsets[i]
        last = i
        o = -1
        if z - done < 4096:
            state[15] = 1
            break
        if code == 19:
            if state[0] == 2:
                last = statement_end(i, stop, codes, starts, ends, offsets, stops, maps, buf, state)
            if state[0] != 2 or last < 0:
                break
            need = (stops[last] - offsets[i]) // 3 * 4 + 8 * (last - i + 1) + 4096
            if z - done < need:
                state[15] = 1 if done > 0 else 0
                break
            o = put_rows(i, last, codes[last] + 0, offsets, stops, buf, texts, out, done, z, state[1])
        elif code == 16:
            if state[0] == 2 and ends[i] - starts[i] >= 8:
                o = copy_text(texts, _XID, _XID_S, out, put_place(place, texts, out, done, z))
                state[0] = 0
        elif code == 160 or code == 29:
            o = done
        elif code == 162:
            o = put_mariadb(servers[i], flags[i], starts[i], ends[i], buf, texts, out, done, z, state, place)
        elif code == 33:
            o = put_mysql(starts[i], ends[i], buf, texts, out, done, z, state, place)
        elif code == 2:
            o = put_begin(starts[i], ends[i], times[i], begin, buf, texts, out, done, z, state, place)
        if o < 0:
            break
        if code == 162 or code == 33:
            state[14] = i
        done = o
        i = last + 1
    state[13] = done
    return i


def texts_of(names: dict[int, str]) -> bytes:
    """The texts of the kernel. names: of the types of events."""
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table = b"".join(bytes((digits[i >> 6], digits[i & 63])) for i in range(4096))
    named = (f" {names.get(code, '')}\n".encode() for code in range(64))
    return table + b"".join(_PIECES) + b"".join((bytes([len(n)]) + n).ljust(32, b"\0") for n in named) + bytes(16)
