"""Transaction tracking of frequent events, as a kernel over the columns of a batch
(`tracking.EventTracker.track_records`).

The kernel stops at each event that it does not support; such an event leaves no trace in the state.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.ddl.kernels import is_possible_ddl
from binlogtool.formats.binlog_events.events.type_codes import ANONYMOUS_GTID, GTID
from binlogtool.formats.binlog_events.groups.marks import IS_GTID, IS_MAP, IS_QUERY, IS_ROWS, NEEDS_TRACKER, get_mark
from binlogtool.formats.binlog_events.groups.steps import (
    ENDS,
    GROUP_BITS,
    OPENS,
    OUTSIDE,
    STEP_AT,
    STEP_BITS,
    step_group,
)
from binlogtool.formats.binlog_events.gtid.places import COMMIT_ID, DOMAIN_ID, GNO_OFFSET, LT_TYPE, SEQ_NO, SID
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import load_little_endian

# State: an array of 64-bit integers.
(
    GROUP_STATE,
    SOURCE,
    GTID_NUMBER,
    LAST_CODE,
    LAST_SOURCE_LOW,
    LAST_SOURCE_HIGH,
    LAST_SOURCE,
    ID_SIZE,
    ID_TABLE_MASK,
    CONTAINER_RECORD,
    GROUP_TURN,
    STATE_SIZE,
) = range(12)
"""OPEN: the group that is open, as in `steps`. SOURCE, NUMBER: its owner: number of its source's text (-1 = nobody),
and the number in its GTID. LAST_CODE, LAST_A, LAST_B, LAST_SOURCE: the source of the GTID event before: type, the 128
bits that tell it, number of its text. MASK: places in the table of ids, less one. GROUP, TURN: where each group is for
itself (`follow_groups`): number of the record that it is inside of, and how many began so far."""


@kernel()
def find_id_slot(table_id: int, ids: Int64s, mask: int) -> int:
    """Return the slot of a table id in the table of ids (pairs of id + 1 and map number), or its free slot."""
    at = (table_id ^ table_id >> 13 ^ table_id >> 27) & mask
    while ids[2 * at] != 0 and ids[2 * at] != table_id + 1:
        at = (at + 1) & mask
    return at


@kernel(load_little_endian)
def is_known_body(known: Int64s, at: int, buf: UInt8s, p: int, n: int) -> bool:
    """Return whether `buf[p:n]` equals the body at `known[at]`, stored as 64-bit numbers padded with zeros."""
    while p < n:
        if load_little_endian(buf, p, min(n - p, 8)) != known[at]:
            return False
        p += 8
        at += 1
    return True


@kernel(is_known_body, load_little_endian, find_id_slot)
def find_map_number(
    trait: int, buf: UInt8s, p: int, n: int, state: Int64s, ids: Int64s, known: Int64s, known_places: Int64s,
) -> int:  # fmt: skip
    """Return the number of the table map of a TABLE_MAP or row event; -1 = none, -2 = not registered."""
    if n - p < 8:
        return -2
    map_number = ids[2 * find_id_slot(load_little_endian(buf, p, state[ID_SIZE]), ids, state[ID_TABLE_MASK]) + 1]
    if not trait & IS_MAP:
        return map_number
    if map_number < 0 or n - p != known_places[2 * map_number + 1]:
        return -2
    return map_number if is_known_body(known, known_places[2 * map_number], buf, p, n) else -2


@kernel(load_little_endian)
def track_gtid(code: int, server: int, buf: UInt8s, p: int, n: int, state: MutableInt64s) -> bool:
    """Make the GTID of this event the owner; return False if its source is not that of the last GTID."""
    if code == ANONYMOUS_GTID:
        state[SOURCE] = -1
        return True
    if code != state[LAST_CODE]:
        return False
    if code == GTID:
        if n - p < COMMIT_ID:
            return False
        number, a, b = load_little_endian(buf, p + SEQ_NO, 8), load_little_endian(buf, p + DOMAIN_ID, 4), server
    else:
        if n - p < LT_TYPE:
            return False
        number = load_little_endian(buf, p + GNO_OFFSET, 8)
        a, b = load_little_endian(buf, p + SID, 8), load_little_endian(buf, p + SID + 8, 8)
    if a != state[LAST_SOURCE_LOW] or b != state[LAST_SOURCE_HIGH] or number < 0:
        return False
    state[SOURCE] = state[LAST_SOURCE]
    state[GTID_NUMBER] = number
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


@kernel(find_map_number, get_mark, is_possible_ddl, step_group, track_gtid)
def track_events(
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
        map_number = -1
        if trait & (IS_ROWS | IS_MAP):
            map_number = find_map_number(
                trait, buf, p, n, state, map_table.ids, map_table.known, map_table.known_places
            )
        if trait & NEEDS_TRACKER or map_number == -2 or (trait & IS_QUERY and is_possible_ddl(buf, p, n)):
            return i
        if trait & IS_GTID and not track_gtid(code, frames.servers[i], buf, p, n, state):
            return i
        step_result = step_group(state[GROUP_STATE], get_mark(trait, words, buf, p, n))
        state[GROUP_STATE] = step_result & GROUP_BITS
        role = step_result >> STEP_AT & STEP_BITS
        if role == OPENS and not trait & IS_GTID:
            state[SOURCE] = -1
        owners.sources[i] = -1 if role == OUTSIDE else state[SOURCE]
        owners.numbers[i] = state[GTID_NUMBER]
        owners.maps[i] = map_number
        if role == ENDS:
            state[SOURCE] = -1
        i += 1
    return stop


@kernel(find_map_number, is_possible_ddl, track_gtid)
def track_separate_groups(
    i: int,
    stop: int,
    frames: FrameColumns,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    groups: Int64s,
    map_table: MapTable,
    map_turns: MutableInt64s,
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
        is_first = groups[i] != state[CONTAINER_RECORD]
        turn = state[GROUP_TURN] + (1 if is_first else 0)
        map_number = -1
        if trait & (IS_ROWS | IS_MAP):
            map_number = find_map_number(
                trait, buf, p, n, state, map_table.ids, map_table.known, map_table.known_places
            )
        if trait & NEEDS_TRACKER or map_number == -2 or (trait & IS_QUERY and is_possible_ddl(buf, p, n)):
            return i
        if is_first:
            if trait & IS_GTID and not track_gtid(frames.codes[i], frames.servers[i], buf, p, n, state):
                return i
            if not trait & IS_GTID:
                state[SOURCE] = -1
            state[CONTAINER_RECORD] = groups[i]
            state[GROUP_TURN] = turn
        if trait & IS_MAP:
            map_turns[map_number] = turn
        elif map_number >= 0 and map_turns[map_number] != turn:
            map_number = -1
        owners.sources[i] = state[SOURCE]
        owners.numbers[i] = state[GTID_NUMBER]
        owners.maps[i] = map_number
        i += 1
    return stop
