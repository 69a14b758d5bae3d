"""Statements of single events (GTIDs, statements, variables, commits) and the script state that they depend
on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from binlogtool.findings import Finding
from binlogtool.formats.binlog_events.codes import QUERY_EVENTS, EventFlag, EventType
from binlogtool.formats.binlog_events.ddl.knowledge import TableKnowledge
from binlogtool.formats.binlog_events.ddl.modes import NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.events.decoding import QueryParts, decode_body
from binlogtool.formats.binlog_events.groups.kinds import QueryKind
from binlogtool.formats.binlog_events.groups.marks import STANDALONE
from binlogtool.formats.binlog_events.gtid.bodies import (
    PREPARED_XA,
    ROLLBACK_ALTER,
    START_ALTER,
    read_mariadb_gtid,
    read_mysql_gtid,
)
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import Statement, TerminatedStatement
from binlogtool.formats.binlog_events.sql.choice import ScriptFilter
from binlogtool.formats.binlog_events.sql.frame import ScriptFrame
from binlogtool.formats.binlog_events.sql.gtids import set_mariadb_gtid, set_mysql_gtid, set_parallel_replication
from binlogtool.formats.binlog_events.sql.hidden_statements import is_stored_program, reason_to_leave_out
from binlogtool.formats.binlog_events.sql.load import LOAD_DATA_EVENTS, LoadDataFiles
from binlogtool.formats.binlog_events.sql.packets import StatementSizes
from binlogtool.formats.binlog_events.sql.renames import find_renamed_database
from binlogtool.formats.binlog_events.sql.row_events import RowEventWriter
from binlogtool.formats.binlog_events.sql.scene import EventContext, Unwritable, read_query
from binlogtool.formats.binlog_events.sql.session import QuerySession, ScriptSession, find_refusal
from binlogtool.formats.binlog_events.sql.transaction import ScriptTransaction, format_xid, get_statement_kind
from binlogtool.formats.binlog_events.sql.variables import (
    VARIABLE_EVENTS,
    VariableEvent,
    decode_variable,
    format_assignments,
)
from binlogtool.formats.binlog_events.wire.status import decode_status_variables
from binlogtool.formats.scripting import ScriptOptions

_T = EventType
STATEMENT_EVENTS = (*QUERY_EVENTS, _T.EXECUTE_LOAD_QUERY)
_CREATE = re.compile(rb"\s*CREATE\b", re.IGNORECASE)
_PLAIN_NAME = re.compile(rb"[\w$.\x80-\xff-]+")
"""A database that a client without --binary-mode may take from a USE of its own; others are hidden from it."""
_ALLOW_PARALLEL = 8
"""Bit of flags2 of MariaDB's GTID."""


@dataclass(slots=True)
class EventStatementWriter:
    """Writer of single events as statements, with the state of the script.

    `is_create_open`: a MySQL CREATE TABLE … START TRANSACTION is open, after which a server accepts only rows
    and COMMIT. `skips_next`: the next statement is an ALTER that is completed later or never.
    `pending_variables`: variables to set for the next statement; they are dropped together with it.
    """

    options: ScriptOptions = ScriptOptions()
    session: ScriptSession = field(default_factory=ScriptSession)
    transaction: ScriptTransaction = field(default_factory=ScriptTransaction)
    script_filter: ScriptFilter = field(init=False)
    skips_next: bool = False
    pending_variables: list[VariableEvent] = field(default_factory=list)
    frame: ScriptFrame = field(default_factory=ScriptFrame)
    is_create_open: bool = False
    definitions: TableKnowledge = field(default_factory=TableKnowledge)
    rows: RowEventWriter = field(init=False)
    loads: LoadDataFiles = field(init=False)
    sizes: StatementSizes = field(default_factory=StatementSizes)

    def __post_init__(self) -> None:
        self.rows = RowEventWriter(self.options, self.session, self.definitions)
        self.loads = LoadDataFiles(self.options.sidecar_files)
        self.script_filter = ScriptFilter(self.options)

    @property
    def stop_finding(self) -> Finding | None:
        """Finding about the option that ended the script; None while it continues."""
        return self.script_filter.stopped

    @property
    def needs_definitions(self) -> bool:
        """True if the script depends on table definitions found in statements."""
        return self.options.comments or self.options.rows == "statements" or self.options.row_filter is not None

    @property
    def sets_gtids(self) -> bool:
        """True if transactions get the GTIDs that they had."""
        return self.options.gtids and not self.options.flat

    def _write_mariadb_gtid(self, context: EventContext) -> list[bytes]:
        """Return the statements of MariaDB's GTID event."""
        gtid = read_mariadb_gtid(bytes(context.event.body))
        self.transaction.current_owner = context.owner
        self.skips_next = bool((gtid.flags_extra or 0) & (START_ALTER | ROLLBACK_ALTER))
        self.script_filter.hold_transaction_start(self.session)
        statements = (
            []
            if self.options.flat
            else set_parallel_replication(self.session, allowed=bool(gtid.flags2 & _ALLOW_PARALLEL))
        )
        statements += set_mariadb_gtid(context.event, gtid, self.session) if self.sets_gtids else []
        if gtid.flags2 & PREPARED_XA:
            if self.options.flat:
                self._drop_transaction_statement(QueryKind.XA_START)
            xid = format_xid(gtid.gtrid or b"", gtid.bqual or b"", gtid.format_id or 0)
            return [*statements, self.transaction.begin_xa(xid)]
        if not gtid.flags2 & STANDALONE and not self.options.flat:
            self.transaction.begin()
            statements.append(b"START TRANSACTION")
        return statements

    def _write_mysql_gtid(self, context: EventContext) -> list[bytes]:
        """Return the statements of MySQL's GTID events."""
        self.transaction.current_owner = context.owner
        self.script_filter.hold_transaction_start(self.session)
        if not self.sets_gtids:
            return []
        gtid = read_mysql_gtid(context.event.code, bytes(context.event.body))
        statements = set_mysql_gtid(context.event, gtid, context.owner.gtid, self.session)
        self.transaction.has_unused_gtid = self.session.gtid_next != "AUTOMATIC"
        return statements

    def _write_query(self, context: EventContext) -> Sequence[Statement]:
        """Return the statements of a QUERY or EXECUTE_LOAD_QUERY event."""
        (parts, sql), kind = read_query(context), get_statement_kind(context)
        if kind is None or kind is QueryKind.STATEMENT:
            return self._write_statement(context, parts, sql)
        if self.options.flat:
            return self._write_commit(context) if kind is QueryKind.COMMIT else self._drop_transaction_statement(kind)
        if kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self.script_filter.hold_transaction_start(self.session)
        statements: list[Statement] = [*self._set_session(context, parts)]
        self.transaction.note_statement(kind, sql)
        return statements + self._check_text(sql)

    def _write_statement(self, context: EventContext, parts: QueryParts, sql: bytes) -> list[Statement]:
        """Return a statement other than BEGIN, COMMIT and the like, with the session that it needs."""
        pending, self.pending_variables = self.pending_variables, []
        if self.skips_next:
            return []
        if self.script_filter.stop_if_matched(context, parts, sql):
            return []
        if self.needs_definitions:
            self.definitions.apply_statement(sql, parts)
        if self.script_filter.exclude_statement(context, parts, sql):
            return []
        renamed = find_renamed_database(sql, self.options.rename_databases)
        if renamed is not None:
            raise Unwritable(f"its text has the name {renamed}, and --rewrite does not change texts")
        statements: list[Statement] = [
            *format_assignments(pending, self.session),
            *self._write_use(parts.db, context.event.flags),
        ]
        statements += self._set_session(context, parts)
        if context.event.code == _T.EXECUTE_LOAD_QUERY:
            sql = self.loads.format_load_data(context, sql)
        text = self._check_text(sql, is_load_data=context.event.code == _T.EXECUTE_LOAD_QUERY)
        self.transaction.has_unused_gtid = False
        if self.options.flat and self._is_create_start_transaction(sql):
            self.transaction.begin()
            self.is_create_open = True
        return [*statements, *text]

    def _is_create_start_transaction(self, sql: bytes) -> bool:
        """Return whether the statement is CREATE TABLE … START TRANSACTION."""
        if sql[-64:].upper().split()[-2:] != [b"START", b"TRANSACTION"]:
            return False
        return _CREATE.match(client.strip_literals(sql, self.session.charset, self.session.sql_mode)) is not None

    def _set_session(self, context: EventContext, parts: QueryParts) -> list[bytes]:
        """Return the SET statements for the session of a statement."""
        event = context.event
        status = decode_status_variables(parts.status_vars)
        reason = find_refusal(status)
        if reason is not None:
            raise Unwritable(reason)
        query = QuerySession(status, event.time, parts.thread_id, bool(self.transaction.rollback_statements))
        return self.session.set_for_query(query, context.file.description)

    @staticmethod
    def _drop_transaction_statement(kind: QueryKind) -> list[bytes]:
        """Write nothing for BEGIN and COMMIT in a script without transactions.

        Raises:
            Unwritable: the statement needs its transaction.
        """
        if kind not in (QueryKind.BEGIN, QueryKind.COMMIT):
            raise Unwritable(f"{kind.name} needs its transaction, and --transactions flatten has none")
        return []

    def _check_text(self, sql: bytes, *, is_load_data: bool = False) -> list[Statement]:
        """Return a text of the log, after the sql_mode that a client needs to read it.

        Args:
            is_load_data: whether it is a LOAD DATA, see `reason_to_leave_out`.

        Raises:
            Unwritable: clients or servers would misread it.
        """
        charset, mode = self.session.charset, self.session.sql_mode
        text, reason = client.make_client_safe(sql, charset, mode)
        if reason is not None and client.is_same_without_escapes(sql, charset, mode):
            return self._check_text_without_escapes(sql, reason, is_load_data=is_load_data)
        reason = reason or reason_to_leave_out(sql, charset, mode, is_load_data=is_load_data)
        if reason is not None:
            raise Unwritable(reason)
        return [*(self.session.repeat_sql_mode() if client.is_mode_dependent(sql, charset) else ()), text]

    def _check_text_without_escapes(self, sql: bytes, reason: str, *, is_load_data: bool) -> list[Statement]:
        """Return a text that clients agree on only under NO_BACKSLASH_ESCAPES: its names have backslashes at line
        ends.

        Args:
            reason: why it cannot be written without.

        Raises:
            Unwritable: clients disagree there too, or it defines a stored program, which keeps its sql_mode.
        """
        charset, mode = self.session.charset, self.session.sql_mode | NO_BACKSLASH_ESCAPES
        text, other_reason = client.make_client_safe(sql, charset, mode)
        other_reason = other_reason or reason_to_leave_out(sql, charset, mode, is_load_data=is_load_data)
        if other_reason is not None or is_stored_program(sql, charset, mode):
            raise Unwritable(reason)
        before, after = self.session.set_no_backslash_escapes(mode)
        return [*before, TerminatedStatement((client.terminate_statement(text, charset),)), *after]

    def _write_use(self, database: bytes, flags: int) -> list[bytes]:
        """Return the USE statement for a database that is not the session's."""
        if flags & EventFlag.SUPPRESS_USE:
            self.session.database = None  # it may be a CREATE or DROP DATABASE
            return []
        if not database or database == self.session.database:
            return []
        self.session.database = database
        text = database.decode("utf-8", "surrogateescape")
        name = self.options.rename_databases.get(text, text).encode("utf-8", "surrogateescape")
        statements = [] if name.isascii() else self.session.set_for_names()
        target, mode = b" `" + name.replace(b"`", b"``") + b"`", NO_BACKSLASH_ESCAPES
        if _PLAIN_NAME.fullmatch(name):
            return [*statements, b"USE" + target]
        hidden, reason = client.make_client_safe(b"/*!USE*/" + target, self.session.client_charset, mode)
        if reason is not None:
            raise Unwritable(f"the name of its database is not written: {reason}")
        before, after = self.session.set_no_backslash_escapes(mode) if client.has_lossy_backslashes(name) else ([], [])
        return [*statements, *before, hidden, *after]

    def _write_commit(self, context: EventContext) -> list[bytes]:
        """End the transaction and return COMMIT, if one is needed."""
        self.transaction.end()
        is_needed, self.is_create_open = self.is_create_open or not self.options.flat, False
        return [b"COMMIT"] if is_needed else []

    def _write_xa_prepare(self, context: EventContext) -> list[bytes]:
        """Return XA PREPARE, or XA COMMIT … ONE PHASE."""
        body = decode_body(_T.XA_PREPARE, bytes(context.event.body), context.file.description)
        data = bytes(context.event.body)[13:]
        middle = body["gtrid_len"] if "gtrid_len" in body else int.from_bytes(context.event.body[5:9], "little")
        xid = format_xid(data[:middle], data[middle:], int.from_bytes(context.event.body[1:5], "little", signed=True))
        self.transaction.take_rollback()
        return [b"XA COMMIT " + xid + b" ONE PHASE" if context.event.body[0] else b"XA PREPARE " + xid]

    def _add_variable(self, context: EventContext) -> list[bytes]:
        """Keep a variable for the next statement."""
        self.pending_variables.append(decode_variable(context))
        return []

    def _add_load_data(self, context: EventContext) -> list[bytes]:
        """Take a part of a file for LOAD DATA."""
        self.loads.add_part(context)
        return []


EVENT_WRITERS: Mapping[int, Callable[[EventStatementWriter, EventContext], Sequence[Statement]]] = {
    _T.GTID: EventStatementWriter._write_mariadb_gtid,
    **dict.fromkeys((_T.GTID_LOG, _T.GTID_TAGGED_LOG, _T.ANONYMOUS_GTID), EventStatementWriter._write_mysql_gtid),
    **dict.fromkeys(STATEMENT_EVENTS, EventStatementWriter._write_query),
    **dict.fromkeys(VARIABLE_EVENTS, EventStatementWriter._add_variable),
    **dict.fromkeys(LOAD_DATA_EVENTS, EventStatementWriter._add_load_data),
    _T.XID: EventStatementWriter._write_commit,
    _T.XA_PREPARE: EventStatementWriter._write_xa_prepare,
}
