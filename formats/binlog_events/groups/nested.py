"""Table maps of nested events by compiled code, for scripts."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from binlogtool.formats.binlog_events.groups import nested_kernels as kernels
from binlogtool.formats.binlog_events.groups.following import MAX_CACHED, CompiledTracker
from binlogtool.formats.binlog_events.groups.marks import build_traits
from binlogtool.formats.binlog_events.groups.tracking import EventTracker, TableMaps
from binlogtool.formats.binlog_events.groups.tracking_kernels import MapTable, find_id_slot
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.layouts import Kernel


class NestedTableMaps:
    """Assigns the table map numbers of the file's compiled tracker to nested events, and registers new maps."""

    def __init__(self, tracker: EventTracker, follower: CompiledTracker, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker, self._table_tracker = tracker, follower
        self._kernel = compile_(kernels.track_nested)
        self._traits = build_traits(())
        self._state = array("q", bytes(8 * kernels.NESTED_STATE_SIZE))
        self._reset()

    def _reset(self) -> None:
        """Reset all caches."""
        self._maps: TableMaps = self._tracker.maps.create_nested()
        self._registered_maps: list[TableMap] = self._table_tracker.table_maps
        self._maps_version = self._tracker.maps.version
        self._by_id: dict[int, int] = {}
        self._map_turns = array("q")
        self._resize(1024)
        self._state[kernels.ID_SIZE] = self._maps.id_size

    def fill_map_numbers(self, columns: tuple[Any, ...], containers: Any, window: Any, map_numbers: array[int]) -> None:
        """Fill in the table map numbers of nested events.

        Args:
            columns: type, body start and body end.
        """
        if (
            self._registered_maps is not self._table_tracker.table_maps
            or self._maps_version != self._tracker.maps.version
            or len(self._by_id) > MAX_CACHED
        ):
            self._reset()
        index, count, self._state[kernels.CONTAINER] = 0, len(map_numbers), -1
        while True:
            self._map_turns.extend([0] * (len(self._registered_maps) - len(self._map_turns)))
            index = self._kernel(
                index, count, kernels.NestedColumns._make((*columns, containers)), window, self._state, self._traits,
                MapTable(self._id_table, *self._table_tracker.map_bodies), self._map_turns, map_numbers,
            )  # fmt: skip
            if index == count:
                return
            map_numbers[index] = self._register_map(bytes(window[columns[1][index] : columns[2][index]]))
            index += 1

    def _register_map(self, body: bytes) -> int:
        """Register the table map of this TABLE_MAP event; return its number, -1 if it cannot be read."""
        table_map = self._maps.add_map(body)
        number = -1 if table_map is None else self._table_tracker.register_map(table_map)
        table_id = int.from_bytes(body[: self._maps.id_size], "little")
        self._by_id[table_id] = number
        if 2 * len(self._by_id) > len(self._id_table) // 2:
            self._resize(len(self._id_table))
        self._insert_id(table_id, number)
        if number >= 0:
            self._map_turns.extend([0] * (number + 1 - len(self._map_turns)))
            self._map_turns[number] = self._state[kernels.CONTAINER_TURN]
        return number

    def _insert_id(self, table_id: int, number: int) -> None:
        """Enter a table id into the table of ids."""
        at = find_id_slot(table_id, self._id_table, self._state[kernels.ID_TABLE_MASK])
        self._id_table[2 * at], self._id_table[2 * at + 1] = table_id + 1, number

    def _resize(self, size: int) -> None:
        """Rebuild the table of ids, at most half full."""
        self._state[kernels.ID_TABLE_MASK] = size - 1
        self._id_table = array("q", [0, -1]) * size
        for table_id, number in self._by_id.items():
            self._insert_id(table_id, number)
