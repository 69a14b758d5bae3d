"""Script text of frequent events, as a kernel over the columns of a batch.

It handles transactions that begin and end in the usual ways, and row events as BINLOG, with the text of
`statements.SqlScript`. The kernel stops at each event that it does not support, and before a statement that
does not end in this batch; such an event leaves no trace in the state.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

from binlogtool.formats.binlog_events.events.type_codes import (
    ANNOTATE_ROWS,
    ANONYMOUS_GTID,
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    GTID,
    GTID_LOG,
    INTVAR,
    PARTIAL_UPDATE_ROWS,
    QUERY,
    RAND,
    ROWS_QUERY,
    SKIP_REPLICATION,
    TABLE_MAP,
    TRANSACTION_PAYLOAD,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
    XID,
)
from binlogtool.formats.binlog_events.sql.kernels.base64 import build_tables, put_base64
from binlogtool.formats.binlog_events.sql.kernels.columns import EventColumns, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.session import PIECES_AT as SESSION_PIECES_AT
from binlogtool.formats.binlog_events.sql.kernels.session import SESSION_PIECES, SESSION_PIECES_SIZE, put_begin
from binlogtool.formats.binlog_events.sql.kernels.slots import (
    AFTER_GTID,
    BYTES_WRITTEN,
    CHECKSUM_BYTES,
    COMMIT_TIMESTAMP,
    CONTAINER_OFFSET,
    DOMAIN_ID,
    GTID_AUTOMATIC,
    IN_TRANSACTION,
    IS_MARIADB,
    LAST_GTID_INDEX,
    OUTPUT_FULL,
    OUTSIDE_TRANSACTION,
    PARALLEL_ALLOWED,
    SEQUENCE_NUMBER,
    SERVER_ID,
    SERVER_VERSION,
    SESSION_CHANGED,
    SETS_GTIDS,
    TABLE_ID_SIZE,
    TEMPLATES,
    TRANSACTION_STATE,
    WINDOW_OFFSET,
)
from binlogtool.formats.binlog_events.sql.kernels.texts import VARIABLE_PIECES as TEXT_PIECES
from binlogtool.formats.binlog_events.sql.kernels.texts import VARIABLE_PIECES_SIZE as TEXT_SIZE
from binlogtool.formats.binlog_events.sql.kernels.texts import find_statement, put_statement
from binlogtool.formats.binlog_events.sql.kernels.walk import find_template, has_valid_images
from binlogtool.formats.binlog_events.values.kernels import copy_text
from binlogtool.formats.bodies import put_uuid
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_unsigned
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian

MAX_BINLOG_BYTES = 8 << 20
"""`sql.binlog.MOST`"""

_PIECES = (
    b"# at ", b" GTID ", b"START TRANSACTION\n/*!*/;\n", b" XID\nCOMMIT\n/*!*/;\n", b"BINLOG '\n", b"'\n/*!*/;\n",
    b"SET @@session.gtid_seq_no=", b"\n/*!*/;\n", b" GTID_LOG ",
    b"/*! *//*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/\n/*!*/;\n",
    b"/*! *//*!80014 SET @@session.original_commit_timestamp=", b"*/\n/*!*/;\n", b"SET @@session.gtid_next='",
    b" QUERY\n", b" ANONYMOUS_GTID\n",
)  # fmt: skip
_TEXTS_AT = SESSION_PIECES_AT + SESSION_PIECES_SIZE
_PIECE_OFFSETS = [_TEXTS_AT + TEXT_SIZE + sum(len(piece) for piece in _PIECES[:i]) for i in range(len(_PIECES))]
(
    _AT, _GTID, _START, _XID, _BINLOG, _CLOSE, _SEQ, _END, _GTID_LOG, _ISOLATION, _COMMITTED, _COMMENT_END, _NEXT,
    _QUERY, _ANONYMOUS,
) = _PIECE_OFFSETS  # fmt: skip
(
    _AT_S, _GTID_S, _START_S, _XID_S, _BINLOG_S, _CLOSE_S, _SEQ_S, _END_S, _GTID_LOG_S, _ISOLATION_S, _COMMITTED_S,
    _COMMENT_END_S, _NEXT_S, _QUERY_S, _ANONYMOUS_S,
) = map(len, _PIECES)  # fmt: skip
BINLOG, BINLOG_SIZE, CLOSE, CLOSE_SIZE = _BINLOG, _BINLOG_S, _CLOSE, _CLOSE_S
TYPE_NAMES_AT = _PIECE_OFFSETS[-1] + len(_PIECES[-1])
"""Where the names of row events stand in the texts: 32 bytes each, by type."""
TEXTS_END = TYPE_NAMES_AT + 32 * 256 + 16
"""Where the texts end; others may follow."""


@kernel(copy_text, put_unsigned)
def put_position_comment(place: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int, state: Int64s) -> int:
    """Write `# at N`, for a nested event `# at N+M`."""
    o = copy_text(texts, _AT, _AT_S, out, o)
    if state[CONTAINER_OFFSET] < 0:
        return put_unsigned(state[WINDOW_OFFSET] + place, out, o, z)
    o = put_unsigned(state[CONTAINER_OFFSET] + 0, out, o, z)
    out[o] = 43
    return put_unsigned(place, out, o + 1, z)


@kernel()
def is_uncompressed_rows(code: int) -> bool:
    """Return whether it is a row event that servers accept unchanged."""
    return (
        (code >= WRITE_ROWS_V1 and code <= DELETE_ROWS_V1)
        or (code >= WRITE_ROWS_V2 and code <= DELETE_ROWS_V2)
        or code == PARTIAL_UPDATE_ROWS
    )


@kernel(has_valid_images, find_template)
def has_matching_rows(code: int, p: int, n: int, map_number: int, buf: UInt8s, texts: UInt8s, state: Int64s) -> bool:
    """Return whether the rows of an event fit the TABLE_MAP; a server stops at one whose rows do not."""
    template = find_template(texts, state[TEMPLATES] + 0, map_number)
    return template > 0 and has_valid_images(buf, p, n, code, texts, template, state[TABLE_ID_SIZE] + 0)


@kernel(is_uncompressed_rows, has_matching_rows, load_little_endian)
def find_statement_end(i: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Return the index of the last event of the statement whose first TABLE_MAP is event `i`; -1 if it is
    unsupported.
    """
    rows = i
    size = 0
    while rows < stop and events.codes[rows] == TABLE_MAP and events.holders[rows] == events.holders[i]:
        size += events.stops[rows] - events.offsets[rows]
        if (
            events.maps[rows] < 0
            or events.stops[rows] - events.ends[rows] != memory.state[CHECKSUM_BYTES]
            or rows - i > 15
        ):
            return -1
        for k in range(i, rows):
            if load_little_endian(
                memory.buf, events.starts[k] + 0, memory.state[TABLE_ID_SIZE] + 0
            ) == load_little_endian(memory.buf, events.starts[rows] + 0, memory.state[TABLE_ID_SIZE] + 0):
                return -1
        rows += 1
    j = rows
    while j < stop and is_uncompressed_rows(events.codes[j]) and events.holders[j] == events.holders[i]:
        size += events.stops[j] - events.offsets[j]
        if size > MAX_BINLOG_BYTES:
            return -1
        if (
            events.maps[j] < 0
            or events.stops[j] - events.ends[j] != memory.state[CHECKSUM_BYTES]
            or events.ends[j] - events.starts[j] < 10
        ):
            return -1
        is_known = 0
        for k in range(i, rows):
            if events.maps[k] == events.maps[j]:
                is_known = 1
        if is_known == 0 or not has_matching_rows(
            events.codes[j], events.starts[j], events.ends[j], events.maps[j], memory.buf, memory.texts, memory.state
        ):
            return -1
        if memory.buf[events.starts[j] + memory.state[TABLE_ID_SIZE]] & 1:
            return j
        j += 1
    return -1


@kernel(copy_text, put_base64, put_position_comment)
def put_rows_binlog(
    i: int, last: int, code: int, place: int, events: EventColumns, memory: ScriptMemory, o: int
) -> int:
    """Write the events of a statement as BINLOG.

    Args:
        code: type of the last event in the log.
    """
    o = put_position_comment(place, memory.texts, memory.out, o, memory.z, memory.state)
    name = TYPE_NAMES_AT + 32 * code
    o = copy_text(memory.texts, name + 1, memory.texts[name] + 0, memory.out, o)
    o = copy_text(memory.texts, _BINLOG, _BINLOG_S, memory.out, o)
    for j in range(i, last + 1):
        o = put_base64(memory.buf, events.offsets[j] + 0, events.stops[j] + 0, memory.texts, memory.out, o)
    return copy_text(memory.texts, _CLOSE, _CLOSE_S, memory.out, o)


@kernel()
def is_plain_gtid(buf: UInt8s, p: int, n: int) -> bool:
    """Return whether MariaDB's GTID is complete from its further flags on and no step of an ALTER TABLE."""
    if p >= n:
        return p == n
    more = buf[p] + 0
    return more & 14 == 0 and n - p > (more & 1) + (more & 16) // 4


@kernel(copy_text, is_plain_gtid, load_little_endian, put_position_comment, put_unsigned)
def put_mariadb_gtid(server: int, flags: int, p: int, n: int, memory: ScriptMemory, o: int, place: int) -> int:
    """Write MariaDB's GTID; -1 if it is unsupported."""
    if (
        n - p < 19
        or flags & SKIP_REPLICATION
        or memory.state[TRANSACTION_STATE] != OUTSIDE_TRANSACTION
        or memory.state[IS_MARIADB] == 0
    ):
        return -1
    more = memory.buf[p + 12] + 0
    if (
        more & 0xE1
        or (more >> 3) & 1 != memory.state[PARALLEL_ALLOWED]
        or not is_plain_gtid(memory.buf, p + 13 + 4 * (more & 2), n)
    ):
        return -1
    number = load_little_endian(memory.buf, p, 8)
    domain = load_little_endian(memory.buf, p + 8, 4)
    if number < 0 or (
        memory.state[SETS_GTIDS] and (domain != memory.state[DOMAIN_ID] or server != memory.state[SERVER_ID])
    ):
        return -1
    o = copy_text(
        memory.texts,
        _GTID,
        _GTID_S,
        memory.out,
        put_position_comment(place, memory.texts, memory.out, o, memory.z, memory.state),
    )
    o = put_unsigned(domain, memory.out, o, memory.z)
    memory.out[o] = 45
    o = put_unsigned(server, memory.out, o + 1, memory.z)
    memory.out[o] = 45
    o = put_unsigned(number, memory.out, o + 1, memory.z)
    memory.out[o] = 10
    o += 1
    if memory.state[SETS_GTIDS]:
        o = put_unsigned(number, memory.out, copy_text(memory.texts, _SEQ, _SEQ_S, memory.out, o), memory.z)
        o = copy_text(memory.texts, _END, _END_S, memory.out, o)
        memory.state[SEQUENCE_NUMBER] = number
    memory.state[TRANSACTION_STATE] = IN_TRANSACTION
    return copy_text(memory.texts, _START, _START_S, memory.out, o)


@kernel(load_little_endian)
def has_version(p: int, n: int, buf: UInt8s, version: int) -> bool:
    """Return whether the GTID body has exactly one server version, and it is this one.

    Args:
        p: offset after its commit timestamps.
    """
    if n - p < 5:
        return False
    length = buf[p] + 0
    p += 1
    if length == 252:
        p += 2
    elif length == 253:
        p += 3
    elif length == 254:
        p += 8
    return n - p >= 4 and load_little_endian(buf, p, 4) == version


@kernel(copy_text, put_unsigned, put_uuid)
def put_gtid(p: int, number: int, buf: UInt8s, texts: UInt8s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write MySQL's GTID: the UUID at `buf[p]` and the number."""
    o = put_uuid(buf, p, out, o)
    out[o] = 58
    return put_unsigned(number, out, o + 1, z)


@kernel(copy_text, has_version, load_little_endian, put_gtid, put_position_comment, put_unsigned)
def put_mysql_gtid(
    code: int,
    p: int,
    n: int,
    buf: UInt8s,
    texts: UInt8s,
    out: MutableUInt8s,
    o: int,
    z: int,
    state: MutableInt64s,
    place: int,
) -> int:
    """Write MySQL's GTID, if it has one server version; -1 if it is unsupported."""
    if n - p < 54 or state[TRANSACTION_STATE] != OUTSIDE_TRANSACTION or state[IS_MARIADB]:
        return -1
    number = load_little_endian(buf, p + 17, 8)
    time = load_little_endian(buf, p + 42, 7)
    at = p + 49
    if time >= 0x80000000000000:
        time = load_little_endian(buf, at, 7)
        at += 7
    if number < 0 or (
        state[SETS_GTIDS] and (time >= 0x80000000000000 or (code == ANONYMOUS_GTID and state[GTID_AUTOMATIC] == 0))
    ):
        return -1
    if state[SETS_GTIDS] and not has_version(at, n, buf, state[SERVER_VERSION] + 0):
        return -1
    o = put_position_comment(place, texts, out, o, z, state)
    if code == ANONYMOUS_GTID:
        o = copy_text(texts, _ANONYMOUS, _ANONYMOUS_S, out, o)
    else:
        o = put_gtid(p + 1, number, buf, texts, out, copy_text(texts, _GTID_LOG, _GTID_LOG_S, out, o), z)
        out[o] = 10
        o += 1
    state[TRANSACTION_STATE] = AFTER_GTID
    if state[SETS_GTIDS] == 0:
        return o
    if buf[p] & 1 == 0:
        o = copy_text(texts, _ISOLATION, _ISOLATION_S, out, o)
    if time != state[COMMIT_TIMESTAMP]:
        o = put_unsigned(time, out, copy_text(texts, _COMMITTED, _COMMITTED_S, out, o), z)
        o = copy_text(texts, _COMMENT_END, _COMMENT_END_S, out, o)
        state[COMMIT_TIMESTAMP] = time
    if code == ANONYMOUS_GTID:
        return o
    o = put_gtid(p + 1, number, buf, texts, out, copy_text(texts, _NEXT, _NEXT_S, out, o), z)
    state[GTID_AUTOMATIC] = 0
    out[o] = 39
    return copy_text(texts, _END, _END_S, out, o + 1)


@kernel(copy_text, put_begin, put_mariadb_gtid, put_mysql_gtid, put_position_comment)
def put_transaction_event(i: int, events: EventColumns, code: int, place: int, memory: ScriptMemory, o: int) -> int:
    """Write an event that begins, ends or annotates a transaction; -1 if it is unsupported."""
    if code == XID:
        if memory.state[TRANSACTION_STATE] != IN_TRANSACTION or events.ends[i] - events.starts[i] < 8:
            return -1
        memory.state[TRANSACTION_STATE] = OUTSIDE_TRANSACTION
        return copy_text(
            memory.texts,
            _XID,
            _XID_S,
            memory.out,
            put_position_comment(place, memory.texts, memory.out, o, memory.z, memory.state),
        )
    if (
        code == ANNOTATE_ROWS
        or code == ROWS_QUERY
        or (code == TRANSACTION_PAYLOAD and memory.state[TRANSACTION_STATE] == AFTER_GTID)
    ):
        return o
    if code == GTID:
        o = put_mariadb_gtid(events.servers[i], events.flags[i], events.starts[i], events.ends[i], memory, o, place)
    elif code == GTID_LOG or code == ANONYMOUS_GTID:
        o = put_mysql_gtid(
            code,
            events.starts[i],
            events.ends[i],
            memory.buf,
            memory.texts,
            memory.out,
            o,
            memory.z,
            memory.state,
            place,
        )
    elif code == QUERY:
        o = copy_text(
            memory.texts,
            _QUERY,
            _QUERY_S,
            memory.out,
            put_position_comment(place, memory.texts, memory.out, o, memory.z, memory.state),
        )
        return put_begin(events.starts[i], events.ends[i], events.times[i], memory, o)
    else:
        return -1
    if o >= 0:
        memory.state[LAST_GTID_INDEX] = i
    return o


@kernel(copy_text, put_position_comment, put_statement, find_statement)
def put_change_statement(i: int, last: int, place: int, events: EventColumns, memory: ScriptMemory, o: int) -> int:
    """Write a statement of a transaction after its variables; -1 if the buffer is full, -2 if it is unsupported."""
    if last < 0:
        return -2
    if memory.z - o < 2 * (events.stops[last] - events.offsets[i]) + 8192:
        return -1
    o = put_position_comment(place, memory.texts, memory.out, o, memory.z, memory.state)
    o = copy_text(memory.texts, _QUERY, _QUERY_S, memory.out, o)
    o = put_statement(i, last, events, _TEXTS_AT, memory, o)
    return -2 if o < 0 else o


@kernel(put_transaction_event, put_change_statement, put_rows_binlog, find_statement_end, find_statement)
def write_events(i: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Write the events from `i` on; return the index at which it stopped. Other results are in the state.

    Args:
        types: type codes in the log.
        log_offsets: offsets in the log.
        containers: offsets of the events that contain these, or -1.
    """
    done = 0
    memory.state[LAST_GTID_INDEX] = -1
    memory.state[OUTPUT_FULL] = 0
    memory.state[SESSION_CHANGED] = 0
    while i < stop:
        code = events.codes[i]
        last = i
        memory.state[CONTAINER_OFFSET] = events.holders[i] + 0
        if memory.z - done < 4096:
            memory.state[OUTPUT_FULL] = 1
            break
        if code == TABLE_MAP:
            if memory.state[TRANSACTION_STATE] == IN_TRANSACTION:
                last = find_statement_end(i, stop, events, memory)
            if memory.state[TRANSACTION_STATE] != IN_TRANSACTION or last < 0:
                break
            need = 8 * (last - i + 1) + 4096
            for j in range(i, last + 1):
                need += (events.stops[j] - events.offsets[j]) // 3 * 4
            if memory.z - done < need:
                memory.state[OUTPUT_FULL] = 1 if done > 0 else 0
                break
            o = put_rows_binlog(i, last, events.types[last] + 0, events.places[last] + 0, events, memory, done)
        elif memory.state[TRANSACTION_STATE] == IN_TRANSACTION and (code == QUERY or code == INTVAR or code == RAND):
            last = find_statement(i, stop, events.codes, events.starts, events.ends, events.holders, memory.buf)
            place = events.places[last] + 0 if last >= 0 else 0
            o = put_change_statement(i, last, place, events, memory, done)  # fmt: skip
            if o == -1:
                memory.state[OUTPUT_FULL] = 1 if done > 0 else 0
        else:
            place = events.places[i] + 0
            o = put_transaction_event(i, events, code, place, memory, done)
        if o < 0:
            break
        done = o
        i = last + 1
    memory.state[BYTES_WRITTEN] = done
    return i


def build_texts(names: dict[int, str]) -> bytes:
    """Build the texts of the kernel.

    Args:
        names: names of event types by code.
    """
    lines = (f" {names.get(code, '')}\n".encode() for code in range(256))
    entries = ((bytes([len(name)]) + name).ljust(32, b"\0") for name in lines)
    return build_tables() + b"".join(SESSION_PIECES + TEXT_PIECES + _PIECES) + b"".join(entries) + bytes(16)
