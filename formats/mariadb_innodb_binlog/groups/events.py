"""Level `event`: the events of the groups, in commit order, decoded like those of a classic binary log.

See docs/spec/mariadb_innodb_binlog.md#payload-events.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import CHECKSUM_SIZE, HEADER_SIZE, ChecksumAlgorithm, EventType
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory
from binlogtool.formats.binlog_events.groups.groups import TransactionGroups as Transactions
from binlogtool.formats.binlog_events.groups.tracking import (
    NO_OWNER,
    NO_RECORD,
    EventTracker,
    TableMaps,
    TrackedBatch,
    TransactionOwner,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.stream import meaning
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext as EventContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description, supports_checksums
from binlogtool.formats.derived import make_unpacker
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Assembler, Batch, Kernel, RecordPositions
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import CommitGroupReader, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.groups.plain_groups import (
    EVENT_COLUMNS,
    PlainGroupReader,
    make_event_batch,
)
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.mariadb_innodb_binlog.schema import EVENT
from binlogtool.limits import Limits

_unpack_event_header = make_unpacker(EVENT, "timestamp", "type_code", "server_id", "event_size", "end_log_pos", "flags")
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)

DESCRIPTION_KEY = "mariadb-innodb-binlog.description"
"""Where the files of a log share the FORMAT_DESCRIPTION that holds."""

DEFAULT_DESCRIPTION = FormatDescription(4, "12.3.0-MariaDB", 0, HEADER_SIZE, b"", ChecksumAlgorithm.NONE.value)
"""What holds where the log says nothing: an empty log begins without FORMAT_DESCRIPTION."""


class _GroupTracker(EventTracker):
    """Tracks transactions and table maps of groups, each for itself.

    Only definitions of tables are carried from one group to the next. `owner` is that of the group's first event: a
    group may hold several events that are complete in themselves.
    """

    _batch: Batch | None = None

    def track_batch(self, batch: Batch) -> TrackedBatch:
        """Return the owners and table maps of the events of whole groups."""
        if batch is not self._batch:
            self.container_record = NO_RECORD
            self._last_notes = (
                self.compiled_tracker(batch)
                if self.compiled_tracker
                else self.track_records(batch, 0, batch.frames.count)
            )
            self._batch = batch
        return self._last_notes

    def track_records(self, batch: Batch, start: int, stop: int) -> TrackedBatch:
        """See `Tracker`."""
        owners, maps = list[TransactionOwner](), list[TableMap | None]()
        for group, events in groupby(batch.record_numbers(start, stop)):
            stop, owner, begins = start + len(list(events)), self.current_owner, group != self.container_record
            if begins:
                self.container_record, self.transactions, self.current_owner = group, Transactions(), NO_OWNER
                self.maps.by_id.clear()
            group_owners, group_maps = super().track_records(batch, start, stop)
            self.current_owner = group_owners[0] if begins else owner
            owners += [self.current_owner] * len(group_owners)
            maps += group_maps
            start = stop
        return TrackedBatch(owners, maps)

    def copy(self) -> _GroupTracker:
        """Return an independent copy."""
        return _make_tracker(None if self.maps.history is None else self.maps.history.copy())


def _make_tracker(history: TableHistory | None) -> _GroupTracker:
    return _GroupTracker(maps=TableMaps(6, is_mariadb=True, history=history), container_record=NO_RECORD)


class GroupEventDecoder:
    """Describes and decodes the events of one file's groups."""

    def __init__(self, context: IbbFileContext) -> None:
        history = None if context.hints.as_stored else TableHistory(context.hints.schema, context.earlier)
        if history is not None and context.declared:
            history.import_state(context.declared)
        tracker = _make_tracker(history)
        description = context.shared.get(DESCRIPTION_KEY, DEFAULT_DESCRIPTION)
        self.context = EventContext(description, tracker, events_at=0, name=context.name, hints=context.hints)
        self._shared = context.shared

    def fork(self) -> GroupEventDecoder:
        """Return an independent copy."""
        clone = copy(self)
        clone.context = replace(self.context, tracker=self.context.tracker.copy())
        clone._shared = dict(self._shared)
        return clone

    def set_description(self, description: FormatDescription) -> None:
        """Set the FORMAT_DESCRIPTION that a starting server wrote; it applies to the groups after it."""
        self.context.description = self._shared[DESCRIPTION_KEY] = description

    def add_gap(self) -> None:
        """Record that groups are missing, and with them perhaps a DDL statement."""
        self.context.tracker.reset()

    def describe(self, batch: Batch, start: int, stop: int) -> EnvelopeColumns:
        """Return the envelopes of events."""
        return meaning.describe_events(self.context, batch, start, stop)

    def bodies(self, batch: Batch, start: int, stop: int, limits: Limits) -> list[Any]:
        """Decode the bodies of events."""
        return meaning.decode_bodies(self.context, batch, start, stop, limits)

    def extras(self, batch: Batch, start: int, stop: int) -> list[Mapping[str, Any] | None]:
        """Return the common headers of events."""
        return meaning.header_extras(self.context, batch, start, stop)


class EventAssembler:
    """`Assembler` of the events of groups, from their COMMIT records.

    A batch has the events of many groups without out-of-band data, or of one group with it.
    """

    def __init__(self, context: IbbFileContext, records: Assembler, compile_kernel: Callable[[Kernel], Kernel]) -> None:
        self._records = records
        self._groups, self._plain_groups = CommitGroupReader(context), PlainGroupReader(compile_kernel)
        self.events = context.events = GroupEventDecoder(context)

    @property
    def next_number(self) -> int:
        """Number of the next record."""
        return self._records.next_number

    def feed(self, batch: Batch) -> Iterator[Batch | Finding]:
        """Yield the events of the groups whose COMMIT records end in these pages."""
        yield from self._convert_records(self._records.feed(batch))

    def skip_damage(self, start: int, end: int) -> Iterator[Batch | Finding]:
        """Yield the events of groups before skipped pages."""
        yield from self._convert_records(self._records.skip_damage(start, end))
        self.events.add_gap()

    def finish(self) -> Iterator[Batch | Finding]:
        """Yield the events of the group whose COMMIT record continues in the next file."""
        yield from self._convert_records(self._records.finish())

    def _convert_records(self, batches: Iterator[Batch | Finding]) -> Iterator[Batch | Finding]:
        for item in batches:
            if isinstance(item, Finding):
                yield self._note_missing_group(item)
            else:
                yield from self._convert_batch(item)

    def _convert_batch(self, records: Batch) -> Iterator[Batch | Finding]:
        index = 0
        while index < records.frames.count:
            events, index = self._plain_groups.read_groups(records, index)
            if events is not None:
                yield events
            if index < records.frames.count:
                group = self._groups.read_group(records, index)
                yield from (
                    [self._note_missing_group(group)] if isinstance(group, Finding) else self.iter_group_events(group)
                )
                index += 1

    def _note_missing_group(self, problem: Finding) -> Finding:
        if problem.severity is Severity.ERROR:
            self.events.add_gap()
        return problem

    def iter_group_events(self, group: EventGroup) -> Iterator[Batch | Finding]:
        """Yield the events of a group, and findings about them."""
        if group.problem is not None:
            yield group.problem
        columns, end = self._event_columns(group.data)
        count = len(columns["offset"])
        if count:
            places = RecordPositions(*([one] * count for one in (group.position.offset, group.size, group.record, 0)))
            yield make_event_batch(memoryview(group.data), columns, places)
        if end < len(group.data):
            text = f"event-misaligned: {len(group.data) - end:,} bytes behind event {count} of the group are no event"
            problem = make_finding(
                "payload-undecodable", group.position.offset, group.size, text, record=group.record,
                diagnosis="event-misaligned", inner_offset=end,
            )  # fmt: skip
            yield self._note_missing_group(problem)

    def _event_columns(self, data: bytes) -> tuple[dict[str, array[int]], int]:
        """Return the consecutive events in the bytes as columns, and where they end."""
        columns = {name: array("q") for name in EVENT_COLUMNS}
        append_to = [columns[name].append for name in EVENT_COLUMNS]
        offset, size = 0, len(data)
        while size - offset >= HEADER_SIZE:
            time, code, server, length, position, flags = _unpack_event_header(data, offset)
            if not HEADER_SIZE <= length <= size - offset:
                break
            end = offset + length
            stop = end - self._read_description(data[offset:end]) if code == _FORMAT_DESCRIPTION else end
            values = (offset, end, 0, time, code, server, length, position, flags, offset + HEADER_SIZE, stop, 0)
            for append, value in zip(append_to, values, strict=True):
                append(value)
            offset = end
        return columns, offset

    def _read_description(self, event: bytes) -> int:
        """Apply a FORMAT_DESCRIPTION; returns the size of the checksum after it."""
        try:
            description = parse_description(event)
        except MalformedError:
            return 0
        self.events.set_description(description)
        return CHECKSUM_SIZE if supports_checksums(description.server_version) else 0


def make_event_assembler(
    context: IbbFileContext, records: Callable[[Callable[[Kernel], Kernel]], Assembler]
) -> Callable[[Callable[[Kernel], Kernel]], Assembler]:
    """Return the function that creates an `EventAssembler`, for `LogFileLayout.make_assembler` at level `event`."""

    def make_assembler(compile_kernel: Callable[[Kernel], Kernel]) -> Assembler:
        return EventAssembler(context, records(compile_kernel), compile_kernel)

    return make_assembler
