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
from binlogtool.formats.binlog_events.events.event import event_at
from binlogtool.formats.binlog_events.events.writing import description_body, event, reframed, started
from binlogtool.formats.binlog_events.sql.statements import script as script_of_events
from binlogtool.formats.binlog_events.stream.context import FileContext as EventContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription, parse_description
from binlogtool.formats.described import Noted
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.scripting import Script, Wording
from binlogtool.formats.unrolled import Unrolled
from binlogtool.limits import Limits


class GroupStatements(msgspec.Struct):
    """`ScriptWriter` of batches of events.

    Attributes:
        _descriptions: the description in the log, and the one passed to `writer`, which many files may share.
        _contexts: the context of a file, and the one passed to `writer`.
    """

    writer: Script
    _described: tuple[FormatDescription, FormatDescription] | None = None
    _own: tuple[EventContext, EventContext] | None = None

    def records(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """Return the text for each event.

        Raises:
            UsageError: the records are not events.
        """
        if context.events is None:
            raise UsageError(f"--level {context.level}: such records are no statements; --level event has them")
        return self.writer.records(self._told(context.events.context, batch, start), batch, start, stop, limits)

    def _told(self, own: EventContext, batch: Batch, start: int) -> EventContext:
        """Return the context of these events, with the FORMAT_DESCRIPTION of a classic binary log."""
        said = own.description
        if self._described is None or self._described[0] is not said:
            self._described = said, _whole(said, batch, start)
        told = self._described[1]
        if self._own is None or self._own[0] is not own or self._own[1].description is not told:
            self._own = own, replace(own, description=told)
        return self._own[1]

    @property
    def stopped(self) -> Finding | None:
        """See `formats.scripting.Script`."""
        return self.writer.stopped

    def quick(
        self,
        context: FileContext,
        batch: Batch | Unrolled,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return nothing: the events have no checksums, which compiled code would copy."""
        return b"", start

    def pass_by(self, context: FileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """See `formats.scripting.Script`."""
        if context.events is not None:
            self.writer.pass_by(context.events.context, batch, start, stop, limits)

    @property
    def row_changes(self) -> int | None:
        """See `formats.scripting.Script`."""
        return self.writer.row_changes

    @property
    def is_empty(self) -> bool:
        """See `formats.scripting.Script`."""
        return self.writer.is_empty

    def lost(self, what: str = "") -> bytes:
        """See `formats.scripting.Script`."""
        return self.writer.lost(what)

    def end(self) -> bytes:
        """See `formats.scripting.Script`."""
        return self.writer.end()

    def remarks(self) -> Sequence[Finding]:
        """See `formats.scripting.Script`."""
        return self.writer.remarks()


def _whole(said: FormatDescription, batch: Batch, start: int) -> FormatDescription:
    """Return the description with its event as the server that wrote the group of event `start` would write it."""
    first = event_at(batch, next(i for i in range(start, -1, -1) if not batch.inner_of(i)))
    body = description_body(started(said, said.create_timestamp))
    return parse_description(reframed(event(EventType.FORMAT_DESCRIPTION, first.time, first.server, body), len(MAGIC)))


def script(wording: Wording) -> GroupStatements:
    """See `formats.base.Output.sql`."""
    return GroupStatements(script_of_events(wording))
