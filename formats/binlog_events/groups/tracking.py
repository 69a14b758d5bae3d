"""What each event belongs to: its transaction and its table. One pass in file order, shared by all who describe."""

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
    """The transaction of an event: its GTID as text, and the sequence number in it."""

    gtid: str | None
    seq: int | None


NOBODY = Owner(None, None)


class Notes(NamedTuple):
    """What belongs to the records of one batch, one entry each. maps: of TABLE_MAP and row events."""

    owners: Sequence[Owner]
    maps: Sequence[TableMap | None]


class TableMaps(msgspec.Struct):
    """Table maps by id. history: what statements say of tables; None = they are taken as stored. A map is parsed once
    for all repetitions.

    mariadb: are they those of a MariaDB server? None = not known (see `parse_table_map`). age: how often more came to
    be known of tables, and all that was parsed was forgotten.
    """

    id_size: int = 6
    mariadb: bool | None = None
    history: TableHistory | None = None
    age: int = 0
    by_id: dict[int, TableMap] = msgspec.field(default_factory=dict)
    _parsed: dict[bytes, TableMap] = msgspec.field(default_factory=dict)

    def learn(self, body: bytes) -> TableMap | None:
        """The map that a TABLE_MAP event defines, in force from now on; None if it cannot be read."""
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
        """A QUERY: behind one that changes a table, every map is a new one."""
        if self.history is not None and self.history.learn(code, body):
            self.by_id.clear()
            self._parsed.clear()
            self.age += 1

    def forget(self) -> None:
        """A part of the log was skipped, and with it perhaps a statement about a table."""
        if self.history is not None:
            self.history.forget()
            self._parsed.clear()
            self.age += 1

    def of_rows(self, body: memoryview) -> TableMap | None:
        """The map that a row event refers to."""
        return self.by_id.get(int.from_bytes(body[: self.id_size], "little"))

    def inside(self) -> TableMaps:
        """The maps of an inner chain, which brings its own."""
        return TableMaps(6, self.mariadb, self.history, self.age, {}, self._parsed)


NO_RECORD = -1
"""The number of none."""


class Tracker(msgspec.Struct):
    """Follows the events of one file. `notes` may be asked for a batch again, not for one before the last.

    previous: the tracker of the relay log before this one, which may have ended inside a group. before: the tracker of
    the file before this one, and the end of that file: where it has followed all of it, the definitions of tables go on
    from there. follower: compiled code
    that does the same as `follow` for a whole batch, and leaves the tracker in the same state. group: where each group
    is for itself, the number of the record that the last event is inside of; None = that is not so.
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
        """What the records of a batch belong to."""
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
        """A relay log goes on where the one before it ended, and the definitions of tables with every log."""
        history = self.first_history()
        if history is not None:
            self._start = start, history.apart()
        before, self.previous = self.previous, None
        if before is not None:
            self.groups, self.owner = replace(before.groups), before.owner
            self.maps.by_id.update(before.maps.by_id)

    def first_history(self) -> TableHistory | None:
        """The definitions of tables where the file begins: where the file before was followed, those at its end."""
        earlier, self.before = self.before, None
        history = self.maps.history
        before = earlier[0].maps.history if earlier is not None and earlier[0].has_followed(earlier[1]) else None
        if history is not None and before is not None:
            history.continue_from(before)
        return history

    def end_with(self, history: TableHistory, end: int) -> None:
        """Another one has followed the file, and these are the definitions at its end."""
        self.maps.history, self._reached = history, end

    def apart(self) -> Tracker:
        """One that knows the same and goes its own way."""
        history = None if self.maps.history is None else self.maps.history.apart()
        maps = replace(self.maps, by_id=dict(self.maps.by_id), history=history, _parsed={})
        groups = replace(self.groups)
        own = Tracker(None, maps, groups, self.owner)
        own._reached = self._reached
        return own

    def has_followed(self, end: int) -> bool:
        """Has it followed all events of its file up to this offset?"""
        return self._reached >= end

    def lose(self, start: int = -1) -> None:
        """A part of the log was skipped, or all of it is read once more. start: where reading goes on."""
        self.groups.lose()
        self.maps.by_id.clear()
        self.maps.forget()
        if start == self._start[0] and self.maps.history is not None and self._start[1] is not None:
            self.maps.history.continue_from(self._start[1])
        self.owner = NOBODY

    def follow(self, batch: Batch, start: int, stop: int) -> Notes:
        """What the records `[start, stop)` belong to; to be asked once for each, in order."""
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
        if code == _MAP:
            return self.maps.learn(bytes(body))
        return self.maps.of_rows(body) if code in ROWS else None

    def _inner(self, batch: Batch, owner: Owner) -> Notes:
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
    """The transaction that a GTID event opens; of an anonymous or broken one nothing is known."""
    try:
        numbers = gtid_numbers(code, server, bytes(body))
    except MalformedError:
        return NOBODY
    if numbers is None:
        return NOBODY
    return Owner(joined(code, *numbers), numbers[1])
