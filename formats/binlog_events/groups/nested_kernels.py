"""Table maps of nested events, as a kernel: each containing event brings its own maps."""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.formats.binlog_events.groups.marks import IS_MAP, IS_ROWS
from binlogtool.formats.binlog_events.groups.tracking_kernels import (
    ID_SIZE,
    ID_TABLE_MASK,
    STATE_SIZE,
    MapTable,
    find_map_number,
)
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s

CONTAINER, CONTAINER_TURN = STATE_SIZE, STATE_SIZE + 1
"""State, behind what `map_of` reads of it (ID_SIZE, MASK). HOLDER: place of the event that the last one was inside of;
-1 = of none. TURN: counts the holders."""
NESTED_STATE_SIZE = STATE_SIZE + 2

__all__ = ["CONTAINER", "CONTAINER_TURN", "ID_SIZE", "ID_TABLE_MASK", "NESTED_STATE_SIZE", "track_nested"]


class NestedColumns(NamedTuple):
    """One entry for each event: its type, where its body is, and the event that it is inside of."""

    codes: Int64s
    starts: Int64s
    ends: Int64s
    holders: Int64s


@kernel(find_map_number)
def track_nested(
    i: int,
    stop: int,
    events: NestedColumns,
    buf: UInt8s,
    state: MutableInt64s,
    traits: Int64s,
    map_table: MapTable,
    seen: MutableInt64s,
    maps: MutableInt64s,
) -> int:
    """Fill `maps` for the nested events from `i` on; return where it stopped: at a TABLE_MAP that is not
    registered.

    Args:
        seen: by number of a table map, the turn in which it was last defined.
    """
    while i < stop:
        trait = traits[events.codes[i]] & (IS_MAP | IS_ROWS)
        if events.holders[i] != state[CONTAINER]:
            state[CONTAINER] = events.holders[i] + 0
            state[CONTAINER_TURN] = state[CONTAINER_TURN] + 1
        if events.holders[i] >= 0:
            map_number = -1
            if trait > 0 and events.ends[i] - events.starts[i] >= 8:
                map_number = find_map_number(
                    trait,
                    buf,
                    events.starts[i] + 0,
                    events.ends[i] + 0,
                    state,
                    map_table.ids,
                    map_table.known,
                    map_table.known_places,
                )
            if trait & IS_MAP:
                if map_number < 0:
                    return i
                seen[map_number] = state[CONTAINER_TURN] + 0
            elif map_number >= 0 and seen[map_number] != state[CONTAINER_TURN]:
                map_number = -1
            maps[i] = map_number
        i += 1
    return stop
