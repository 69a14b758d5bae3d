"""State of an SQL script while it is written: filters, open transaction, BINLOG statements within max_allowed_packet.

Rules for matching a statement pattern: case, spaces, comments, quotation marks around names, `IF EXISTS`, `IF NOT
EXISTS` and `TEMPORARY` are ignored. A name `db.t` in the pattern also matches `t` if db is the default database. All
words of the pattern must be at the start of the statement; after DROP TABLE (VIEW, DATABASE …) its name may be anywhere
in the list.
"""

from __future__ import annotations

import re
import struct
import zlib
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from msgspec.structs import replace as structs_replace

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.row_output_interfaces import DatabaseRenames, ScriptOptions
from binlogtool.formats.binlog_events.decode import NO_TRANSACTION, BinlogFileContext, OwningTransaction, type_name
from binlogtool.formats.binlog_events.event_schemas import Event, QueryParts, parse_load_query, parse_query
from binlogtool.formats.binlog_events.rows.rows_event import uncompress_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.client_safe_statements import STATEMENT_END
from binlogtool.formats.binlog_events.sql.session_statements import ScriptSession
from binlogtool.formats.binlog_events.transactions.boundaries import (
    EVENTS_ENDING_TRANSACTIONS,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    get_query_kind,
)
from binlogtool.formats.binlog_events.wire_format import (
    GTID_EVENTS,
    HEADER_SIZE,
    PACKED_HEADER,
    QUERY_EVENTS,
    ROW_EVENTS,
    STMT_END,
    EventType,
    FormatDescription,
    clear_in_use_flag,
    unpack_compressed_block,
)
from binlogtool.limits import MIB, Limits

# --- Database renames in a script ---

_MAX_NAME_BYTES = 64 * 3
"""Maximum size of a database name in bytes: servers allow 64 characters."""


def rename_table_map_database(table: TableMap, database_renames: DatabaseRenames) -> TableMap:
    """Return the TABLE_MAP with its database renamed, including the stored bytes.

    Raises:
        UsageError: the new name is too long for a TABLE_MAP.
    """
    new_name = database_renames.find_new_name(table.database)
    if new_name is None:
        return table
    cached = table.memo.get(("renamed", new_name))
    if cached is None:
        raw = new_name.encode()
        if not 0 < len(raw) <= _MAX_NAME_BYTES:
            raise UsageError(f"--rewrite: {new_name!r} is not a valid database name")
        start = table.table_id_size + 2
        body = table.body[:start] + bytes([len(raw)]) + raw + table.body[start + 1 + table.body[start] :]
        cached = table.memo["renamed", new_name] = replace(table, database=new_name, body=body, memo={})
    result: TableMap = cached
    return result


def find_mentioned_database(sql: bytes, databases: Mapping[str, str]) -> str | None:
    """Return the first database to be renamed that the text of a statement mentions; None if it mentions none."""
    for old in databases:
        pattern = rb"(?<![\w$])" + re.escape(old.encode()) + rb"(?![\w$])"
        if re.search(pattern, sql, re.IGNORECASE):
            return old
    return None


# --- Event with its context in a script ---


class Unwritable(Exception):
    """Error: an event cannot be written as a statement; the message says why."""


class EventContext(msgspec.Struct, frozen=True):
    """An event with its file, its transaction and its TABLE_MAP.

    `raw`: its bytes in the log. `nested_offset`: its offset in the event that contains it, -1 = not nested. `left_out`:
    none of its rows is selected.
    """

    file: BinlogFileContext
    event: Event
    transaction: OwningTransaction
    table: TableMap | None
    limits: Limits
    raw: memoryview
    nested_offset: int = -1
    left_out: bool = False


def make_event_context(
    file_context: BinlogFileContext,
    batch: Batch,
    index: int,
    event: Event,
    transaction: OwningTransaction,
    table: TableMap | None,
    limits: Limits,
) -> EventContext:
    """Return event `index` of a batch in its context."""
    low, high = int(batch.frames["offset"][index]), int(batch.frames["end"][index])
    return EventContext(
        file_context, event, transaction, table, limits, batch.window[low:high], batch.inner_offset(index)
    )


def read_query_and_text(event_context: EventContext) -> tuple[QueryParts, bytes]:
    """Return the parts of a QUERY or LOAD DATA event, and its text.

    Raises:
        MalformedError, DecompressionError: the event cannot be read.
    """
    return read_event_query_and_text(event_context.event, event_context.limits)


def read_event_query_and_text(event: Event, limits: Limits) -> tuple[QueryParts, bytes]:
    """Return the parts of a QUERY or LOAD DATA event, and its text; raises the same errors as `read_query_and_text`."""
    parts = (parse_load_query if event.code == EventType.EXECUTE_LOAD_QUERY else parse_query)(bytes(event.body))
    return parts, unpack_compressed_block(parts.sql, limits) if event.code == EventType.QUERY_COMPRESSED else parts.sql


def format_event_comment(context: EventContext) -> bytes:
    """Return the comment with offset and type of an event, and the GTID or file name if a new one begins."""
    position = str(context.event.start)
    if context.nested_offset >= 0:
        position += f"+{context.nested_offset}"
    label = context.transaction.gtid if context.event.code in GTID_EVENTS else None
    if context.event.code == EventType.FORMAT_DESCRIPTION:
        label = context.file.name
    label = f" {label}" if label and label.isprintable() else ""
    return f"# at {position} {type_name(context.event.code)}{label}\n".encode("utf-8", "backslashreplace")


# --- Open transaction of the server that runs a script ---

_T = EventType
FINISHING_STATEMENTS = (QueryKind.COMMIT, QueryKind.ROLLBACK)
ROLLBACK = (b"ROLLBACK",)


class ScriptTransaction(msgspec.Struct):
    """State of the open transaction of a script.

    `rollback_statements`: the statements that roll it back. `is_damaged`: a part of it is lost, so the rest must not be
    written. `current_transaction`: the transaction whose beginning was written. `implied_transaction`: the transaction
    that the
    script began itself, because its beginning is not selected. `has_unused_gtid`: MySQL's session has a GTID that no
    transaction has used yet; a ROLLBACK releases it. `status_vars`: status variables of its last QUERY.
    """

    groups: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    rollback_statements: tuple[bytes, ...] = ()
    is_damaged: bool = False
    current_transaction: OwningTransaction = NO_TRANSACTION
    implied_transaction: OwningTransaction = NO_TRANSACTION
    has_unused_gtid: bool = False
    status_vars: bytes = b""

    def record_loss(self) -> None:
        """Record that a part of the log is lost."""
        self.groups.reset()
        self.is_damaged, self.implied_transaction = True, NO_TRANSACTION

    def try_resume_after_loss(self, context: EventContext, step: GroupStep) -> bool:
        """Return whether this event is written again after a loss; also records the end of the lost transaction."""
        event = context.event
        is_new_file = event.code == _T.FORMAT_DESCRIPTION and not context.file.is_relay_log
        if event.code in GTID_EVENTS or step is GroupStep.OPENS or is_new_file:
            self.is_damaged = False
            return True
        if step is GroupStep.ENDS or is_transaction_end(context):
            self.is_damaged = False
        return False

    def begin_implied_if_needed(self, context: EventContext) -> bool:
        """Return whether the script must begin a transaction for this change: its own beginning is not selected."""
        event, owner = context.event, context.transaction
        is_change = event.code in ROW_EVENTS or get_statement_kind(context) is QueryKind.STATEMENT
        if not is_change or self.rollback_statements or owner == NO_TRANSACTION or owner == self.current_transaction:
            return False
        self.current_transaction = self.implied_transaction = owner
        self.rollback_statements = ROLLBACK
        return True

    def end_implied_if_needed(self, transaction: OwningTransaction) -> bool:
        """Return whether another transaction begins, so that the implied one must be committed."""
        if self.implied_transaction == NO_TRANSACTION or transaction == self.implied_transaction:
            return False
        self.record_end()
        return True

    def record_begin(self) -> None:
        """Record START TRANSACTION."""
        self.rollback_statements = ROLLBACK

    def record_xa_start(self, xid: bytes) -> bytes:
        """Record an XA START, and return the statement."""
        self.rollback_statements = (b"XA END " + xid, b"XA ROLLBACK " + xid)
        return b"XA START " + xid

    def record_end(self) -> None:
        """Record that the transaction was committed, rolled back or prepared."""
        self.rollback_statements, self.implied_transaction, self.has_unused_gtid = (), NO_TRANSACTION, False

    def close_and_get_rollback(self) -> tuple[bytes, ...]:
        """Return the statements that roll the transaction back, and close it."""
        statements, self.rollback_statements = (
            self.rollback_statements or (ROLLBACK if self.has_unused_gtid else ()),
            (),
        )
        self.has_unused_gtid = False
        return statements

    def record_transaction_statement(self, kind: QueryKind, sql: bytes) -> None:
        """Record the effect of a statement on the transaction."""
        self.has_unused_gtid = False
        if kind is QueryKind.BEGIN:
            self.record_begin()
        elif kind in FINISHING_STATEMENTS:
            self.record_end()
        elif kind is QueryKind.XA_START:
            self.record_xa_start(sql.split(None, 2)[2])
        elif kind is QueryKind.XA_END:
            self.rollback_statements = self.rollback_statements[-1:]


def get_statement_kind(context: EventContext) -> QueryKind | None:
    """Return the kind of a QUERY event; None for other events."""
    code = context.event.code
    return get_query_kind(code, context.event.body) if code in QUERY_EVENTS else None


def is_transaction_end(context: EventContext) -> bool:
    """Return whether this event ends a transaction and has no other effect."""
    return context.event.code in EVENTS_ENDING_TRANSACTIONS or get_statement_kind(context) in FINISHING_STATEMENTS


# --- The rule of `--stop-before` ---

_WORD = re.compile(
    rb"(?:\s+|--[\s][^\n]*|\#[^\n]*|/\*(?!M?!).*?(?:\*/|\Z)|/\*M?!\d*|\*/)"
    rb"|`([^`]*(?:``[^`]*)*)(?:`|\Z)"
    rb"|('[^'\\]*(?:(?:\\(?:.|\Z)|'')[^'\\]*)*(?:'|\Z)|\"[^\"\\]*(?:(?:\\(?:.|\Z)|\"\")[^\"\\]*)*(?:\"|\Z))"
    rb"|([\w$\x80-\xff]+)|(.)",
    re.DOTALL,
)
_MAX_BYTES = 1 << 16
_IGNORED_WORDS = (b"TEMPORARY", b"IF", b"NOT", b"EXISTS")
_LIST_OBJECTS = (b"TABLE", b"TABLES", b"VIEW", b"DATABASE", b"SCHEMA", b"SEQUENCE", b"USER")


class StatementPattern:
    """Pattern for the statement that the user names.

    Raises:
        UsageError: the pattern has no words.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = _join_qualified_names(list(_iter_words(text.encode("utf-8", "surrogateescape"))))
        if not self._words:
            raise UsageError(f"--stop-before {text!r} contains no statement")
        self._first = self._words[0]

    def matches(self, sql: bytes, database: bytes | None) -> bool:
        """Return whether a statement matches the pattern. database: the current one; None = it is not logged."""
        words = _join_qualified_names(list(_iter_words(sql[:_MAX_BYTES])))
        if not words or words[0] != self._first:
            return False
        pattern = self._words
        if len(words) >= len(pattern) and all(
            _is_same_word(a, b, database) for a, b in zip(words, pattern, strict=False)
        ):
            return True
        is_list = (
            len(pattern) == 3 and pattern[0] == b"DROP" and pattern[1] in _LIST_OBJECTS and words[1:2] == pattern[1:2]
        )
        return is_list and any(_is_same_word(word, pattern[2], database) for word in words[2:])


def _is_same_word(word: bytes, pattern_word: bytes, database: bytes | None) -> bool:
    """Return whether a word equals a word of the pattern; a database that is not logged counts as equal."""
    if database is None:
        database = pattern_word.partition(b".")[0]
    return word == pattern_word or (b"." in pattern_word and b"%b.%b" % (database.upper(), word) == pattern_word)


def _iter_words(sql: bytes) -> Iterator[bytes]:
    """Yield the words, names, strings and signs of a statement that are compared."""
    for match in _WORD.finditer(sql):
        name, text, word, sign = match.groups()
        if name is not None:
            yield name.replace(b"``", b"`").upper()
        elif word is not None and word.upper() not in _IGNORED_WORDS:
            yield word.upper()
        elif text is not None or sign is not None:
            yield text if text is not None else sign


def _join_qualified_names(words: list[bytes]) -> list[bytes]:
    """Return the words with `a . b` as one word and without a semicolon at the end."""
    result: list[bytes] = []
    for word in words[:-1] if words[-1:] == [b";"] else words:
        if result and (word == b"." or result[-1].endswith(b".")):
            result[-1] += word
        else:
            result.append(word)
    return result


# --- Filters of a script ---

_BY_DATABASE = (
    (
        "the statement names a selected database, but its default database is another: --database selects "
        "statements by their default database"
    ),
    "statements with other default databases name selected ones: --database selects by the default database",
)
_BY_OBJECT = (
    "statement was left out: --object selects row changes, and the log has this one as SQL text",
    "statements were left out: --object selects row changes, and the log has these as SQL text",
)
_BY_CONDITION = tuple(text.replace("--object", "--where") for text in _BY_OBJECT)


@dataclass(slots=True)
class ScriptFilter:
    """Decides which events of a log go into a script.

    `waiting`: the text of a transaction's beginning while nothing in it was selected yet, and the session before it.
    `stopped`: the finding that ended the script; after it nothing is written.
    """

    options: ScriptOptions
    pattern: StatementPattern | None = field(init=False)
    waiting: tuple[bytes, ScriptSession] | None = None
    stopped: Finding | None = None
    _left_out: int = 0
    _first_left_out: Finding | None = None
    _last_transaction: str = ""

    def __post_init__(self) -> None:
        self.pattern = None if self.options.stop_before is None else StatementPattern(self.options.stop_before)

    @property
    def is_partial(self) -> bool:
        """True if only parts of each transaction are written."""
        return self.options.includes_table is not None or bool(self.options.only_databases)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for the next event."""
        return self.stopped is None and self.waiting is None

    def hold_transaction_start(self, session: ScriptSession) -> None:
        """Hold back the beginning of a transaction of which perhaps nothing is selected."""
        if self.is_partial and self.waiting is None:
            self.waiting = (b"", session.copy())

    def discard_held_start(self) -> ScriptSession | None:
        """Drop the held beginning of a transaction; return the session before it, or None if nothing is held."""
        before = None if self.waiting is None else self.waiting[1]
        self.waiting = None
        return before

    def release_text(
        self, context: EventContext, step: GroupStep, text: bytes, *, has_statements: bool, has_output: bool
    ) -> bytes | None:
        """Return the text to write for an event, with the held beginning of its transaction if needed.

        Args:
            context: the event.
            step: the event's role in its transaction.
            text: the event as SQL.
            has_statements: whether `text` has statements.
            has_output: whether `text` has statements or comments.

        Returns:
            The text to write now; None if the whole transaction is to be discarded.
        """
        if not self.is_partial or self.waiting is None:
            return text
        held, before = self.waiting
        if context.event.code in GTID_EVENTS or get_statement_kind(context) in (QueryKind.BEGIN, QueryKind.XA_START):
            self.waiting = (held + text, before)
            return b""
        if step is GroupStep.ENDS and (is_transaction_end(context) or not has_statements):
            return None
        if not has_output:
            return b""
        self.waiting = None
        return held + text

    def record_transaction_end(self, context: EventContext, step: GroupStep) -> None:
        """Record the end of a transaction, which may be the last one before the script stops."""
        if (
            self.pattern is not None
            and (step is GroupStep.ENDS or is_transaction_end(context))
            and self.stopped is None
        ):
            gtid = f"GTID {context.transaction.gtid}, " if context.transaction.gtid else ""
            self._last_transaction = f"{gtid}at {context.file.name}:{context.event.end}"

    def stop_if_annotation_matches(self, context: EventContext) -> bool:
        """Return whether the script ends before the row events of this statement; if so, record the finding."""
        code, body = context.event.code, context.event.body
        if self.pattern is None or code not in (EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY):
            return False
        return self.stop_if_statement_matches(context, bytes(body[code == EventType.ROWS_QUERY :]), None)

    def stop_if_statement_matches(self, context: EventContext, sql: bytes, database: bytes | None) -> bool:
        """Return whether the script ends before this statement; if so, record the finding."""
        if self.pattern is None or not self.pattern.matches(sql, database):
            return False
        position = f"{context.file.name}:{context.event.start}"
        gtid = f", GTID {context.transaction.gtid}" if context.transaction.gtid else ""
        after = f"; the last transaction before it is {self._last_transaction}" if self._last_transaction else ""
        message = f"stopped before {self.options.stop_before} at {position}{gtid}, time {context.event.time}{after}"
        self.stopped = make_context_event_finding(context, "stopped-before", message, Severity.WARNING)
        return True

    def exclude_if_unselected(self, context: EventContext, parts: QueryParts, sql: bytes) -> bool:
        """Return whether a statement is not selected; count those that may concern selected objects."""
        database = parts.db.decode("utf-8", "backslashreplace")
        databases = self.options.only_databases
        if database in databases or not self.is_partial:
            return False
        if not databases or find_mentioned_database(sql, dict.fromkeys(databases, "")) is not None:
            self._left_out += 1
            reasons = _BY_DATABASE if databases else _BY_OBJECT if self.options.row_filter is None else _BY_CONDITION
            reason = reasons[self._left_out > 1] + ("; this is the first one" if self._left_out > 1 else "")
            self._first_left_out = self._first_left_out or make_context_event_finding(
                context, "statement-left-out", reason
            )
            self._first_left_out = structs_replace(self._first_left_out, message=reason)
        return True

    def list_left_out_findings(self) -> Sequence[Finding]:
        """Return findings about statements that the filters left out, and about a stop statement that did not occur."""
        findings = []
        if self._first_left_out is not None:
            first = self._first_left_out
            findings.append(structs_replace(first, message=f"{self._left_out:,} {first.message}"))
        if self.pattern is not None and self.stopped is None:
            message = f"--stop-before {self.pattern.text!r}: the log has no such statement"
            findings.append(make_finding("statement-left-out", None, 0, message))
        return findings


class PartialTransactions(msgspec.Struct):
    """Transactions of which only a part is selected.

    `last_written`, `last_skipped`: transactions of the last change that was written, and of the last one that was not.
    """

    last_written: OwningTransaction = NO_TRANSACTION
    last_skipped: OwningTransaction = NO_TRANSACTION
    _first_gtid: str = ""
    _last: OwningTransaction = NO_TRANSACTION
    _count: int = 0

    def count_if_partly_selected(self, transaction: OwningTransaction, other: OwningTransaction) -> None:
        """Count a transaction once if it has both written and skipped changes.

        Args:
            transaction: the transaction of this change.
            other: the transaction of the last change of the other kind.
        """
        if transaction == other and transaction not in (NO_TRANSACTION, self._last):
            self._first_gtid = self._first_gtid or str(transaction.gtid)
            self._last = transaction
            self._count += 1

    def list_findings(self) -> Sequence[Finding]:
        """Return a finding that counts the transactions that are only partly selected."""
        if not self._count:
            return []
        subject = "transaction is" if self._count == 1 else "transactions are"
        message = (
            f"{self._count:,} {subject} selected only in part (first: {self._first_gtid}); the script has the selected"
        )
        message += " part, and a ROLLBACK where the end is missing"
        return [make_finding("statement-left-out", None, 0, message, severity=Severity.WARNING)]


def make_context_event_finding(
    context: EventContext, finding_id: str, message: str, severity: Severity = Severity.ERROR
) -> Finding:
    """Create a finding about an event."""
    return make_event_finding(context.event, finding_id, message, severity)


def make_event_finding(event: Event, finding_id: str, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """Create a finding about an event without its context."""
    return make_finding(
        finding_id, event.start, event.end - event.start, message, record=event.record, severity=severity
    )


# --- BINLOG statements ---

MAX_BINLOG_BYTES = 8 * MIB
"""Maximum total size of events in one statement (a single event may be larger); servers accept 16 MiB of text."""

MAX_UNSPLIT_BYTES = 11 * MIB
"""Maximum size of an event that fits into one statement, in bytes."""

_BEGIN = b"BINLOG '\n"


def format_binlog(*events: bytes) -> bytes:
    """Return the BINLOG statement that makes a server apply these events."""
    return _BEGIN + b"".join(map(b2a_base64, events)) + b"'"


class TerminatedStatement(tuple[bytes, ...]):
    """Statement with its delimiter, in pieces, so that large ones are rarely copied."""


Statement = bytes | TerminatedStatement
"""A statement, without or with its delimiter."""


def terminate_statements(statements: Sequence[Statement], charset: str | None) -> list[bytes]:
    """Return statements with their delimiters; `charset`: character set of the last statement."""
    parts = list[bytes]()
    for i, statement in enumerate(statements):
        parts += (
            statement
            if isinstance(statement, TerminatedStatement)
            else (client_safe_statements.terminate_statement(statement, charset if i == len(statements) - 1 else None),)
        )
    return parts


def _format_binlog_fragments(base64_parts: Iterable[bytes]) -> list[bytes]:
    """Return events in base64 that are too large for one statement as two fragments, which MariaDB accepts."""
    text = b"".join(base64_parts)
    half = len(text) // 2
    parts = (text[:half], text[half:])
    sets = [b"SET @binlog_fragment_%d='%b'" % (i, part) for i, part in enumerate(parts)]
    return [*sets, b"BINLOG @binlog_fragment_0, @binlog_fragment_1"]


def split_large_binlog(statement: bytes, description: FormatDescription) -> list[bytes]:
    """Return a BINLOG statement; for MariaDB in two fragments if it is too large for one."""
    if not description.is_mariadb or len(statement) <= MAX_UNSPLIT_BYTES // 3 * 4:
        return [statement]
    return _format_binlog_fragments([statement[len(_BEGIN) : -1]])


def format_description_binlog(description: FormatDescription) -> bytes:
    """Return the BINLOG statement with the FORMAT_DESCRIPTION."""
    return format_binlog(clear_in_use_flag(description.event))


def format_rows_binlog(event: Event, table: TableMap, description: FormatDescription, limits: Limits) -> bytes:
    """Return a row event, uncompressed, with its TABLE_MAP as one BINLOG statement.

    Raises:
        MalformedError, DecompressionError: it is not a row event of this table.
    """
    code, body = uncompress_rows(event.code, event.body, table, limits)
    return format_binlog(
        build_table_map_event(event, table, description),
        _set_event_statement_end(build_event(event, code, body, description), description),
    )


def _set_event_statement_end(event: bytes, description: FormatDescription) -> bytes:
    """Return a row event with the STMT_END flag and its checksum."""
    at = HEADER_SIZE + description.table_id_size
    if event[at] & STMT_END:
        return event
    data = event[:at] + bytes([event[at] | STMT_END]) + event[at + 1 :]
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4])) if description.has_checksums else data


def build_table_map_event(source_event: Event, table: TableMap, description: FormatDescription) -> bytes:
    """Build a TABLE_MAP event with the time and origin of another event."""
    return build_event(source_event, _T.TABLE_MAP, table.body, description)


def build_event(source_event: Event, type_code: int, body: bytes, description: FormatDescription) -> bytes:
    """Build an event with the time and origin of another event, and the checksum that the description requires."""
    checksum_size = 4 if description.has_checksums else 0
    size = PACKED_HEADER.size + len(body) + checksum_size
    data = (
        PACKED_HEADER.pack(
            source_event.time, type_code, source_event.server_id, size, source_event.end_log_pos, source_event.flags
        )
        + body
    )
    return data + struct.pack("<I", zlib.crc32(data)) if checksum_size else data


class PendingRowEvents(msgspec.Struct):
    """Row events of one statement, up to its last one.

    `table_maps`: its TABLE_MAP events by table id; they come first. `lines`: the events so far in base64, without the
    last one. `size`: total size of all events in bytes.
    """

    table_maps: dict[int, bytes] = msgspec.field(default_factory=dict)
    lines: list[bytes] = msgspec.field(default_factory=list)
    last_event: bytes = b""
    size: int = 0

    def append_event(self, event: bytes) -> None:
        """Append a row event."""
        if not self.size:
            self.lines = list(map(b2a_base64, self.table_maps.values()))
            self.size = sum(map(len, self.table_maps.values()))
        if self.last_event:
            self.lines.append(b2a_base64(self.last_event))
        self.last_event = event
        self.size += len(event)

    def append_base64_events(self, base64_lines: bytes, last: bytes, total_bytes: int) -> None:
        """Append row events to a statement that has begun.

        Args:
            base64_lines: all but the last event, in base64.
            last: the last event.
            total_bytes: total size of all events in bytes.
        """
        self.lines += [b2a_base64(self.last_event), base64_lines]
        self.last_event = last
        self.size += total_bytes

    def format_pending_binlog(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the BINLOG of the pending events; their table maps stay valid for the following events."""
        lines, self.lines = self.lines, []
        size, self.size = self.size, 0
        last, self.last_event = self.last_event, b""
        if not last:
            return []
        lines.append(b2a_base64(_set_event_statement_end(last, description)))
        if description.is_mariadb and size > MAX_UNSPLIT_BYTES:
            return _format_binlog_fragments(lines)
        return [TerminatedStatement((_BEGIN, *lines, b"'\n/*!*/;\n"))]

    def finish_statement(self, description: FormatDescription) -> Sequence[Statement]:
        """Return the BINLOG of the pending events at the end of the statement, and forget the table maps."""
        statements = self.format_pending_binlog(description)
        self.table_maps.clear()
        return statements


# --- Sizes of a script's statements compared with max_allowed_packet ---

_MYSQL_DEFAULTS = ((8, 0, 3), 64 * MIB, 4 * MIB)
"""(version, default of max_allowed_packet from that version on, default before it)."""

_MARIADB_DEFAULT = 16 * MIB
_MAX_ALLOWED_PACKET = 1024 * MIB
"""Highest value of max_allowed_packet."""

_COMMAND_BYTES = 1
"""Size of a COM_QUERY packet before the statement, in bytes."""


def get_default_max_packet_bytes(description: FormatDescription) -> int:
    """Return the default max_allowed_packet of the server that wrote the log, in bytes."""
    since, current, older = _MYSQL_DEFAULTS
    return _MARIADB_DEFAULT if description.is_mariadb else current if description.version >= since else older


class LargestStatementSize(msgspec.Struct):
    """Size of the largest statement of a script, in bytes."""

    largest: int = 0

    def add_statements(self, statements: Sequence[Statement]) -> None:
        """Include statements of the script in the maximum."""
        for statement in statements:
            size = len(statement) if isinstance(statement, bytes) else sum(map(len, statement))
            self.largest = max(self.largest, size + _COMMAND_BYTES)

    def add_text(self, text: bytes | memoryview, description: FormatDescription) -> None:
        """Include a text of statements with delimiters in the maximum."""
        if len(text) > get_default_max_packet_bytes(description):
            self.add_statements(bytes(text).split(STATEMENT_END))

    def list_findings(self, description: FormatDescription | None) -> Sequence[Finding]:
        """Return a finding if a statement exceeds the default max_allowed_packet of the target server."""
        if description is None or self.largest <= get_default_max_packet_bytes(description):
            return ()
        message = f"the script has a statement of {self.largest:,} bytes, but servers accept "
        if self.largest > _MAX_ALLOWED_PACKET:
            message += (
                f"{_MAX_ALLOWED_PACKET:,} at most, whatever max_allowed_packet is: a script cannot apply this row"
            )
            return (make_finding("statement-large", None, 0, message, severity=Severity.ERROR),)
        megabytes = 2 ** (self.largest - 1).bit_length() // MIB
        message += f"{get_default_max_packet_bytes(description):,} by default: run "
        message += f"SET GLOBAL max_allowed_packet={megabytes}*1024*1024 before running the script"
        return (make_finding("statement-large", None, 0, message),)
