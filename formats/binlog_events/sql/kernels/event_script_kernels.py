"""Write frequent events as statements, in compiled kernels.

Only texts that all clients read in the same way are supported.

The main kernel handles transactions that begin and end in the usual ways, and row events as BINLOG, with the text of
`binlog_events.sql.script.SqlScript`. It stops at each event that it does not support, and before a statement that does
not end in this batch; the state is not changed by such an event.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from itertools import accumulate

from binlogtool.format_api.json_text_kernels import write_json_unsigned
from binlogtool.format_api.schema_fields import (
    Int64s,
    MutableUInt8s,
    UInt8s,
    are_bytes_equal,
    kernel,
    load_little_endian,
    write_uuid,
)
from binlogtool.formats.binlog_events.event_schemas import find_query_text, load_intvar, load_query, load_rand
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    load_mariadb_gtid,
    load_mariadb_gtid_flags,
    load_mysql_gtid,
    load_server_versions,
)
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import (
    copy_text,
    find_table_template,
    has_valid_images,
    load_word,
)
from binlogtool.formats.binlog_events.sql.kernels.script_kernel_structs import EventColumns, ScriptMemory
from binlogtool.formats.binlog_events.transactions.boundaries import is_begin
from binlogtool.formats.binlog_events.values.number_and_date_text_kernels import write_padded_digits
from binlogtool.formats.binlog_events.wire_format import (
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
    SUPPRESS_USE,
    TABLE_MAP,
    TRANSACTION_PAYLOAD,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
    XID,
)

# --- Slots of the script kernels' state, an array of 64-bit integers ---

(
    TRANSACTION_STATE,
    WINDOW_OFFSET,
    CHECKSUM_BYTES,
    SETS_GTIDS,
    DOMAIN_ID,
    SERVER_ID,
    SEQUENCE_NUMBER,
    THREAD_ID,
    TIMESTAMP_US,
    IS_MARIADB,
) = range(10)
"""TRANSACTION_STATE: see below. WINDOW_OFFSET: offset of the window in the file. CHECKSUM_BYTES: size of an event's
checksum. SETS_GTIDS: 1 if the script sets GTIDs. DOMAIN_ID, SERVER_ID, SEQUENCE_NUMBER: of MariaDB's session.
THREAD_ID: its pseudo_thread_id; TIMESTAMP_US: its TIMESTAMP in microseconds; both are -1 while unknown."""
OUTSIDE_TRANSACTION, AFTER_GTID, IN_TRANSACTION = range(3)
"""Values of TRANSACTION_STATE; AFTER_GTID is the state after a GTID event of MySQL."""
(
    PARALLEL_ALLOWED,
    SERVER_VERSION,
    TABLE_ID_SIZE,
    BYTES_WRITTEN,
    LAST_GTID_INDEX,
    OUTPUT_FULL,
    COMMIT_TIMESTAMP,
    SESSION_NUMBER,
    SESSION_CHANGED,
    ROW_FLAG_MASK,
) = range(10, 20)
"""PARALLEL_ALLOWED: MariaDB's session lets transactions run in parallel. SERVER_VERSION: that of MySQL's session.
BYTES_WRITTEN: size of the output. LAST_GTID_INDEX: last GTID event written, or -1. OUTPUT_FULL: 1 if the output buffer
is full. COMMIT_TIMESTAMP: original_commit_timestamp of MySQL's session. SESSION_NUMBER: see
`sql.script_writer_with_kernels`. SESSION_CHANGED: 1 if the session, its time or its thread changed. ROW_FLAG_MASK:
flags of row events that matter."""
(
    GTID_AUTOMATIC,
    NEXT_SESSION_NUMBER,
    TEMPLATES,
    DATABASE_SIZE,
    CONTAINER_OFFSET,
    ROWS_AS_STATEMENTS,
    STATE_SIZE,
) = range(20, 27)
"""GTID_AUTOMATIC: 1 if MySQL's gtid_next is AUTOMATIC. NEXT_SESSION_NUMBER: the session after the current rows.
TEMPLATES: offset of the table of templates in the texts. DATABASE_SIZE: size of the session's database name, -1 if it
has none. CONTAINER_OFFSET: offset of the event that contains the current one, or -1. ROWS_AS_STATEMENTS: 1 if row
events are written as statements, 0 for BINLOG."""


@kernel(native="base64_line")
def write_base64_line(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write `buf[pos:limit]` in base64 and a line end; return the end offset."""
    line = b2a_base64(bytes(buf[pos:limit]))
    out[out_pos : out_pos + len(line)] = line
    return out_pos + len(line)


# --- Kernels for SET statements and BEGIN ---

_PIECES = (
    b"SET ", b"TIMESTAMP=", b", ", b"@@session.pseudo_thread_id=", b"\n/*!*/;\n", b"BEGIN\n/*!*/;\n",
    b"SET INSERT_ID=", b"SET LAST_INSERT_ID=", b"SET @@RAND_SEED1=", b", @@RAND_SEED2=",
    b"# at ", b" GTID ", b"START TRANSACTION\n/*!*/;\n", b" XID\nCOMMIT\n/*!*/;\n", b"BINLOG '\n", b"'\n/*!*/;\n",
    b"SET @@session.gtid_seq_no=", b" GTID_LOG ",
    b"/*! *//*!50718 SET TRANSACTION ISOLATION LEVEL READ COMMITTED*/\n/*!*/;\n",
    b"/*! *//*!80014 SET @@session.original_commit_timestamp=", b"*/\n/*!*/;\n", b"SET @@session.gtid_next='",
    b" QUERY\n", b" ANONYMOUS_GTID\n",
)  # fmt: skip


def pack_text_positions(start: int, constant_texts: tuple[bytes, ...]) -> list[int]:
    """Return each piece as one number for `write_constant_text`: its offset in the texts << 8 | its size."""
    offsets = accumulate(map(len, constant_texts), initial=start)
    return [offset << 8 | len(piece) for offset, piece in zip(offsets, constant_texts, strict=False)]


(
    _SET, _TIMESTAMP, _COMMA, _THREAD, _END, _BEGIN, _INSERT_ID, _LAST_ID, _SEED1, _SEED2, _AT, _GTID, _START, _XID,
    BINLOG, CLOSE, _SEQ, _GTID_LOG, _ISOLATION, _COMMITTED, _COMMENT_END, _NEXT, _QUERY, _ANONYMOUS,
) = pack_text_positions(0, _PIECES)  # fmt: skip
TYPE_NAMES_AT = sum(map(len, _PIECES))
"""Offset of the event type names in the texts: 32 bytes each, by type code."""
TEXTS_END = TYPE_NAMES_AT + 32 * 256 + 16
"""End of these texts; other texts may follow."""


@kernel(copy_text)
def write_constant_text(packed_text_position: int, texts: UInt8s, out: MutableUInt8s, out_pos: int) -> int:
    """Write a constant text that was numbered by `pack_text_positions`."""
    return copy_text(texts, packed_text_position >> 8, packed_text_position & 255, out, out_pos)


@kernel(copy_text)
def write_event_type_name(type_code: int, texts: UInt8s, out: MutableUInt8s, out_pos: int) -> int:
    """Write the name of an event type, which ends the line of a comment."""
    name = TYPE_NAMES_AT + 32 * type_code
    return copy_text(texts, name + 1, texts[name] + 0, out, out_pos)


@kernel(are_bytes_equal)
def is_same_status_block(texts: UInt8s, at: int, size: int, ignored_at: int, buf: UInt8s, block_at: int) -> bool:
    """Return whether two status blocks are equal, except for the three bytes at `ignored_at` (-1: none)."""
    if ignored_at < 0:
        return are_bytes_equal(buf, block_at, texts, at, size) == 1
    after = ignored_at + 3
    return (
        are_bytes_equal(buf, block_at, texts, at, ignored_at) == 1
        and are_bytes_equal(buf, block_at + after, texts, at + after, size - after) == 1
    )


@kernel(is_begin, is_same_status_block, load_query, load_word)
def find_query_session_request(pos: int, limit: int, is_in_transaction: int, buf: UInt8s, transitions: UInt8s) -> int:
    """Return the request of the QUERY body `buf[pos:limit]` (a BEGIN unless `is_in_transaction` is set); -1 if it is
    unknown.
    """
    _thread, status, database, text, end = load_query(buf, pos, limit)
    size = database - status
    if end < 0 or text >= limit or (is_in_transaction == 0 and not is_begin(buf, text, limit)):
        return -1
    for request in range(load_word(transitions, 0)):
        at = 16 + 12 * request
        more = load_word(transitions, at + 8)
        if load_word(transitions, at + 4) != size or more >> 16 & 1 != is_in_transaction:
            continue
        if is_same_status_block(transitions, load_word(transitions, at), size, (more & 0xFFFF) - 1, buf, status):
            return request
    return -1


@kernel(load_word)
def find_rows_session_request(row_flags: int, transitions: UInt8s) -> int:
    """Return the request of rows with these flags; -1 if it is unknown."""
    for request in range(load_word(transitions, 0), load_word(transitions, 4)):
        if load_word(transitions, 16 + 12 * request) == row_flags:
            return request
    return -1


@kernel(load_word)
def find_session_transition(session_number: int, request_number: int, transitions: UInt8s) -> int:
    """Return the offset of the SET statements from one session state to another; -1 if they were not prepared."""
    if session_number < 0 or request_number < 0:
        return -1
    at = load_word(transitions, 8) + 12 * (session_number * load_word(transitions, 4) + request_number)
    return at if load_word(transitions, at) > 0 else -1


@kernel(write_constant_text, write_padded_digits, write_json_unsigned)
def write_timestamp_assignment(timestamp_us: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write `TIMESTAMP=…` from microseconds."""
    seconds = timestamp_us // 1000000
    microseconds = timestamp_us - 1000000 * seconds
    out_pos = write_json_unsigned(
        seconds, memory.out, write_constant_text(_TIMESTAMP, memory.texts, memory.out, out_pos), memory.z
    )
    if microseconds > 0:
        memory.out[out_pos] = 46
        out_pos = write_padded_digits(microseconds, 6, memory.out, out_pos + 1)
    return out_pos


@kernel(copy_text, load_word, write_constant_text)
def write_session_assignments(transition_at: int, set_statement_start: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write the assignments of a transition; `set_statement_start`: position at which its SET statement begins."""
    size = load_word(memory.moves, transition_at + 8)
    if size == 0:
        return out_pos
    out_pos = write_constant_text(_SET if out_pos == set_statement_start else _COMMA, memory.texts, memory.out, out_pos)
    return copy_text(memory.moves, load_word(memory.moves, transition_at + 4), size, memory.out, out_pos)


@kernel(write_constant_text, write_timestamp_assignment, write_session_assignments, write_json_unsigned, load_word)
def write_session_before_begin(
    transition_at: int, timestamp_us: int, thread: int, memory: ScriptMemory, out_pos: int
) -> int:
    """Write the SET statement for the session of a BEGIN."""
    start = out_pos
    if timestamp_us > 0 and timestamp_us != memory.state[TIMESTAMP_US]:
        out_pos = write_timestamp_assignment(
            timestamp_us, memory, write_constant_text(_SET, memory.texts, memory.out, out_pos)
        )
        memory.state[TIMESTAMP_US] = timestamp_us
    if thread != memory.state[THREAD_ID]:
        out_pos = write_constant_text(_SET if out_pos == start else _COMMA, memory.texts, memory.out, out_pos)
        out_pos = write_json_unsigned(
            thread, memory.out, write_constant_text(_THREAD, memory.texts, memory.out, out_pos), memory.z
        )
        memory.state[THREAD_ID] = thread
    out_pos = write_session_assignments(transition_at, start, memory, out_pos)
    if out_pos > start:
        out_pos = write_constant_text(_END, memory.texts, memory.out, out_pos)
    memory.state[SESSION_NUMBER] = load_word(memory.moves, transition_at) - 1
    memory.state[SESSION_CHANGED] = 1
    return out_pos


@kernel(write_constant_text, write_timestamp_assignment, write_session_assignments)
def write_session_before_rows(transition_at: int, timestamp_us: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write the SET statement for the statements of a row event; the state is not changed."""
    start = out_pos
    out_pos = write_session_assignments(transition_at, start, memory, out_pos)
    if timestamp_us > 0 and timestamp_us != memory.state[TIMESTAMP_US]:
        out_pos = write_constant_text(_SET if out_pos == start else _COMMA, memory.texts, memory.out, out_pos)
        out_pos = write_timestamp_assignment(timestamp_us, memory, out_pos)
    return write_constant_text(_END, memory.texts, memory.out, out_pos) if out_pos > start else out_pos


@kernel(load_little_endian, write_session_before_begin, load_query, load_word)
def write_session_before_query(
    pos: int,
    limit: int,
    timestamp_seconds: int,
    request_number: int,
    transition_at: int,
    memory: ScriptMemory,
    out_pos: int,
) -> int:
    """Write the SET statement for the QUERY body `buf[pos:limit]`; -1 if its microseconds are invalid."""
    gap = load_word(memory.moves, 16 + 12 * request_number + 8) & 0xFFFF
    thread, status, _database, _text, _end = load_query(memory.buf, pos, limit)
    microseconds = load_little_endian(memory.buf, status + gap - 1, 3) if gap > 0 else 0
    if microseconds >= 1000000:
        return -1
    moment = 1000000 * timestamp_seconds + microseconds if timestamp_seconds > 0 else 0
    return write_session_before_begin(transition_at, moment, thread, memory, out_pos)


@kernel(find_session_transition, write_constant_text, write_session_before_query, find_query_session_request)
def write_begin_if_supported(pos: int, limit: int, timestamp_seconds: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write a BEGIN after its GTID, in its session; -1 if that is not supported."""
    if memory.state[TRANSACTION_STATE] != AFTER_GTID:
        return -1
    request = find_query_session_request(pos, limit, 0, memory.buf, memory.moves)
    cell = find_session_transition(memory.state[SESSION_NUMBER] + 0, request, memory.moves)
    if cell < 0:
        return -1
    out_pos = write_session_before_query(pos, limit, timestamp_seconds, request, cell, memory, out_pos)
    if out_pos < 0:
        return -1
    memory.state[TRANSACTION_STATE] = IN_TRANSACTION
    return write_constant_text(_BEGIN, memory.texts, memory.out, out_pos)


# --- Kernels for logged statements with INTVAR and RAND ---

_INSERT, _UPDATE, _DELETE, _REPLACE = (
    int.from_bytes(word, "big") for word in (b"INSERT", b"UPDATE", b"DELETE", b"REPLACE")
)


@kernel()
def has_row_change_verb(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether the first word of a text is INSERT, UPDATE, DELETE or REPLACE."""
    word = 0
    at = pos
    while at < limit and at < pos + 8 and ((buf[at] | 32) >= 97 and (buf[at] | 32) <= 122):
        word = word << 8 | (buf[at] & 223)
        at += 1
    if at == limit or at - pos > 7:
        return False
    return word == _INSERT or word == _UPDATE or word == _DELETE or word == _REPLACE


_IN_ALL_PARTS = rb"/(?!\*)|\n(?![Dd])"
_PLAIN_TEXTS = tuple(
    re.compile(
        rb"(?:[^'\"`\\/\n#$;-]|-(?!-)|%b|'(?:[^'\\/\n]|%b%b)*'|\"(?:[^\"\\/\n]|%b)*\"|`(?:[^`\\/\n]|%b)*`)*"
        % (_IN_ALL_PARTS, _IN_ALL_PARTS, escape, _IN_ALL_PARTS, _IN_ALL_PARTS)
    )
    for escape in (b"", rb"|\\[^\0\n]")
)


@kernel(native="plain_text")
def classify_plain_text(buf: UInt8s, pos: int, limit: int, escapes: int) -> int:
    """Return 0 if a text needs the general writer; 1 if clients read it alike in every sql_mode; 2 if only in its own
    sql_mode.

    A line that begins with D counts as a possible command.

    Args:
        escapes: whether a backslash in a string begins an escape; if not, texts with backslashes are rejected.

    Returns:
        0: no; 1: yes, in every sql_mode; 2: yes, in its own sql_mode.
    """
    text = bytes(buf[pos:limit])
    if _PLAIN_TEXTS[escapes > 0].fullmatch(text) is None:
        return 0
    return 2 if b"'" in re.findall(rb"\\(.)", text, re.DOTALL) else 1


@kernel(load_intvar, load_rand)
def is_supported_variable_event(type_code: int, pos: int, limit: int, buf: UInt8s) -> bool:
    """Return whether the event is an INTVAR or RAND whose numbers the kernels can write."""
    if type_code == INTVAR:
        variable, value, end = load_intvar(buf, pos, limit)
        return variable >= 1 and variable <= 2 and value >= 0 and end == limit
    first, second, end = load_rand(buf, pos, limit)
    return type_code == RAND and first >= 0 and second >= 0 and end == limit


@kernel(is_supported_variable_event)
def find_statement_after_variables(event_index: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Return the index of the statement for which the variables from event `event_index` on are set.

    Returns -1 if the statement is missing or is in another container, or if a variable is malformed.
    """
    holder = events.holders[event_index] + 0
    while event_index < stop and events.codes[event_index] != QUERY:
        if not is_supported_variable_event(
            events.codes[event_index], events.starts[event_index], events.ends[event_index], memory.buf
        ):
            return -1
        event_index += 1
    return event_index if event_index < stop and events.holders[event_index] == holder else -1


@kernel(write_constant_text, load_intvar, load_rand, write_json_unsigned)
def write_set_of_variable_event(type_code: int, pos: int, limit: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write the SET statement for an INTVAR or RAND event."""
    if type_code == RAND:
        value, second, _end = load_rand(memory.buf, pos, limit)
        out_pos = write_json_unsigned(
            value, memory.out, write_constant_text(_SEED1, memory.texts, memory.out, out_pos), memory.z
        )
        out_pos = write_json_unsigned(
            second, memory.out, write_constant_text(_SEED2, memory.texts, memory.out, out_pos), memory.z
        )
    else:
        variable, value, _end = load_intvar(memory.buf, pos, limit)
        out_pos = write_constant_text(_LAST_ID if variable == 1 else _INSERT_ID, memory.texts, memory.out, out_pos)
        out_pos = write_json_unsigned(value, memory.out, out_pos, memory.z)
    return write_constant_text(_END, memory.texts, memory.out, out_pos)


@kernel(copy_text)
def copy_bytes_unchanged(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int) -> int:
    """Copy bytes unchanged, without reading any bytes after them."""
    size = limit - pos
    out_pos = copy_text(buf, pos, size - (size & 7), out, out_pos)
    for i in range(limit - (size & 7), limit):
        out[out_pos] = buf[i] + 0
        out_pos += 1
    return out_pos


@kernel(has_row_change_verb, are_bytes_equal, classify_plain_text, find_query_session_request, load_query, load_word)
def find_statement_session_request(pos: int, limit: int, flags: int, memory: ScriptMemory) -> int:
    """Return the request of the QUERY `buf[pos:limit]`, plus 1 << 16 if sql_mode matters; -1 = unsupported."""
    request = find_query_session_request(pos, limit, 1, memory.buf, memory.moves)
    if request < 0 or flags & SUPPRESS_USE:
        return -1
    _thread, _status, database, text, _end = load_query(memory.buf, pos, limit)
    size = text - database - 1
    if size > 0 and (
        size != memory.state[DATABASE_SIZE]
        or memory.buf[database + size] != 0
        or are_bytes_equal(memory.buf, database, memory.database, 0, size) == 0
    ):
        return -1
    if not has_row_change_verb(memory.buf, text, limit):
        return -1
    escapes = load_word(memory.moves, 16 + 12 * request + 8) >> 17 & 1
    plain = classify_plain_text(memory.buf, text, limit, escapes)
    return -1 if plain == 0 else request + (plain >> 1 << 16)


@kernel(
    find_session_transition, copy_text, find_query_text, write_constant_text, write_session_before_query,
    copy_bytes_unchanged,
    write_set_of_variable_event, find_statement_session_request, load_word,
)  # fmt: skip
def write_statement_and_variables(
    event_index: int, last: int, events: EventColumns, memory: ScriptMemory, out_pos: int
) -> int:
    """Write the statement `last` after the variables from event `event_index` on; -1 if it is unsupported."""
    p = events.starts[last] + 0
    n = events.ends[last] + 0
    found = find_statement_session_request(p, n, events.flags[last], memory)
    if found < 0:
        return -1
    request = found & 65535
    cell = find_session_transition(memory.state[SESSION_NUMBER] + 0, request, memory.moves)
    if cell < 0:
        return -1
    for k in range(event_index, last):
        out_pos = write_set_of_variable_event(events.codes[k], events.starts[k], events.ends[k], memory, out_pos)
    out_pos = write_session_before_query(p, n, events.times[last], request, cell, memory, out_pos)
    if out_pos < 0:
        return -1
    if found > request:
        request_at = 16 + 12 * request
        mode = load_word(memory.moves, request_at) + load_word(memory.moves, request_at + 4)
        out_pos = copy_text(memory.moves, mode, load_word(memory.moves, request_at + 8) >> 18, memory.out, out_pos)
    text, _end = find_query_text(memory.buf, p, n)
    return write_constant_text(
        _END, memory.texts, memory.out, copy_bytes_unchanged(memory.buf, text, n, memory.out, out_pos)
    )


# --- Kernel for the script text of frequent events ---

# ruff: noqa: SIM109 - kernels have no `in`

MAX_COMMIT_TIME = 1 << 55
"""A commit timestamp has fewer bits; the highest bit of its seven bytes has another meaning."""

MAX_BINLOG_BYTES = 8 << 20
"""Maximum total size of events in one BINLOG statement in bytes, as in `sql.script_state`."""


@kernel(write_constant_text, write_json_unsigned)
def write_position_comment(event_offset: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write `# at N`, or `# at N+M` for a nested event."""
    out_pos = write_constant_text(_AT, memory.texts, memory.out, out_pos)
    if memory.state[CONTAINER_OFFSET] < 0:
        return write_json_unsigned(memory.state[WINDOW_OFFSET] + event_offset, memory.out, out_pos, memory.z)
    out_pos = write_json_unsigned(memory.state[CONTAINER_OFFSET] + 0, memory.out, out_pos, memory.z)
    memory.out[out_pos] = 43
    return write_json_unsigned(event_offset, memory.out, out_pos + 1, memory.z)


@kernel()
def is_uncompressed_row_event(type_code: int) -> bool:
    """Return whether an event is a row event that servers accept unchanged."""
    return (
        (type_code >= WRITE_ROWS_V1 and type_code <= DELETE_ROWS_V1)
        or (type_code >= WRITE_ROWS_V2 and type_code <= DELETE_ROWS_V2)
        or type_code == PARTIAL_UPDATE_ROWS
    )


@kernel(has_valid_images, find_table_template)
def has_matching_rows(
    type_code: int, pos: int, limit: int, map_number: int, buf: UInt8s, texts: UInt8s, state: Int64s
) -> bool:
    """Return whether the rows of an event fit the TABLE_MAP; a server stops at an event whose rows do not fit."""
    template = find_table_template(texts, state[TEMPLATES] + 0, map_number)
    return template > 0 and has_valid_images(buf, pos, limit, type_code, texts, template, state[TABLE_ID_SIZE] + 0)


@kernel(is_uncompressed_row_event, has_matching_rows, load_little_endian)
def find_last_event_of_statement(event_index: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Return the index of the last event of the statement whose first TABLE_MAP is event `event_index`; -1 =
    unsupported.
    """
    rows = event_index
    size = 0
    while rows < stop and events.codes[rows] == TABLE_MAP and events.holders[rows] == events.holders[event_index]:
        size += events.stops[rows] - events.offsets[rows]
        if (
            events.maps[rows] < 0
            or events.stops[rows] - events.ends[rows] != memory.state[CHECKSUM_BYTES]
            or rows - event_index > 15
        ):
            return -1
        for k in range(event_index, rows):
            if load_little_endian(
                memory.buf, events.starts[k] + 0, memory.state[TABLE_ID_SIZE] + 0
            ) == load_little_endian(memory.buf, events.starts[rows] + 0, memory.state[TABLE_ID_SIZE] + 0):
                return -1
        rows += 1
    j = rows
    while j < stop and is_uncompressed_row_event(events.codes[j]) and events.holders[j] == events.holders[event_index]:
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
        for k in range(event_index, rows):
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


@kernel(write_constant_text, write_base64_line, write_position_comment, write_event_type_name)
def write_statement_as_binlog(
    event_index: int, last: int, events: EventColumns, memory: ScriptMemory, out_pos: int
) -> int:
    """Write the events of a statement as BINLOG, after the comment of the last event."""
    out_pos = write_position_comment(events.places[last] + 0, memory, out_pos)
    out_pos = write_event_type_name(events.types[last] + 0, memory.texts, memory.out, out_pos)
    out_pos = write_constant_text(BINLOG, memory.texts, memory.out, out_pos)
    for j in range(event_index, last + 1):
        out_pos = write_base64_line(memory.buf, events.offsets[j] + 0, events.stops[j] + 0, memory.out, out_pos)
    return write_constant_text(CLOSE, memory.texts, memory.out, out_pos)


@kernel(write_constant_text, load_mariadb_gtid, load_mariadb_gtid_flags, write_position_comment, write_json_unsigned)
def write_mariadb_gtid_event(
    server_id: int, flags: int, pos: int, limit: int, memory: ScriptMemory, out_pos: int, event_offset: int
) -> int:
    """Write MariaDB's GTID; -1 if it is unsupported."""
    number, domain, _flags, _commit_id, _end = load_mariadb_gtid(memory.buf, pos, limit)
    more, extra, _thread, end = load_mariadb_gtid_flags(memory.buf, pos, limit)
    if (
        end < 0
        or flags & SKIP_REPLICATION
        or memory.state[TRANSACTION_STATE] != OUTSIDE_TRANSACTION
        or memory.state[IS_MARIADB] == 0
    ):
        return -1
    if more & 0xE1 or extra & 14 or (more >> 3) & 1 != memory.state[PARALLEL_ALLOWED]:
        return -1
    if number < 0 or (
        memory.state[SETS_GTIDS] and (domain != memory.state[DOMAIN_ID] or server_id != memory.state[SERVER_ID])
    ):
        return -1
    out_pos = write_constant_text(
        _GTID, memory.texts, memory.out, write_position_comment(event_offset, memory, out_pos)
    )
    out_pos = write_json_unsigned(domain, memory.out, out_pos, memory.z)
    memory.out[out_pos] = 45
    out_pos = write_json_unsigned(server_id, memory.out, out_pos + 1, memory.z)
    memory.out[out_pos] = 45
    out_pos = write_json_unsigned(number, memory.out, out_pos + 1, memory.z)
    memory.out[out_pos] = 10
    out_pos += 1
    if memory.state[SETS_GTIDS]:
        out_pos = write_json_unsigned(
            number, memory.out, write_constant_text(_SEQ, memory.texts, memory.out, out_pos), memory.z
        )
        out_pos = write_constant_text(_END, memory.texts, memory.out, out_pos)
        memory.state[SEQUENCE_NUMBER] = number
    memory.state[TRANSACTION_STATE] = IN_TRANSACTION
    return write_constant_text(_START, memory.texts, memory.out, out_pos)


@kernel(write_json_unsigned, write_uuid)
def write_mysql_gtid_text(uuid_at: int, number: int, memory: ScriptMemory, out_pos: int) -> int:
    """Write MySQL's GTID: the UUID at `buf[uuid_at]` and the number."""
    out_pos = write_uuid(memory.buf, uuid_at, memory.out, out_pos)
    memory.out[out_pos] = 58
    return write_json_unsigned(number, memory.out, out_pos + 1, memory.z)


@kernel(
    write_constant_text,
    load_mysql_gtid,
    load_server_versions,
    write_mysql_gtid_text,
    write_position_comment,
    write_json_unsigned,
)
def write_mysql_gtid_event(
    type_code: int, pos: int, limit: int, memory: ScriptMemory, out_pos: int, event_offset: int
) -> int:
    """Write MySQL's GTID, if it has one server version; -1 if it is unsupported."""
    sid, number, _end = load_mysql_gtid(memory.buf, pos, limit)
    time, version, original_version, end = load_server_versions(memory.buf, pos, limit)
    if end < 0 or memory.state[TRANSACTION_STATE] != OUTSIDE_TRANSACTION or memory.state[IS_MARIADB]:
        return -1
    sets_gtids = memory.state[SETS_GTIDS] != 0
    if number < 0 or (
        sets_gtids and (time >= MAX_COMMIT_TIME or (type_code == ANONYMOUS_GTID and memory.state[GTID_AUTOMATIC] == 0))
    ):
        return -1
    known_version = memory.state[SERVER_VERSION] + 0
    if sets_gtids and (version == 0 or version != known_version or original_version != known_version):
        return -1
    out_pos = write_position_comment(event_offset, memory, out_pos)
    if type_code == ANONYMOUS_GTID:
        out_pos = write_constant_text(_ANONYMOUS, memory.texts, memory.out, out_pos)
    else:
        out_pos = write_mysql_gtid_text(
            sid, number, memory, write_constant_text(_GTID_LOG, memory.texts, memory.out, out_pos)
        )
        memory.out[out_pos] = 10
        out_pos += 1
    memory.state[TRANSACTION_STATE] = AFTER_GTID
    if not sets_gtids:
        return out_pos
    if memory.buf[pos] & 1 == 0:
        out_pos = write_constant_text(_ISOLATION, memory.texts, memory.out, out_pos)
    if time != memory.state[COMMIT_TIMESTAMP]:
        out_pos = write_json_unsigned(
            time, memory.out, write_constant_text(_COMMITTED, memory.texts, memory.out, out_pos), memory.z
        )
        out_pos = write_constant_text(_COMMENT_END, memory.texts, memory.out, out_pos)
        memory.state[COMMIT_TIMESTAMP] = time
    if type_code == ANONYMOUS_GTID:
        return out_pos
    out_pos = write_mysql_gtid_text(sid, number, memory, write_constant_text(_NEXT, memory.texts, memory.out, out_pos))
    memory.state[GTID_AUTOMATIC] = 0
    memory.out[out_pos] = 39
    return write_constant_text(_END, memory.texts, memory.out, out_pos + 1)


@kernel(
    write_constant_text,
    write_begin_if_supported,
    write_mariadb_gtid_event,
    write_mysql_gtid_event,
    write_position_comment,
)
def write_transaction_event(
    event_index: int, events: EventColumns, type_code: int, event_offset: int, memory: ScriptMemory, out_pos: int
) -> int:
    """Write an event that begins, ends or annotates a transaction; -1 if it is unsupported."""
    if type_code == XID:
        if (
            memory.state[TRANSACTION_STATE] != IN_TRANSACTION
            or events.ends[event_index] - events.starts[event_index] < 8
        ):
            return -1
        memory.state[TRANSACTION_STATE] = OUTSIDE_TRANSACTION
        return write_constant_text(
            _XID, memory.texts, memory.out, write_position_comment(event_offset, memory, out_pos)
        )
    if (
        type_code == ANNOTATE_ROWS
        or type_code == ROWS_QUERY
        or (type_code == TRANSACTION_PAYLOAD and memory.state[TRANSACTION_STATE] == AFTER_GTID)
    ):
        return out_pos
    if type_code == QUERY:
        out_pos = write_constant_text(
            _QUERY, memory.texts, memory.out, write_position_comment(event_offset, memory, out_pos)
        )
        return write_begin_if_supported(
            events.starts[event_index], events.ends[event_index], events.times[event_index], memory, out_pos
        )
    if type_code == GTID:
        out_pos = write_mariadb_gtid_event(
            events.servers[event_index],
            events.flags[event_index],
            events.starts[event_index],
            events.ends[event_index],
            memory,
            out_pos,
            event_offset,
        )
    elif type_code == GTID_LOG or type_code == ANONYMOUS_GTID:
        out_pos = write_mysql_gtid_event(
            type_code, events.starts[event_index], events.ends[event_index], memory, out_pos, event_offset
        )
    else:
        return -1
    if out_pos >= 0:
        memory.state[LAST_GTID_INDEX] = event_index
    return out_pos


@kernel(write_constant_text, write_position_comment, write_statement_and_variables)
def write_change_statement(
    event_index: int, last: int, event_offset: int, events: EventColumns, memory: ScriptMemory, out_pos: int
) -> int:
    """Write a statement of a transaction after its variables; -1 if the buffer is full, -2 if it is unsupported."""
    if last < 0:
        return -2
    if memory.z - out_pos < 3 * (events.stops[last] - events.offsets[event_index]) + 8192:
        return -1
    out_pos = write_constant_text(
        _QUERY, memory.texts, memory.out, write_position_comment(event_offset, memory, out_pos)
    )
    out_pos = write_statement_and_variables(event_index, last, events, memory, out_pos)
    return -2 if out_pos < 0 else out_pos


def build_constant_texts(type_names: dict[int, str]) -> bytes:
    """Build the texts of the kernel; `type_names`: names of event types by code."""
    lines = (f" {type_names.get(code, '')}\n".encode() for code in range(256))
    entries = ((bytes([len(name)]) + name).ljust(32, b"\0") for name in lines)
    return b"".join(_PIECES) + b"".join(entries) + bytes(16)
