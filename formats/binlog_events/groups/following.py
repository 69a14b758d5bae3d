"""Compiled transaction tracking: columns of numbers in place of owners and table maps (`JsonLine.derive`)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.groups import tracking_kernels as kernels
from binlogtool.formats.binlog_events.groups.kinds import WORDS
from binlogtool.formats.binlog_events.groups.marks import traits
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Notes, Owner, Tracker
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.layouts import Batch, Column, Kernel

T = TypeVar("T")

MOST = 4096
"""So many maps or sources are kept from batch to batch."""

_LONGEST = 512
_FEW = 32
_SIGNED = 1 << 63
_NAMES = ("type_code", "server_id", "body_start", "body_end")
ASKING = frozenset({EventType.QUERY_COMPRESSED, EventType.TRANSACTION_PAYLOAD, EventType.GTID_TAGGED_LOG})
"""Events that the kernel is not to take."""

_NUMBERED = frozenset({EventType.GTID, EventType.GTID_LOG})
"""Events whose source the kernel can follow."""


def integers_of(column: Any, count: int) -> Any:
    """Return a column in the form that compiled code reads."""
    return array("q", column[:count]) if isinstance(column, list) else column


class View(Sequence[T]):
    """Sequence whose entries are made on access."""

    def __init__(self, count: int, entry: Callable[[int], T]) -> None:
        self._count, self._entry = count, entry

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._entry(i) for i in range(*index.indices(self._count))]
        return self._entry(range(self._count)[index])


class Follower:
    """Compiled replacement of `EventTracker.track_records`, which it calls for events that are new to it.

    `sources`: texts before the number of a GTID ("0-1-"); for a number beyond 63 bits the whole owner.
    `table_maps`: all that were valid since the last batch that found too many. Both only grow within a batch.
    """

    def __init__(self, tracker: Tracker, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker = tracker
        self._run = compile_(kernels.follow if tracker.group is None else kernels.follow_groups)
        self._traits = traits(ASKING)
        self._columns = tuple(array("q") for _ in range(3))
        self._made: Notes | None = None
        self._forget()

    def _forget(self) -> None:
        """Reset all caches."""
        self._last: tuple[int, int, Owner] = -1, -1, NOBODY
        self.sources: list[str | Owner] = []
        self.maps: list[TableMap] = []
        self._source_numbers: dict[str | Owner, int] = {}
        self._map_numbers: dict[int, int] = {}
        self._in_force: dict[int, TableMap] = {}
        self._known, self._places = array("q", [0]), array("q", [0, 0])
        self._met, self._age = array("q", [0]), self._tracker.maps.age
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._state[kernels.ID_SIZE] = self._tracker.maps.id_size
        self._resize(1024)

    # -- a batch -------------------------------------------------------------------------------------------------------

    def columns(self, notes: Notes) -> Mapping[str, Column]:
        """Return columns of the last batch: source number and table map number (-1 = none), number in the GTID."""
        if notes is not self._made:  # made by the tracker before it had this object
            self._begin(len(notes.owners))
            self._put(0, notes)
            self._made = notes
        return dict(zip(("source", "number", "map"), self._columns, strict=True))

    def __call__(self, batch: Batch) -> Notes:
        """Return the notes of the next batch."""
        self._begin(batch.frames.count)
        frames = kernels.FrameColumns._make(integers_of(batch.frames[name], batch.frames.count) for name in _NAMES)
        own = None if batch.places is None else batch.places.record
        words = WORDS if own is None else integers_of(own, batch.frames.count)
        at, length, count = 0, 1, batch.frames.count
        while True:
            met = () if own is None else (self._met,)
            maps = kernels.MapTable(self._ids, self._known, self._places)
            reached = self._run(
                at, count, frames, batch.window, self._state, self._traits, words, maps, *met,
                kernels.OwnerColumns._make(self._columns),
            )  # fmt: skip
            if reached == count:
                break
            length = min(2 * length, _LONGEST) if reached - at < _FEW else 1
            at = min(reached + length, count)
            self._ask(batch, reached, at)
        self._give_back()
        self._made = Notes(View(count, self._owner), View(count, self._map))
        return self._made

    def numbers(self, maps: Sequence[TableMap | None]) -> array[int]:
        """Return the numbers of table maps that the tracker found itself, -1 = none; valid until the next batch."""
        get = self._map_numbers.get
        numbers = [-1 if known is None else get(id(known)) for known in maps]
        if None in numbers:  # there is a new one
            numbers = [-1 if known is None else self.number_of(known) for known in maps]
        return array("q", numbers)  # type: ignore[arg-type]

    @property
    def known(self) -> tuple[array[int], array[int]]:
        """The bodies of the table maps, and their offsets (`tracking_kernels.track_events`)."""
        return self._known, self._places

    def _begin(self, count: int) -> None:
        """Prepare the columns for a batch."""
        if max(len(self.maps), len(self.sources)) > MOST:
            self._forget()
        if len(self._columns[0]) < count:
            self._columns = tuple(array("q", bytes(8 * count)) for _ in range(3))
        self._take_over()

    def _owner(self, i: int) -> Owner:
        """Return the owner of event `i`."""
        source, number = self._columns[0][i], self._columns[1][i]
        if source < 0:
            return NOBODY
        if self._last[:2] != (source, number):
            self._last = source, number, self.owner_of(source, number)
        return self._last[2]

    def owner_of(self, source: int, number: int) -> Owner:
        """Return a transaction by the numbers of `columns`."""
        known = NOBODY if source < 0 else self.sources[source]
        return known if isinstance(known, Owner) else Owner(f"{known}{number}", number)

    def _map(self, i: int) -> TableMap | None:
        """Return the table map of event `i`."""
        number = self._columns[2][i]
        return None if number < 0 else self.maps[number]

    # -- what the kernel does not know ---------------------------------------------------------------------------------

    def _ask(self, batch: Batch, start: int, stop: int) -> None:
        """Let the tracker follow some events, and register what is new."""
        self._give_back()
        notes = self._tracker.follow(batch, start, stop)
        self._put(start, notes)
        self._take_over(notes.maps)
        codes, found = batch.frames["type_code"], range(stop - 1, start - 1, -1)
        last = next((i for i in found if int(codes[i]) in _NUMBERED and batch.inner_of(i) <= 0), -1)
        if last >= 0 and self._columns[1][last] >= 0:
            self._learn_source(batch, last)

    def _learn_source(self, batch: Batch, last: int) -> None:
        """Make the kernel track the source of this GTID event."""
        frames, state = batch.frames, self._state
        code, server = int(frames["type_code"][last]), int(frames["server_id"][last])
        body = bytes(batch.window[int(frames["body_start"][last]) : int(frames["body_end"][last])])
        key = (body[8:12], server.to_bytes(8, "little")) if code == EventType.GTID else (body[1:9], body[9:17])
        state[kernels.LAST_CODE], state[kernels.LAST_SOURCE] = code, self._columns[0][last]
        for place, part in zip((kernels.LAST_A, kernels.LAST_B), key, strict=True):
            state[place] = int.from_bytes(part, "little", signed=len(part) == 8)

    def _put(self, start: int, notes: Notes) -> None:
        """Store notes of the tracker in the columns."""
        for i, (owner, known) in enumerate(zip(notes.owners, notes.maps, strict=True), start):
            source = self._source_number(owner)
            self._columns[0][i] = source
            self._columns[1][i] = owner.seq if source >= 0 and isinstance(self.sources[source], str) else -1  # type: ignore[assignment]
            self._columns[2][i] = -1 if known is None else self.number_of(known)

    def _source_number(self, owner: Owner) -> int:
        """Return the number of an owner's source; -1 if it has none."""
        if owner.gtid is None or owner.seq is None:
            return -1
        plain = 0 <= owner.seq < _SIGNED
        source: str | Owner = owner.gtid[: -len(str(owner.seq))] if plain else owner
        number = self._source_numbers.get(source)
        if number is None:
            number = self._source_numbers[source] = len(self.sources)
            self.sources.append(source)
        return number

    def number_of(self, known: TableMap) -> int:
        """Return the number of a table map, registering it if it is new."""
        number = self._map_numbers.get(id(known))
        if number is None:
            number = self._map_numbers[id(known)] = len(self.maps)
            self.maps.append(known)
            self._places[2 * number : 2 * number + 2] = array("q", [len(self._known), len(known.body)])
            self._known.extend(_packed(known.body))
            self._met.append(0)
        return number

    # -- the tracker's state as numbers --------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Copy the kernel's state to the tracker."""
        state, groups = self._state, self._tracker.groups
        groups.group = state[kernels.OPEN]
        source = state[kernels.SOURCE]
        self._tracker.owner = self.owner_of(source, state[kernels.NUMBER])
        if self._tracker.group is not None:
            turn, met, number_of = state[kernels.TURN], self._met, self.number_of
            self._tracker.group = state[kernels.GROUP]
            self._tracker.maps.by_id = {key: one for key, one in self._in_force.items() if met[number_of(one)] == turn}

    def _take_over(self, found: Sequence[TableMap | None] = ()) -> None:
        """Copy the tracker's state to the kernel.

        Args:
            new_maps: table maps that the tracker found.
        """
        state, tracker = self._state, self._tracker
        groups, owner = tracker.groups, tracker.owner
        state[kernels.OPEN] = groups.group
        source = state[kernels.SOURCE] = self._source_number(owner)
        plain = source >= 0 and isinstance(self.sources[source], str)
        state[kernels.NUMBER] = owner.seq if plain and owner.seq is not None else -1
        known = tracker.maps.by_id
        if tracker.group is not None and tracker.maps.age == self._age:  # table maps of earlier groups are still valid
            known = self._in_force | {one.table_id: one for one in found if one is not None} | known
        self._age = tracker.maps.age
        if self._in_force != known:
            self._in_force = dict(known)
            self._resize(len(self._ids) // 2)
        if tracker.group is not None:
            state[kernels.GROUP], state[kernels.TURN] = tracker.group, state[kernels.TURN] + 1
            for one in tracker.maps.by_id.values():
                self._met[self.number_of(one)] = state[kernels.TURN]

    def _resize(self, room: int) -> None:
        """Rebuild the table of ids, at most half full."""
        while room < 2 * len(self._in_force):
            room *= 2
        self._state[kernels.MASK] = room - 1
        self._ids = array("q", [0, -1]) * room
        for table_id, known in self._in_force.items():
            at = kernels.place_of(table_id, self._ids, room - 1)
            self._ids[2 * at], self._ids[2 * at + 1] = table_id + 1, self.number_of(known)


def _packed(data: bytes) -> tuple[int, ...]:
    """Return bytes as 64-bit numbers, the last one padded with zeros."""
    count = -(-len(data) // 8)
    return struct.unpack(f"<{count}q", data.ljust(8 * count, b"\0"))
