"""Kernels that follow frequent events for `row_tables.RowTables` over the columns of a batch.

`follow_row_events` lists the row events to read, their transactions and times, and where transactions end. It stops
before each event that it does not know enough of; nothing has been recorded for that event.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.events.type_codes import GTID
from binlogtool.formats.binlog_events.groups.marks import ASKS, IS_GTID, IS_MAP, IS_QUERY, IS_ROWS, mark_of
from binlogtool.formats.binlog_events.groups.steps import (
    ENDS,
    GROUP_BITS,
    OPENS,
    STATEMENT,
    STEP_AT,
    STEP_BITS,
    begins,
    step,
)
from binlogtool.formats.binlog_events.groups.tracking_kernels import is_known
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import load_little

# State: an array of 64-bit integers.
GROUP_OPEN, TIME, COUNT, CLOSES, OPEN, STATE_SIZE = range(6)
"""GROUP_OPEN: the group that is open, as in `steps`. TIME: when the open transaction was committed, microseconds; 0 =
not known. COUNT: row events that were found. CLOSES: what comes of the transaction that was open at the start, before
any row event: ITS_END, or ANOTHER begins. OPEN: the transaction of the last row event has not ended."""
ITS_END, ANOTHER = 1, 2

UNKNOWN, UNWANTED, WANTED = range(3)
"""Of a map: nobody has looked at it; its rows are (not) asked for."""
ENTRY = 4
"""Words of a known head before its bytes: where the next one of the same map stands (0 = there is none), its type, its
size in bytes, its number."""


class RowEventColumns(NamedTuple):
    """One entry for each event of a batch. sources, numbers, maps: see `tracking_kernels.follow`."""

    codes: Int64s
    servers: Int64s
    stamps: Int64s
    offsets: Int64s
    starts: Int64s
    ends: Int64s
    sources: Int64s
    numbers: Int64s
    maps: Int64s


class KnownMaps(NamedTuple):
    """What is known of table maps.

    known: of each map two words: one of UNKNOWN, UNWANTED and WANTED, and where the first of its heads is in `heads`
    (0 = there is none). head_at: bytes of a body before its head.
    """

    known: Int64s
    heads: Int64s
    head_at: int


class FoundRows(NamedTuple):
    """One entry for each row event that is wanted.

    which, places: its number and its place. layouts, tables: the numbers of its head and of its map. times: -1 = none.
    origins: its server. owners, serials: source and number of its transaction. commits: does that end after it?
    """

    which: MutableInt64s
    places: MutableInt64s
    layouts: MutableInt64s
    tables: MutableInt64s
    times: MutableInt64s
    origins: MutableInt64s
    owners: MutableInt64s
    serials: MutableInt64s
    commits: MutableInt64s


@kernel()
def is_query(buf: UInt8s, p: int, n: int) -> bool:
    """Check if the QUERY with the body `buf[pos:limit]` can be read (`decoding.parse_query`)."""
    if n - p < 13:
        return False
    return bool(p + 13 + buf[p + 8] + (buf[p + 11] | buf[p + 12] << 8) < n)


@kernel(load_little)
def commit_time(code: int, buf: UInt8s, p: int, n: int) -> int:
    """Load `original_commit_timestamp` of a GTID_LOG or ANONYMOUS_GTID event.

    Returns:
        Microseconds; 0 = none (also for a GTID of MariaDB); -2 = the body is not of a usual form.
    """
    if code == GTID or n - p == 25 or n - p == 42:
        return 0
    if n - p < 49:
        return -2
    p += 42
    time = load_little(buf, p, 7)
    p += 7
    if time & 0x80000000000000:
        if n - p < 7:
            return -2
        time = load_little(buf, p, 7)
        p += 7
    if p == n:
        return time
    first = buf[p] + 0
    p += 1
    if first >= 251:
        if first == 251 or first == 255:
            return -2
        p += first - 250 if first < 254 else 8
    if p == n:
        return time
    if n - p < 4:
        return -2
    p += 8 if buf[p + 3] & 128 else 4
    return time if p == n or n - p >= 8 else -2


@kernel(is_known)
def head_of(code: int, buf: UInt8s, p: int, n: int, heads: Int64s, at: int) -> int:
    """Find the number of the known head at `buf[pos]`; -1 if it is unknown.

    Args:
        entry: position in `heads` of the first head of the event's map; 0 = none.
    """
    while at > 0:
        size = heads[at + 2]
        if heads[at + 1] == code and size <= n - p and is_known(heads, at + 4, buf, p, p + size):
            return heads[at + 3] + 0
        at = heads[at]
    return -1


@kernel(begins, commit_time, head_of, is_query, mark_of, may_declare, step)
def follow_rows(
    i: int,
    stop: int,
    events: RowEventColumns,
    buf: UInt8s,
    traits: Int64s,
    words: Int64s,
    state: MutableInt64s,
    known_maps: KnownMaps,
    rows: FoundRows,
) -> int:
    """Follow the events `[event, stop)`; returns the index of the event where it stopped.

    Args:
        sources, numbers, maps: see `tracking_kernels.track_events`.
        map_states: two words per map: UNKNOWN, UNWANTED or WANTED, and the position of its first head in `heads` (0 =
            none).
        head_at: bytes of a body before its head.
        found_events, found_offsets, layouts, tables, times, origins, owners, serials, commits: output; of each row
            event its index, offset, number of its head and of its map, time (-1 = none), server, source and number of
            its transaction, and whether the transaction ends after it.
    """
    while i < stop:
        code = events.codes[i]
        trait = traits[code]
        p = events.starts[i]
        n = events.ends[i]
        head = -1
        if trait & ASKS or (trait & IS_QUERY and (may_declare(buf, p, n) or not is_query(buf, p, n))):
            return i
        if trait & (IS_ROWS | IS_MAP):
            found = events.maps[i]
            if found < 0 and trait & IS_ROWS:
                return i
            wanted = known_maps.known[2 * found] + 0 if found >= 0 else UNWANTED
            if wanted == UNKNOWN:
                return i
            if wanted == WANTED and trait & IS_ROWS:
                head = head_of(
                    code, buf, p + known_maps.head_at, n, known_maps.heads, known_maps.known[2 * found + 1] + 0
                )
                if head < 0:
                    return i
        mark = mark_of(trait, words, buf, p, n)
        if mark == STATEMENT:
            return i
        if trait & IS_GTID:
            time = commit_time(code, buf, p, n)
            if time < 0:
                return i
            state[TIME] = time
        moved = step(state[GROUP_OPEN], mark)
        state[GROUP_OPEN] = moved & GROUP_BITS
        what = moved >> STEP_AT & STEP_BITS
        if begins(moved):
            state[OPEN] = 0
            if state[COUNT] == 0 and state[CLOSES] == 0:
                state[CLOSES] = ANOTHER
        if what == OPENS and not trait & IS_GTID:
            state[TIME] = 0
        count = state[COUNT]
        if head >= 0:
            rows.which[count] = i
            rows.places[count] = events.offsets[i]
            rows.layouts[count] = head
            rows.tables[count] = events.maps[i]
            rows.origins[count] = events.servers[i]
            rows.times[count] = state[TIME] if state[TIME] else (events.stamps[i] * 1000000 if events.stamps[i] else -1)
            rows.owners[count] = events.sources[i] + 0
            rows.serials[count] = events.numbers[i] + 0
            rows.commits[count] = 0
            state[COUNT] = count + 1
            state[OPEN] = 1
        if what == ENDS:
            if state[OPEN]:
                rows.commits[state[COUNT] - 1] = 1
                state[OPEN] = 0
            elif state[COUNT] == 0 and state[CLOSES] == 0:
                state[CLOSES] = ITS_END
        i += 1
    return stop
