"""Borders between groups of events, and the table maps that are new, as a kernel over the columns of a batch."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.binlog_events.ddl.kernels import may_declare
from binlogtool.formats.binlog_events.groups.tracking_kernels import group_step
from binlogtool.formats.fields import kernel
from binlogtool.formats.loads import load_little

# State: an array of 64-bit integers; OPEN, BEGUN and STANDALONE as in `tracking_kernels`.
BORDER, NOTED = 3, 4
"""So many events of the batch stand before the last border; so many maps of the batch are noted."""
STATE_SIZE = 5

SLOTS = 1024
"""Maps of one batch are told apart by the low bits of their ids."""

FIRST, LAST, BEFORE = 0, 1, 2
"""Of a map that is noted: the event where it was first met, the last one that repeats it, and the last one of those
before the last border; WIDTH numbers for each."""
WIDTH = 3


@kernel()
def is_same(buf: Any, a: int, b: int, size: int) -> bool:
    """Do the same bytes stand at two places?"""
    i = 0
    while i < size and buf[a + i] == buf[b + i]:
        i += 1
    return i == size


@kernel(is_same, load_little)
def note_map(i: int, starts: Any, ends: Any, buf: Any, state: Any, slots: Any, noted: Any) -> int:
    """Notes the TABLE_MAP event `i`, unless it repeats the last one in its slot."""
    p = starts[i] + 0
    size = ends[i] - p
    slot = load_little(buf, p, min(size, 4)) & 1023
    at = slots[slot] + 0
    if at >= 0:
        other = starts[noted[at]] + 0
        if ends[noted[at]] - other == size and is_same(buf, other, p, size):
            if noted[at + 1] < state[3]:
                noted[at + 2] = noted[at + 1]
            noted[at + 1] = i
            return 0
    at = 3 * state[4]
    slots[slot] = at
    noted[at] = i
    noted[at + 1] = i
    noted[at + 2] = -1
    state[4] += 1
    return 1


@kernel(group_step, may_declare, note_map)
def borders(
    i: int, stop: int, codes: Any, starts: Any, ends: Any, buf: Any, state: Any, traits: Any, words: Any, slots: Any,
    noted: Any,
) -> int:  # fmt: skip
    """Takes the events from `i` on; returns where it stopped: at one that it cannot read, or `stop`.

    traits, words: see `tracking_kernels`. noted: room for `WIDTH` numbers of each event.
    """
    while i < stop:
        code = codes[i]
        trait = traits[code]
        if trait & 128 or (trait & 4 and may_declare(buf, starts[i], ends[i])):
            return i
        if trait & 64:
            note_map(i, starts, ends, buf, state, slots, noted)
        group_step(state, code, trait, words, buf, starts[i], ends[i])
        i += 1
        if not state[0]:
            state[3] = i
    return stop
