"""Transaction and table of each event, tracked in one pass in file order for all readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import GTIDS, QUERIES, ROWS, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups.groups import Groups, Step
from binlogtool.formats.binlog_events.gtid.bodies import gtid_numbers, joined
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.columns import integers
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch

MOST_MAPS = 1 << 16
"""Table maps that are kept at a time; a server forgets them at the end of a statement."""

_MAP = EventType.TABLE_MAP
_NAMES = ("type_code", "server_id", "body_start", "body_end")


class Owner(NamedTuple):
    """Transaction of an event: its GTID as text, and the sequence number in it."""

    gtid: str | None
    seq: int | None


NOBODY = Owner(None, None)


class Notes(NamedTuple):
    """Transaction and table map of each record of a batch; `maps`: of TABLE_MAP and row events."""

    owners: Sequence[Owner]
    maps: Sequence[TableMap | None]


class TableMaps(msgspec.Struct):
    """Table maps by table id; each is parsed once for all repetitions.

    `history`: table definitions from statements; None to use maps as stored. `is_mariadb`: whether a MariaDB
    server wrote them; None if unknown (see `parse_table_map`). `version`: how often definitions changed, so
    that parsed maps were dropped.
    """

    id_size: int = 6
    mariadb: bool | None = None
    history: TableHistory | None = None
    age: int = 0
    by_id: dict[int, TableMap] = msgspec.field(default_factory=dict)
    _parsed: dict[bytes, TableMap] = msgspec.field(default_factory=dict)

    def learn(self, body: bytes) -> TableMap | None:
        """Return the map of a TABLE_MAP event and make it valid from now on; None if it cannot be read."""
        known = self._parsed.get(body)
        if known is None:
            try:
                known = parse_table_map(body, self.id_size, self.mariadb)
            except MalformedError:
                self.by_id.pop(int.from_bytes(body[: self.id_size], "little"), None)
                return None
            known = known if self.history is None else self.history.of(known)
            if len(self._parsed) >= MOST_MAPS:
                self._parsed.clear()
            self._parsed[body] = known
        if len(self.by_id) >= MOST_MAPS:
            self.by_id.clear()
        self.by_id[known.table_id] = known
        return known

    def learn_statement(self, code: int, body: memoryview) -> None:
        """Take a QUERY event: after one that changes a table every map is a new one."""
        if self.history is not None and self.history.learn(code, body):
            self.by_id.clear()
            self._parsed.clear()
            self.age += 1

    def forget(self) -> None:
        """Discard definitions: a part of the log was skipped, and perhaps a statement about a table."""
        if self.history is not None:
            self.history.forget()
            self._parsed.clear()
            self.age += 1

    def of_rows(self, body: memoryview) -> TableMap | None:
        """Return the map that a row event refers to."""
        return self.by_id.get(int.from_bytes(body[: self.id_size], "little"))

    def inside(self) -> TableMaps:
        """Return the maps for nested events, which bring their own."""
        return TableMaps(6, self.mariadb, self.history, self.age, {}, self._parsed)


NO_RECORD = -1
"""The number of none."""


class Tracker(msgspec.Struct):
    """Tracks the events of one file.

    `track_batch` may be called again for a batch, but not for one before the last. `previous_relay_log`:
    tracker of the preceding relay log, which may have ended inside of a group. `preceding_file`: tracker of the
    preceding file and the end of that file; if it has tracked all of it, table definitions continue from there.
    `compiled_tracker`: compiled code with the effect of `track_records` for a whole batch. `container_record`:
    where each group is separate, the number of the record that contains the last event; otherwise None.
    """

    previous: Tracker | None = None
    maps: TableMaps = msgspec.field(default_factory=TableMaps)
    groups: Groups = msgspec.field(default_factory=Groups)
    owner: Owner = NOBODY
    follower: Callable[[Batch], Notes] | None = None
    group: int | None = None
    before: tuple[Tracker, int] | None = None
    _start: tuple[int, TableHistory | None] = (-1, None)
    _reached: int = -1
    _last: Notes = msgspec.field(default_factory=partial(Notes, (), ()))
    _first: int = -1
    _holders: dict[int, Owner] = msgspec.field(default_factory=dict)
    _inside: tuple[Batch, Notes] | None = None
    """The last batch of events inside of another one."""

    def notes(self, batch: Batch) -> Notes:
        """Return the transaction and table map of each record of a batch."""
        if batch.holder is not None:
            if self._inside is None or self._inside[0] is not batch:
                self._inside = batch, self._inner(batch, self._holders.get(batch.holder.record, NOBODY))
            return self._inside[1]
        start = batch.base + int(batch.frames["offset"][0]) if batch.frames.count else -1
        if start != self._first:
            if self._reached == -1:
                self._adopt(start)
            elif self._reached != start:
                self.lose(start)
            self._first, self._holders, self._inside = start, {}, None
            self._last = self.follower(batch) if self.follower else self.follow(batch, 0, batch.frames.count)
            self._reached = batch.base + int(batch.frames["end"][batch.frames.count - 1])
        return self._last

    def _adopt(self, start: int) -> None:
        """Continue the group of the preceding relay log, and the table definitions of the preceding file."""
        history = self.first_history()
        if history is not None:
            self._start = start, history.apart()
        before, self.previous = self.previous, None
        if before is not None:
            self.groups, self.owner = replace(before.groups), before.owner
            self.maps.by_id.update(before.maps.by_id)

    def first_history(self) -> TableHistory | None:
        """Return the table definitions at the beginning of the file, from the preceding file if it was tracked."""
        earlier, self.before = self.before, None
        history = self.maps.history
        before = earlier[0].maps.history if earlier is not None and earlier[0].has_followed(earlier[1]) else None
        if history is not None and before is not None:
            history.continue_from(before)
        return history

    def end_with(self, history: TableHistory, end: int) -> None:
        """Take over the table definitions at the end of the file from another tracker."""
        self.maps.history, self._reached = history, end

    def apart(self) -> Tracker:
        """Return an independent copy."""
        history = None if self.maps.history is None else self.maps.history.apart()
        maps = replace(self.maps, by_id=dict(self.maps.by_id), history=history, _parsed={})
        groups = replace(self.groups)
        own = Tracker(None, maps, groups, self.owner)
        own._reached = self._reached
        return own

    def has_followed(self, end: int) -> bool:
        """Return whether all events of the file up to this offset were tracked."""
        return self._reached >= end

    def lose(self, start: int = -1) -> None:
        """Reset the state: a part of the log was skipped, or all of it is read again.

        Args:
            start: where reading continues.
        """
        self.groups.lose()
        self.maps.by_id.clear()
        self.maps.forget()
        if start == self._start[0] and self.maps.history is not None and self._start[1] is not None:
            self.maps.history.continue_from(self._start[1])
        self.owner = NOBODY

    def follow(self, batch: Batch, start: int, stop: int) -> Notes:
        """Return the transaction and table map of the records `[start, stop)`; to be called once for each, in order."""
        owners: list[Owner] = []
        maps: list[TableMap | None] = []
        window, take = batch.window, self.groups.take
        codes, servers, starts, ends = (integers(batch.frames[n], start, stop) for n in _NAMES)
        for i, (code, server, low, high) in enumerate(zip(codes, servers, starts, ends, strict=True), start):
            body = window[low:high]
            step = take(code, body)
            if code in QUERIES:
                self.maps.learn_statement(code, body)
            if code in GTIDS:
                self.owner = owner_of(code, server, body)
            elif step is Step.OPENS:
                self.owner = NOBODY
            owners.append(NOBODY if step is Step.OUTSIDE else self.owner)
            maps.append(self._map(code, body))
            if code == EventType.TRANSACTION_PAYLOAD:
                self._holders[batch.first_record + i] = self.owner
            if step is Step.ENDS:
                self.owner = NOBODY
        return Notes(owners, maps)

    def _map(self, code: int, body: memoryview) -> TableMap | None:
        """Return the table map of an event."""
        if code == _MAP:
            return self.maps.learn(bytes(body))
        return self.maps.of_rows(body) if code in ROWS else None

    def _inner(self, batch: Batch, owner: Owner) -> Notes:
        """Return the transaction and table map of nested events."""
        maps = self.maps.inside()
        codes, _, starts, ends = (integers(batch.frames[n], 0, batch.frames.count) for n in _NAMES)
        found: list[TableMap | None] = []
        window, learn, of_rows = batch.window, maps.learn, maps.of_rows
        for code, low, high in zip(codes, starts, ends, strict=True):
            if code == _MAP:
                found.append(learn(bytes(window[low:high])))
            else:
                found.append(of_rows(window[low:high]) if code in ROWS else None)
        return Notes([owner] * batch.frames.count, found)


def owner_of(code: int, server: int, body: memoryview) -> Owner:
    """Return the transaction that a GTID event opens; none for an anonymous or malformed one."""
    try:
        numbers = gtid_numbers(code, server, bytes(body))
    except MalformedError:
        return NOBODY
    if numbers is None:
        return NOBODY
    return Owner(joined(code, *numbers), numbers[1])
