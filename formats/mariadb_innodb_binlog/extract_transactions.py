"""Transactions of a log for other log formats, and events of a log as SQL scripts.

See docs/spec/mariadb_innodb_binlog.md#payload-events.

The events are those of a classic binary log, but without checksums and positions. For scripts, row events get both, and
the FORMAT_DESCRIPTION of a classic binary log precedes them, as in `convert --to mysql-binlog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.row_output_interfaces import PortableEventGroup, PriorGtids, ScriptOptions, ScriptWriter
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.event_schemas import get_event
from binlogtool.formats.binlog_events.sql.script import create_script as script_of_events
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    MAGIC,
    EventType,
    FormatDescription,
    parse_format_description,
)
from binlogtool.formats.binlog_events.write_mariadb_binlog import (
    add_position_and_checksum,
    encode_description_body,
    encode_event,
    make_description_for_new_file,
    split_events,
)
from binlogtool.formats.mariadb_innodb_binlog.event_groups import CommitGroupReader, EventGroup
from binlogtool.formats.mariadb_innodb_binlog.records.parse_records import parse_gtid_state
from binlogtool.formats.mariadb_innodb_binlog.schema import IbbFileContext, IbbRecordType

if TYPE_CHECKING:
    from binlogtool.format_api.format import BodyWithFindings
    from binlogtool.format_api.layout import Batch, FlatRecords, Kernel, LogFileLayout
    from binlogtool.formats.binlog_events.decode import BinlogFileContext as EventContext
    from binlogtool.limits import Limits

# --- Event groups and GTID states for other log formats ---

_COMMIT, _STATE = int(IbbRecordType.COMMIT), int(IbbRecordType.GTID_STATE)


class IbbEventGroupReader:
    """Event-group reader of one file (`format_api.row_output_interfaces.EventGroupReader`), fed with record batches."""

    def __init__(self, layout: LogFileLayout, limits: Limits) -> None:
        self._context: IbbFileContext = layout.context
        self._groups = CommitGroupReader(self._context)

    def read_groups(self, batch: Batch) -> Iterator[PortableEventGroup | PriorGtids | Finding]:
        """Yield the event groups and GTID states of a batch."""
        codes = batch.frames["type_code"]
        for index in range(batch.frames.count):
            if codes[index] == _COMMIT:
                group = self._groups.read_group(batch, index)
                yield group if isinstance(group, Finding) else _make_portable_group(group)
            elif codes[index] == _STATE:
                yield from self._iter_gtid_state_of_record(batch, index)

    def _iter_gtid_state_of_record(self, batch: Batch, index: int) -> Iterator[PriorGtids]:
        """Yield the GTID state of a state record; nothing if it cannot be parsed (the validator reports that)."""
        assert batch.positions is not None
        try:
            state = parse_gtid_state(batch.record_bytes(index))
        except MalformedError:
            return
        yield PriorGtids(state.gtids, int(batch.positions[0][index]) // self._context.page_size == 1)

    def skip_damage(self, start: int, end: int) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing: a group lies in one COMMIT record, so no group is open."""
        yield from ()

    def finish(self) -> Iterator[PortableEventGroup | Finding]:
        """Yield nothing: no group is open."""
        yield from ()


def _make_portable_group(group: EventGroup) -> PortableEventGroup | Finding:
    gtid, head = group.gtid, group.head
    if group.problem is not None:
        return group.problem
    try:
        events = split_events(group.data)
    except MalformedError as error:
        return _report_misaligned(group, str(error.args[0]))
    if not events:
        return _report_misaligned(group, "the group has no event")
    return PortableEventGroup(
        offset=group.position.offset,
        size=group.size,
        record=group.record,
        type=EVENT_TYPE_NAMES.get(head.type_code or 0, "UNKNOWN"),
        txn=None if gtid is None else str(gtid),
        seq=None if gtid is None else gtid.seq_no,
        time=head.time,
        origin=head.server_id,
        events=tuple(events),
    )


def _report_misaligned(group: EventGroup, reason: str) -> Finding:
    problem = make_finding("payload-undecodable", group.position.offset, group.size, f"{reason}")
    gtid = None if group.gtid is None else str(group.gtid)
    return replace(problem, record=group.record, facts={"diagnosis": "event-misaligned", "gtid": gtid})


# --- The log as SQL statements ---


class GroupScriptWriter(msgspec.Struct):
    """`ScriptWriter` of batches of events.

    `_descriptions`: pairs of the description in the log and the one passed to `writer`, which many files may share.
    `_contexts`: pairs of the context of a file and the one passed to `writer`.
    """

    writer: ScriptWriter
    _descriptions: tuple[FormatDescription, FormatDescription] | None = None
    _contexts: tuple[EventContext, EventContext] | None = None

    def make_record_texts(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each event. Raises UsageError: the records are not events."""
        if context.events is None:
            raise UsageError(f"--level {context.level}: records of this level have no statements; use --level event")
        return self.writer.make_record_texts(
            self._writer_context(context.events.context, batch, start), batch, start, stop, limits
        )

    def _writer_context(self, file_context: EventContext, batch: Batch, start: int) -> EventContext:
        """Return the context of these events, with the FORMAT_DESCRIPTION of a classic binary log."""
        log_description = file_context.description
        if self._descriptions is None or self._descriptions[0] is not log_description:
            self._descriptions = log_description, _rebuild_description_event(log_description, batch, start)
        writer_description = self._descriptions[1]
        if (
            self._contexts is None
            or self._contexts[0] is not file_context
            or self._contexts[1].description is not writer_description
        ):
            self._contexts = file_context, replace(file_context, description=writer_description)
        return self._contexts[1]

    @property
    def has_open_transaction(self) -> bool:
        """True if a selected transaction has begun and its end was not read."""
        return self.writer.has_open_transaction

    @property
    def stop_finding(self) -> Finding | None:
        """Reason why nothing more is written although the log continues; None = writing was not stopped."""
        return self.writer.stop_finding

    def write_until_unsupported(
        self,
        context: IbbFileContext,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return no text: compiled code copies checksums, and these events have none."""
        return b"", start

    def note_unselected_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> None:
        """Process records that are not selected; called in log order with the others."""
        if context.events is not None:
            self.writer.note_unselected_records(context.events.context, batch, start, stop, limits)

    @property
    def row_changes(self) -> int | None:
        """Number of row changes written; None = they are not counted."""
        return self.writer.row_changes

    @property
    def is_empty(self) -> bool:
        """True if nothing has been written so far."""
        return self.writer.is_empty

    def write_text_for_gap(self, what: str = "") -> bytes:
        """Return the text for a gap in the records: an open transaction must not be committed."""
        return self.writer.write_text_for_gap(what)

    def finish(self) -> bytes:
        """Return the text after the last record."""
        return self.writer.finish()

    def final_findings(self) -> Sequence[Finding]:
        """Return the findings that are only known at the end."""
        return self.writer.final_findings()


def _rebuild_description_event(description: FormatDescription, batch: Batch, start: int) -> FormatDescription:
    """Return the description with its event in the form of the server that wrote the group of event `start`."""
    first = get_event(batch, next(i for i in range(start, -1, -1) if not batch.inner_offset(i)))
    body = encode_description_body(make_description_for_new_file(description, description.create_timestamp))
    return parse_format_description(
        add_position_and_checksum(
            encode_event(EventType.FORMAT_DESCRIPTION, first.time, first.server_id, body), len(MAGIC)
        )
    )


def make_group_script(wording: ScriptOptions) -> GroupScriptWriter:
    """Create the writer of the log as SQL statements."""
    return GroupScriptWriter(script_of_events(wording))
