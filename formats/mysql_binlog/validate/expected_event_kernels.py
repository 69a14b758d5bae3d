"""Compiled path of validation: kernels that run through events that are as expected and stop at the first other one.

The validator checks every event at which they stop: it has all rules and the messages. Events that the kernels pass
must obey the same rules: known flags, end_log_pos, times, one server per transaction, the next GTID of the same source,
table maps that were read before, row events that fit their map, rising XIDs.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.schema_fields import (
    Int64s,
    MutableInt64s,
    UInt8s,
    are_bytes_equal,
    kernel,
    load_int64,
    load_uint48,
)
from binlogtool.formats.binlog_events.event_schemas import INTVAR as INTVAR_SCHEMA
from binlogtool.formats.binlog_events.event_schemas import RAND as RAND_SCHEMA
from binlogtool.formats.binlog_events.event_schemas import find_query_text, load_xid
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    COMMIT_ID,
    COMPLETED_XA,
    DDL,
    PREPARED_XA,
    load_logical_clock,
    load_mariadb_gtid,
    load_mysql_gtid,
)
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import has_valid_images, load_word, read_rows_head
from binlogtool.formats.binlog_events.transactions.boundaries import (
    AFTER_GTID,
    BEGIN,
    BEGUN,
    COMMIT_EVENT,
    MARIADB_GTID,
    MARIADB_STANDALONE_GTID,
    MYSQL_GTID,
    NO_GROUP,
    ONE_STATEMENT,
    ROW_FLAGS_AT,
    STANDALONE,
    STATEMENT,
    get_next_group_state,
    is_begin,
)
from binlogtool.formats.binlog_events.wire_format import (
    ANONYMOUS_GTID,
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    GTID,
    GTID_LOG,
    INTVAR,
    KNOWN_ROWS_FLAGS,
    QUERY,
    RAND,
    STMT_END,
    TABLE_MAP,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.wire_format import XID as XID_EVENT

MIN_MARIADB_GTID_SIZE = COMMIT_ID + 6
"""Minimum size of the body of MariaDB's GTID event."""

# State: an array of 64-bit integers. Offsets are absolute.
(
    GROUP_STATE, SERVER, GROUP_START, EXPECTED_GROUP_END, BOUNDARY, BOUNDARY_FROZEN, POSITION_SHIFT,
    POSITION_MODE, LAST_TIME, GROUP_COUNT, HIGHEST_XID, XID_COUNT, GTID_STREAM, SOURCE_A, SOURCE_B,
    LAST_GTID_NUMBER, LAST_SEQUENCE_NUMBER, CHECK_BODIES, MAP_COUNT, HAS_ROWS, HAS_NEW_MAP, FLAGS_TO_CHECK,
    IS_RELAY, HIGHEST_GTID_NUMBER, LAST_POSITION, RUN_START, WATCH_GROUP_START, CHECK_STATEMENTS,
    COMMENT_TYPE, SLOTS,
) = range(30)  # fmt: skip
"""GROUP_STATE: the open transaction, a state of `transactions.boundaries`, or AFTER_DAMAGE. SERVER: its server id.
GROUP_START: its offset. EXPECTED_GROUP_END: its end according to transaction_length, 0 if unknown.

BOUNDARY: end of the last transaction, or of an event outside transactions. BOUNDARY_FROZEN: 1 after a fault, when the
boundary no longer moves. GROUP_COUNT: complete transactions. WATCH_GROUP_START: 1 if the validator waits for the next
transaction. LAST_TIME: of the last event.

POSITION_SHIFT: end_log_pos minus the end of an event, modulo 2**32. POSITION_MODE: how positions are checked
(UNCHAINED, CHAINED, MAY_BE_ZERO). LAST_POSITION: last end_log_pos in an unchained log.

HIGHEST_XID: highest XID so far. XID_COUNT: number of XIDs. GTID_STREAM: whose GTIDs are tracked (NOBODY, MARIADB,
MYSQL). SOURCE_A, SOURCE_B: the tracked domain and server, or the halves of the tracked UUID. LAST_GTID_NUMBER: its last
number. HIGHEST_GTID_NUMBER: the highest known one. RUN_START: first number of the run that ends with LAST_GTID_NUMBER,
0 for none. LAST_SEQUENCE_NUMBER: sequence_number of the last transaction.

CHECK_BODIES: 1 if no checksum protects the bodies, so that the validator checks each one that has a structure.
MAP_COUNT: table maps of the statement. HAS_ROWS: 1 if it has row events. HAS_NEW_MAP: 1 if it has a new table map; the
validator then checks its row events. FLAGS_TO_CHECK: event flags at which the kernel stops. IS_RELAY: 1 for a relay
log. CHECK_STATEMENTS: 1 if the validator reads each statement for table definitions. COMMENT_TYPE: type of the server's
events with the text of a statement (ANNOTATE_ROWS, ROWS_QUERY)."""
AFTER_DAMAGE = 4
"""Group state after damage: the open transaction is unknown, and the validator checks each event."""

UNCHAINED, CHAINED, MAY_BE_ZERO = range(3)
"""Ways to check positions. UNCHAINED: a relay log, which has the positions of its source; they must not decrease."""
NOBODY, MARIADB, MYSQL = range(3)

# Tables in the state array, after the slots.
MAX_MAPS = 16
KNOWN_MAP_SLOTS = 1024
KNOWN_MAP_MASK = KNOWN_MAP_SLOTS - 1
XID_RING_SIZE = 4096
"""Number of XIDs that are remembered."""
TYPE_COUNTS = 64
"""Offset of the event counts by type."""
MAP_IDS = TYPE_COUNTS + 256
MAP_COLUMNS = MAP_IDS + MAX_MAPS
MAP_BODY_STARTS = MAP_COLUMNS + MAX_MAPS
"""Start and end, in the window, of the body of a table map that the kernel passed; 0 once the validator has read it."""
MAP_BODY_ENDS = MAP_BODY_STARTS + MAX_MAPS
MAP_TEMPLATES = MAP_BODY_ENDS + MAX_MAPS
"""Offset of the table map's template in `RowRules.templates` (`rows.write_rows_json_kernels`); 0 if it has none."""
KNOWN_IDS = 512
"""Table maps that were read before, indexed by the low bits of their ids: id + 1, and number of columns."""
KNOWN_COLUMNS = KNOWN_IDS + KNOWN_MAP_SLOTS
KNOWN_TEMPLATES = KNOWN_COLUMNS + KNOWN_MAP_SLOTS
XID_RING = KNOWN_TEMPLATES + KNOWN_MAP_SLOTS
STATE_SIZE = XID_RING + XID_RING_SIZE

SECONDS_PER_DAY = 86400

# Group states after events that break no rule.
AFTER_MARIADB_GTID, AFTER_STANDALONE_GTID, AFTER_MYSQL_GTID = (
    get_next_group_state(NO_GROUP, mark) for mark in (MARIADB_GTID, MARIADB_STANDALONE_GTID, MYSQL_GTID)
)
AFTER_BEGIN = get_next_group_state(AFTER_GTID, STATEMENT + BEGIN)
AFTER_XID, AFTER_STATEMENT = get_next_group_state(BEGUN, COMMIT_EVENT), get_next_group_state(ONE_STATEMENT, STATEMENT)

LETTER_B, LETTER_C, LETTER_D, LETTER_E, LETTER_I, LETTER_R, LETTER_S, LETTER_U, LETTER_X = b"BCDEIRSUX"
CASE_MASK = 0xDF
"""Mask that turns ASCII letters into upper case."""

RARE_ROW_FLAGS = 0xFFFF & ~KNOWN_ROWS_FLAGS
"""Flags of row events at which the kernel stops."""
ROW_HEADER_SIZE = 8
"""Size of the table id and the flags of a row event or a TABLE_MAP."""
LOGICAL_TIMESTAMPS = 2
"""Value of lt_type in a GTID_LOG that has last_committed and sequence_number."""
INTVAR_SIZE, RAND_SIZE = INTVAR_SCHEMA.sizeof(), RAND_SCHEMA.sizeof()


@kernel()
def end_transaction_if_expected(next_group_state: int, end: int, state: MutableInt64s) -> bool:
    """End the transaction; return False if its length or its last statement is unexpected.

    `next_group_state`: the group state after it.
    """
    if state[MAP_COUNT] != 0 or (state[EXPECTED_GROUP_END] != 0 and state[EXPECTED_GROUP_END] != end):
        return False
    state[GROUP_STATE] = next_group_state
    state[GROUP_COUNT] += 1
    if state[BOUNDARY_FROZEN] == 0:
        state[BOUNDARY] = end
    return True


@kernel(load_mariadb_gtid)
def track_mariadb_gtid_if_expected(
    pos: int, limit: int, start: int, server_id: int, state: MutableInt64s, buf: UInt8s
) -> bool:
    """Track a MariaDB GTID; only the next number of the same domain and server, without XA and DDL, is expected."""
    if (
        state[GROUP_STATE] != NO_GROUP
        or state[GTID_STREAM] != MARIADB
        or state[WATCH_GROUP_START] != 0
        or limit - pos < MIN_MARIADB_GTID_SIZE
    ):
        return False
    number, domain, flags, _commit_id, gtid_end = load_mariadb_gtid(buf, pos, limit)
    if gtid_end < 0 or flags & (DDL | PREPARED_XA | COMPLETED_XA) != 0:
        return False
    if number != state[LAST_GTID_NUMBER] + 1 or number <= state[HIGHEST_GTID_NUMBER]:
        return False
    if domain != state[SOURCE_A] or server_id != state[SOURCE_B]:
        return False
    state[LAST_GTID_NUMBER] = number
    state[GROUP_STATE] = AFTER_STANDALONE_GTID if flags & STANDALONE != 0 else AFTER_MARIADB_GTID
    state[SERVER] = server_id
    state[GROUP_START] = start
    state[EXPECTED_GROUP_END] = 0
    return True


@kernel(load_int64, load_logical_clock, load_mysql_gtid)
def track_mysql_gtid_if_expected(
    type_code: int, pos: int, limit: int, start: int, server_id: int, state: MutableInt64s, buf: UInt8s
) -> bool:
    """Track the next GTID_LOG of the same source, or an ANONYMOUS_GTID, with the next sequence_number."""
    if state[GROUP_STATE] != NO_GROUP or state[WATCH_GROUP_START] != 0:
        return False
    clock, committed, sequence, length, clock_end = load_logical_clock(buf, pos, limit)
    if (
        clock_end < 0
        or length <= 0
        or clock != LOGICAL_TIMESTAMPS
        or sequence != state[LAST_SEQUENCE_NUMBER] + 1
        or committed < 0
        or committed >= sequence
    ):
        return False
    if type_code == GTID_LOG:
        sid, number, _gtid_end = load_mysql_gtid(buf, pos, limit)
        if state[GTID_STREAM] != MYSQL or number != state[LAST_GTID_NUMBER] + 1 or number <= state[HIGHEST_GTID_NUMBER]:
            return False
        if load_int64(buf, sid) != state[SOURCE_A] or load_int64(buf, sid + 8) != state[SOURCE_B]:
            return False
        state[LAST_GTID_NUMBER] = number
    state[LAST_SEQUENCE_NUMBER] = sequence
    state[GROUP_STATE] = AFTER_MYSQL_GTID
    state[SERVER] = server_id
    state[GROUP_START] = start
    state[EXPECTED_GROUP_END] = start + length if state[IS_RELAY] == 0 else 0
    return True


@kernel(end_transaction_if_expected, find_query_text, is_begin)
def track_query_if_expected(pos: int, limit: int, end: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Track a QUERY: BEGIN, a plain INSERT, UPDATE or DELETE of a transaction, or the only statement of a group."""
    at, text_end = find_query_text(buf, pos, limit)
    if text_end < 0 or state[GROUP_STATE] == NO_GROUP or at + 5 > limit:
        return False
    first = buf[at] & CASE_MASK
    if state[GROUP_STATE] == AFTER_GTID:
        if not is_begin(buf, at, limit):
            return False
        state[GROUP_STATE] = AFTER_BEGIN
        return True
    if state[CHECK_BODIES] != 0 or state[CHECK_STATEMENTS] != 0:
        return False
    if state[GROUP_STATE] == BEGUN:
        if first == LETTER_I or first == LETTER_U:  # noqa: SIM109 - a kernel
            return True
        return bool(first == LETTER_D and buf[at + 1] & CASE_MASK == LETTER_E)
    if first == LETTER_B or first == LETTER_C or first == LETTER_R or first == LETTER_S or first == LETTER_X:  # noqa: SIM109
        return False
    return end_transaction_if_expected(AFTER_STATEMENT, end, state)


@kernel(are_bytes_equal, load_word)
def is_table_map_of_template(pos: int, limit: int, buf: UInt8s, texts: UInt8s, template_at: int) -> bool:
    """Return whether the TABLE_MAP body `buf[pos:limit]` equals that of a template, except for id and flags."""
    size = load_word(texts, template_at + 20) - ROW_HEADER_SIZE
    body = template_at + load_word(texts, template_at + 16) + ROW_HEADER_SIZE
    pos += ROW_HEADER_SIZE
    return limit - pos == size and size > 0 and are_bytes_equal(buf, pos, texts, body, size) == 1


@kernel(is_table_map_of_template, load_uint48)
def track_table_map_if_unchanged(pos: int, limit: int, state: MutableInt64s, buf: UInt8s, texts: UInt8s) -> bool:
    """Track a TABLE_MAP that was read before and is unchanged."""
    count = state[MAP_COUNT]
    if state[CHECK_BODIES] != 0 or state[GROUP_STATE] < BEGUN or count >= MAX_MAPS or limit - pos < ROW_HEADER_SIZE:
        return False
    table = load_uint48(buf, pos)
    slot = table & KNOWN_MAP_MASK
    if state[KNOWN_IDS + slot] != table + 1:
        return False
    template = state[KNOWN_TEMPLATES + slot] + 0
    if template == 0 or not is_table_map_of_template(pos, limit, buf, texts, template):
        return False
    index = count + 0
    for k in range(count):
        if state[MAP_IDS + k] == table:
            index = k
    state[MAP_TEMPLATES + index] = template
    state[MAP_IDS + index] = table
    state[MAP_COLUMNS + index] = state[KNOWN_COLUMNS + slot]
    state[MAP_BODY_STARTS + index] = pos
    state[MAP_BODY_ENDS + index] = limit
    state[MAP_COUNT] = max(count, index + 1)
    return True


@kernel(has_valid_images, load_uint48, read_rows_head)
def track_rows_event_if_valid(
    type_code: int, pos: int, limit: int, state: MutableInt64s, buf: UInt8s, texts: UInt8s
) -> bool:
    """Track a row event of the open statement whose rows fit the table map."""
    if (
        state[GROUP_STATE] != BEGUN
        or state[CHECK_BODIES] != 0
        or state[HAS_NEW_MAP] != 0
        or limit - pos < ROW_HEADER_SIZE
    ):
        return False
    flags, _extra, columns, _bitmaps = read_rows_head(buf, pos + ROW_FLAGS_AT, limit, type_code >= WRITE_ROWS_V2)
    if columns < 0 or flags & RARE_ROW_FLAGS != 0:
        return False
    table = load_uint48(buf, pos)
    template = 0
    for k in range(state[MAP_COUNT]):
        if state[MAP_IDS + k] == table:
            template = state[MAP_TEMPLATES + k] + 0
    if template == 0 or not has_valid_images(buf, pos, limit, type_code, texts, template, 6):
        return False
    state[HAS_ROWS] = 1
    if flags & STMT_END != 0:
        state[MAP_COUNT] = 0
        state[HAS_ROWS] = 0
    return True


@kernel(load_xid, end_transaction_if_expected)
def track_xid_if_expected(pos: int, limit: int, end: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Track an XID that is higher than all before it."""
    number, xid_end = load_xid(buf, pos, limit)
    if (
        state[GROUP_STATE] != BEGUN
        or xid_end != limit
        or number <= state[HIGHEST_XID]
        or not end_transaction_if_expected(AFTER_XID, end, state)
    ):
        return False
    state[HIGHEST_XID] = number
    state[XID_RING + (state[XID_COUNT] & XID_RING_SIZE - 1)] = number
    state[XID_COUNT] += 1
    return True


@kernel(
    track_mariadb_gtid_if_expected,
    track_mysql_gtid_if_expected,
    track_query_if_expected,
    track_table_map_if_unchanged,
    track_rows_event_if_valid,
    track_xid_if_expected,
)
def track_event_if_expected(
    type_code: int, pos: int, limit: int, start: int, end: int, server_id: int, state: MutableInt64s, buf: UInt8s,
    texts: UInt8s
) -> bool:  # fmt: skip
    """Track one event; return False and leave the state unchanged if the event is unexpected."""
    if type_code == TABLE_MAP:
        return track_table_map_if_unchanged(pos, limit, state, buf, texts)
    if (type_code >= WRITE_ROWS_V2 and type_code <= DELETE_ROWS_V2) or (
        type_code >= WRITE_ROWS_V1 and type_code <= DELETE_ROWS_V1
    ):
        return track_rows_event_if_valid(type_code, pos, limit, state, buf, texts)
    if type_code == GTID:
        return track_mariadb_gtid_if_expected(pos, limit, start, server_id, state, buf)
    if type_code == XID_EVENT:
        return track_xid_if_expected(pos, limit, end, state, buf)
    if type_code == GTID_LOG or type_code == ANONYMOUS_GTID:  # noqa: SIM109 - a kernel
        return track_mysql_gtid_if_expected(type_code, pos, limit, start, server_id, state, buf)
    if type_code == QUERY:
        return track_query_if_expected(pos, limit, end, state, buf)
    if type_code == state[COMMENT_TYPE]:
        return state[GROUP_STATE] >= BEGUN and limit > pos
    if type_code == INTVAR:
        return state[GROUP_STATE] >= BEGUN and limit - pos == INTVAR_SIZE
    if type_code == RAND:
        return state[GROUP_STATE] >= BEGUN and limit - pos == RAND_SIZE
    return False


class OrderedEvents(NamedTuple):
    """Columns of a batch; each has one entry per event."""

    types: Int64s
    times: Int64s
    servers: Int64s
    offsets: Int64s
    ends: Int64s
    positions: Int64s
    flags: Int64s
    body_starts: Int64s
    body_ends: Int64s


@kernel(track_event_if_expected)
def track_events_while_expected(
    first: int, stop: int, batch_offset: int, events: OrderedEvents, state: MutableInt64s, buf: UInt8s, texts: UInt8s
) -> int:
    """Track the events of a batch while they are as expected; return the index of the first other one, or `stop`."""
    flags_to_check = state[FLAGS_TO_CHECK]
    mode = state[POSITION_MODE]
    shift = state[POSITION_SHIFT]
    for i in range(first, stop):
        if state[GROUP_STATE] >= AFTER_DAMAGE or events.flags[i] & flags_to_check != 0:
            return i
        end = batch_offset + events.ends[i]
        position = events.positions[i]
        if mode == UNCHAINED:
            if position != 0 and position < state[LAST_POSITION]:
                return i
            if position != 0:
                state[LAST_POSITION] = position
        elif position == 0:
            if mode != MAY_BE_ZERO:
                return i
        elif (end + shift) & 0xFFFFFFFF != position:
            return i
        if events.times[i] + SECONDS_PER_DAY < state[LAST_TIME] or (
            state[GROUP_STATE] != NO_GROUP and events.servers[i] != state[SERVER]
        ):
            return i
        start = batch_offset + events.offsets[i]
        if not track_event_if_expected(
            events.types[i],
            events.body_starts[i],
            events.body_ends[i],
            start,
            end,
            events.servers[i],
            state,
            buf,
            texts,
        ):
            return i
        state[LAST_TIME] = events.times[i]
        state[TYPE_COUNTS + events.types[i]] += 1
    return stop
