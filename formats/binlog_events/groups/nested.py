"""Table maps of nested events by compiled code, for scripts."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from binlogtool.formats.binlog_events.groups import nested_kernels as kernels
from binlogtool.formats.binlog_events.groups.following import MOST, Follower
from binlogtool.formats.binlog_events.groups.marks import traits
from binlogtool.formats.binlog_events.groups.tracking import TableMaps, Tracker
from binlogtool.formats.binlog_events.groups.tracking_kernels import MapTable, place_of
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.layouts import Kernel


class Nested:
    """Assigns the table map numbers of the file's compiled tracker to nested events, and registers new maps."""

    def __init__(self, tracker: Tracker, follower: Follower, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker, self._follower = tracker, follower
        self._run = compile_(kernels.follow_nested)
        self._traits = traits(())
        self._state = array("q", bytes(8 * kernels.SIZE))
        self._begin()

    def _begin(self) -> None:
        """Reset all caches."""
        self._maps: TableMaps = self._tracker.maps.inside()
        self._numbers: list[TableMap] = self._follower.maps
        self._age = self._tracker.maps.age
        self._by_id: dict[int, int] = {}
        self._seen = array("q")
        self._resize(1024)
        self._state[kernels.ID_SIZE] = self._maps.id_size

    def fill(self, columns: tuple[Any, ...], holders: Any, window: Any, maps: array[int]) -> None:
        """Fill in the table map numbers of nested events.

        Args:
            columns: type, body start and body end.
        """
        if self._numbers is not self._follower.maps or self._age != self._tracker.maps.age or len(self._by_id) > MOST:
            self._begin()
        at, count, self._state[kernels.HOLDER] = 0, len(maps), -1
        while True:
            self._seen.extend([0] * (len(self._numbers) - len(self._seen)))
            at = self._run(
                at, count, kernels.NestedColumns._make((*columns, holders)), window, self._state, self._traits,
                MapTable(self._ids, *self._follower.known), self._seen, maps,
            )  # fmt: skip
            if at == count:
                return
            maps[at] = self._learned(bytes(window[columns[1][at] : columns[2][at]]))
            at += 1

    def _learned(self, body: bytes) -> int:
        """Register the table map of this TABLE_MAP event; return its number, -1 if it cannot be read."""
        known = self._maps.learn(body)
        number = -1 if known is None else self._follower.number_of(known)
        table_id = int.from_bytes(body[: self._maps.id_size], "little")
        self._by_id[table_id] = number
        if 2 * len(self._by_id) > len(self._ids) // 2:
            self._resize(len(self._ids))
        self._enter(table_id, number)
        if number >= 0:
            self._seen.extend([0] * (number + 1 - len(self._seen)))
            self._seen[number] = self._state[kernels.TURN]
        return number

    def _enter(self, table_id: int, number: int) -> None:
        """Enter a table id into the table of ids."""
        at = place_of(table_id, self._ids, self._state[kernels.MASK])
        self._ids[2 * at], self._ids[2 * at + 1] = table_id + 1, number

    def _resize(self, room: int) -> None:
        """Rebuild the table of ids, at most half full."""
        self._state[kernels.MASK] = room - 1
        self._ids = array("q", [0, -1]) * room
        for table_id, number in self._by_id.items():
            self._enter(table_id, number)
