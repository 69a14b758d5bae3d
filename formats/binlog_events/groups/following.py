"""The tracker's work by compiled code: columns of numbers in place of owners and maps (`JsonLine.derive`)."""

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
    """A column as compiled code takes it."""
    return array("q", column[:count]) if isinstance(column, list) else column


class View(Sequence[T]):
    """A sequence whose entries are made when they are asked for."""

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
    """Follows the batches of one file in place of `Tracker.follow`, which it asks about events that are new to it.

    sources: texts before the number of a GTID ("0-1-"); where a number is beyond 63 bits, the whole owner. maps: all
    that were in force since the last batch that found too many. Both only grow within a batch. met: by map, the turn of
    the group that had it last, where each is for itself.
    """

    def __init__(self, tracker: Tracker, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker = tracker
        self._run = compile_(kernels.follow if tracker.group is None else kernels.follow_groups)
        self._traits = traits(ASKING)
        self._columns = tuple(array("q") for _ in range(3))
        self._made: Notes | None = None
        self._forget()

    def _forget(self) -> None:
        """An empty memory."""
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
        """Of the last batch: number of the source (-1 = nobody), number in the GTID, number of the map (-1 = none)."""
        if notes is not self._made:  # by the tracker, before it had a follower
            self._begin(len(notes.owners))
            self._put(0, notes)
            self._made = notes
        return dict(zip(("source", "number", "map"), self._columns, strict=True))

    def __call__(self, batch: Batch) -> Notes:
        """The notes of the next batch."""
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
        """Of maps that the tracker found itself, -1 = none; valid until the next batch."""
        get = self._map_numbers.get
        numbers = [-1 if known is None else get(id(known)) for known in maps]
        if None in numbers:  # one is new
            numbers = [-1 if known is None else self.number_of(known) for known in maps]
        return array("q", numbers)  # type: ignore[arg-type]

    @property
    def known(self) -> tuple[array[int], array[int]]:
        """The bodies of the maps, and where they are (`tracking_kernels.follow`)."""
        return self._known, self._places

    def _begin(self, count: int) -> None:
        if max(len(self.maps), len(self.sources)) > MOST:
            self._forget()
        if len(self._columns[0]) < count:
            self._columns = tuple(array("q", bytes(8 * count)) for _ in range(3))
        self._take_over()

    def _owner(self, i: int) -> Owner:
        source, number = self._columns[0][i], self._columns[1][i]
        if source < 0:
            return NOBODY
        if self._last[:2] != (source, number):
            self._last = source, number, self.owner_of(source, number)
        return self._last[2]

    def owner_of(self, source: int, number: int) -> Owner:
        """A transaction, by the numbers of `columns`."""
        known = NOBODY if source < 0 else self.sources[source]
        return known if isinstance(known, Owner) else Owner(f"{known}{number}", number)

    def _map(self, i: int) -> TableMap | None:
        number = self._columns[2][i]
        return None if number < 0 else self.maps[number]

    # -- what the kernel does not know ---------------------------------------------------------------------------------

    def _ask(self, batch: Batch, start: int, stop: int) -> None:
        """Lets the tracker look at some events, and learns from what it says."""
        self._give_back()
        notes = self._tracker.follow(batch, start, stop)
        self._put(start, notes)
        self._take_over(notes.maps)
        codes, found = batch.frames["type_code"], range(stop - 1, start - 1, -1)
        last = next((i for i in found if int(codes[i]) in _NUMBERED and batch.inner_of(i) <= 0), -1)
        if last >= 0 and self._columns[1][last] >= 0:
            self._learn_source(batch, last)

    def _learn_source(self, batch: Batch, last: int) -> None:
        """The kernel goes on with GTIDs of the source that this event names."""
        frames, state = batch.frames, self._state
        code, server = int(frames["type_code"][last]), int(frames["server_id"][last])
        body = bytes(batch.window[int(frames["body_start"][last]) : int(frames["body_end"][last])])
        key = (body[8:12], server.to_bytes(8, "little")) if code == EventType.GTID else (body[1:9], body[9:17])
        state[kernels.LAST_CODE], state[kernels.LAST_SOURCE] = code, self._columns[0][last]
        for place, part in zip((kernels.LAST_A, kernels.LAST_B), key, strict=True):
            state[place] = int.from_bytes(part, "little", signed=len(part) == 8)

    def _put(self, start: int, notes: Notes) -> None:
        for i, (owner, known) in enumerate(zip(notes.owners, notes.maps, strict=True), start):
            source = self._source_number(owner)
            self._columns[0][i] = source
            self._columns[1][i] = owner.seq if source >= 0 and isinstance(self.sources[source], str) else -1  # type: ignore[assignment]
            self._columns[2][i] = -1 if known is None else self.number_of(known)

    def _source_number(self, owner: Owner) -> int:
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
        """The number of a map, which is kept with it."""
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
        state, groups = self._state, self._tracker.groups
        groups.group = state[kernels.OPEN]
        source = state[kernels.SOURCE]
        self._tracker.owner = self.owner_of(source, state[kernels.NUMBER])
        if self._tracker.group is not None:
            turn, met, number_of = state[kernels.TURN], self._met, self.number_of
            self._tracker.group = state[kernels.GROUP]
            self._tracker.maps.by_id = {key: one for key, one in self._in_force.items() if met[number_of(one)] == turn}

    def _take_over(self, found: Sequence[TableMap | None] = ()) -> None:
        """found: maps that the tracker met."""
        state, tracker = self._state, self._tracker
        groups, owner = tracker.groups, tracker.owner
        state[kernels.OPEN] = groups.group
        source = state[kernels.SOURCE] = self._source_number(owner)
        plain = source >= 0 and isinstance(self.sources[source], str)
        state[kernels.NUMBER] = owner.seq if plain and owner.seq is not None else -1
        known = tracker.maps.by_id
        if tracker.group is not None and tracker.maps.age == self._age:  # those of groups before are still the same
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
        """Makes the table of ids anew, at most half full."""
        while room < 2 * len(self._in_force):
            room *= 2
        self._state[kernels.MASK] = room - 1
        self._ids = array("q", [0, -1]) * room
        for table_id, known in self._in_force.items():
            at = kernels.place_of(table_id, self._ids, room - 1)
            self._ids[2 * at], self._ids[2 * at + 1] = table_id + 1, self.number_of(known)


def _packed(data: bytes) -> tuple[int, ...]:
    """Eight bytes in a number, the last ones filled up with zeros."""
    count = -(-len(data) // 8)
    return struct.unpack(f"<{count}q", data.ljust(8 * count, b"\0"))
