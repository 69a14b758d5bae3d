"""The judge's inner loop as kernels: it runs through events that are in order and stops at the first that is not.

The judge looks at every event where the fold stops: it knows all rules and has the words for them. What the fold lets
pass must obey the same rules: known flags, end_log_pos, times, one server per group, the next GTID of the same source,
table maps that were read before, row events with their map and its number of columns, XIDs that rise.
"""

# ruff: noqa: SIM109 - kernels have no `in`
from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.places import DB_LEN, HEAD, STATUS_LEN
from binlogtool.formats.binlog_events.groups.groups import STANDALONE
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
from binlogtool.formats.binlog_events.wire.fields import lenenc
from binlogtool.formats.fields import kernel
from binlogtool.formats.loads import word32, word48, word64

_QUERY = EventType.QUERY.value
_INTVAR = EventType.INTVAR.value
_RAND = EventType.RAND.value
_XID = EventType.XID.value
_TABLE_MAP = EventType.TABLE_MAP.value
_WRITE_V1, _UPDATE_V1, _DELETE_V1 = (
    EventType.WRITE_ROWS_V1.value,
    EventType.UPDATE_ROWS_V1.value,
    EventType.DELETE_ROWS_V1.value,
)
_WRITE_V2, _UPDATE_V2, _DELETE_V2 = (
    EventType.WRITE_ROWS_V2.value,
    EventType.UPDATE_ROWS_V2.value,
    EventType.DELETE_ROWS_V2.value,
)
_ROWS_QUERY = EventType.ROWS_QUERY.value
_ANNOTATE_ROWS = EventType.ANNOTATE_ROWS.value
_GTID_LOG, _ANONYMOUS_GTID, _GTID = (
    EventType.GTID_LOG.value,
    EventType.ANONYMOUS_GTID.value,
    EventType.GTID.value,
)
_UPPER = 0xDF
"""Takes ASCII letters to their capital ones."""
_COMMIT_CLOCK = 2
"""The one lt_type that there is."""
_STMT_END = 1
_UNKNOWN_FLAGS = 0xFF60
"""Flags of a row event that no server sets."""

LEAST_GTID = COMMIT_ID + 6
"""A GTID event of MariaDB has at least so many bytes."""

# State: an array of 64-bit integers. Offsets are absolute.
GROUP = 0
"""What is open: 0 nothing, 1 behind a GTID of MySQL, 2 a transaction, 3 one statement (MariaDB); or `ADRIFT`."""
ADRIFT = 4
"""Behind a damage nothing is known: the judge looks at each event."""
SERVER = 1
BEGINS = 2
"""Where the group that is open begins."""
ENDS = 3
"""Where it must end by its transaction_length; 0 = not known."""
BOUNDARY = 4
FROZEN = 5
"""1 = something is wrong: the boundary stays where it is."""
SHIFT = 6
"""What is added to the end of an event to get its end_log_pos, modulo 2**32."""
POSITIONS = 7
"""end_log_pos: 0 must not fall (relay log), 1 is checked, 2 may be zero."""
TIME = 8
COUNT = 9
"""Complete groups."""
XID = 10
"""The highest so far."""
XIDS = 11
"""How many there were."""
STREAM = 12
"""Whose GTIDs are followed: 0 nobody's, 1 MariaDB's (domain and server), 2 MySQL's (UUID in two halves)."""
SOURCE_A = 13
SOURCE_B = 14
NUMBER = 15
SEQUENCE = 16
"""sequence_number of the last group."""
DEEP = 17
"""1 = no checksum vouches for the bodies: the judge looks at each one that has a structure."""
MAPS = 18
"""Table maps of the statement."""
ROWS_SEEN = 19
FRESH = 20
"""1 = the statement has a table map that was not seen before: its row events are looked at."""
ODD_FLAGS = 21
RELAY = 22
CEILING = 23
"""The highest number of the source that is known."""
LAST_POSITION = 24
RUN = 25
"""The first number of the run that `NUMBER` is the last one of; 0 = no run."""
WATCH = 26
"""1 = the judge wants to see where the next group begins."""
TYPES = 64
MAP_IDS = 320
MAP_COLUMNS = 336
MAP_FROM = 352
"""Where in the window the body of a map is that the fold let pass, and where it ends; 0 = the judge has read it."""
MAP_TO = 368
MOST_MAPS = 16
DAY = 86400
KNOWN_IDS = 512
KNOWN_SIZE = 1024
KNOWN_COLUMNS = KNOWN_IDS + KNOWN_SIZE
RING = KNOWN_COLUMNS + KNOWN_SIZE
RING_SIZE = 4096
"""XIDs that are remembered."""
SIZE = RING + RING_SIZE


@kernel()
def ends_group(end: int, state: Any) -> bool:
    """Closes the group, unless its length or its last statement is odd."""
    if state[MAPS] != 0 or (state[ENDS] != 0 and state[ENDS] != end):
        return False
    state[GROUP] = 0
    state[COUNT] += 1
    if state[FROZEN] == 0:
        state[BOUNDARY] = end
    return True


@kernel(word32, word64)
def maria_gtid(p: int, n: int, start: int, server: int, state: Any, buf: Any) -> bool:
    """GTID of MariaDB: the next number of the same domain and server; no XA, no DDL."""
    if state[GROUP] != 0 or state[STREAM] != 1 or state[WATCH] != 0 or n - p < LEAST_GTID:
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
    state[GROUP] = 3 if flags & STANDALONE != 0 else 2
    state[SERVER] = server
    state[BEGINS] = start
    state[ENDS] = 0
    return True


@kernel(lenenc)
def transaction_length(p: int, n: int, buf: Any) -> int:
    """transaction_length of a GTID_LOG body that starts at `p`, or -1; one of more than three bytes is none."""
    at = p + ORIGINAL_TIME
    if at > n:
        return -1
    if buf[at - 1] >= 128:
        at += 7
    length, behind = lenenc(buf, at, n)
    return -1 if behind < 0 or behind - at > 4 else length


@kernel(word64, transaction_length)
def mysql_gtid(code: int, p: int, n: int, start: int, server: int, state: Any, buf: Any) -> bool:
    """GTID_LOG with the next number of the same source, or ANONYMOUS_GTID; the next sequence_number."""
    if state[GROUP] != 0 or state[WATCH] != 0 or n - p < ORIGINAL_TIME:
        return False
    length = transaction_length(p, n, buf)
    committed = word64(buf, p + LAST_COMMITTED)
    sequence = word64(buf, p + SEQUENCE_NUMBER)
    if (
        length < 0
        or buf[p + LT_TYPE] != _COMMIT_CLOCK
        or sequence != state[SEQUENCE] + 1
        or committed < 0
        or committed >= sequence
    ):
        return False
    if code == _GTID_LOG:
        number = word64(buf, p + GNO)
        if state[STREAM] != 2 or number != state[NUMBER] + 1 or number <= state[CEILING]:
            return False
        if word64(buf, p + SID) != state[SOURCE_A] or word64(buf, p + SID + 8) != state[SOURCE_B]:
            return False
        state[NUMBER] = number
    state[SEQUENCE] = sequence
    state[GROUP] = 1
    state[SERVER] = server
    state[BEGINS] = start
    state[ENDS] = start + length if state[RELAY] == 0 else 0
    return True


@kernel(ends_group)
def query(p: int, n: int, end: int, state: Any, buf: Any) -> bool:
    """QUERY: BEGIN, a plain INSERT, UPDATE or DELETE of a transaction, or the one statement of a group."""
    if n - p < HEAD + 1 or state[GROUP] == 0:
        return False
    at = p + HEAD + 1 + (buf[p + STATUS_LEN] | buf[p + STATUS_LEN + 1] << 8) + buf[p + DB_LEN]
    if at + 5 > n:
        return False
    first = buf[at] & _UPPER
    if state[GROUP] == 1:
        if n - at != 5 or buf[at] != 66 or buf[at + 1] != 69 or buf[at + 2] != 71 or buf[at + 3] != 73:
            return False
        if buf[at + 4] != 78:
            return False
        state[GROUP] = 2
        return True
    if state[DEEP] != 0:
        return False
    if state[GROUP] == 2:
        if first == 73 or first == 85:
            return True
        return bool(first == 68 and buf[at + 1] & _UPPER == 69)
    if first == 66 or first == 67 or first == 82 or first == 83 or first == 88:
        return False
    return ends_group(end, state)


@kernel(word48)
def table_map(p: int, n: int, state: Any, buf: Any) -> bool:
    """TABLE_MAP of a table whose map was read before, with the same number of columns."""
    count = state[MAPS]
    if state[DEEP] != 0 or state[GROUP] < 2 or count >= MOST_MAPS or n - p < 14:
        return False
    at = p + 10 + buf[p + 8]
    if at >= n:
        return False
    at += buf[at] + 2
    if at + 2 >= n:
        return False
    columns = buf[at]
    if columns == 252:
        columns = buf[at + 1] | buf[at + 2] << 8
    elif columns > 250:
        return False
    table = word48(buf, p)
    slot = table & KNOWN_SIZE - 1
    if state[KNOWN_IDS + slot] != table + 1 or state[KNOWN_COLUMNS + slot] != columns:
        return False
    for k in range(count):
        if state[MAP_IDS + k] == table:
            state[MAP_COLUMNS + k] = columns
            state[MAP_FROM + k] = p
            state[MAP_TO + k] = n
            return True
    state[MAP_IDS + count] = table
    state[MAP_COLUMNS + count] = columns
    state[MAP_FROM + count] = p
    state[MAP_TO + count] = n
    state[MAPS] = count + 1
    return True


@kernel(word48)
def rows(code: int, p: int, n: int, state: Any, buf: Any) -> bool:
    """A row event of the statement that is open, with the columns of its table map."""
    if state[GROUP] != 2 or state[DEEP] != 0 or state[FRESH] != 0 or n - p < 13:
        return False
    flags = buf[p + 6] | buf[p + 7] << 8
    if flags & _UNKNOWN_FLAGS != 0:
        return False
    at = p + 8
    if code >= _WRITE_V2:
        extra = buf[at] | buf[at + 1] << 8
        if extra < 2:
            return False
        at += extra
        if at + 3 > n:
            return False
    columns = buf[at]
    at += 1
    if columns == 252:
        columns = buf[at] | buf[at + 1] << 8
        at += 2
    elif columns > 250:
        return False
    bitmaps = (columns + 7) // 8
    if code == _UPDATE_V1 or code == _UPDATE_V2:
        bitmaps += bitmaps
    if at + bitmaps > n:
        return False
    table = word48(buf, p)
    found = 0
    for k in range(state[MAPS]):
        if state[MAP_IDS + k] == table and state[MAP_COLUMNS + k] == columns:
            found = 1
    if found == 0:
        return False
    state[ROWS_SEEN] = 1
    if flags & _STMT_END != 0:
        state[MAPS] = 0
        state[ROWS_SEEN] = 0
    return True


@kernel(word64, ends_group)
def commit(p: int, n: int, end: int, state: Any, buf: Any) -> bool:
    """XID, higher than all before it."""
    if state[GROUP] != 2 or n - p != 8:
        return False
    number = word64(buf, p)
    if number <= state[XID] or not ends_group(end, state):
        return False
    state[XID] = number
    state[RING + (state[XIDS] & RING_SIZE - 1)] = number
    state[XIDS] += 1
    return True


@kernel(maria_gtid, mysql_gtid, query, table_map, rows, commit)
def in_order(code: int, p: int, n: int, start: int, end: int, server: int, state: Any, buf: Any) -> bool:
    """Takes one event into the state, unless something about it is odd."""
    if code == _TABLE_MAP:
        return table_map(p, n, state, buf)
    if (code >= _WRITE_V2 and code <= _DELETE_V2) or (code >= _WRITE_V1 and code <= _DELETE_V1):
        return rows(code, p, n, state, buf)
    if code == _GTID:
        return maria_gtid(p, n, start, server, state, buf)
    if code == _XID:
        return commit(p, n, end, state, buf)
    if code == _GTID_LOG or code == _ANONYMOUS_GTID:
        return mysql_gtid(code, p, n, start, server, state, buf)
    if code == _QUERY:
        return query(p, n, end, state, buf)
    if code == _ANNOTATE_ROWS or code == _ROWS_QUERY:
        return state[GROUP] >= 2 and n > p
    if code == _INTVAR:
        return state[GROUP] >= 2 and n - p == 9
    if code == _RAND:
        return state[GROUP] >= 2 and n - p == 16
    return False


@kernel(in_order)
def fold(
    first: int, stop: int, base: int, types: Any, times: Any, servers: Any, offsets: Any, ends: Any, positions: Any,
    flags: Any, body_starts: Any, body_ends: Any, state: Any, buf: Any,
) -> int:  # fmt: skip
    """Events of a batch that are in order. Returns the first one that is not, or `stop`."""
    for i in range(first, stop):
        if state[GROUP] >= ADRIFT or flags[i] & state[ODD_FLAGS] != 0:
            return i
        end = base + ends[i]
        position = positions[i]
        if state[POSITIONS] == 0:
            if position != 0 and position < state[LAST_POSITION]:
                return i
            if position != 0:
                state[LAST_POSITION] = position
        elif position == 0:
            if state[POSITIONS] != 2:
                return i
        elif (end + state[SHIFT]) & 4294967295 != position:
            return i
        if times[i] + DAY < state[TIME] or (state[GROUP] != 0 and servers[i] != state[SERVER]):
            return i
        if not in_order(types[i], body_starts[i], body_ends[i], base + offsets[i], end, servers[i], state, buf):
            return i
        state[TIME] = times[i]
        state[TYPES + types[i]] += 1
    return stop
