"""Row events in a script: as BINLOG statements with their own bytes, or as INSERT, UPDATE and DELETE."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.formats.binlog_events.codes import COMPRESSED_ROW_EVENTS, HEADER_SIZE, EventType
from binlogtool.formats.binlog_events.ddl.knowledge import TableKnowledge
from binlogtool.formats.binlog_events.groups.marks import STMT_END
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TransactionOwner
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.binlog import (
    MAX_BINLOG_BYTES,
    PendingRowEvents,
    Statement,
    build_event,
    build_table_map_event,
    format_rows_binlog,
    split_large_binlog,
    uncompress_rows,
)
from binlogtool.formats.binlog_events.sql.renames import rename_database
from binlogtool.formats.binlog_events.sql.rows import HAS_TRIGGERS, Inexact, format_row_statements
from binlogtool.formats.binlog_events.sql.scene import EventContext, Unwritable
from binlogtool.formats.binlog_events.sql.session import ScriptSession
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.header import TYPE_AT
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.scripting import ScriptOptions
from binlogtool.limits import Limits


class RowEventWriter(msgspec.Struct):
    """Writer of the row events of a script.

    `reported` holds (table, reason) of what was already reported as not written as statements although that was
    requested.
    """

    wording: ScriptOptions
    session: ScriptSession
    knowledge: TableKnowledge = msgspec.field(default_factory=TableKnowledge)
    reported: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _filling_owner: tuple[int, TransactionOwner] = (0, NO_OWNER)
    _pending: PendingRowEvents = msgspec.field(default_factory=PendingRowEvents)

    def write_event(self, context: EventContext) -> tuple[Sequence[Statement], str | None]:
        """Return the statements that can be written now, and what is inexact about them (None if nothing is).

        Raises:
            Unwritable, MalformedError, DecompressionError: the event cannot be written.
        """
        table = self._require_table(context)
        if table is None:
            return self.flush(context.file.description), None
        if self.wording.includes_table is not None and not self.wording.includes_table(table.qualified_name):
            return [], None
        if context.left_out:
            is_last = context.event.body[table.table_id_size] & STMT_END
            return self.flush(context.file.description) if is_last else [], None
        if self.wording.rows == "statements":
            return ([], None) if context.event.code == EventType.TABLE_MAP else self._write_statements(context, table)
        table = rename_database(table, self.wording.rename_databases)
        return self._add_table_map(
            context, table
        ) if context.event.code == EventType.TABLE_MAP else self._add_row_event(context, table), None

    def _require_table(self, context: EventContext) -> TableMap | None:
        """Return the table of a row event; None if the event only ends its statement.

        Raises:
            Unwritable: the TABLE_MAP is missing or cannot be read.
            MalformedError: the event has no flags.
        """
        size = context.file.description.table_id_size
        if context.event.code != EventType.TABLE_MAP and len(context.event.body) < size + 2:
            raise MalformedError("the row event is cut short")
        if context.table is not None:
            return context.table
        if context.event.code == EventType.TABLE_MAP:
            raise Unwritable("it cannot be read")
        if int.from_bytes(context.event.body[:size], "little") == DUMMY_TABLE_ID:
            return None
        raise Unwritable("its TABLE_MAP is missing")

    # -- exact ---------------------------------------------------------------------------------------------------------

    def _add_table_map(self, context: EventContext, table: TableMap) -> Sequence[Statement]:
        """Keep a TABLE_MAP until the rows of its statement; return what ends before it."""
        statements = self.flush(context.file.description) if self._pending.last_event else []
        self._pending.table_maps[table.table_id] = self._frame_event(context, table.body)
        return statements

    @staticmethod
    def _frame_event(context: EventContext, body: bytes | None = None) -> bytes:
        """Return the event as a server with the log's FORMAT_DESCRIPTION reads it.

        Args:
            context: the event.
            body: a body to use in place of the event's own.
        """
        event, description = context.event, context.file.description
        if _checksum_size(context) == (4 if description.has_checksums else 0) and (body is None or body == event.body):
            return bytes(context.raw)
        return build_event(event, event.code, bytes(event.body) if body is None else body, description)

    def _add_row_event(self, context: EventContext, table: TableMap) -> Sequence[Statement]:
        """Add a row event to the pending BINLOG statement and return the statements that are complete."""
        event, description, pending = context.event, context.file.description, self._pending
        _check_rows(event.code, event.body, table, context.limits)
        statements: list[Statement] = []
        if table.table_id not in pending.table_maps:
            statements = [*pending.write_binlog(description)]
            pending.table_maps[table.table_id] = build_table_map_event(event, table, description)
        if event.code in COMPRESSED_ROW_EVENTS:
            code, uncompressed = uncompress_rows(event, context.limits, table.table_id_size)
            data: bytes | memoryview = build_event(event, code, uncompressed, description)
        else:
            data = self._frame_event(context)
        if pending.last_event and pending.size + len(data) > MAX_BINLOG_BYTES:
            statements += pending.write_binlog(description)
        pending.add(data)
        return [
            *statements,
            *(pending.finish_statement(description) if event.body[table.table_id_size] & STMT_END else ()),
        ]

    def append_unchanged(
        self, raw: memoryview, table: TableMap | None, description: FormatDescription, limits: Limits
    ) -> bool:
        """Append a row event unchanged if its statement is open and continues after it; return whether that was done.

        Raises:
            MalformedError: its rows do not fit its TABLE_MAP.
        """
        pending, at = self._pending, HEADER_SIZE + description.table_id_size
        is_open = bool(pending.last_event) and int.from_bytes(raw[HEADER_SIZE:at], "little") in pending.table_maps
        if not is_open or table is None or raw[at] & STMT_END or pending.size + len(raw) > MAX_BINLOG_BYTES:
            return False
        _check_rows(raw[TYPE_AT], raw[HEADER_SIZE:-4], table, limits)
        pending.add(raw)
        return True

    @property
    def is_verbatim(self) -> bool:
        """True if all row events are written unchanged."""
        wording = self.wording
        return (
            wording.rows == "exact"
            and wording.includes_table is None
            and not (wording.comments or wording.rename_databases)
        )

    @property
    def open_statement(self) -> PendingRowEvents | None:
        """The statement that is open and whose row events are written unchanged; None if there is none."""
        return self._pending if self._pending.last_event and self.is_verbatim else None

    def copy_borrowed_bytes(self) -> None:
        """Copy what still refers to the current batch, so that its memory may be released."""
        self._pending.copy_last_event()

    def flush(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the pending events as a statement although their own statement continues.

        The events that follow are not selected.
        """
        return self._pending.finish_statement(description)

    @property
    def is_empty(self) -> bool:
        """True if nothing waits for the end of its statement."""
        return not self._pending.table_maps and not self._pending.last_event

    def discard(self) -> None:
        """Forget the pending events: their transaction is rolled back."""
        self._pending = PendingRowEvents()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _write_statements(self, context: EventContext, table: TableMap) -> tuple[Sequence[Statement], str | None]:
        """Return the rows of an event as INSERT, UPDATE and DELETE, or as BINLOG with the reason."""
        event, description = context.event, context.file.description
        if not count_rows(event.code, event.body, table, context.limits):  # raises where the event does not fit its map
            return [], None
        table = self.knowledge.describe_with_key(table)
        reason, caveat = self.knowledge.reason_against_statements(table, description), self.knowledge.find_caveat(table)
        table = rename_database(table, self.wording.rename_databases)
        if self._is_filling_new_table(context):
            return [format_rows_binlog(event, table, description, context.limits)], None
        try:
            statements = format_row_statements(event.code, event.body, table, context.limits) if reason is None else []
        except Inexact as error:
            reason, statements = str(error), []
        if (
            reason is not None
        ):  # MariaDB's maps say themselves that a table has triggers: its rows were never statements
            report = None if table.flags & HAS_TRIGGERS else self._report_once(table, reason)
            return split_large_binlog(
                format_rows_binlog(event, table, description, context.limits), description
            ), report
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        return [*self.session.set_for_rows(flags, event.time, description), *statements], self._report_once(
            table, caveat
        )

    def _is_filling_new_table(self, context: EventContext) -> bool:
        """Return whether these rows fill a table that is being created; a server accepts only row events there."""
        filling = self.knowledge.filling
        if filling and self._filling_owner[0] != filling:
            self._filling_owner = (filling, context.owner)
        if filling and self._filling_owner[1] != context.owner:
            self.knowledge.filling = 0
        return self.knowledge.filling > 0

    def is_unreported(self, table: TableMap, reason: str | None) -> bool:
        """Return whether this reason was not yet reported for the table."""
        return reason is not None and (table.qualified_name, reason) not in self.reported

    def _report_once(self, table: TableMap, reason: str | None) -> str | None:
        """Return the reason with the table's name the first time, None afterwards."""
        if reason is None or not self.is_unreported(table, reason):
            return None
        self.reported.add((table.qualified_name, reason))
        return f"{table.qualified_name}: {reason}"


def _check_rows(code: int, body: bytes | memoryview, table: TableMap, limits: Limits) -> None:
    """Check that rows fit their TABLE_MAP; a server stops at an event whose rows do not.

    Old table maps that do not say how long some values are cannot be checked.

    Raises:
        MalformedError, DecompressionError: the rows do not fit.
    """
    try:
        count_rows(code, body, table, limits)
    except MalformedError:
        if not table.has_unknown_fractions:
            raise


def _checksum_size(context: EventContext) -> int:
    """Return the number of checksum bytes at the end of the event."""
    return len(context.raw) - HEADER_SIZE - len(context.event.body)
