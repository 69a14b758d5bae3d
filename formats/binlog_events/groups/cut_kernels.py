"""Boundaries between transactions, and new table maps, as a kernel over the columns of a batch."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.groups.marks import ASKS, IS_MAP, IS_QUERY, mark_of
from binlogtool.formats.binlog_events.groups.steps import GROUP_BITS, NO_GROUP, step
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.loads import load_little

# State: an array of 64-bit integers.
OPEN, BORDER, NOTED, STATE_SIZE = range(4)
"""OPEN: the group that is open, as in `steps`. BORDER, NOTED: so many events of the batch stand before the last border;
so many maps of the batch are noted."""

SLOTS = 1024
"""Maps of one batch are told apart by the low bits of their ids."""

FIRST, LAST, BEFORE, WIDTH = range(4)
"""Of a map that is noted: the event where it was first met, the last one that repeats it, and the last one of those
before the last border; WIDTH numbers for each."""


@kernel()
def is_same(buf: UInt8s, a: int, b: int, size: int) -> bool:
    """Return whether the bytes at two offsets are equal."""
    i = 0
    while i < size and buf[a + i] == buf[b + i]:
        i += 1
    return i == size


@kernel(is_same, load_little)
def note_map(
    i: int, starts: Int64s, ends: Int64s, buf: UInt8s, state: MutableInt64s, slots: MutableInt64s, noted: MutableInt64s
) -> int:
    """Note the TABLE_MAP event `i`, unless it repeats the last one in its slot; return 1 if it is noted."""
    p = starts[i] + 0
    size = ends[i] - p
    slot = load_little(buf, p, min(size, 4)) & SLOTS - 1
    at = slots[slot] + 0
    if at >= 0:
        other = starts[noted[at + FIRST]] + 0
        if ends[noted[at + FIRST]] - other == size and is_same(buf, other, p, size):
            if noted[at + LAST] < state[BORDER]:
                noted[at + BEFORE] = noted[at + LAST]
            noted[at + LAST] = i
            return 0
    at = WIDTH * state[NOTED]
    slots[slot] = at
    noted[at + FIRST] = i
    noted[at + LAST] = i
    noted[at + BEFORE] = -1
    state[NOTED] += 1
    return 1


class EventBodies(NamedTuple):
    """One entry for each event: its type, and where its body is."""

    codes: Int64s
    starts: Int64s
    ends: Int64s


@kernel(mark_of, may_declare, note_map, step)
def borders(
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
        if trait & ASKS or (trait & IS_QUERY and may_declare(buf, events.starts[i], events.ends[i])):
            return i
        if trait & IS_MAP:
            note_map(i, events.starts, events.ends, buf, state, slots, noted)
        state[OPEN] = step(state[OPEN], mark_of(trait, words, buf, events.starts[i], events.ends[i])) & GROUP_BITS
        i += 1
        if state[OPEN] == NO_GROUP:
            state[BORDER] = i
    return stop
