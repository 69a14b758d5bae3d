"""Boundaries between transactions, and new table maps, as a kernel over the columns of a batch."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.ddl.kernels import is_possible_ddl
from binlogtool.formats.binlog_events.groups.marks import IS_MAP, IS_QUERY, NEEDS_TRACKER, get_mark
from binlogtool.formats.binlog_events.groups.steps import GROUP_BITS, NO_GROUP, step_group
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import load_little_endian

# State: an array of 64-bit integers.
SPLIT_GROUP_STATE, BOUNDARY_COUNT, MAP_COUNT, SPLIT_STATE_SIZE = range(4)
"""OPEN: the group that is open, as in `steps`. BORDER, NOTED: so many events of the batch stand before the last border;
so many maps of the batch are noted."""

MAP_SLOTS = 1024
"""Maps of one batch are told apart by the low bits of their ids."""

FIRST_EVENT, LAST_EVENT, LAST_BEFORE_BOUNDARY, MAP_WIDTH = range(4)
"""Of a map that is noted: the event where it was first met, the last one that repeats it, and the last one of those
before the last border; WIDTH numbers for each."""


@kernel()
def is_equal(buf: UInt8s, a: int, b: int, size: int) -> bool:
    """Return whether the bytes at two offsets are equal."""
    i = 0
    while i < size and buf[a + i] == buf[b + i]:
        i += 1
    return i == size


@kernel(is_equal, load_little_endian)
def note_map(
    i: int, starts: Int64s, ends: Int64s, buf: UInt8s, state: MutableInt64s, slots: MutableInt64s, noted: MutableInt64s
) -> int:
    """Note the TABLE_MAP event `i`, unless it repeats the last one in its slot; return 1 if it is noted."""
    p = starts[i] + 0
    size = ends[i] - p
    slot = load_little_endian(buf, p, min(size, 4)) & MAP_SLOTS - 1
    at = slots[slot] + 0
    if at >= 0:
        other_start = starts[noted[at + FIRST_EVENT]] + 0
        if ends[noted[at + FIRST_EVENT]] - other_start == size and is_equal(buf, other_start, p, size):
            if noted[at + LAST_EVENT] < state[BOUNDARY_COUNT]:
                noted[at + LAST_BEFORE_BOUNDARY] = noted[at + LAST_EVENT]
            noted[at + LAST_EVENT] = i
            return 0
    at = MAP_WIDTH * state[MAP_COUNT]
    slots[slot] = at
    noted[at + FIRST_EVENT] = i
    noted[at + LAST_EVENT] = i
    noted[at + LAST_BEFORE_BOUNDARY] = -1
    state[MAP_COUNT] += 1
    return 1


class EventBodies(NamedTuple):
    """One entry for each event: its type, and where its body is."""

    codes: Int64s
    starts: Int64s
    ends: Int64s


@kernel(get_mark, is_possible_ddl, note_map, step_group)
def find_boundaries(
    i: int,
    stop: int,
    events: EventBodies,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    words: Int64s,
    slots: MutableInt64s,
    noted: MutableInt64s,
) -> int:
    """Follow the events from `i` on; return where it stopped: at an event that it cannot read, or `stop`.

    Args:
        traits: by event type, see `marks`.
        words: see `kinds`.
        noted: table maps, `MAP_WIDTH` numbers for each event.
    """
    while i < stop:
        trait = traits[events.codes[i]]
        if trait & NEEDS_TRACKER or (trait & IS_QUERY and is_possible_ddl(buf, events.starts[i], events.ends[i])):
            return i
        if trait & IS_MAP:
            note_map(i, events.starts, events.ends, buf, state, slots, noted)
        state[SPLIT_GROUP_STATE] = (
            step_group(state[SPLIT_GROUP_STATE], get_mark(trait, words, buf, events.starts[i], events.ends[i]))
            & GROUP_BITS
        )
        i += 1
        if state[SPLIT_GROUP_STATE] == NO_GROUP:
            state[BOUNDARY_COUNT] = i
    return stop
