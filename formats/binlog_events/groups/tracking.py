"""Transaction and table of each event, tracked in one pass in file order for all readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import GTID_EVENTS, QUERY_EVENTS, ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.gtid.bodies import format_gtid, read_gtid_numbers
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch

MAX_TABLE_MAPS = 1 << 16
"""Table maps that are kept at a time; a server forgets them at the end of a statement."""

_TABLE_MAP = EventType.TABLE_MAP
_COLUMN_NAMES = ("type_code", "server_id", "body_start", "body_end")


class TransactionOwner(NamedTuple):
    """Transaction of an event: its GTID as text, and the sequence number in it."""

    gtid: str | None
    seq: int | None


NO_OWNER = TransactionOwner(None, None)


class TrackedBatch(NamedTuple):
    """Transaction and table map of each record of a batch; `maps`: of TABLE_MAP and row events."""

    owners: Sequence[TransactionOwner]
    maps: Sequence[TableMap | None]


class TableMaps(msgspec.Struct):
    """Table maps by table id; each is parsed once for all repetitions.

    `history`: table definitions from statements; None to use maps as stored. `is_mariadb`: whether a MariaDB
    server wrote them; None if unknown (see `parse_table_map`). `version`: how often definitions changed, so
    that parsed maps were dropped.
    """

    id_size: int = 6
    is_mariadb: bool | None = None
    history: TableHistory | None = None
    version: int = 0
    by_id: dict[int, TableMap] = msgspec.field(default_factory=dict)
    _parsed: dict[bytes, TableMap] = msgspec.field(default_factory=dict)

    def add_map(self, body: bytes) -> TableMap | None:
        """Return the map of a TABLE_MAP event and make it valid from now on; None if it cannot be read."""
        table_map = self._parsed.get(body)
        if table_map is None:
            try:
                table_map = parse_table_map(body, self.id_size, self.is_mariadb)
            except MalformedError:
                self.by_id.pop(int.from_bytes(body[: self.id_size], "little"), None)
                return None
            table_map = table_map if self.history is None else self.history.complete_table_map(table_map)
            if len(self._parsed) >= MAX_TABLE_MAPS:
                self._parsed.clear()
            self._parsed[body] = table_map
        if len(self.by_id) >= MAX_TABLE_MAPS:
            self.by_id.clear()
        self.by_id[table_map.table_id] = table_map
        return table_map

    def add_query(self, code: int, body: memoryview) -> None:
        """Take a QUERY event: after one that changes a table every map is a new one."""
        if self.history is not None and self.history.add_query(code, body):
            self.by_id.clear()
            self._parsed.clear()
            self.version += 1

    def discard_definitions(self) -> None:
        """Discard definitions: a part of the log was skipped, and perhaps a statement about a table."""
        if self.history is not None:
            self.history.discard()
            self._parsed.clear()
            self.version += 1

    def find_map(self, body: memoryview) -> TableMap | None:
        """Return the map that a row event refers to."""
        return self.by_id.get(int.from_bytes(body[: self.id_size], "little"))

    def create_nested(self) -> TableMaps:
        """Return the maps for nested events, which bring their own."""
        return TableMaps(6, self.is_mariadb, self.history, self.version, {}, self._parsed)


NO_RECORD = -1
"""The number of none."""


class EventTracker(msgspec.Struct):
    """Tracks the events of one file.

    `track_batch` may be called again for a batch, but not for one before the last. `previous_relay_log`:
    tracker of the preceding relay log, which may have ended inside of a group. `preceding_file`: tracker of the
    preceding file and the end of that file; if it has tracked all of it, table definitions continue from there.
    `compiled_tracker`: compiled code with the effect of `track_records` for a whole batch. `container_record`:
    where each group is separate, the number of the record that contains the last event; otherwise None.
    """

    previous_relay_log: EventTracker | None = None
    maps: TableMaps = msgspec.field(default_factory=TableMaps)
    transactions: TransactionGroups = msgspec.field(default_factory=TransactionGroups)
    current_owner: TransactionOwner = NO_OWNER
    compiled_tracker: Callable[[Batch], TrackedBatch] | None = None
    container_record: int | None = None
    preceding_file: tuple[EventTracker, int] | None = None
    _start: tuple[int, TableHistory | None] = (-1, None)
    _tracked_end: int = -1
    _last_notes: TrackedBatch = msgspec.field(default_factory=partial(TrackedBatch, (), ()))
    _last_batch_start: int = -1
    _container_owners: dict[int, TransactionOwner] = msgspec.field(default_factory=dict)
    _nested_notes: tuple[Batch, TrackedBatch] | None = None
    """The last batch of events inside of another one."""

    def track_batch(self, batch: Batch) -> TrackedBatch:
        """Return the transaction and table map of each record of a batch."""
        if batch.container is not None:
            if self._nested_notes is None or self._nested_notes[0] is not batch:
                self._nested_notes = (
                    batch,
                    self._track_nested(batch, self._container_owners.get(batch.container.record, NO_OWNER)),
                )
            return self._nested_notes[1]
        start = batch.base + int(batch.frames["offset"][0]) if batch.frames.count else -1
        if start != self._last_batch_start:
            if self._tracked_end == -1:
                self._continue_preceding(start)
            elif self._tracked_end != start:
                self.reset(start)
            self._last_batch_start, self._container_owners, self._nested_notes = start, {}, None
            self._last_notes = (
                self.compiled_tracker(batch)
                if self.compiled_tracker
                else self.track_records(batch, 0, batch.frames.count)
            )
            self._tracked_end = batch.base + int(batch.frames["end"][batch.frames.count - 1])
        return self._last_notes

    def _continue_preceding(self, start: int) -> None:
        """Continue the group of the preceding relay log, and the table definitions of the preceding file."""
        history = self.load_first_history()
        if history is not None:
            self._start = start, history.copy()
        before, self.previous_relay_log = self.previous_relay_log, None
        if before is not None:
            self.transactions, self.current_owner = replace(before.transactions), before.current_owner
            self.maps.by_id.update(before.maps.by_id)

    def load_first_history(self) -> TableHistory | None:
        """Return the table definitions at the beginning of the file, from the preceding file if it was tracked."""
        earlier, self.preceding_file = self.preceding_file, None
        history = self.maps.history
        before = earlier[0].maps.history if earlier is not None and earlier[0].has_tracked(earlier[1]) else None
        if history is not None and before is not None:
            history.continue_from(before)
        return history

    def set_end(self, history: TableHistory, end: int) -> None:
        """Take over the table definitions at the end of the file from another tracker."""
        self.maps.history, self._tracked_end = history, end

    def copy(self) -> EventTracker:
        """Return an independent copy."""
        history = None if self.maps.history is None else self.maps.history.copy()
        maps = replace(self.maps, by_id=dict(self.maps.by_id), history=history, _parsed={})
        group_state = replace(self.transactions)
        result = EventTracker(None, maps, group_state, self.current_owner)
        result._tracked_end = self._tracked_end
        return result

    def has_tracked(self, end: int) -> bool:
        """Return whether all events of the file up to this offset were tracked."""
        return self._tracked_end >= end

    def reset(self, start: int = -1) -> None:
        """Reset the state: a part of the log was skipped, or all of it is read again.

        Args:
            start: where reading continues.
        """
        self.transactions.reset()
        self.maps.by_id.clear()
        self.maps.discard_definitions()
        if start == self._start[0] and self.maps.history is not None and self._start[1] is not None:
            self.maps.history.continue_from(self._start[1])
        self.current_owner = NO_OWNER

    def track_records(self, batch: Batch, start: int, stop: int) -> TrackedBatch:
        """Return the transaction and table map of the records `[start, stop)`; to be called once for each, in order."""
        owners: list[TransactionOwner] = []
        maps: list[TableMap | None] = []
        window, add_event = batch.window, self.transactions.add_event
        codes, servers, starts, ends = (to_int_list(batch.frames[n], start, stop) for n in _COLUMN_NAMES)
        for i, (code, server, body_start, body_end) in enumerate(zip(codes, servers, starts, ends, strict=True), start):
            body = window[body_start:body_end]
            step = add_event(code, body)
            if code in QUERY_EVENTS:
                self.maps.add_query(code, body)
            if code in GTID_EVENTS:
                self.current_owner = read_owner(code, server, body)
            elif step is GroupStep.OPENS:
                self.current_owner = NO_OWNER
            owners.append(NO_OWNER if step is GroupStep.OUTSIDE else self.current_owner)
            maps.append(self._find_map(code, body))
            if code == EventType.TRANSACTION_PAYLOAD:
                self._container_owners[batch.first_record + i] = self.current_owner
            if step is GroupStep.ENDS:
                self.current_owner = NO_OWNER
        return TrackedBatch(owners, maps)

    def _find_map(self, code: int, body: memoryview) -> TableMap | None:
        """Return the table map of an event."""
        if code == _TABLE_MAP:
            return self.maps.add_map(bytes(body))
        return self.maps.find_map(body) if code in ROW_EVENTS else None

    def _track_nested(self, batch: Batch, owner: TransactionOwner) -> TrackedBatch:
        """Return the transaction and table map of nested events."""
        maps = self.maps.create_nested()
        codes, _, starts, ends = (to_int_list(batch.frames[n], 0, batch.frames.count) for n in _COLUMN_NAMES)
        table_maps: list[TableMap | None] = []
        window, add_map, find_map = batch.window, maps.add_map, maps.find_map
        for code, body_start, body_end in zip(codes, starts, ends, strict=True):
            if code == _TABLE_MAP:
                table_maps.append(add_map(bytes(window[body_start:body_end])))
            else:
                table_maps.append(find_map(window[body_start:body_end]) if code in ROW_EVENTS else None)
        return TrackedBatch([owner] * batch.frames.count, table_maps)


def read_owner(code: int, server: int, body: memoryview) -> TransactionOwner:
    """Return the transaction that a GTID event opens; none for an anonymous or malformed one."""
    try:
        numbers = read_gtid_numbers(code, server, bytes(body))
    except MalformedError:
        return NO_OWNER
    if numbers is None:
        return NO_OWNER
    return TransactionOwner(format_gtid(code, *numbers), numbers[1])
