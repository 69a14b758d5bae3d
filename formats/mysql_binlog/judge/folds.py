"""Compiled path of validation: kernels that run through events that are in order and stop at the first that is
not.

The validator checks every event at which they stop: it has all rules and the messages. What they let pass
must obey the same rules: known flags, end_log_pos, times, one server per transaction, the next GTID of the
same source, table maps that were read before, row events that fit their map, rising XIDs.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.events.places import DB_LEN, STATUS_LEN
from binlogtool.formats.binlog_events.events.places import HEAD as POST_HEADER
from binlogtool.formats.binlog_events.events.type_codes import (
    ANNOTATE_ROWS,
    ANONYMOUS_GTID,
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    GTID,
    GTID_LOG,
    INTVAR,
    QUERY,
    RAND,
    ROWS_QUERY,
    TABLE_MAP,
    UPDATE_ROWS_V1,
    UPDATE_ROWS_V2,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)
from binlogtool.formats.binlog_events.events.type_codes import XID as XID_EVENT
from binlogtool.formats.binlog_events.groups.marks import ROW_FLAGS, STANDALONE, STMT_END
from binlogtool.formats.binlog_events.groups.steps import (
    BEGIN,
    BEGUN,
    COMMITS,
    HEAD,
    HEAD_BEGUN,
    HEAD_SINGLE,
    HEADED,
    NO_GROUP,
    SINGLE,
    STATEMENT,
    behind,
)
from binlogtool.formats.binlog_events.gtid.bodies import COMPLETED_XA, DDL, GROUP_COMMIT_ID, PREPARED_XA
from binlogtool.formats.binlog_events.gtid.places import (
    COMMIT_ID,
    DOMAIN_ID,
    FLAGS2,
    GNO,
    LAST_COMMITTED,
    LT_TYPE,
    ORIGINAL_TIME,
    SEQ_NO,
    SEQUENCE_NUMBER,
    SID,
)
from binlogtool.formats.binlog_events.sql.kernels.walk import fits
from binlogtool.formats.binlog_events.values.kernels import word_at
from binlogtool.formats.binlog_events.wire.fields import lenenc
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import word32, word48, word64

LEAST_GTID = COMMIT_ID + 6
"""A GTID event of MariaDB has at least so many bytes."""

# State: an array of 64-bit integers. Offsets are absolute.
(
    GROUP, SERVER, BEGINS, ENDS, BOUNDARY, FROZEN, SHIFT, POSITIONS, TIME, COUNT, XID, XIDS, STREAM, SOURCE_A, SOURCE_B,
    NUMBER, SEQUENCE, DEEP, MAPS, ROWS_SEEN, FRESH, ODD_FLAGS, RELAY, CEILING, LAST_POSITION, RUN, WATCH, STATEMENTS,
    SLOTS,
) = range(29)  # fmt: skip
"""GROUP: the group that is open, as in `groups.steps`; or `ADRIFT`. SERVER: its server. BEGINS: where it begins; ENDS:
where it must end by its transaction_length, 0 = not known.

BOUNDARY: the end of the last group, or event outside groups. FROZEN: 1 = something is wrong: the boundary stays. COUNT:
complete groups. WATCH: 1 = the judge wants to see where the next group begins. TIME: of the last event.

SHIFT: what is added to the end of an event to get its end_log_pos, modulo 2**32; POSITIONS: how that is checked
(UNCHAINED, CHAINED, MAY_BE_ZERO); LAST_POSITION: of a log that is not chained.

XID: the highest so far; XIDS: how many there were. STREAM: whose GTIDs are followed (NOBODY, MARIADB, MYSQL); SOURCE_A,
SOURCE_B: its domain and server, or its UUID in two halves; NUMBER: its last one; CEILING: the highest that is known;
RUN: the first number of the run that NUMBER is the last one of, 0 = no run. SEQUENCE: sequence_number of the last
group.

DEEP: 1 = no checksum vouches for the bodies: the judge looks at each one that has a structure. MAPS: table maps of the
statement; ROWS_SEEN: has it row events? FRESH: 1 = it has a table map that was not seen before: its row events are
looked at. ODD_FLAGS: where they are set, the judge looks. RELAY: is it a relay log? STATEMENTS: 1 = the judge
looks at each statement, for what it says of tables."""
ADRIFT = 4
"""In place of a group: behind a damage nothing is known, the judge looks at each event."""

UNCHAINED, CHAINED, MAY_BE_ZERO = range(3)
"""How positions are checked: a relay log has those of its source, which must not fall."""
NOBODY, MARIADB, MYSQL = range(3)

# Tables, after the slots.
MOST_MAPS = 16
KNOWN_MAPS = 1024
SLOT = KNOWN_MAPS - 1
RING_SIZE = 4096
"""XIDs that are remembered."""
TYPES = 64
"""How many events of each type there were."""
MAP_IDS = TYPES + 256
MAP_COLUMNS = MAP_IDS + MOST_MAPS
MAP_FROM = MAP_COLUMNS + MOST_MAPS
"""Where in the window the body of a map is that the fold let pass, and where it ends; 0 = the judge has read it."""
MAP_TO = MAP_FROM + MOST_MAPS
MAP_RECORDS = MAP_TO + MOST_MAPS
"""Where the record of the map is among those of the judge (`sql.event_record`); 0 = it has none."""
KNOWN_IDS = 512
"""Of maps that were read before, by the low bits of their ids: id + 1, and number of columns."""
KNOWN_COLUMNS = KNOWN_IDS + KNOWN_MAPS
KNOWN_RECORDS = KNOWN_COLUMNS + KNOWN_MAPS
RING = KNOWN_RECORDS + KNOWN_MAPS
SIZE = RING + RING_SIZE

DAY = 86400

# Group states after events that break no rule.
BEHIND_GTID, BEHIND_SINGLE, BEHIND_HEAD = (behind(NO_GROUP, mark) for mark in (HEAD_BEGUN, HEAD_SINGLE, HEAD))
BEHIND_BEGIN = behind(HEADED, STATEMENT + BEGIN)
BEHIND_XID, BEHIND_STATEMENT = behind(BEGUN, COMMITS), behind(SINGLE, STATEMENT)

LETTER_B, LETTER_C, LETTER_D, LETTER_E, LETTER_G, LETTER_I, LETTER_N, LETTER_R, LETTER_S, LETTER_U, LETTER_X = (
    b"BCDEGINRSUX"
)
CAPITAL = 0xDF
"""Bits of a letter without its case."""

WIDE, WIDER = 0xFC, 250
"""A number of columns of two bytes follows; above WIDER, the first byte is none itself."""
ODD_ROW_FLAGS = 0xFFFF & ~0x9F
"""Flags of row events that the fold does not let pass."""
ROW_HEAD, EXTRA_LENGTH = 8, 2
"""Bytes of the head of a row event, and of the length of its extra data, which counts itself."""
DATABASE, BEHIND_DATABASE = 8, 10
"""Where the length of the database stands in a TABLE_MAP; what follows its name, where that has no letters."""
LOGICAL_TIMES = 2
"""lt_type of a GTID_LOG with last_committed and sequence_number."""
TIME_SIZE, TWO_TIMES = 7, 0x80
"""Bytes of a commit timestamp, and what its last one has set where a second one follows."""
XID_SIZE, INTVAR_SIZE, RAND_SIZE = 8, 9, 16
"""Bytes of bodies that always have one size."""


@kernel()
def ends_group(group: int, end: int, state: MutableInt64s) -> bool:
    """End the transaction; return False if its length or its last statement is unexpected.

    Args:
        group: state after it.
    """
    if state[MAPS] != 0 or (state[ENDS] != 0 and state[ENDS] != end):
        return False
    state[GROUP] = group
    state[COUNT] += 1
    if state[FROZEN] == 0:
        state[BOUNDARY] = end
    return True


@kernel(word32, word64)
def maria_gtid(p: int, n: int, start: int, server: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Follow MariaDB's GTID with the next number of the same domain and server, without XA and DDL."""
    if state[GROUP] != NO_GROUP or state[STREAM] != MARIADB or state[WATCH] != 0 or n - p < LEAST_GTID:
        return False
    flags = buf[p + FLAGS2]
    if flags & (DDL | PREPARED_XA | COMPLETED_XA) != 0 or (flags & GROUP_COMMIT_ID != 0 and n - p < COMMIT_ID + 8):
        return False
    number = word64(buf, p + SEQ_NO)
    if number != state[NUMBER] + 1 or number <= state[CEILING]:
        return False
    if word32(buf, p + DOMAIN_ID) != state[SOURCE_A] or server != state[SOURCE_B]:
        return False
    state[NUMBER] = number
    state[GROUP] = BEHIND_SINGLE if flags & STANDALONE != 0 else BEHIND_GTID
    state[SERVER] = server
    state[BEGINS] = start
    state[ENDS] = 0
    return True


@kernel(lenenc)
def transaction_length(p: int, n: int, buf: UInt8s) -> int:
    """Read transaction_length of a GTID_LOG body at `p`; -1 if there is none, or one of more than three bytes."""
    at = p + ORIGINAL_TIME
    if at > n:
        return -1
    if buf[at - 1] >= TWO_TIMES:
        at += TIME_SIZE
    length, behind = lenenc(buf, at, n)
    return -1 if behind < 0 or behind - at > 4 else length


@kernel(word64, transaction_length)
def mysql_gtid(code: int, p: int, n: int, start: int, server: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Follow GTID_LOG with the next number of the same source, or ANONYMOUS_GTID, with the next sequence_number."""
    if state[GROUP] != NO_GROUP or state[WATCH] != 0 or n - p < ORIGINAL_TIME:
        return False
    length = transaction_length(p, n, buf)
    committed = word64(buf, p + LAST_COMMITTED)
    sequence = word64(buf, p + SEQUENCE_NUMBER)
    if (
        length < 0
        or buf[p + LT_TYPE] != LOGICAL_TIMES
        or sequence != state[SEQUENCE] + 1
        or committed < 0
        or committed >= sequence
    ):
        return False
    if code == GTID_LOG:
        number = word64(buf, p + GNO)
        if state[STREAM] != MYSQL or number != state[NUMBER] + 1 or number <= state[CEILING]:
            return False
        if word64(buf, p + SID) != state[SOURCE_A] or word64(buf, p + SID + 8) != state[SOURCE_B]:
            return False
        state[NUMBER] = number
    state[SEQUENCE] = sequence
    state[GROUP] = BEHIND_HEAD
    state[SERVER] = server
    state[BEGINS] = start
    state[ENDS] = start + length if state[RELAY] == 0 else 0
    return True


@kernel(ends_group)
def query(p: int, n: int, end: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Follow a QUERY: BEGIN, a plain INSERT, UPDATE or DELETE of a transaction, or the one statement of a group."""
    if n - p < POST_HEADER + 1 or state[GROUP] == NO_GROUP:
        return False
    at = p + POST_HEADER + 1 + (buf[p + STATUS_LEN] | buf[p + STATUS_LEN + 1] << 8) + buf[p + DB_LEN]
    if at + 5 > n:
        return False
    first = buf[at] & CAPITAL
    if state[GROUP] == HEADED:
        if n - at != 5 or buf[at] != LETTER_B or buf[at + 1] != LETTER_E or buf[at + 2] != LETTER_G:
            return False
        if buf[at + 3] != LETTER_I or buf[at + 4] != LETTER_N:
            return False
        state[GROUP] = BEHIND_BEGIN
        return True
    if state[DEEP] != 0 or state[STATEMENTS] != 0:
        return False
    if state[GROUP] == BEGUN:
        if first == LETTER_I or first == LETTER_U:  # noqa: SIM109 - a kernel
            return True
        return bool(first == LETTER_D and buf[at + 1] & CAPITAL == LETTER_E)
    if first == LETTER_B or first == LETTER_C or first == LETTER_R or first == LETTER_S or first == LETTER_X:  # noqa: SIM109
        return False
    return ends_group(BEHIND_STATEMENT, end, state)


@kernel(word_at)
def is_known_map(p: int, n: int, buf: UInt8s, texts: UInt8s, r: int) -> bool:
    """Return whether the TABLE_MAP body `buf[p:n]` equals that of the template at `texts[r]`, except for id and
    flags.
    """
    size = word_at(texts, r + 20)
    at = r + word_at(texts, r + 16)
    same = 0
    if n - p == size:
        for i in range(ROW_HEAD, size):
            if buf[p + i] == texts[at + i]:
                same += 1
    return same > 0 and same == size - ROW_HEAD


@kernel(is_known_map, word48)
def table_map(p: int, n: int, state: MutableInt64s, buf: UInt8s, texts: UInt8s) -> bool:
    """Follow a TABLE_MAP that was read before and is unchanged."""
    count = state[MAPS]
    if state[DEEP] != 0 or state[GROUP] < BEGUN or count >= MOST_MAPS or n - p < 14:
        return False
    at = p + BEHIND_DATABASE + buf[p + DATABASE]
    if at >= n:
        return False
    at += buf[at] + 2
    if at + 2 >= n:
        return False
    columns = buf[at]
    if columns == WIDE:
        columns = buf[at + 1] | buf[at + 2] << 8
    elif columns > WIDER:
        return False
    table = word48(buf, p)
    slot = table & SLOT
    if state[KNOWN_IDS + slot] != table + 1 or state[KNOWN_COLUMNS + slot] != columns:
        return False
    r = state[KNOWN_RECORDS + slot] + 0
    if r == 0 or not is_known_map(p, n, buf, texts, r):
        return False
    for k in range(count):
        if state[MAP_IDS + k] == table:
            state[MAP_RECORDS + k] = r
            state[MAP_COLUMNS + k] = columns
            state[MAP_FROM + k] = p
            state[MAP_TO + k] = n
            return True
    state[MAP_RECORDS + count] = r
    state[MAP_IDS + count] = table
    state[MAP_COLUMNS + count] = columns
    state[MAP_FROM + count] = p
    state[MAP_TO + count] = n
    state[MAPS] = count + 1
    return True


@kernel(fits, word48)
def rows(code: int, p: int, n: int, state: MutableInt64s, buf: UInt8s, texts: UInt8s) -> bool:
    """Follow a row event of the open statement whose rows fit the table map."""
    if state[GROUP] != BEGUN or state[DEEP] != 0 or state[FRESH] != 0 or n - p < 13:
        return False
    flags = buf[p + ROW_FLAGS] | buf[p + ROW_FLAGS + 1] << 8
    if flags & ODD_ROW_FLAGS != 0:
        return False
    at = p + ROW_HEAD
    if code >= WRITE_ROWS_V2:
        extra = buf[at] | buf[at + 1] << 8
        if extra < EXTRA_LENGTH:
            return False
        at += extra
        if at + 3 > n:
            return False
    columns = buf[at]
    at += 1
    if columns == WIDE:
        columns = buf[at] | buf[at + 1] << 8
        at += 2
    elif columns > WIDER:
        return False
    bitmaps = (columns + 7) // 8
    if code == UPDATE_ROWS_V1 or code == UPDATE_ROWS_V2:  # noqa: SIM109 - a kernel
        bitmaps += bitmaps
    if at + bitmaps > n:
        return False
    table = word48(buf, p)
    r = 0
    for k in range(state[MAPS]):
        if state[MAP_IDS + k] == table and state[MAP_COLUMNS + k] == columns:
            r = state[MAP_RECORDS + k] + 0
    if r == 0 or not fits(buf, p, n, code, texts, r, 6):
        return False
    state[ROWS_SEEN] = 1
    if flags & STMT_END != 0:
        state[MAPS] = 0
        state[ROWS_SEEN] = 0
    return True


@kernel(word64, ends_group)
def commit(p: int, n: int, end: int, state: MutableInt64s, buf: UInt8s) -> bool:
    """Follow an XID higher than all before it."""
    if state[GROUP] != BEGUN or n - p != XID_SIZE:
        return False
    number = word64(buf, p)
    if number <= state[XID] or not ends_group(BEHIND_XID, end, state):
        return False
    state[XID] = number
    state[RING + (state[XIDS] & RING_SIZE - 1)] = number
    state[XIDS] += 1
    return True


@kernel(maria_gtid, mysql_gtid, query, table_map, rows, commit)
def in_order(
    code: int, p: int, n: int, start: int, end: int, server: int, state: MutableInt64s, buf: UInt8s, texts: UInt8s
) -> bool:  # fmt: skip
    """Follow one event; return False, without a trace in the state, if it is unexpected."""
    if code == TABLE_MAP:
        return table_map(p, n, state, buf, texts)
    if (code >= WRITE_ROWS_V2 and code <= DELETE_ROWS_V2) or (code >= WRITE_ROWS_V1 and code <= DELETE_ROWS_V1):
        return rows(code, p, n, state, buf, texts)
    if code == GTID:
        return maria_gtid(p, n, start, server, state, buf)
    if code == XID_EVENT:
        return commit(p, n, end, state, buf)
    if code == GTID_LOG or code == ANONYMOUS_GTID:  # noqa: SIM109 - a kernel
        return mysql_gtid(code, p, n, start, server, state, buf)
    if code == QUERY:
        return query(p, n, end, state, buf)
    if code == ANNOTATE_ROWS or code == ROWS_QUERY:  # noqa: SIM109 - a kernel
        return state[GROUP] >= BEGUN and n > p
    if code == INTVAR:
        return state[GROUP] >= BEGUN and n - p == INTVAR_SIZE
    if code == RAND:
        return state[GROUP] >= BEGUN and n - p == RAND_SIZE
    return False


class OrderedEvents(NamedTuple):
    """One entry for each event of a batch."""

    types: Int64s
    times: Int64s
    servers: Int64s
    offsets: Int64s
    ends: Int64s
    positions: Int64s
    flags: Int64s
    body_starts: Int64s
    body_ends: Int64s


@kernel(in_order)
def fold(
    first: int, stop: int, base: int, events: OrderedEvents, state: MutableInt64s, buf: UInt8s, texts: UInt8s
) -> int:
    """Follow the events of a batch that are in order; return the index of the first that is not, or `stop`."""
    odd = state[ODD_FLAGS]
    mode = state[POSITIONS]
    shift = state[SHIFT]
    for i in range(first, stop):
        if state[GROUP] >= ADRIFT or events.flags[i] & odd != 0:
            return i
        end = base + events.ends[i]
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
        if events.times[i] + DAY < state[TIME] or (state[GROUP] != NO_GROUP and events.servers[i] != state[SERVER]):
            return i
        start = base + events.offsets[i]
        if not in_order(
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
        state[TIME] = events.times[i]
        state[TYPES + events.types[i]] += 1
    return stop
