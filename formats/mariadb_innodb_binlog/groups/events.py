"""Level `event`: the events of the groups, in commit order, decoded like those of a classic binary log.

See docs/spec/mariadb-innodb-binlog.md#67-payload-events.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups.groups import Groups as Transactions
from binlogtool.formats.binlog_events.groups.tracking import NO_RECORD, NOBODY, Notes, Owner, TableMaps, Tracker
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream import meaning
from binlogtool.formats.binlog_events.stream.context import FileContext as EventContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription, knows_checksums, parse_description
from binlogtool.formats.derived import unpacker_of
from binlogtool.formats.described import Described
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Assembler, Batch, Kernel, RecordPlaces
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import EventGroup, Groups
from binlogtool.formats.mariadb_innodb_binlog.groups.plain_groups import NAMES, PlainGroups, events_in
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT
from binlogtool.limits import Limits

_head = unpacker_of(EVENT, "timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")
_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)

DESCRIBED = "mariadb-innodb-binlog.description"
"""Where the files of a log share the FORMAT_DESCRIPTION that holds."""

DEFAULT_DESCRIPTION = FormatDescription(4, "12.3.0-MariaDB", 0, HEADER_SIZE, b"", ChecksumAlgorithm.NONE.value)
"""What holds where the log says nothing: an empty log begins without FORMAT_DESCRIPTION."""


class _GroupTracker(Tracker):
    """Tracks transactions and table maps of groups, each for itself.

    Only definitions of tables are carried from one group to the next. `owner` is that of the group's first event: a
    group may hold several events that are complete in themselves.
    """

    _batch: Batch | None = None

    def notes(self, batch: Batch) -> Notes:
        """Return the owners and table maps of the events of whole groups."""
        if batch is not self._batch:
            self.group = NO_RECORD
            self._last = self.follower(batch) if self.follower else self.follow(batch, 0, batch.frames.count)
            self._batch = batch
        return self._last

    def follow(self, batch: Batch, start: int, stop: int) -> Notes:
        """See `Tracker`."""
        owners, maps = list[Owner](), list[TableMap | None]()
        for group, events in groupby(batch.numbers(start, stop)):
            stop, owner, begins = start + len(list(events)), self.owner, group != self.group
            if begins:
                self.group, self.groups, self.owner = group, Transactions(), NOBODY
                self.maps.by_id.clear()
            own, known = super().follow(batch, start, stop)
            self.owner = own[0] if begins else owner
            owners += [self.owner] * len(own)
            maps += known
            start = stop
        return Notes(owners, maps)

    def apart(self) -> _GroupTracker:
        """Return an independent copy."""
        return _tracker(None if self.maps.history is None else self.maps.history.apart())


def _tracker(history: TableHistory | None) -> _GroupTracker:
    return _GroupTracker(maps=TableMaps(6, mariadb=True, history=history), group=NO_RECORD)


class Events:
    """Describes and decodes the events of one file's groups."""

    def __init__(self, context: FileContext) -> None:
        history = None if context.hints.as_stored else TableHistory(context.hints.schema, context.earlier)
        if history is not None and context.declared:
            history.resume(context.declared)
        tracker = _tracker(history)
        description = context.shared.get(DESCRIBED, DEFAULT_DESCRIPTION)
        self.context = EventContext(description, tracker, start=0, name=context.name, hints=context.hints)
        self._shared = context.shared

    def apart(self) -> Events:
        """Return an independent copy."""
        own = copy(self)
        own.context = replace(self.context, tracker=self.context.tracker.apart())
        own._shared = dict(self._shared)
        return own

    def learn(self, description: FormatDescription) -> None:
        """Set the FORMAT_DESCRIPTION that a starting server wrote; it applies to the groups after it."""
        self.context.description = self._shared[DESCRIBED] = description

    def lose(self) -> None:
        """Record that groups are missing, and with them perhaps a DDL statement."""
        self.context.tracker.lose()

    def describe(self, batch: Batch, start: int, stop: int) -> Described:
        """Return the envelopes of events."""
        return meaning.describe(self.context, batch, start, stop)

    def bodies(self, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
        """Decode the bodies of events."""
        return meaning.bodies(self.context, batch, start, stop, limits)

    def extras(self, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
        """Return the common headers of events."""
        return meaning.extras(self.context, batch, start, stop)


class EventAssembler:
    """`Assembler` of the events of groups, from their COMMIT records.

    A batch has the events of many groups without out-of-band data, or of one group with it.
    """

    def __init__(self, context: FileContext, records: Assembler, compile_: Callable[[Kernel], Kernel]) -> None:
        self._records = records
        self._groups, self._plain = Groups(context), PlainGroups(compile_)
        self.events = context.events = Events(context)

    @property
    def count(self) -> int:
        """Number of the next record."""
        return self._records.count

    def feed(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the events of the groups whose COMMIT records end in these pages."""
        yield from self._of(self._records.feed(batch))

    def damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """Yield the events of groups before skipped pages."""
        yield from self._of(self._records.damage(start, end))
        self.events.lose()

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        yield from self._of(self._records.finish())

    def _of(self, made: Iterator[Batch | Finding]) -> Iterator[Batch | Finding]:
        for one in made:
            if isinstance(one, Finding):
                yield self._missing(one)
            else:
                yield from self._groups_of(one)

    def _groups_of(self, records: Batch) -> Iterator[Batch | Finding]:
        at = 0
        while at < records.frames.count:
            events, at = self._plain.of(records, at)
            if events is not None:
                yield events
            if at < records.frames.count:
                group = self._groups.at(records, at)
                yield from [self._missing(group)] if isinstance(group, Finding) else self.events_of(group)
                at += 1

    def _missing(self, found: Finding) -> Finding:
        if found.severity is Severity.ERROR:
            self.events.lose()
        return found

    def events_of(self, group: EventGroup) -> Iterator[Batch | Finding]:
        """Yield the events of a group, and findings about them."""
        if group.problem is not None:
            yield group.problem
        columns, end = self._columns(group.data)
        count = len(columns["offset"])
        if count:
            places = RecordPlaces(*([one] * count for one in (group.place.offset, group.size, group.record, 0)))
            yield events_in(memoryview(group.data), columns, places)
        if end < len(group.data):
            text = f"event-misaligned: {len(group.data) - end:,} bytes behind event {count} of the group are no event"
            found = finding(
                "payload-undecodable", group.place.offset, group.size, text, record=group.record,
                diagnosis="event-misaligned", inner_offset=end,
            )  # fmt: skip
            yield self._missing(found)

    def _columns(self, data: bytes) -> tuple[dict[str, array[int]], int]:
        """Return the consecutive events in the bytes as columns, and where they end."""
        columns = {name: array("q") for name in NAMES}
        add = [columns[name].append for name in NAMES]
        at, size = 0, len(data)
        while size - at >= HEADER_SIZE:
            time, code, server, length, position, flags = _head(data, at)
            if not HEADER_SIZE <= length <= size - at:
                break
            end = at + length
            stop = end - self._tail(data[at:end]) if code == _DESCRIPTION else end
            values = (at, end, 0, time, code, server, length, position, flags, at + HEADER_SIZE, stop, 0)
            for put, value in zip(add, values, strict=True):
                put(value)
            at = end
        return columns, at

    def _tail(self, event: bytes) -> int:
        """Apply a FORMAT_DESCRIPTION; returns the size of the checksum after it."""
        try:
            description = parse_description(event)
        except MalformedError:
            return 0
        self.events.learn(description)
        return CHECKSUM_SIZE if knows_checksums(description.server_version) else 0


def event_assembler(
    context: FileContext, records: Callable[[Callable[[Kernel], Kernel]], Assembler]
) -> Callable[[Callable[[Kernel], Kernel]], Assembler]:
    """Return the function that creates an `EventAssembler`, for `FileLayout.make_assembler` at level `event`."""

    def make(compile_: Callable[[Kernel], Kernel]) -> Assembler:
        return EventAssembler(context, records(compile_), compile_)

    return make
