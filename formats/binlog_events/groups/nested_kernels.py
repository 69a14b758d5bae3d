"""Which table maps belong to events that are inside of others, as a kernel: each of these brings its own maps."""

from __future__ import annotations

from binlogtool.formats.binlog_events.groups.marks import IS_MAP, IS_ROWS
from binlogtool.formats.binlog_events.groups.tracking_kernels import ID_SIZE, MASK, STATE_SIZE, map_of
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s

HOLDER, TURN = STATE_SIZE, STATE_SIZE + 1
"""State, behind what `map_of` reads of it (ID_SIZE, MASK). HOLDER: place of the event that the last one was inside of;
-1 = of none. TURN: counts the holders."""
SIZE = STATE_SIZE + 2

__all__ = ["HOLDER", "ID_SIZE", "MASK", "SIZE", "TURN", "follow_nested"]


@kernel(map_of)
def follow_nested(
    i: int, stop: int, codes: Int64s, starts: Int64s, ends: Int64s, holders: Int64s, buf: UInt8s, state: MutableInt64s,
    traits: Int64s, ids: Int64s, known: Int64s, known_places: Int64s, seen: MutableInt64s, maps: MutableInt64s,
) -> int:  # fmt: skip
    """Fills `maps` for those events from `i` on that are inside of others; returns where it stopped: at a TABLE_MAP
    that is not known. seen: by number of a map, the TURN in which it was there last."""
    while i < stop:
        trait = traits[codes[i]] & (IS_MAP | IS_ROWS)
        if holders[i] != state[HOLDER]:
            state[HOLDER] = holders[i] + 0
            state[TURN] = state[TURN] + 1
        if holders[i] >= 0:
            found = -1
            if trait > 0 and ends[i] - starts[i] >= 8:
                found = map_of(trait, buf, starts[i] + 0, ends[i] + 0, state, ids, known, known_places)
            if trait & IS_MAP:
                if found < 0:
                    return i
                seen[found] = state[TURN] + 0
            elif found >= 0 and seen[found] != state[TURN]:
                found = -1
            maps[i] = found
        i += 1
    return stop
