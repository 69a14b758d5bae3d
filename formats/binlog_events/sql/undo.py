"""Flashback: the log as statements that reverse its row changes (`ScriptOptions.flashback`).

Each record gets its text as in `statements`, but in an order to be read from the end: the caller joins the
texts in reverse. So the newest transaction comes first, and in it the newest row. What cannot be reversed
is an error; nothing is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from binlogtool.errors import RefusedError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.codes import (
    DELETE_ROW_EVENTS,
    GTID_EVENTS,
    ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.ddl.knowledge import TableKnowledge
from binlogtool.formats.binlog_events.ddl.modes import normalize_statement
from binlogtool.formats.binlog_events.ddl.targets import find_changed_table
from binlogtool.formats.binlog_events.events.decoding import QueryParts, parse_load_query, parse_query
from binlogtool.formats.binlog_events.events.event import Event, get_event
from binlogtool.formats.binlog_events.groups.groups import GroupStep, TransactionGroups
from binlogtool.formats.binlog_events.groups.kinds import QueryKind, get_query_kind
from binlogtool.formats.binlog_events.groups.marks import EVENTS_OUTSIDE_GROUPS
from binlogtool.formats.binlog_events.groups.tracking import NO_OWNER, TransactionOwner
from binlogtool.formats.binlog_events.gtid.bodies import PREPARED_XA, read_mariadb_gtid
from binlogtool.formats.binlog_events.rows.rows import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import (
    format_description_binlog,
    format_rows_binlog,
    split_large_binlog,
)
from binlogtool.formats.binlog_events.sql.packets import StatementSizes
from binlogtool.formats.binlog_events.sql.renames import rename_database
from binlogtool.formats.binlog_events.sql.reverse import Irreversible, effect_name, reverse_rows
from binlogtool.formats.binlog_events.sql.rows import Inexact, format_flashback_statements
from binlogtool.formats.binlog_events.sql.session import ScriptSession, wrap_row_flags
from binlogtool.formats.binlog_events.sql.undo_conflicts import FlashbackConflicts
from binlogtool.formats.binlog_events.sql.undo_ddl import find_defined_tables, statement_name
from binlogtool.formats.binlog_events.sql.where import keep_rows, lazy_body
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.stream.meaning import type_name
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.columns import to_int_list
from binlogtool.formats.described import BodyWithFindings
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Batch, DecompressionError, Kernel
from binlogtool.formats.scripting import ScriptOptions
from binlogtool.formats.table_names import unquote_name
from binlogtool.formats.unrolled import FlatRecords
from binlogtool.limits import Limits

_T = EventType
_EVENTS_WITHOUT_CHANGES = EVENTS_OUTSIDE_GROUPS - {_T.INCIDENT} | GTID_EVENTS | {
    _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT,
    _T.VIEW_CHANGE, _T.INTVAR, _T.RAND, _T.USER_VAR, _T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE, _T.XID,
}  # fmt: skip
"""Events that change nothing by themselves; what some of them prepare is refused where it is done."""

_GTIDS_SINCE = (5, 6, 5)
"""MySQL has GTIDs since then."""

_CASCADES_LOGGED_SINCE = (9, 6)
"""MySQL logs the rows that a foreign key changes since then."""

_QUERY_EVENTS = (_T.QUERY, _T.QUERY_COMPRESSED)
_STATEMENT_EVENTS = (*_QUERY_EVENTS, _T.EXECUTE_LOAD_QUERY)
_UNREADABLE_CHANGES = (_T.INCIDENT, _T.PARTIAL_ROW_DATA)
_STATEMENTS_WITHOUT_CHANGES = re.compile(
    rb"\s*(?:DROP\s+(?:/\*!\d+\s*)?TEMPORARY\b|FLUSH\b|ANALYZE\b|#|--)", re.IGNORECASE
)
_XA_STATEMENTS = (QueryKind.XA_START, QueryKind.XA_END, QueryKind.XA_FINISH)


class FlashbackScript(msgspec.Struct):
    """Script that reverses the row changes of a log.

    `label` names the open transaction in messages. `changed`: some of its changes were written; None if none is
    open.
    """

    options: ScriptOptions = ScriptOptions(flashback=True)
    transactions: TransactionGroups = msgspec.field(default_factory=TransactionGroups)
    label: str = ""
    changed: bool | None = None
    description: FormatDescription | None = None
    stop_finding: Finding | None = None
    definitions: TableKnowledge = msgspec.field(default_factory=TableKnowledge)
    seen: set[str] = msgspec.field(default_factory=set)
    """Tables whose rows were changed so far."""
    reported: set[str] = msgspec.field(default_factory=set)
    """What was said of tables whose columns nothing declares."""
    sizes: StatementSizes = msgspec.field(default_factory=StatementSizes)
    conflicts: FlashbackConflicts = msgspec.field(default_factory=FlashbackConflicts)
    row_changes: int = 0
    """See `formats.scripting.ScriptWriter`."""
    needs_description: bool = False
    """A BINLOG statement behind the last FORMAT_DESCRIPTION needs that one before it."""

    # -- the script ----------------------------------------------------------------------------------------------------

    def read_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each record, to be written in reverse order."""
        notes = context.tracker.track_batch(batch)
        owners, maps = notes.owners[start:stop], notes.maps[start:stop]
        return [
            self._write_record(context, get_event(batch, index), owner, table, limits)
            for index, owner, table in zip(range(start, stop), owners, maps, strict=True)
        ]

    def write_compiled(
        self,
        context: BinlogFileContext,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Write nothing: flashback has no compiled path."""
        return b"", start

    @property
    def is_empty(self) -> bool:
        """True if no row change was written."""
        return not self.row_changes

    def final_findings(self) -> Sequence[Finding]:
        """Return findings about large statements and about conflicts with later changes."""
        return [*self.sizes.list_findings(self.description), *self.conflicts.iter_findings()]

    def note_gap(self, what: str = "") -> bytes:
        """Write nothing: flashback covers an unbroken range, and its caller stops at damage."""
        self.transactions.reset()
        self.changed = None
        return b""

    def finish(self) -> bytes:
        """Return the beginning of the script.

        Raises:
            RefusedError: the last transaction is incomplete.
        """
        if self.changed:
            raise RefusedError(f"{self.label} is not whole: it cannot be undone; choose an earlier --stop-position")
        if self.description is None:
            return b""
        writer = self.description.server_version
        mode = b"SET @@session.pseudo_slave_mode=1, @@session.completion_type=0"
        head = client.format_script_header(writer if writer.isprintable() else "a server")
        session = ScriptSession().set_for_rows(0, 0, self.description)
        return head + b"".join(map(client.terminate_statement, [mode, *session])) + self._format_description()

    def _format_description(self) -> bytes:
        """Return the FORMAT_DESCRIPTION of the file whose events come next in the script, if they need it."""
        is_needed, self.needs_description = self.needs_description, False
        if not is_needed or self.description is None:
            return b""
        statements = client.terminate_statement(format_description_binlog(self.description))
        if (
            not self.description.is_mariadb and self.description.version >= _GTIDS_SINCE
        ):  # a BINLOG statement leaves gtid_next unset
            statements += client.terminate_statement(b"SET @@session.gtid_next='AUTOMATIC'")
        return statements

    # -- one record ----------------------------------------------------------------------------------------------------

    def _write_record(
        self, context: BinlogFileContext, event: Event, owner: TransactionOwner, table: TableMap | None, limits: Limits
    ) -> bytes | BodyWithFindings:
        """Return the text for one record."""
        suffix = b"" if context.description is self.description else self._enter_file(context)
        reason = self._find_missing_end(context, event)
        if reason is not None:
            return self._refuse(event, reason, suffix)
        was_open, step = self.transactions.is_open, GroupStep.OUTSIDE
        if event.code != _T.TRANSACTION_PAYLOAD:
            step = self.transactions.add_event(event.code, event.body)
        try:
            self._open_transaction(event, owner, step)
            text, remarks = self._reverse_event(
                context, event, table, limits, has_beginning=was_open or step is GroupStep.OPENS
            )
        except (MalformedError, DecompressionError, Irreversible) as error:
            self.changed = None if step is GroupStep.ENDS else self.changed
            return self._refuse(event, str(error.args[0]), suffix)
        if step is GroupStep.ENDS:
            text = self._close_transaction(event) + text
        return BodyWithFindings(text + suffix, remarks) if remarks else text + suffix

    def _enter_file(self, context: BinlogFileContext) -> bytes:
        """Return what the script needs after the events of a file, before those of the preceding file."""
        text = self._format_description()
        if self.description is None:
            text += client.terminate_statement(b"SET @@session.pseudo_slave_mode=0") + client.SCRIPT_FOOTER
        self.description = context.description
        self.definitions.load_schema(context.hints.schema)
        return text

    def _find_missing_end(self, context: BinlogFileContext, event: Event) -> str | None:
        """Return why the open transaction never ends; None if it may, or if nothing of it was written."""
        is_restart = event.code == _T.FORMAT_DESCRIPTION and not context.is_relay_log
        if not self.changed or not (is_restart or event.code in GTID_EVENTS):
            return None
        self.changed = None
        self.transactions.reset()
        return "the transaction has no end: the server stopped in it, or records of it are not among the chosen ones"

    def _refuse(self, event: Event, reason: str, before: bytes = b"") -> BodyWithFindings:
        """Return a finding that the event cannot be reversed."""
        message = f"{self.label or 'outside of a transaction'}: {type_name(event.code)} cannot be undone: {reason}"
        size = event.end - event.start
        result = make_finding(
            "payload-undecodable", event.start, size, message, record=event.record, severity=Severity.ERROR
        )
        return BodyWithFindings(before, (result,))

    def _open_transaction(self, event: Event, owner: TransactionOwner, step: GroupStep) -> None:
        """Note the beginning of a transaction.

        Raises:
            Irreversible: it is only prepared.
        """
        if step is not GroupStep.OPENS:
            return
        self.label = _transaction_label(owner) or f"the transaction at {event.start}"
        self.changed = False
        if event.code == _T.GTID and read_mariadb_gtid(bytes(event.body)).flags2 & PREPARED_XA:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")

    def _close_transaction(self, event: Event) -> bytes:
        """Return START TRANSACTION for the end of a transaction whose changes were reversed."""
        changed, self.changed = self.changed, None
        if not changed:
            return b""
        note = f"# {self.label}, at {event.start}\n".encode("utf-8", "backslashreplace") if self.label else b""
        return note + (b"" if self.options.flat else client.terminate_statement(b"START TRANSACTION"))

    # -- what it takes back --------------------------------------------------------------------------------------------

    def _reverse_event(
        self, context: BinlogFileContext, event: Event, table: TableMap | None, limits: Limits, *, has_beginning: bool
    ) -> tuple[bytes, tuple[Finding, ...]]:
        """Return the text that reverses an event, and findings about it.

        Args:
            has_beginning: whether the beginning of its transaction is selected.

        Raises:
            Irreversible, MalformedError, DecompressionError: the event cannot be reversed.
        """
        if event.code in ROW_EVENTS:
            if table is not None and self.definitions.is_sequence(table):
                return b"", self._warn_sequence(event, table.qualified_name)
            text = self._reverse_rows(context, event, table, limits, has_beginning=has_beginning)
            return text, self._warn_inexact(event, table) if text and table is not None else ()
        if event.code in _QUERY_EVENTS:
            statement = self._check_query(event, limits)
            return b"", () if statement is None else (
                self._warn_left_out(event, f"{statement} is not undone, as --skip-ddl says"),
            )
        if event.code == _T.XA_PREPARE:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")
        if event.code not in _EVENTS_WITHOUT_CHANGES and not event.flags & EventFlag.IGNORABLE:
            raise Irreversible("it does not say which rows it changed")
        return b"", ()

    def _warn_inexact(self, event: Event, table: TableMap) -> tuple[Finding, ...]:
        """Return, once a table, a warning about statements that may be inexact."""
        reason = self.definitions.find_caveat(table) if self.options.rows == "statements" else None
        message = f"{table.qualified_name}: {reason}"
        if reason is None or message in self.reported:
            return ()
        self.reported.add(message)
        size = event.end - event.start
        return (
            make_finding(
                "statement-inexact", event.start, size, message, record=event.record, severity=Severity.WARNING
            ),
        )

    def _warn_sequence(self, event: Event, name: str) -> tuple[Finding, ...]:
        """Return, once a sequence, a warning that its numbers are not reversed."""
        is_selected = self.options.includes_table
        if name in self.seen or (is_selected is not None and not is_selected(unquote_name(name))):
            return ()
        self.seen.add(name)
        return (self._warn_left_out(event, f"{name} is a sequence: the numbers that it gave are not taken back"),)

    def _warn_left_out(self, event: Event, subject: str) -> Finding:
        """Return a warning about what is left out."""
        message = f"{self.label or 'outside of a transaction'}: {subject}"
        size = event.end - event.start
        return make_finding(
            "statement-left-out", event.start, size, message, record=event.record, severity=Severity.WARNING
        )

    def _check_query(self, event: Event, limits: Limits) -> str | None:
        """Check a QUERY event; return the definition statement that stays, None if the event changes nothing.

        Raises:
            Irreversible: the statement cannot be reversed.
        """
        kind = get_query_kind(event.code, event.body)
        if kind in _XA_STATEMENTS:
            raise Irreversible("it is an XA transaction; what became of it stands elsewhere")
        parts = parse_query(bytes(event.body))
        sql = unpack_block(parts.sql, limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        if kind is QueryKind.ROLLBACK or (kind is QueryKind.SAVEPOINT and sql[:8].upper() == b"ROLLBACK"):
            if self.changed:
                raise Irreversible("it takes back changes itself, and the log does not say which ones stayed")
        elif kind is QueryKind.STATEMENT and not _STATEMENTS_WITHOUT_CHANGES.match(sql):
            return self._check_statement(sql, parts)
        return None

    def _check_statement(self, sql: bytes, parts: QueryParts) -> str | None:
        """Check a statement other than BEGIN, COMMIT and the like; return its name if it defines selected tables.

        Raises:
            Irreversible: it changes rows, or definitions while --skip-ddl is not given.
        """
        self.definitions.apply_statement(sql, parts)
        text, database = normalize_statement(sql, parts), parts.db.decode("utf-8", "surrogateescape")
        verb, is_selected = statement_name(text), self.options.includes_table
        names = find_defined_tables(text, database, self.seen)
        if names is None:
            raise Irreversible(f"the log has {verb} as a statement, not the rows that it changed")
        selected = names if is_selected is None else [name for name in names if is_selected(unquote_name(name))]
        if not selected and is_selected is not None:
            return None
        subject = f"{verb} ({', '.join(selected[:3])})" if selected else verb
        if self.options.skip_ddl:
            return subject
        raise Irreversible(f"the log has {verb} as a statement{subject[len(verb) :]}, which has no reverse")

    def _reverse_rows(
        self, context: BinlogFileContext, event: Event, table: TableMap | None, limits: Limits, *, has_beginning: bool
    ) -> bytes:
        """Return the text that reverses a row event, and check it against later changes.

        Raises:
            Irreversible, MalformedError, DecompressionError: the event cannot be reversed.
        """
        description = context.description
        if table is None:
            if int.from_bytes(event.body[: description.table_id_size], "little") == DUMMY_TABLE_ID:
                return b""
            raise Irreversible("its TABLE_MAP is missing")
        is_selected = self.options.includes_table
        if is_selected is not None and not is_selected(table.qualified_name):
            return b""
        self.seen.add(table.full_name)
        table = self.definitions.describe_with_key(table)
        selected, selected_rows = self._select_rows(context, event, table, limits)
        opposite = (
            None if selected is None else self._reverse_row_event(selected, table, limits, has_beginning=has_beginning)
        )
        text, is_exact = b"", True
        if selected is not None and opposite is not None:
            text, is_exact = self._format_statements(
                selected, opposite, rename_database(table, self.options.rename_databases), description, limits
            )
        if self.options.is_partial:
            location = self._describe_location(context, event, self.label)
            self.conflicts.add_rows(location, table, (event.code, event.body), selected_rows, limits, sets_all=is_exact)
        if selected is None:
            return b""
        self.row_changes += count_rows(selected.code, selected.body, table, limits)
        is_first, self.changed = not self.changed, True
        return text + (client.terminate_statement(b"COMMIT") if is_first and not self.options.flat else b"")

    @staticmethod
    def _describe_location(context: BinlogFileContext, event: Event, label: str) -> str:
        """Return "by transaction … at file:offset" for messages."""
        return (f"by {label} " if label else "") + f"at {context.name}:{event.start}"

    def _reverse_row_event(self, event: Event, table: TableMap, limits: Limits, *, has_beginning: bool) -> Event:
        """Return the row event with the opposite effect.

        Raises:
            Irreversible: the beginning of its transaction is not selected, or its images lack columns.
        """
        if not has_beginning:
            raise Irreversible(f"{table.qualified_name}: the beginning of its transaction is not among the records")
        try:
            code, body = reverse_rows(event.code, event.body, table, limits)
        except Irreversible as error:
            raise Irreversible(f"{effect_name(event.code)} of {table.qualified_name}: {error}") from None
        return event._replace(code=code.value, body=memoryview(body))

    def _select_rows(
        self, context: BinlogFileContext, event: Event, table: TableMap, limits: Limits
    ) -> tuple[Event | None, bool | Sequence[bool]]:
        """Return the event with its selected rows (None if there are none), and which of its rows these are."""
        condition = self.options.row_filter
        if condition is None:
            return event, True
        selected = condition.select_rows(event.batch_index, lazy_body(context, event, table, condition, limits))
        return keep_rows(event, table, selected, limits), selected

    def _format_statements(
        self, event: Event, opposite: Event, table: TableMap, description: FormatDescription, limits: Limits
    ) -> tuple[bytes, bool]:
        """Return the reversing statements and whether they are the reversed event itself.

        They are INSERT, UPDATE and DELETE where these were requested and have the same effect.
        """
        statements = None
        if self.options.rows == "statements" and self.definitions.reason_against_statements(table, description) is None:
            with suppress(Inexact):
                statements = format_flashback_statements(event.code, event.body, table, limits)
        if statements is None:
            self.needs_description = True
            statements = split_large_binlog(format_rows_binlog(opposite, table, description, limits), description)
            self.sizes.add_statements(statements)
            return b"".join(map(client.terminate_statement, statements)), True
        self.sizes.add_statements(statements)
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        before, after = wrap_row_flags(flags, description)
        return b"".join(map(client.terminate_statement, [*before, *statements, *after])), False

    # -- what is not chosen --------------------------------------------------------------------------------------------

    def skip_records(self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note what records that are not selected say about tables and change in selected rows."""
        self.definitions.load_schema(context.hints.schema)
        notes, codes = context.tracker.track_batch(batch), to_int_list(batch.frames["type_code"], start, stop)
        for index, code in enumerate(codes, start):
            table = notes.maps[index]
            if code in ROW_EVENTS and table is not None:
                if table.full_name in self.conflicts.selected or self.definitions.foreign_keys.keys:
                    event = get_event(batch, index)
                    location = self._describe_location(context, event, _transaction_label(notes.owners[index]))
                    self._note_rows(
                        event, self.definitions.describe_with_key(table), location, context.description, limits
                    )
            elif code in ROW_EVENTS or code in _STATEMENT_EVENTS or code in _UNREADABLE_CHANGES:
                event = get_event(batch, index)
                self._note_statement(
                    event, self._describe_location(context, event, _transaction_label(notes.owners[index])), limits
                )

    def _note_rows(
        self, event: Event, table: TableMap, location: str, description: FormatDescription, limits: Limits
    ) -> None:
        """Note the rows of an event that is not selected, and rows that foreign keys changed with them."""
        tables = self.conflicts.tables
        if table.full_name in tables:
            self.conflicts.note_rows(location, table, (event.code, event.body), limits)
        if event.code not in DELETE_ROW_EVENTS | UPDATE_ROW_EVENTS or (
            not description.is_mariadb and description.version >= _CASCADES_LOGGED_SINCE
        ):
            return
        changed = (
            None
            if event.code in DELETE_ROW_EVENTS
            else frozenset((column.name or "").lower() for column in table.columns)
        )
        for key, action in self.definitions.foreign_keys.iter_affected(table.full_name, changed):
            self.conflicts.note_statement(key.child, f"{action} of {table.qualified_name} {location}")

    def _note_statement(self, event: Event, location: str, limits: Limits) -> None:
        """Note a statement, or an unreadable change, that is not selected."""
        if event.code not in _STATEMENT_EVENTS:
            if self.conflicts.tables and int.from_bytes(event.body[:6], "little") != DUMMY_TABLE_ID:
                self.conflicts.note_unchecked(
                    f"{type_name(event.code)} {location}: it does not say which rows it changed"
                )
            return
        try:
            parts = (parse_load_query if event.code == _T.EXECUTE_LOAD_QUERY else parse_query)(bytes(event.body))
            sql = unpack_block(parts.sql, limits) if event.code == _T.QUERY_COMPRESSED else parts.sql
        except (MalformedError, DecompressionError) as error:
            self.conflicts.note_unchecked(f"the statement {location}: {error.args[0]}")
            return
        tables = self.conflicts.tables
        kind = get_query_kind(event.code, event.body) if event.code in _QUERY_EVENTS else QueryKind.STATEMENT
        if tables and kind is QueryKind.STATEMENT and not _STATEMENTS_WITHOUT_CHANGES.match(sql):
            self._note_statement_text(
                normalize_statement(sql, parts), parts.db.decode("utf-8", "surrogateescape"), location, tables
            )
        self.definitions.apply_statement(sql, parts)

    def _note_statement_text(self, text: str, database: str, location: str, tables: Sequence[str]) -> None:
        """Note a later statement that redefines a selected table or may change its rows."""
        subject, names = f"{statement_name(text)} {location}", find_defined_tables(text, database, tables)
        if names is None:
            name = find_changed_table(text, database)
            names = [] if name is None else [name]
            if self.definitions.find_only_changed_table(text, database) is None and (
                name is None or self.definitions.triggers.list_triggers(name)
            ):
                self.conflicts.note_unchecked(f"{subject}, a statement that may change any table")
        for name in names:
            self.conflicts.note_statement(name, subject)


def _transaction_label(owner: TransactionOwner) -> str:
    """Return "transaction GTID" for messages; empty outside of transactions."""
    return f"transaction {owner.gtid}" if owner != NO_OWNER else ""
