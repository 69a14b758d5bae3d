"""Compiled transaction tracking: columns of numbers in place of owners and table maps (`JsonLine.derive`)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.groups import tracking_kernels as kernels
from binlogtool.formats.binlog_events.groups.kinds import WORD_TABLE
from binlogtool.formats.binlog_events.groups.marks import build_traits
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, EventTracker, TrackedBatch, TransactionOwner
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.layouts import Batch, Column, Kernel

T = TypeVar("T")

MAX_CACHED = 4096
"""So many maps or sources are kept from batch to batch."""

_MAX_STEP = 512
_MIN_COMPILED_RUN = 32
_INT64_LIMIT = 1 << 63
_COLUMN_NAMES = ("type_code", "server_id", "body_start", "body_end")
UNSUPPORTED_EVENTS = frozenset({EventType.QUERY_COMPRESSED, EventType.TRANSACTION_PAYLOAD, EventType.GTID_TAGGED_LOG})
"""Events that the kernel is not to take."""

_TRACKED_GTIDS = frozenset({EventType.GTID, EventType.GTID_LOG})
"""Events whose source the kernel can follow."""


def as_int_column(column: Any, count: int) -> Any:
    """Return a column in the form that compiled code reads."""
    return array("q", column[:count]) if isinstance(column, list) else column


class LazySequence(Sequence[T]):
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


class CompiledTracker:
    """Compiled replacement of `EventTracker.track_records`, which it calls for events that are new to it.

    `sources`: texts before the number of a GTID ("0-1-"); for a number beyond 63 bits the whole owner.
    `table_maps`: all that were valid since the last batch that found too many. Both only grow within a batch.
    """

    def __init__(self, tracker: EventTracker, compile_: Callable[[Kernel], Kernel]) -> None:
        self._tracker = tracker
        self._kernel = compile_(
            kernels.track_events if tracker.container_record is None else kernels.track_separate_groups
        )
        self._traits = build_traits(UNSUPPORTED_EVENTS)
        self._columns = tuple(array("q") for _ in range(3))
        self._last_notes: TrackedBatch | None = None
        self._reset()

    def _reset(self) -> None:
        """Reset all caches."""
        self._last_owner: tuple[int, int, TransactionOwner] = -1, -1, NO_OWNER
        self.sources: list[str | TransactionOwner] = []
        self.table_maps: list[TableMap] = []
        self._source_numbers: dict[str | TransactionOwner, int] = {}
        self._map_numbers: dict[int, int] = {}
        self._valid_maps: dict[int, TableMap] = {}
        self._map_bodies, self._map_offsets = array("q", [0]), array("q", [0, 0])
        self._map_turns, self._maps_version = array("q", [0]), self._tracker.maps.version
        self._state = array("q", bytes(8 * kernels.STATE_SIZE))
        self._state[kernels.ID_SIZE] = self._tracker.maps.id_size
        self._resize(1024)

    # -- a batch -------------------------------------------------------------------------------------------------------

    def columns(self, notes: TrackedBatch) -> Mapping[str, Column]:
        """Return columns of the last batch: source number and table map number (-1 = none), number in the GTID."""
        if notes is not self._last_notes:  # made by the tracker before it had this object
            self._begin_batch(len(notes.owners))
            self._store_notes(0, notes)
            self._last_notes = notes
        return dict(zip(("source", "number", "map"), self._columns, strict=True))

    def __call__(self, batch: Batch) -> TrackedBatch:
        """Return the notes of the next batch."""
        self._begin_batch(batch.frames.count)
        frames = kernels.FrameColumns._make(
            as_int_column(batch.frames[name], batch.frames.count) for name in _COLUMN_NAMES
        )
        containers = None if batch.positions is None else batch.positions.record
        words = WORD_TABLE if containers is None else as_int_column(containers, batch.frames.count)
        at, step, count = 0, 1, batch.frames.count
        while True:
            met = () if containers is None else (self._map_turns,)
            maps = kernels.MapTable(self._id_table, self._map_bodies, self._map_offsets)
            next_index = self._kernel(
                at, count, frames, batch.window, self._state, self._traits, words, maps, *met,
                kernels.OwnerColumns._make(self._columns),
            )  # fmt: skip
            if next_index == count:
                break
            step = min(2 * step, _MAX_STEP) if next_index - at < _MIN_COMPILED_RUN else 1
            at = min(next_index + step, count)
            self._ask_tracker(batch, next_index, at)
        self._export_state()
        self._last_notes = TrackedBatch(LazySequence(count, self._get_owner), LazySequence(count, self._get_map))
        return self._last_notes

    def map_numbers(self, maps: Sequence[TableMap | None]) -> array[int]:
        """Return the numbers of table maps that the tracker found itself, -1 = none; valid until the next batch."""
        number_by_identity = self._map_numbers.get
        numbers = [-1 if known is None else number_by_identity(id(known)) for known in maps]
        if None in numbers:  # there is a new one
            numbers = [-1 if known is None else self.register_map(known) for known in maps]
        return array("q", numbers)  # type: ignore[arg-type]

    @property
    def map_bodies(self) -> tuple[array[int], array[int]]:
        """The bodies of the table maps, and their offsets (`tracking_kernels.track_events`)."""
        return self._map_bodies, self._map_offsets

    def _begin_batch(self, count: int) -> None:
        """Prepare the columns for a batch."""
        if max(len(self.table_maps), len(self.sources)) > MAX_CACHED:
            self._reset()
        if len(self._columns[0]) < count:
            self._columns = tuple(array("q", bytes(8 * count)) for _ in range(3))
        self._import_state()

    def _get_owner(self, i: int) -> TransactionOwner:
        """Return the owner of event `i`."""
        source, number = self._columns[0][i], self._columns[1][i]
        if source < 0:
            return NO_OWNER
        if self._last_owner[:2] != (source, number):
            self._last_owner = source, number, self.make_owner(source, number)
        return self._last_owner[2]

    def make_owner(self, source: int, number: int) -> TransactionOwner:
        """Return a transaction by the numbers of `columns`."""
        source_text = NO_OWNER if source < 0 else self.sources[source]
        return (
            source_text
            if isinstance(source_text, TransactionOwner)
            else TransactionOwner(f"{source_text}{number}", number)
        )

    def _get_map(self, i: int) -> TableMap | None:
        """Return the table map of event `i`."""
        number = self._columns[2][i]
        return None if number < 0 else self.table_maps[number]

    # -- what the kernel does not know ---------------------------------------------------------------------------------

    def _ask_tracker(self, batch: Batch, start: int, stop: int) -> None:
        """Let the tracker follow some events, and register what is new."""
        self._export_state()
        notes = self._tracker.track_records(batch, start, stop)
        self._store_notes(start, notes)
        self._import_state(notes.maps)
        codes, indexes = batch.frames["type_code"], range(stop - 1, start - 1, -1)
        last = next((i for i in indexes if int(codes[i]) in _TRACKED_GTIDS and batch.inner_offset(i) <= 0), -1)
        if last >= 0 and self._columns[1][last] >= 0:
            self._register_source(batch, last)

    def _register_source(self, batch: Batch, last: int) -> None:
        """Make the kernel track the source of this GTID event."""
        frames, state = batch.frames, self._state
        code, server = int(frames["type_code"][last]), int(frames["server_id"][last])
        body = bytes(batch.window[int(frames["body_start"][last]) : int(frames["body_end"][last])])
        source_bytes = (body[8:12], server.to_bytes(8, "little")) if code == EventType.GTID else (body[1:9], body[9:17])
        state[kernels.LAST_CODE], state[kernels.LAST_SOURCE] = code, self._columns[0][last]
        for slot, value in zip((kernels.LAST_SOURCE_LOW, kernels.LAST_SOURCE_HIGH), source_bytes, strict=True):
            state[slot] = int.from_bytes(value, "little", signed=len(value) == 8)

    def _store_notes(self, start: int, notes: TrackedBatch) -> None:
        """Store notes of the tracker in the columns."""
        for i, (owner, table_map) in enumerate(zip(notes.owners, notes.maps, strict=True), start):
            source = self._source_number(owner)
            self._columns[0][i] = source
            self._columns[1][i] = owner.seq if source >= 0 and isinstance(self.sources[source], str) else -1  # type: ignore[assignment]
            self._columns[2][i] = -1 if table_map is None else self.register_map(table_map)

    def _source_number(self, owner: TransactionOwner) -> int:
        """Return the number of an owner's source; -1 if it has none."""
        if owner.gtid is None or owner.seq is None:
            return -1
        is_plain = 0 <= owner.seq < _INT64_LIMIT
        source: str | TransactionOwner = owner.gtid[: -len(str(owner.seq))] if is_plain else owner
        number = self._source_numbers.get(source)
        if number is None:
            number = self._source_numbers[source] = len(self.sources)
            self.sources.append(source)
        return number

    def register_map(self, table_map: TableMap) -> int:
        """Return the number of a table map, registering it if it is new."""
        number = self._map_numbers.get(id(table_map))
        if number is None:
            number = self._map_numbers[id(table_map)] = len(self.table_maps)
            self.table_maps.append(table_map)
            self._map_offsets[2 * number : 2 * number + 2] = array("q", [len(self._map_bodies), len(table_map.body)])
            self._map_bodies.extend(_pack_bytes(table_map.body))
            self._map_turns.append(0)
        return number

    # -- the tracker's state as numbers --------------------------------------------------------------------------------

    def _export_state(self) -> None:
        """Copy the kernel's state to the tracker."""
        state, transactions = self._state, self._tracker.transactions
        transactions.group = state[kernels.GROUP_STATE]
        source = state[kernels.SOURCE]
        self._tracker.current_owner = self.make_owner(source, state[kernels.GTID_NUMBER])
        if self._tracker.container_record is not None:
            current_turn, map_turns, number_of = state[kernels.GROUP_TURN], self._map_turns, self.register_map
            self._tracker.container_record = state[kernels.CONTAINER_RECORD]
            self._tracker.maps.by_id = {
                key: one for key, one in self._valid_maps.items() if map_turns[number_of(one)] == current_turn
            }

    def _import_state(self, new_maps: Sequence[TableMap | None] = ()) -> None:
        """Copy the tracker's state to the kernel.

        Args:
            new_maps: table maps that the tracker found.
        """
        state, tracker = self._state, self._tracker
        transactions, owner = tracker.transactions, tracker.current_owner
        state[kernels.GROUP_STATE] = transactions.group
        source = state[kernels.SOURCE] = self._source_number(owner)
        is_plain = source >= 0 and isinstance(self.sources[source], str)
        state[kernels.GTID_NUMBER] = owner.seq if is_plain and owner.seq is not None else -1
        valid_maps = tracker.maps.by_id
        if (
            tracker.container_record is not None and tracker.maps.version == self._maps_version
        ):  # table maps of earlier groups are still valid
            valid_maps = self._valid_maps | {one.table_id: one for one in new_maps if one is not None} | valid_maps
        self._maps_version = tracker.maps.version
        if self._valid_maps != valid_maps:
            self._valid_maps = dict(valid_maps)
            self._resize(len(self._id_table) // 2)
        if tracker.container_record is not None:
            state[kernels.CONTAINER_RECORD], state[kernels.GROUP_TURN] = (
                tracker.container_record,
                state[kernels.GROUP_TURN] + 1,
            )
            for table_map in tracker.maps.by_id.values():
                self._map_turns[self.register_map(table_map)] = state[kernels.GROUP_TURN]

    def _resize(self, size: int) -> None:
        """Rebuild the table of ids, at most half full."""
        while size < 2 * len(self._valid_maps):
            size *= 2
        self._state[kernels.ID_TABLE_MASK] = size - 1
        self._id_table = array("q", [0, -1]) * size
        for table_id, table_map in self._valid_maps.items():
            at = kernels.find_id_slot(table_id, self._id_table, size - 1)
            self._id_table[2 * at], self._id_table[2 * at + 1] = table_id + 1, self.register_map(table_map)


def _pack_bytes(data: bytes) -> tuple[int, ...]:
    """Return bytes as 64-bit numbers, the last one padded with zeros."""
    count = -(-len(data) // 8)
    return struct.unpack(f"<{count}q", data.ljust(8 * count, b"\0"))
