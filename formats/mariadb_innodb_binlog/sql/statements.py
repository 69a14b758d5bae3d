"""Write the log as SQL statements that a server accepts: those of the events in its groups (`binlog_events.sql`).

The events are those of a classic binary log, without checksums and positions of their own: row events get both, and
before them comes the FORMAT_DESCRIPTION of a binary log with these events, as in `convert --to mysql-binlog`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import MAGIC, EventType
from binlogtool.formats.binlog_events.events.event import get_event
from binlogtool.formats.binlog_events.events.writing import (
    description_for_new_file,
    encode_description_body,
    encode_event,
    reframe_event,
)
from binlogtool.formats.binlog_events.sql.statements import create_script as script_of_events
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext as EventContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.described import BodyWithFindings
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext
from binlogtool.formats.scripting import ScriptOptions, ScriptWriter
from binlogtool.formats.unrolled import FlatRecords
from binlogtool.limits import Limits


class GroupStatements(msgspec.Struct):
    """`ScriptWriter` of batches of events.

    Attributes:
        _descriptions: the description in the log, and the one passed to `writer`, which many files may share.
        _contexts: the context of a file, and the one passed to `writer`.
    """

    writer: ScriptWriter
    _descriptions: tuple[FormatDescription, FormatDescription] | None = None
    _contexts: tuple[EventContext, EventContext] | None = None

    def read_records(
        self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each event.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records are no statements; --level event has them")
        return self.writer.read_records(
            self._writer_context(context.events.context, batch, start), batch, start, stop, limits
        )

    def _writer_context(self, file_context: EventContext, batch: Batch, start: int) -> EventContext:
        """Return the context of these events, with the FORMAT_DESCRIPTION of a classic binary log."""
        log_description = file_context.description
        if self._descriptions is None or self._descriptions[0] is not log_description:
            self._descriptions = log_description, _encode_description(log_description, batch, start)
        writer_description = self._descriptions[1]
        if (
            self._contexts is None
            or self._contexts[0] is not file_context
            or self._contexts[1].description is not writer_description
        ):
            self._contexts = file_context, replace(file_context, description=writer_description)
        return self._contexts[1]

    @property
    def stop_finding(self) -> Finding | None:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.stop_finding

    def write_compiled(
        self,
        context: IbbFileContext,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return nothing: the events have no checksums, which compiled code would copy."""
        return b"", start

    def skip_records(self, context: IbbFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """See `formats.scripting.ScriptWriter`."""
        if context.events is not None:
            self.writer.skip_records(context.events.context, batch, start, stop, limits)

    @property
    def row_changes(self) -> int | None:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.row_changes

    @property
    def is_empty(self) -> bool:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.is_empty

    def note_gap(self, what: str = "") -> bytes:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.note_gap(what)

    def finish(self) -> bytes:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.finish()

    def final_findings(self) -> Sequence[Finding]:
        """See `formats.scripting.ScriptWriter`."""
        return self.writer.final_findings()


def _encode_description(description: FormatDescription, batch: Batch, start: int) -> FormatDescription:
    """Return the description with its event as the server that wrote the group of event `start` would write it."""
    first = get_event(batch, next(i for i in range(start, -1, -1) if not batch.inner_offset(i)))
    body = encode_description_body(description_for_new_file(description, description.create_timestamp))
    return parse_description(
        reframe_event(encode_event(EventType.FORMAT_DESCRIPTION, first.time, first.server_id, body), len(MAGIC))
    )


def make_group_script(wording: ScriptOptions) -> GroupStatements:
    """See `formats.base.Output.sql`."""
    return GroupStatements(script_of_events(wording))
