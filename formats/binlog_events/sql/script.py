"""Write a log as an SQL script that a server accepts.

Statements are written as logged, in the session that the log describes; row events as BINLOG or, on request, as INSERT,
UPDATE and DELETE; all in the order in which the servers' own tools write them. A transaction that is partly lost is
rolled back: its statements before the loss are already in the script, the rest is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch, FlatRecords, Kernel, to_int_list
from binlogtool.format_api.row_output_interfaces import ScriptOptions, SidecarFiles
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.ddl.split_sql_statements import NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.ddl.table_history import TableCatalog
from binlogtool.formats.binlog_events.decode import NO_TRANSACTION, BinlogFileContext, OwningTransaction, type_name
from binlogtool.formats.binlog_events.event_schemas import (
    QueryParts,
    decode_body,
    get_event,
    parse_load_file,
    parse_query,
    parse_xa_prepare,
)
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    ALLOW_PARALLEL,
    PREPARED_XA,
    read_mariadb_gtid,
    read_mysql_gtid,
)
from binlogtool.formats.binlog_events.rows.rows_event import count_rows
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.client_safe_statements import (
    explain_why_not_sendable,
    has_lossy_backslashes,
    is_stored_program_definition,
)
from binlogtool.formats.binlog_events.sql.format_literals import (
    format_double_literal,
    format_hex_literal,
    quote_identifier,
)
from binlogtool.formats.binlog_events.sql.row_statements import (
    RowEventWriter,
    format_annotation_comments,
    format_row_comments,
    select_rows_by_filter,
)
from binlogtool.formats.binlog_events.sql.script_state import (
    FINISHING_STATEMENTS,
    EventContext,
    LargestStatementSize,
    PartialTransactions,
    ScriptFilter,
    ScriptTransaction,
    Statement,
    TerminatedStatement,
    Unwritable,
    build_event,
    find_mentioned_database,
    format_description_binlog,
    format_event_comment,
    get_statement_kind,
    make_context_event_finding,
    make_event_context,
    read_query_and_text,
    terminate_statements,
)
from binlogtool.formats.binlog_events.sql.script_writer_with_kernels import CompiledScriptWriter
from binlogtool.formats.binlog_events.sql.session_statements import (
    SET_GTID_AUTOMATIC,
    QuerySession,
    ScriptSession,
    explain_different_effect,
    explain_refused_session,
    has_gtids,
    write_mariadb_gtid_settings,
    write_mysql_gtid_settings,
    write_parallel_replication_setting,
)
from binlogtool.formats.binlog_events.status_variables import decode_status_variables
from binlogtool.formats.binlog_events.transactions.boundaries import (
    EVENTS_OUTSIDE_GROUPS,
    STANDALONE,
    GroupStep,
    QueryKind,
    XaId,
    get_query_kind,
)
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROLLBACK_ALTER,
    ROW_EVENTS,
    START_ALTER,
    STATEMENT_EVENTS,
    EventFlag,
    EventType,
    FormatDescription,
)
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.flashback import FlashbackScript


# --- First and last lines of a script ---

_MAX_MISSING_LINES = 1000
_ROLLED_BACK = "the last transaction has no end in the part read; the script rolls it back"
"""Maximum number of lines at the end of a script about missing parts."""


class ScriptFrame(msgspec.Struct):
    """First and last lines of a script, and the state that they depend on.

    `announced`: the FORMAT_DESCRIPTION that the server received last. `missing`: parts that are not in the script.
    """

    announced: FormatDescription | None = None
    missing: list[str] = msgspec.field(default_factory=list)

    def format_description_if_new(self, context: BinlogFileContext, *, is_open: bool) -> bytes:
        """Return the BINLOG of FORMAT_DESCRIPTION; it must precede the events it describes, outside transactions."""
        description, previous = context.description, self.announced
        if description is previous or (is_open and previous is not None):
            return b""
        self.announced = description
        if previous is not None and _description_key(previous) == _description_key(description):
            return b""
        if not description.event:
            return b"" if previous is not None else client_safe_statements.format_script_header("a server")
        text = b"" if previous is not None else client_safe_statements.format_script_header(description.server_version)
        text += (
            client_safe_statements.append_statement_end(b"ROLLBACK")
            if description.create_timestamp or previous is None
            else b""
        )
        if previous is not None and has_gtids(previous):  # MySQL refuses a BINLOG after a transaction with a GTID
            text += client_safe_statements.append_statement_end(SET_GTID_AUTOMATIC)
        text += client_safe_statements.append_statement_end(format_description_binlog(description))
        return text + (
            client_safe_statements.append_statement_end(SET_GTID_AUTOMATIC) if has_gtids(description) else b""
        )

    def record_missing_part(self, description: str) -> None:
        """Record a part of the log that is missing."""
        if description and len(self.missing) < _MAX_MISSING_LINES:
            self.missing.append(description)

    def format_footer(self, session: ScriptSession, stop_reasons: Sequence[str]) -> bytes:
        """Return the lines that restore the client's state, and comments about missing parts.

        `stop_reasons`: why the script ends before the end of the log.
        """
        last = (
            client_safe_statements.append_statement_end(SET_GTID_AUTOMATIC)
            if self.announced is not None and has_gtids(self.announced)
            else b""
        )
        last += session.write_restored_session() + client_safe_statements.SCRIPT_FOOTER
        lines = map(sanitize_line, (*self.missing, *stop_reasons))
        return last + b"".join(f"# {text}\n".encode("ascii", "backslashreplace") for text in lines)


def sanitize_line(text: str) -> str:
    """Return text from the log in a form that fits into a one-line comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _description_key(description: FormatDescription) -> tuple[str, bytes, int | None]:
    """Return the properties of events that a server must know from their FORMAT_DESCRIPTION."""
    return description.server_version, description.post_header_len, description.checksum_alg


# --- LOAD DATA in a script ---

_T = EventType
LOAD_DATA_EVENTS = (_T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE)

_DUPLICATES = {1: b" IGNORE", 2: b" REPLACE"}


class LoadDataFiles(msgspec.Struct):
    """Files for LOAD DATA that the log contains; `names`: file names by file number in the log, until they are used."""

    sidecar_files: SidecarFiles | None
    names: dict[int, str] = msgspec.field(default_factory=dict)
    file_count: int = 0

    def store_file_part(self, context: EventContext) -> None:
        """Store a part of a file, or drop a file that is not used.

        Raises:
            MalformedError: the event has no file number.
            Unwritable: the file is unknown.
        """
        body = context.event.body
        if len(body) < 4:
            raise MalformedError("the file number is truncated")
        number = int.from_bytes(body[:4], "little")
        if context.event.code == _T.DELETE_FILE:
            self.names.pop(number, None)
            return
        if self.sidecar_files is None:
            return  # reported where the file is used
        if context.event.code == _T.BEGIN_LOAD_QUERY:
            self.file_count += 1
            self.names[number] = f"load-{self.file_count:06d}"
        elif number not in self.names:
            raise Unwritable("the beginning of the file is missing")
        self.sidecar_files.add(self.names[number], bytes(body[4:]))

    def format_load_data_statement(self, context: EventContext, sql: bytes) -> bytes:
        """Return the LOAD DATA statement with the path of its file.

        Raises:
            MalformedError: the offsets of the file name do not fit.
            Unwritable: there is no such file, or no directory for it.
        """
        number, start, end, duplicates = parse_load_file(bytes(context.event.body))
        if self.sidecar_files is None:
            raise Unwritable(
                "LOAD DATA needs a directory for the file whose parts are in the log; give it with --load-files"
            )
        name = self.names.pop(number, None)
        if name is None:
            raise Unwritable("the parts of the file for LOAD DATA are missing")
        if not start <= end <= len(sql):
            raise MalformedError(f"the file name is at {start} to {end} of {len(sql)} bytes")
        path = (
            self.sidecar_files.path(name).replace("\\", "\\\\").replace("'", "\\'").encode("utf-8", "surrogateescape")
        )
        return b"%b LOCAL INFILE '%b'%b INTO%b" % (sql[:start], path, _DUPLICATES.get(duplicates, b""), sql[end:])


# --- INTVAR, RAND and USER_VAR events ---

_BINARY = 63

VARIABLE_EVENTS = (_T.INTVAR, _T.RAND, _T.USER_VAR)


VariableEvent = tuple[int, Mapping[str, Any]]
"""(type code, decoded body) of an INTVAR, RAND or USER_VAR event."""


def decode_variable_event(context: EventContext) -> VariableEvent:
    """Decode the variable that an event sets.

    Raises:
        MalformedError: the event cannot be read.
        Unwritable: no statement can set it.
    """
    code = context.event.code
    body = decode_body(code, bytes(context.event.body), context.file.description)
    if code == _T.INTVAR and body["type"] not in ("LAST_INSERT_ID", "INSERT_ID"):
        raise Unwritable(f"variable {body['type']} is not known")
    if code == _T.USER_VAR and not isinstance(body["name"], str):
        raise Unwritable("the name of the variable is not valid text")
    if code == _T.USER_VAR and "\0" in body["name"]:
        raise Unwritable("the name of the variable contains a zero byte, which servers refuse")
    if isinstance(body.get("value"), float) and format_double_literal(body["value"]) is None:
        raise Unwritable("its value is not a finite number")
    return code, body


def iter_variable_assignments(variables: Iterable[VariableEvent], session: ScriptSession) -> Iterator[bytes]:
    """Yield the statements that set variables."""
    for code, body in variables:
        if code == _T.RAND:
            yield f"SET @@RAND_SEED1={body['seed1']}, @@RAND_SEED2={body['seed2']}".encode()
        elif code == _T.INTVAR:
            yield f"SET {body['type']}={body['value']}".encode()
        else:
            yield from _format_user_variable_assignment(body, session)


def _format_user_variable_assignment(body: Mapping[str, Any], session: ScriptSession) -> list[bytes]:
    """Return the statements that set a user variable."""
    quoted_name = quote_identifier(body["name"])
    statements = [] if quoted_name.isascii() else session.write_session_for_utf8_names()
    value = _format_user_variable_value(body)
    if body.get("type") == "STRING" and value.startswith(b"CAST"):
        statements += session.write_changed_variables({"@@session.collation_connection": str(body["charset"])})
    before, after = session.wrap_in_no_backslash_escapes(0) if has_lossy_backslashes(quoted_name) else ([], [])
    return [*statements, *before, b"SET @" + quoted_name + b":=" + value, *after]


def _format_user_variable_value(body: Mapping[str, Any]) -> bytes:
    """Return the value of a user variable as SQL."""
    value, kind = body.get("value"), body.get("type")
    if body.get("is_null") or kind is None:
        return b"NULL"
    if kind == "STRING":
        raw = format_hex_literal(value.encode() if isinstance(value, str) else bytes(value or b""))
        return raw if body["charset"] == _BINARY else b"CAST(" + raw + b" AS CHAR)"
    return (format_double_literal(value) if isinstance(value, float) else str(value).encode()) or b"NULL"


# --- Statements of single events ---

_PLAIN_NAME = re.compile(rb"[\w$.\x80-\xff-]+")
"""Database name that a client without --binary-mode can read in a USE command; other names are put in a comment."""


@dataclass(slots=True)
class EventStatementWriter:
    """Writer of single events as statements, with the state of the script.

    `skips_next`: the next statement is an ALTER that is completed later or never. `pending_variables`: variables to set
    for the next statement; they are dropped if it is dropped.
    """

    options: ScriptOptions = ScriptOptions()
    session: ScriptSession = field(default_factory=ScriptSession)
    transaction: ScriptTransaction = field(default_factory=ScriptTransaction)
    script_filter: ScriptFilter = field(init=False)
    skips_next: bool = False
    pending_variables: list[VariableEvent] = field(default_factory=list)
    frame: ScriptFrame = field(default_factory=ScriptFrame)
    definitions: TableCatalog = field(default_factory=TableCatalog)
    rows: RowEventWriter = field(init=False)
    loads: LoadDataFiles = field(init=False)
    sizes: LargestStatementSize = field(default_factory=LargestStatementSize)

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
        """True if the script depends on table definitions in statements."""
        return self.options.comments or self.options.rows == "statements" or self.options.row_filter is not None

    def _write_mariadb_gtid(self, context: EventContext) -> list[bytes]:
        """Return the statements of MariaDB's GTID event."""
        gtid = read_mariadb_gtid(bytes(context.event.body))
        self.transaction.current_transaction = context.transaction
        self.skips_next = bool((gtid.flags_extra or 0) & (START_ALTER | ROLLBACK_ALTER))
        self.script_filter.hold_transaction_start(self.session)
        statements = write_parallel_replication_setting(self.session, allowed=bool(gtid.flags2 & ALLOW_PARALLEL))
        statements += write_mariadb_gtid_settings(context.event, gtid, self.session) if self.options.gtids else []
        if gtid.flags2 & PREPARED_XA:
            xa_id = XaId(gtid.format_id or 0, gtid.gtrid or b"", gtid.bqual or b"")
            return [*statements, self.transaction.record_xa_start(xa_id.text.encode())]
        if not gtid.flags2 & STANDALONE:
            self.transaction.record_begin()
            statements.append(b"START TRANSACTION")
        return statements

    def _write_mysql_gtid(self, context: EventContext) -> list[bytes]:
        """Return the statements of MySQL's GTID events."""
        self.transaction.current_transaction = context.transaction
        self.script_filter.hold_transaction_start(self.session)
        if not self.options.gtids:
            return []
        gtid = read_mysql_gtid(context.event.code, bytes(context.event.body))
        statements = write_mysql_gtid_settings(context.event, gtid, context.transaction.gtid, self.session)
        self.transaction.has_unused_gtid = self.session.gtid_next != "AUTOMATIC"
        return statements

    def _write_query(self, context: EventContext) -> Sequence[Statement]:
        """Return the statements of a QUERY or EXECUTE_LOAD_QUERY event."""
        (parts, sql), kind = read_query_and_text(context), get_statement_kind(context)
        if kind is None or kind is QueryKind.STATEMENT:
            return self._write_logged_statement(context, parts, sql)
        if kind in (QueryKind.BEGIN, QueryKind.XA_START):
            self.script_filter.hold_transaction_start(self.session)
        statements: list[Statement] = [*self._write_session_settings(context, parts)]
        self.transaction.record_transaction_statement(kind, sql)
        return statements + self._write_client_safe_text(sql)

    def _write_logged_statement(self, context: EventContext, parts: QueryParts, sql: bytes) -> list[Statement]:
        """Return a statement other than BEGIN, COMMIT and the like, with the session that it needs."""
        pending, self.pending_variables = self.pending_variables, []
        if self.skips_next:
            return []
        if self.script_filter.stop_if_statement_matches(context, sql, parts.db):
            return []
        if self.needs_definitions:
            self.definitions.apply_statement(sql, parts)
        if self.script_filter.exclude_if_unselected(context, parts, sql):
            return []
        renamed = find_mentioned_database(sql, self.options.rename_databases)
        if renamed is not None:
            raise Unwritable(f"its text contains the name {renamed}, and --rewrite does not change statement texts")
        statements: list[Statement] = [
            *iter_variable_assignments(pending, self.session),
            *self._write_use_if_needed(parts.db, context.event.flags),
        ]
        statements += self._write_session_settings(context, parts)
        if context.event.code == _T.EXECUTE_LOAD_QUERY:
            sql = self.loads.format_load_data_statement(context, sql)
        text = self._write_client_safe_text(sql, is_load_data=context.event.code == _T.EXECUTE_LOAD_QUERY)
        self.transaction.has_unused_gtid = False
        return [*statements, *text]

    def _write_session_settings(self, context: EventContext, parts: QueryParts) -> list[bytes]:
        """Return the SET statements for the session of a statement."""
        event = context.event
        status = decode_status_variables(parts.status_vars)
        reason = explain_refused_session(status)
        if reason is not None:
            raise Unwritable(reason)
        query = QuerySession(status, event.time, parts.thread_id, bool(self.transaction.rollback_statements))
        return self.session.write_session_for_query(query, context.file.description)

    def _write_client_safe_text(self, sql: bytes, *, is_load_data: bool = False) -> list[Statement]:
        """Return an SQL text from the log, preceded by the sql_mode that a client needs to parse it.

        Args:
            is_load_data: whether it is a LOAD DATA, see `explain_why_not_sendable`.

        Raises:
            Unwritable: clients or servers would misread the text.
        """
        charset, mode = self.session.charset, self.session.sql_mode
        text, reason = client_safe_statements.make_client_safe_or_explain(sql, charset, mode)
        if reason is not None and client_safe_statements.is_same_without_backslash_escapes(sql, charset, mode):
            return self._write_text_without_escapes(sql, reason, is_load_data=is_load_data)
        reason = reason or explain_why_not_sendable(sql, charset, mode, is_load_data=is_load_data)
        if reason is not None:
            raise Unwritable(reason)
        return [
            *(
                self.session.write_sql_mode_again()
                if client_safe_statements.is_sql_mode_dependent(sql, charset)
                else ()
            ),
            text,
        ]

    def _write_text_without_escapes(self, sql: bytes, reason: str, *, is_load_data: bool) -> list[Statement]:
        """Return a text that clients agree on only under NO_BACKSLASH_ESCAPES: names have backslashes at line ends.

        Args:
            reason: why it cannot be written without this mode.

        Raises:
            Unwritable: clients disagree even then, or it defines a stored program, which keeps its sql_mode.
        """
        charset, mode = self.session.charset, self.session.sql_mode | NO_BACKSLASH_ESCAPES
        text, other_reason = client_safe_statements.make_client_safe_or_explain(sql, charset, mode)
        other_reason = other_reason or explain_why_not_sendable(sql, charset, mode, is_load_data=is_load_data)
        if other_reason is not None or is_stored_program_definition(sql, charset, mode):
            raise Unwritable(reason)
        before, after = self.session.wrap_in_no_backslash_escapes(mode)
        return [*before, TerminatedStatement((client_safe_statements.terminate_statement(text, charset),)), *after]

    def _write_use_if_needed(self, database: bytes, flags: int) -> list[bytes]:
        """Return the USE statement for a database that is not the current one of the session."""
        if flags & EventFlag.SUPPRESS_USE:
            self.session.database = None  # it may be a CREATE or DROP DATABASE
            return []
        if not database or database == self.session.database:
            return []
        self.session.database = database
        text = database.decode("utf-8", "surrogateescape")
        name = (self.options.rename_databases.find_new_name(text) or text).encode("utf-8", "surrogateescape")
        statements = [] if name.isascii() else self.session.write_session_for_utf8_names()
        target, mode = b" `" + name.replace(b"`", b"``") + b"`", NO_BACKSLASH_ESCAPES
        if _PLAIN_NAME.fullmatch(name):
            return [*statements, b"USE" + target]
        hidden, reason = client_safe_statements.make_client_safe_or_explain(
            b"/*!USE*/" + target, self.session.client_charset, mode
        )
        if reason is not None:
            raise Unwritable(f"the name of its database cannot be written: {reason}")
        before, after = (
            self.session.wrap_in_no_backslash_escapes(mode)
            if client_safe_statements.has_lossy_backslashes(name)
            else ([], [])
        )
        return [*statements, *before, hidden, *after]

    def _write_commit(self, context: EventContext) -> list[bytes]:
        """End the transaction and return COMMIT."""
        self.transaction.record_end()
        return [b"COMMIT"]

    def _write_xa_prepare(self, context: EventContext) -> list[bytes]:
        """Return XA PREPARE, or XA COMMIT … ONE PHASE."""
        one_phase, *parts = parse_xa_prepare(bytes(context.event.body))
        xid = XaId(*parts).text.encode()
        self.transaction.close_and_get_rollback()
        return [b"XA COMMIT " + xid + b" ONE PHASE" if one_phase else b"XA PREPARE " + xid]

    def _keep_for_next_statement(self, context: EventContext) -> list[bytes]:
        """Keep a variable for the next statement; return no statements."""
        self.pending_variables.append(decode_variable_event(context))
        return []

    def _store_load_data_part(self, context: EventContext) -> list[bytes]:
        """Store a part of a file for LOAD DATA; return no statements."""
        self.loads.store_file_part(context)
        return []


EVENT_WRITERS: Mapping[int, Callable[[EventStatementWriter, EventContext], Sequence[Statement]]] = {
    _T.GTID: EventStatementWriter._write_mariadb_gtid,
    **dict.fromkeys((_T.GTID_LOG, _T.GTID_TAGGED_LOG, _T.ANONYMOUS_GTID), EventStatementWriter._write_mysql_gtid),
    **dict.fromkeys(STATEMENT_EVENTS, EventStatementWriter._write_query),
    **dict.fromkeys(VARIABLE_EVENTS, EventStatementWriter._keep_for_next_statement),
    **dict.fromkeys(LOAD_DATA_EVENTS, EventStatementWriter._store_load_data_part),
    _T.XID: EventStatementWriter._write_commit,
    _T.XA_PREPARE: EventStatementWriter._write_xa_prepare,
}


# --- The log as statements that a server accepts ---

_EVENTS_WITHOUT_STATEMENT = EVENTS_OUTSIDE_GROUPS - {_T.INCIDENT} | {
    _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE,
}  # fmt: skip
_ROW_EVENTS = ROW_EVENTS | {_T.TABLE_MAP}
_CHANGE_EVENTS = ROW_EVENTS | {_T.QUERY, _T.QUERY_COMPRESSED, _T.EXECUTE_LOAD_QUERY}
_COMMIT_EVENTS = frozenset({_T.XID, _T.XA_PREPARE})


@dataclass(slots=True)
class SqlScript(EventStatementWriter):
    """Script that replays the selected events of a log."""

    row_changes: int | None = None
    """Number of row changes written; only counted for scripts that have only some of the rows."""
    is_empty: bool = True
    """True if nothing from the log has been written so far."""
    ends_open: bool = False
    """True if the log ended inside a transaction, which the script rolls back."""
    partial_transactions: PartialTransactions = field(default_factory=PartialTransactions)
    _fast_path: tuple[BinlogFileContext, CompiledScriptWriter] | None = None

    def make_record_texts(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each record."""
        self.definitions.load_starting_definitions(context.tracker.maps.history)
        notes = context.tracker.track_batch(batch)
        owners, maps = notes.transactions[start:stop], notes.maps[start:stop]
        return [
            self._write_record(make_event_context(context, batch, index, get_event(batch, index), owner, table, limits))
            for index, owner, table in zip(range(start, stop), owners, maps, strict=True)
        ]

    def write_until_unsupported(
        self,
        context: BinlogFileContext,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Write the first of these records with compiled code (`ScriptWriter.write_until_unsupported`)."""
        if self._fast_path is None or self._fast_path[0] is not context:
            self._fast_path = (context, CompiledScriptWriter(context, compile_))
        if self.frame.announced is not context.description or start == stop:
            return b"", start
        text, reached = self._fast_path[1].write_events(self, batch, start, stop, limits)
        self.sizes.add_text(text, context.description)
        self.is_empty = self.is_empty and reached == start
        return text, reached

    def note_unselected_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> None:
        """Process records that are not selected: table definitions and transactions in them."""
        owners = context.tracker.track_batch(batch).transactions
        self.definitions.load_starting_definitions(context.tracker.maps.history)
        for index, code in enumerate(to_int_list(batch.frames["type_code"], start, stop), start):
            if code in _CHANGE_EVENTS or code in _COMMIT_EVENTS:
                self._track_unselected_event(context, batch, index, owners[index], limits)

    def _track_unselected_event(
        self, context: BinlogFileContext, batch: Batch, index: int, transaction: OwningTransaction, limits: Limits
    ) -> None:
        """Process an event that is not selected."""
        event = get_event(batch, index)
        kind = get_query_kind(event.code, event.body) if event.code in QUERY_EVENTS else None
        if kind in (None, QueryKind.STATEMENT) or kind in FINISHING_STATEMENTS:
            if event.code in _CHANGE_EVENTS and kind not in FINISHING_STATEMENTS:
                self.partial_transactions.last_skipped = transaction
            self.partial_transactions.count_if_partly_selected(transaction, self.partial_transactions.last_written)
        if self.needs_definitions and kind is QueryKind.STATEMENT:
            with suppress(MalformedError, DecompressionError):
                parts, sql = read_query_and_text(
                    make_event_context(context, batch, index, event, transaction, None, limits)
                )
                self.definitions.apply_statement(sql, parts)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for the next event."""
        nothing_pending = not (self.pending_variables or self.skips_next) and self.rows.is_empty
        is_as_logged = not self.transaction.is_damaged and self.transaction.implied_transaction == NO_TRANSACTION
        return nothing_pending and is_as_logged and self.script_filter.is_idle

    # -- the beginning and the end -------------------------------------------------------------------------------------

    @property
    def has_open_transaction(self) -> bool:
        """True if a transaction has begun and its end was not read."""
        return self.transaction.groups.is_open

    def write_text_for_gap(self, what: str = "") -> bytes:
        """Roll back the open transaction, and write nothing until the next one begins."""
        self.frame.record_missing_part(what)
        self.transaction.record_loss()
        return self._write_rollback()

    def finish(self) -> bytes:
        """Close what is open, list missing parts, and restore the client's state; return the text."""
        if self.frame.announced is None:
            return b""
        is_complete = not (self.transaction.is_damaged or self.stop_finding)
        last = self._end_pending_row_statement(self.frame.announced) if is_complete else b""
        last += self._commit_implied_if_ended(NO_TRANSACTION)
        rollback = self._write_rollback()
        self.ends_open, last = bool(rollback) and is_complete, last + rollback
        return last + self.frame.format_footer(self.session, [self.stop_finding.message] if self.stop_finding else [])

    def final_findings(self) -> Sequence[Finding]:
        """Return findings about parts that the options left out, and about requirements of the script."""
        description, partial = self.frame.announced, list(self.partial_transactions.list_findings())
        unfinished = make_finding("incomplete-transaction", None, 0, _ROLLED_BACK, severity=Severity.WARNING)
        return [
            *self.script_filter.list_left_out_findings(),
            *(partial or ([unfinished] if self.ends_open else [])),
            *self.sizes.list_findings(description),
        ]

    # -- one record ----------------------------------------------------------------------------------------------------

    def _write_record(self, context: EventContext) -> bytes | BodyWithFindings:
        """Return the text for one record."""
        code = context.event.code
        prefix = self.frame.format_description_if_new(context.file, is_open=self.transaction.groups.is_open)
        if (context.file.encrypted_without_key and code not in EVENT_TYPE_NAMES) or self.stop_finding is not None:
            return prefix  # the finding about the file covers all of them
        was_open = self.transaction.groups.is_open
        is_payload = code == _T.TRANSACTION_PAYLOAD
        step = GroupStep.OUTSIDE if is_payload else self.transaction.groups.advance_to_event(code, context.event.body)
        if self.transaction.is_damaged and not self.transaction.try_resume_after_loss(context, step):
            return prefix
        if code not in _ROW_EVENTS:
            prefix += self._end_pending_row_statement(context.file.description)
        prefix += self._commit_implied_if_ended(context.transaction)
        if code in GTID_EVENTS or (step is GroupStep.OPENS and not was_open):
            prefix += self._write_rollback()  # the previous transaction has no end
            self.transaction.status_vars = b""
        if not self.skips_next and self.script_filter.stop_if_annotation_matches(context):
            return prefix
        return self._write_event_with_findings(context, step, prefix)

    def _write_event_with_findings(
        self, context: EventContext, step: GroupStep, prefix: bytes
    ) -> bytes | BodyWithFindings:
        """Return the text of a record, with findings if something is missing.

        `context`: the event. `step`: its role in its transaction. `prefix`: the text before it.
        """
        session = self.session.copy()
        try:
            context = self._reduce_to_selected_rows(context)
            statements, findings = self._write_statements(context)
        except (MalformedError, DecompressionError, Unwritable) as error:
            self.transaction.is_damaged = self.transaction.groups.is_open
            self.session = self.rows.session = session  # the statements that would change it are not written either
            reason = f"{type_name(context.event.code)} cannot be written as a statement: {error.args[0]}"
            rollback = (
                self._write_rollback() if self.transaction.is_damaged or self.transaction.has_unused_gtid else b""
            )
            return BodyWithFindings(
                prefix + rollback, (make_context_event_finding(context, "payload-undecodable", reason),)
            )
        text = self._assemble_text(
            context, step, statements, self._write_event_as_comments(context) if self.options.comments else b""
        )
        return BodyWithFindings(prefix + text, findings) if findings else prefix + text

    def _reduce_to_selected_rows(self, context: EventContext) -> EventContext:
        """Return the event reduced to its selected rows."""
        condition, table, event = self.options.row_filter, context.table, context.event
        if condition is None or table is None or event.code not in ROW_EVENTS:
            return context
        selected, _ = select_rows_by_filter(
            context.file, event, self.definitions.add_known_column_facts(table), condition, context.limits
        )
        if selected is None or selected is event:
            return replace(context, left_out=selected is None)
        raw = build_event(event, selected.code, bytes(selected.body), context.file.description)
        return replace(context, event=selected, raw=memoryview(raw))

    def _write_event_as_comments(self, context: EventContext) -> bytes:
        """Return the contents of the event as comments."""
        if context.event.code in QUERY_EVENTS:
            with suppress(MalformedError):
                self.transaction.status_vars = parse_query(bytes(context.event.body)).status_vars
        if context.event.code not in ROW_EVENTS or context.table is None:
            return format_annotation_comments(context, self.transaction.status_vars)
        if context.left_out or (
            self.options.includes_table is not None and not self.options.includes_table(context.table.qualified_name)
        ):
            return b""
        try:
            return format_row_comments(context, self.definitions.add_known_column_facts(context.table))
        except (MalformedError, DecompressionError) as error:
            return f"### not shown: {sanitize_line(str(error.args[0]))}\n".encode()

    def _assemble_text(
        self, context: EventContext, step: GroupStep, statements: Sequence[Statement], comments: bytes
    ) -> bytes:
        """Return the text of an event; if only parts are selected, the text that its transaction may write so far."""
        self.script_filter.record_transaction_end(context, step)
        self.sizes.add_statements(statements)
        if statements and context.event.code in _CHANGE_EVENTS:
            self.is_empty = False
            if get_statement_kind(context) in (None, QueryKind.STATEMENT):
                self.partial_transactions.last_written = context.transaction
                self.partial_transactions.count_if_partly_selected(
                    context.transaction, self.partial_transactions.last_skipped
                )
        parts = terminate_statements(
            statements, self.session.charset if context.event.code in STATEMENT_EVENTS else None
        )
        if statements and self.transaction.begin_implied_if_needed(context):
            parts.insert(0, client_safe_statements.append_statement_end(b"START TRANSACTION"))
        if statements or comments or context.event.code in GTID_EVENTS or context.event.code == _T.FORMAT_DESCRIPTION:
            parts[:0] = [format_event_comment(context), comments]
        text = self.script_filter.release_text(
            context, step, b"".join(parts), has_statements=bool(statements), has_output=bool(statements or comments)
        )
        if text is None:
            self._discard_unselected_transaction()
        return text or b""

    def _discard_unselected_transaction(self) -> None:
        """Restore the session from before a transaction of which nothing was selected."""
        session = self.script_filter.discard_held_start()
        if session is not None:
            self.session = self.rows.session = session
            self.transaction.record_end()

    def _end_pending_row_statement(self, description: FormatDescription) -> bytes:
        """Return the pending row events of a statement whose end is not selected."""
        statements = self.rows.end_pending_statement(description)
        self.sizes.add_statements(statements)
        return b"".join(terminate_statements(statements, None))

    def _write_rollback(self) -> bytes:
        """Return the rollback of the open transaction, and drop its pending row events and variables."""
        self.rows.discard_pending_events()
        self.pending_variables.clear()
        self._discard_unselected_transaction()
        rollback = self.transaction.close_and_get_rollback()
        note = b"# the rest of this transaction is missing\n" if rollback else b""
        return note + b"".join(map(client_safe_statements.append_statement_end, rollback))

    def _commit_implied_if_ended(self, transaction: OwningTransaction) -> bytes:
        """Return COMMIT for a transaction that this script began itself, when another transaction begins."""
        return (
            client_safe_statements.append_statement_end(b"COMMIT")
            if self.transaction.end_implied_if_needed(transaction)
            else b""
        )

    # -- statements ----------------------------------------------------------------------------------------------------

    def _write_statements(self, context: EventContext) -> tuple[Sequence[Statement], tuple[Finding, ...]]:
        """Return the statements of an event, and findings about them."""
        code = context.event.code
        if code in _ROW_EVENTS:
            statements, reason = self.rows.write_row_event(context)
            self._count_written_rows(context)
            return statements, (make_context_event_finding(context, "statement-inexact", reason),) if reason else ()
        if code in _EVENTS_WITHOUT_STATEMENT:
            if code == _T.FORMAT_DESCRIPTION and not context.file.is_relay_log:
                return [*self.transaction.close_and_get_rollback()], ()  # the server crashed in the open transaction
            return [], ()
        write = EVENT_WRITERS.get(code)
        if write is not None:
            statements = write(self, context)
            return statements, tuple(
                self._iter_inexact_findings(context)
            ) if statements and code in STATEMENT_EVENTS else ()
        if context.event.flags & EventFlag.IGNORABLE:
            return [], ()
        raise Unwritable(_UNWRITABLE_REASONS.get(code, "unknown event type"))

    def _count_written_rows(self, context: EventContext) -> None:
        """Count the row changes of an event that are written."""
        tables, event, table = self.options.includes_table, context.event, context.table
        if tables is None or table is None or context.left_out or event.code not in ROW_EVENTS:
            return
        count = count_rows(event.code, event.body, table, context.limits) if tables(table.qualified_name) else 0
        self.row_changes = (self.row_changes or 0) + count

    @staticmethod
    def _iter_inexact_findings(context: EventContext) -> Iterator[Finding]:
        """Yield a finding if a statement has a different effect in a script than it had originally."""
        parts, sql = read_query_and_text(context)
        reason = explain_different_effect(decode_status_variables(parts.status_vars), sql)
        if reason is not None:
            yield make_context_event_finding(context, "statement-inexact", reason)


_UNWRITABLE_REASONS: Mapping[int, str] = {
    _T.INCIDENT: "the server lost events here",
    _T.PARTIAL_ROW_DATA: "it is a fragment of a row event; only MariaDB 12.3 and later can reassemble it",
}


def create_script(options: ScriptOptions) -> SqlScript | FlashbackScript:
    """Create the writer of the script that the options request (`OutputRules.start_script`)."""
    if not options.flashback:
        return SqlScript(options)
    from binlogtool.formats.binlog_events.sql.flashback import FlashbackScript

    return FlashbackScript(options)
