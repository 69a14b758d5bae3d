"""The log as statements that a server accepts: `dump -O sql` (`ScriptWriter`).

Statements come out as they were logged, in the session that the log describes; row events as BINLOG or, on
request, as INSERT, UPDATE and DELETE; all in the order in which the servers' own tools write them. A
transaction of which a part is lost is rolled back: its statements up to there are already in the script,
the rest is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import (
    COMPRESSED_ROW_EVENTS,
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.events.event import get_event
from binlogtool.formats.binlog_events.groups.groups import GroupStep
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import EVENTS_OUTSIDE_GROUPS
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TransactionOwner
from binlogtool.formats.binlog_events.rows.rows import count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import Statement, build_event, terminate_statements
from binlogtool.formats.binlog_events.sql.choice import PartialTransactions, event_finding
from binlogtool.formats.binlog_events.sql.comments import format_row_comments, format_statement_comments
from binlogtool.formats.binlog_events.sql.frame import sanitize_line
from binlogtool.formats.binlog_events.sql.quick import FastScriptWriter
from binlogtool.formats.binlog_events.sql.scene import (
    EventContext,
    Unwritable,
    format_event_comment,
    get_event_context,
    read_query,
)
from binlogtool.formats.binlog_events.sql.session import find_doubt
from binlogtool.formats.binlog_events.sql.transaction import FINISHING_STATEMENTS, get_statement_kind
from binlogtool.formats.binlog_events.sql.where import select_rows_by_filter
from binlogtool.formats.binlog_events.sql.writers import EVENT_WRITERS, STATEMENT_EVENTS, EventStatementWriter
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import decode_status_variables
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.described import BodyWithFindings
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError, Kernel
from binlogtool.formats.scripting import ScriptOptions
from binlogtool.formats.unrolled import FlatRecords
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.undo import FlashbackScript

_T = EventType
_EVENTS_WITHOUT_STATEMENT = EVENTS_OUTSIDE_GROUPS - {_T.INCIDENT} | {
    _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE,
}  # fmt: skip
_ROW_EVENTS = ROW_EVENTS | {_T.TABLE_MAP}
_CHANGE_EVENTS = ROW_EVENTS | {_T.QUERY, _T.QUERY_COMPRESSED, _T.EXECUTE_LOAD_QUERY}
_COMMIT_EVENTS = frozenset({_T.XID, _T.XA_PREPARE})
_UNCOMPRESSED_ROWS = ROW_EVENTS - COMPRESSED_ROW_EVENTS


@dataclass(slots=True)
class SqlScript(EventStatementWriter):
    """Script that replays the selected events of a log."""

    row_changes: int | None = None
    """See `formats.scripting.ScriptWriter`: of scripts that have only some of the rows."""
    is_empty: bool = True
    """See `formats.scripting.ScriptWriter`."""
    partial_transactions: PartialTransactions = field(default_factory=PartialTransactions)
    _fast_path: tuple[BinlogFileContext, FastScriptWriter] | None = None

    def read_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each record."""
        self.definitions.load_schema(context.hints.schema)
        notes = context.tracker.track_batch(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        texts = list[bytes | BodyWithFindings]()
        starts, stops, ends = (to_int_list(batch.frames[name], start, stop) for name in ("offset", "end", "body_end"))
        codes, window = to_int_list(batch.frames["type_code"], start, stop), batch.window
        checksum_size = 4 if context.description.has_checksums else 0
        verbatim_types = (
            _UNCOMPRESSED_ROWS if self.rows.is_verbatim and not self.transaction.is_damaged and checksum_size else ()
        )
        for i, (code, low, high, end) in enumerate(zip(codes, starts, stops, ends, strict=True)):
            index, owner, table = start + i, owners[i], maps[i]
            if (
                code in verbatim_types
                and high - end == checksum_size
                and self._append_unchanged(window[low:high], table, context, limits)
            ):
                texts.append(b"")
                continue
            texts.append(
                self._write_record(
                    get_event_context(context, batch, index, get_event(batch, index), owner, table, limits)
                )
            )
        self.rows.copy_borrowed_bytes()
        return texts

    def _append_unchanged(
        self, raw: memoryview, table: TableMap | None, context: BinlogFileContext, limits: Limits
    ) -> bool:
        """Append a row event in the middle of its statement unchanged; return whether that was done."""
        try:
            return self.rows.append_unchanged(raw, table, context.description, limits)
        except (MalformedError, DecompressionError):
            return False  # `_write_record` reports what is wrong

    def write_compiled(
        self,
        context: BinlogFileContext,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Write the first of these records with compiled code (`ScriptWriter.write_compiled`)."""
        if self._fast_path is None or self._fast_path[0] is not context:
            self._fast_path = (context, FastScriptWriter(context, compile_))
        if self.frame.announced is not context.description or start == stop:
            return b"", start
        text, reached = self._fast_path[1].write(self, batch, start, stop, limits)
        self.sizes.add_text(text, context.description)
        self.is_empty = self.is_empty and reached == start
        return text, reached

    def skip_records(self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note what records that are not selected say about tables and transactions."""
        owners = context.tracker.track_batch(batch).owners
        self.definitions.load_schema(context.hints.schema if self.needs_definitions else None)
        for index, code in enumerate(to_int_list(batch.frames["type_code"], start, stop), start):
            if code in _CHANGE_EVENTS or code in _COMMIT_EVENTS:
                self._note_event(context, batch, index, owners[index], limits)

    def _note_event(
        self, context: BinlogFileContext, batch: Batch, index: int, owner: TransactionOwner, limits: Limits
    ) -> None:
        """Note an event that is not selected."""
        event = get_event(batch, index)
        kind = get_query_kind(event.code, event.body) if event.code in QUERY_EVENTS else None
        if kind in (None, QueryKind.STATEMENT) or kind in FINISHING_STATEMENTS:
            if event.code in _CHANGE_EVENTS and kind not in FINISHING_STATEMENTS:
                self.partial_transactions.last_skipped = owner
            self.partial_transactions.note_change(owner, self.partial_transactions.last_written)
        if self.needs_definitions and kind is QueryKind.STATEMENT:
            with suppress(MalformedError, DecompressionError):
                parts, sql = read_query(get_event_context(context, batch, index, event, owner, None, limits))
                self.definitions.apply_statement(sql, parts)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for the next event."""
        nothing_pending = not (self.pending_variables or self.skips_next) and self.rows.is_empty
        return nothing_pending and self.transaction.is_as_logged and self.script_filter.is_idle

    # -- the beginning and the end -------------------------------------------------------------------------------------

    def note_gap(self, what: str = "") -> bytes:
        """Roll back the open transaction; write nothing until the next one begins."""
        self.frame.note_missing(what)
        self.transaction.note_loss()
        return self._roll_back()

    def finish(self) -> bytes:
        """Close what is open, list what is missing, and restore the client's state."""
        if self.frame.announced is None:
            return b""
        is_complete = not (self.transaction.is_damaged or self.stop_finding)
        last = self._flush_rows(self.frame.announced) if is_complete else b""
        last += self._commit_implied(NO_OWNER) + self._roll_back()
        return last + self.frame.write_footer(self.session, [self.stop_finding.message] if self.stop_finding else [])

    def final_findings(self) -> Sequence[Finding]:
        """Return findings about what the options left out and what the script needs."""
        description = self.frame.announced
        return [
            *self.script_filter.list_findings(),
            *self.partial_transactions.list_findings(),
            *self.sizes.list_findings(description),
        ]

    # -- one record ----------------------------------------------------------------------------------------------------

    def _write_record(self, context: EventContext) -> bytes | BodyWithFindings:
        """Return the text for one record."""
        code = context.event.code
        prefix = self.frame.write_description(context.file, is_open=self.transaction.groups.is_open)
        if (context.file.encrypted_without_key and code not in EVENT_TYPE_NAMES) or self.stop_finding is not None:
            return prefix  # the finding about the file covers all of them
        was_open = self.transaction.groups.is_open
        is_payload = code == _T.TRANSACTION_PAYLOAD
        step = GroupStep.OUTSIDE if is_payload else self.transaction.groups.add_event(code, context.event.body)
        if self.transaction.is_damaged and not self.transaction.resume_after_loss(context, step):
            return prefix
        if code not in _ROW_EVENTS:
            prefix += self._flush_rows(context.file.description)
        prefix += self._commit_implied(context.owner)
        if code in GTID_EVENTS or (step is GroupStep.OPENS and not was_open):
            prefix += self._roll_back()  # the previous transaction has no end
        return self._write_event(context, step, prefix)

    def _write_event(self, context: EventContext, step: GroupStep, prefix: bytes) -> bytes | BodyWithFindings:
        """Return the text of a record, with findings where something is missing.

        Args:
            context: the event.
            step: its place in its transaction.
            prefix: the text before it.
        """
        session = self.session.copy()
        try:
            context = self._select_rows(context)
            statements, findings = self._write_statements(context)
        except (MalformedError, DecompressionError, Unwritable) as error:
            self.transaction.is_damaged = self.transaction.groups.is_open
            self.session = self.rows.session = session  # the statements that would change it are not written either
            reason = f"{type_name(context.event.code)} is not written as a statement: {error.args[0]}"
            rollback = self._roll_back() if self.transaction.is_damaged or self.transaction.has_unused_gtid else b""
            return BodyWithFindings(prefix + rollback, (event_finding(context, "payload-undecodable", reason),))
        text = self._assemble_text(
            context, step, statements, self._write_comments(context) if self.options.comments else b""
        )
        return BodyWithFindings(prefix + text, findings) if findings else prefix + text

    def _select_rows(self, context: EventContext) -> EventContext:
        """Return the event with only its selected rows."""
        condition, table, event = self.options.row_filter, context.table, context.event
        if condition is None or table is None or event.code not in ROW_EVENTS:
            return context
        selected = select_rows_by_filter(
            context.file, event, self.definitions.describe_table(table), condition, context.limits
        )
        if selected is None or selected is event:
            return replace(context, left_out=selected is None)
        raw = build_event(event, selected.code, bytes(selected.body), context.file.description)
        return replace(context, event=selected, raw=memoryview(raw))

    def _write_comments(self, context: EventContext) -> bytes:
        """Return the event's content as comments."""
        if context.event.code not in ROW_EVENTS or context.table is None:
            return format_statement_comments(context)
        if context.left_out or (
            self.options.includes_table is not None and not self.options.includes_table(context.table.qualified_name)
        ):
            return b""
        try:
            return format_row_comments(context, self.definitions.describe_table(context.table))
        except (MalformedError, DecompressionError) as error:
            return f"### not shown: {sanitize_line(str(error.args[0]))}\n".encode()

    def _assemble_text(
        self, context: EventContext, step: GroupStep, statements: Sequence[Statement], comments: bytes
    ) -> bytes:
        """Return the text of an event, or what its transaction may write of it while only parts are selected."""
        self.script_filter.note_transaction_end(context, step)
        self.sizes.add_statements(statements)
        if statements and context.event.code in _CHANGE_EVENTS:
            self.is_empty = False
            if get_statement_kind(context) in (None, QueryKind.STATEMENT):
                self.partial_transactions.last_written = context.owner
                self.partial_transactions.note_change(context.owner, self.partial_transactions.last_skipped)
        parts = terminate_statements(
            statements, self.session.charset if context.event.code in STATEMENT_EVENTS else None
        )
        if statements and self.transaction.begin_implied(context) and not self.options.flat:
            parts.insert(0, client.terminate_safe(b"START TRANSACTION"))
        if statements or comments or context.event.code in GTID_EVENTS or context.event.code == _T.FORMAT_DESCRIPTION:
            parts[:0] = [format_event_comment(context), comments]
        text = self.script_filter.release_text(
            context, step, b"".join(parts), changes=bool(statements), shows=bool(statements or comments)
        )
        if text is None:
            self._discard_transaction()
        return text or b""

    def _discard_transaction(self) -> None:
        """Restore the session from before a transaction of which nothing was selected."""
        session = self.script_filter.discard_transaction()
        if session is not None:
            self.session = self.rows.session = session
            self.transaction.end()

    def _flush_rows(self, description: FormatDescription) -> bytes:
        """Return the pending row events of a statement whose end is not selected."""
        statements = self.rows.flush(description)
        self.sizes.add_statements(statements)
        return b"".join(terminate_statements(statements, None))

    def _roll_back(self) -> bytes:
        """Return the rollback of the open transaction and forget what was prepared."""
        self.rows.discard()
        self.pending_variables.clear()
        self._discard_transaction()
        rollback = self.transaction.take_rollback()
        note = b"# the rest of this transaction is not there\n" if rollback else b""
        return note + b"".join(map(client.terminate_safe, rollback))

    def _commit_implied(self, owner: TransactionOwner) -> bytes:
        """Return COMMIT for a transaction that this script began itself, when another one comes."""
        return (
            client.terminate_safe(b"COMMIT") if self.transaction.end_implied(owner) and not self.options.flat else b""
        )

    # -- statements ----------------------------------------------------------------------------------------------------

    def _write_statements(self, context: EventContext) -> tuple[Sequence[Statement], tuple[Finding, ...]]:
        """Return the statements of an event and findings about them."""
        code = context.event.code
        if code in _ROW_EVENTS:
            statements, reason = self.rows.write_event(context)
            self._count_rows(context)
            return statements, (event_finding(context, "statement-inexact", reason),) if reason else ()
        if code in _EVENTS_WITHOUT_STATEMENT:
            if code == _T.FORMAT_DESCRIPTION and not context.file.is_relay_log:
                return [*self.transaction.take_rollback()], ()  # the server crashed in the open transaction
            return [], ()
        write = EVENT_WRITERS.get(code)
        if write is not None:
            statements = write(self, context)
            return statements, tuple(self._iter_doubts(context)) if statements and code in STATEMENT_EVENTS else ()
        if context.event.flags & EventFlag.IGNORABLE:
            return [], ()
        raise Unwritable(_UNWRITABLE_REASONS.get(code, "this type is not known"))

    def _count_rows(self, context: EventContext) -> None:
        """Count the row changes of an event that are written."""
        tables, event, table = self.options.includes_table, context.event, context.table
        if tables is None or table is None or context.left_out or event.code not in ROW_EVENTS:
            return
        count = count_rows(event.code, event.body, table, context.limits) if tables(table.qualified_name) else 0
        self.row_changes = (self.row_changes or 0) + count

    @staticmethod
    def _iter_doubts(context: EventContext) -> Iterator[Finding]:
        """Yield a finding if a statement has a different effect in a script than it had."""
        parts, sql = read_query(context)
        reason = find_doubt(decode_status_variables(parts.status_vars), sql)
        if reason is not None:
            yield event_finding(context, "statement-inexact", reason)


_UNWRITABLE_REASONS: Mapping[int, str] = {
    _T.INCIDENT: "the server lost events here",
    _T.PARTIAL_ROW_DATA: "it is a piece of a row event, and only MariaDB from 12.3 can put these together",
}


def create_script(wording: ScriptOptions) -> SqlScript | FlashbackScript:
    """Create the script that the options ask for (`OutputRules.start_script`)."""
    if not wording.flashback:
        return SqlScript(wording)
    from binlogtool.formats.binlog_events.sql.undo import FlashbackScript

    return FlashbackScript(wording)
