"""Transaction tracking of frequent events, as a kernel over the columns of a batch
(`tracking.EventTracker.track_records`).

The kernel stops at each event that it does not support; such an event leaves no trace in the state.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.events.type_codes import ANONYMOUS_GTID, GTID
from binlogtool.formats.binlog_events.groups.marks import ASKS, IS_GTID, IS_MAP, IS_QUERY, IS_ROWS, mark_of
from binlogtool.formats.binlog_events.groups.steps import ENDS, GROUP_BITS, OPENS, OUTSIDE, STEP_AT, STEP_BITS, step
from binlogtool.formats.binlog_events.gtid.places import COMMIT_ID, DOMAIN_ID, GNO, LT_TYPE, SEQ_NO, SID
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import load_little

# State: an array of 64-bit integers.
OPEN, SOURCE, NUMBER, LAST_CODE, LAST_A, LAST_B, LAST_SOURCE, ID_SIZE, MASK, GROUP, TURN, STATE_SIZE = range(12)
"""OPEN: the group that is open, as in `steps`. SOURCE, NUMBER: its owner: number of its source's text (-1 = nobody),
and the number in its GTID. LAST_CODE, LAST_A, LAST_B, LAST_SOURCE: the source of the GTID event before: type, the 128
bits that tell it, number of its text. MASK: places in the table of ids, less one. GROUP, TURN: where each group is for
itself (`follow_groups`): number of the record that it is inside of, and how many began so far."""


@kernel()
def place_of(table_id: int, ids: Int64s, mask: int) -> int:
    """Return the slot of a table id in the table of ids (pairs of id + 1 and map number), or its free slot."""
    at = (table_id ^ table_id >> 13 ^ table_id >> 27) & mask
    while ids[2 * at] != 0 and ids[2 * at] != table_id + 1:
        at = (at + 1) & mask
    return at


@kernel(load_little)
def is_known(known: Int64s, at: int, buf: UInt8s, p: int, n: int) -> bool:
    """Return whether `buf[p:n]` equals the body at `known[at]`, stored as 64-bit numbers padded with zeros."""
    while p < n:
        if load_little(buf, p, min(n - p, 8)) != known[at]:
            return False
        p += 8
        at += 1
    return True


@kernel(is_known, load_little, place_of)
def map_of(
    trait: int, buf: UInt8s, p: int, n: int, state: Int64s, ids: Int64s, known: Int64s, known_places: Int64s,
) -> int:  # fmt: skip
    """Return the number of the table map of a TABLE_MAP or row event; -1 = none, -2 = not registered."""
    if n - p < 8:
        return -2
    found = ids[2 * place_of(load_little(buf, p, state[ID_SIZE]), ids, state[MASK]) + 1]
    if not trait & IS_MAP:
        return found
    if found < 0 or n - p != known_places[2 * found + 1]:
        return -2
    return found if is_known(known, known_places[2 * found], buf, p, n) else -2


@kernel(load_little)
def take_gtid(code: int, server: int, buf: UInt8s, p: int, n: int, state: MutableInt64s) -> bool:
    """Make the GTID of this event the owner; return False if its source is not that of the last GTID."""
    if code == ANONYMOUS_GTID:
        state[SOURCE] = -1
        return True
    if code != state[LAST_CODE]:
        return False
    if code == GTID:
        if n - p < COMMIT_ID:
            return False
        number, a, b = load_little(buf, p + SEQ_NO, 8), load_little(buf, p + DOMAIN_ID, 4), server
    else:
        if n - p < LT_TYPE:
            return False
        number = load_little(buf, p + GNO, 8)
        a, b = load_little(buf, p + SID, 8), load_little(buf, p + SID + 8, 8)
    if a != state[LAST_A] or b != state[LAST_B] or number < 0:
        return False
    state[SOURCE] = state[LAST_SOURCE]
    state[NUMBER] = number
    return True


class FrameColumns(NamedTuple):
    """One entry for each event of a batch: its type and server, and where its body is."""

    codes: Int64s
    servers: Int64s
    starts: Int64s
    ends: Int64s


class MapTable(NamedTuple):
    """The known table maps.

    ids: see `place_of`. known, known_places: their bodies (`is_known`), and for each where it starts and its size in
    bytes.
    """

    ids: Int64s
    known: Int64s
    known_places: Int64s


class OwnerColumns(NamedTuple):
    """One entry for each event: number of its source (-1 = none), number in its GTID, number of its map (-1 = none)."""

    sources: MutableInt64s
    numbers: MutableInt64s
    maps: MutableInt64s


@kernel(map_of, mark_of, may_declare, step, take_gtid)
def follow(
    i: int,
    stop: int,
    frames: FrameColumns,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    words: Int64s,
    map_table: MapTable,
    owners: OwnerColumns,
) -> int:
    """Fill `sources`, `numbers` and `maps` for the events from `i` on; return where it stopped.

    Args:
        traits: by event type, see `marks`.
        words: see `kinds`.
        ids: see `find_id_slot`.
        known: bodies of the table maps (`is_known_body`).
        known_places: for each of them its start and its size in bytes.
    """
    while i < stop:
        code = frames.codes[i]
        trait = traits[code]
        p = frames.starts[i]
        n = frames.ends[i]
        found = -1
        if trait & (IS_ROWS | IS_MAP):
            found = map_of(trait, buf, p, n, state, map_table.ids, map_table.known, map_table.known_places)
        if trait & ASKS or found == -2 or (trait & IS_QUERY and may_declare(buf, p, n)):
            return i
        if trait & IS_GTID and not take_gtid(code, frames.servers[i], buf, p, n, state):
            return i
        moved = step(state[OPEN], mark_of(trait, words, buf, p, n))
        state[OPEN] = moved & GROUP_BITS
        what = moved >> STEP_AT & STEP_BITS
        if what == OPENS and not trait & IS_GTID:
            state[SOURCE] = -1
        owners.sources[i] = -1 if what == OUTSIDE else state[SOURCE]
        owners.numbers[i] = state[NUMBER]
        owners.maps[i] = found
        if what == ENDS:
            state[SOURCE] = -1
        i += 1
    return stop


@kernel(map_of, may_declare, take_gtid)
def follow_groups(
    i: int,
    stop: int,
    frames: FrameColumns,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    groups: Int64s,
    map_table: MapTable,
    met: MutableInt64s,
    owners: OwnerColumns,
) -> int:
    """Track events where each group is separate: all have the owner of its first event, and its own table maps.

    Args:
        groups: number of each event's group.
        map_turns: for each table map the turn of the group that had it last.
    """
    while i < stop:
        trait = traits[frames.codes[i]]
        p = frames.starts[i]
        n = frames.ends[i]
        begins = groups[i] != state[GROUP]
        turn = state[TURN] + (1 if begins else 0)
        found = -1
        if trait & (IS_ROWS | IS_MAP):
            found = map_of(trait, buf, p, n, state, map_table.ids, map_table.known, map_table.known_places)
        if trait & ASKS or found == -2 or (trait & IS_QUERY and may_declare(buf, p, n)):
            return i
        if begins:
            if trait & IS_GTID and not take_gtid(frames.codes[i], frames.servers[i], buf, p, n, state):
                return i
            if not trait & IS_GTID:
                state[SOURCE] = -1
            state[GROUP] = groups[i]
            state[TURN] = turn
        if trait & IS_MAP:
            met[found] = turn
        elif found >= 0 and met[found] != turn:
            found = -1
        owners.sources[i] = state[SOURCE]
        owners.numbers[i] = state[NUMBER]
        owners.maps[i] = found
        i += 1
    return stop
