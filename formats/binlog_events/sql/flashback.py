"""Write a flashback script: statements that reverse the row changes of a log.

A flashback of selected changes conflicts with later, unselected changes of the same rows: it would not find the row, or
would give it values from before the later change. To detect this, a hash of each selected row's key before and after
the change is kept; for a table without a key, a hash of the whole row.

Each record gets its text as in `statements`, but the caller joins the texts in reverse order, so the newest transaction
comes first, and in it the newest row. Changes that cannot be reversed are errors; nothing is left out silently.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import NamedTuple

import msgspec

from binlogtool.errors import RefusedError
from binlogtool.findings import CHANGED_LATER, NOT_REVERSIBLE, Finding, Severity, make_finding
from binlogtool.format_api.format import BodyWithFindings, TableStatement
from binlogtool.format_api.layout import Batch, FlatRecords, Kernel, to_int_list
from binlogtool.format_api.row_output_interfaces import ScriptOptions, qualify_name, unquote_name
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.ddl.changed_table import find_changed_table
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl, parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    decode_statement_with_default_quotes,
    find_next_word_offset,
)
from binlogtool.formats.binlog_events.ddl.table_history import CascadeReporter, TableCatalog, may_cascade
from binlogtool.formats.binlog_events.decode import NO_TRANSACTION, BinlogFileContext, OwningTransaction, type_name
from binlogtool.formats.binlog_events.event_schemas import Event, QueryParts, get_event
from binlogtool.formats.binlog_events.gtid.gtid_events import PREPARED_XA, read_mariadb_gtid
from binlogtool.formats.binlog_events.rows.rows_event import DUMMY_TABLE_ID, count_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.row_statements import (
    Image,
    ImageValue,
    Inexact,
    Irreversible,
    build_row_after_change,
    find_changed_values,
    format_flashback_statements,
    get_row_effect_name,
    iter_row_images,
    reverse_row_event_body,
    select_rows_by_filter,
)
from binlogtool.formats.binlog_events.sql.script_state import (
    LargestStatementSize,
    format_description_binlog,
    format_rows_binlog,
    make_event_finding,
    read_event_query_and_text,
    rename_table_map_database,
    split_large_binlog,
)
from binlogtool.formats.binlog_events.sql.session_statements import (
    SET_GTID_AUTOMATIC,
    ScriptSession,
    has_gtids,
    wrap_in_row_check_settings,
)
from binlogtool.formats.binlog_events.status_variables import is_unfinished_alter
from binlogtool.formats.binlog_events.transactions.boundaries import (
    EVENTS_OUTSIDE_GROUPS,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    get_query_kind,
)
from binlogtool.formats.binlog_events.values.column_types import ValueKind
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    STATEMENT_EVENTS,
    UPDATE_ROW_EVENTS,
    EventFlag,
    EventType,
    FormatDescription,
)
from binlogtool.limits import Limits

# --- Flashback conflicts ---

_HASH_BYTES = 150
"""Estimated memory for one remembered row, in bytes."""
_MEMORY_DIVISOR = 4
"""Divisor of the memory limit; the result is the part that remembered rows may use."""
_MAX_EXAMPLES = 5
"""Maximum number of rows and statements that a message names."""
_MAX_VALUE_CHARACTERS = 64
ALL_COLUMNS = -1
"""Column bitmap with all bits set."""

_TEXT_KINDS = (ValueKind.TEXT, ValueKind.UTF8)


class LaterChanges(msgspec.Struct):
    """Later changes to the selected rows of one table.

    `rows`: hashes of their keys. `examples`: texts about the first of them. `others`: texts about statements that
    change the table as a whole, or about rows that cannot be identified.
    """

    rows: set[int] = msgspec.field(default_factory=set)
    examples: list[str] = msgspec.field(default_factory=list)
    others: list[str] = msgspec.field(default_factory=list)


class FlashbackConflicts(msgspec.Struct):
    """Detect later, unselected changes to the rows that a flashback reverses.

    `selected`: full name of a table -> (hash -> bitmap of the columns that flashback sets). `open_changes`: changes of
    a transaction whose end was not read. `is_full`: no further rows are remembered. `unchecked`: texts about changes
    that could not be checked.
    """

    selected: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    later_changes: dict[str, LaterChanges] = msgspec.field(default_factory=dict)
    open_changes: dict[str, LaterChanges] = msgspec.field(default_factory=dict)
    unchecked: list[str] = msgspec.field(default_factory=list)
    count: int = 0
    is_full: bool = False

    def remember_or_compare_rows(
        self,
        location: str,
        table: TableMap,
        event_type_and_body: tuple[int, memoryview],
        row_selection: bool | Sequence[bool],
        limits: Limits,
        *,
        sets_all_columns: bool,
    ) -> None:
        """Remember the selected rows of an event, and record conflicts of its other rows with rows remembered before.

        Args:
            location: its location, as text.
            table: its table, with its key.
            event_type_and_body: type code and body.
            row_selection: which of its rows are selected.
            sets_all_columns: whether flashback sets all columns of a row, not only those that the event changed.

        Raises:
            MalformedError, DecompressionError: the rows cannot be read.
        """
        name, code = table.full_name, event_type_and_body[0]
        if row_selection is False and name not in self.selected:
            return
        hashes, budget = self.selected.setdefault(name, {}), DecodeBudget(limits)
        rows = iter_row_images(*event_type_and_body, table, limits)
        for row, is_selected in zip(
            rows, repeat(row_selection) if isinstance(row_selection, bool) else row_selection, strict=False
        ):
            row_hashes, is_keyless = _hash_images_of_row(table, row, budget), not table.primary_key
            columns = ALL_COLUMNS if row_hashes[0] != row_hashes[1] or is_keyless else _changed_column_bitmap(code, row)
            if is_selected:
                self._remember_row_hashes(hashes, row_hashes, ALL_COLUMNS if sets_all_columns else columns, limits)
            elif conflicting := [
                one for one in row_hashes[: 1 if is_keyless else 2] if one is not None and hashes.get(one, 0) & columns
            ]:
                self._add_conflict(name, conflicting, _describe_row_change(table, row, budget, code, location))

    def _remember_row_hashes(
        self,
        column_bitmaps_by_hash: dict[int, int],
        row_hashes: Iterable[int | None],
        column_bitmap: int,
        limits: Limits,
    ) -> None:
        """Add the hashes of a selected row, as long as memory permits."""
        for row_hash in row_hashes:
            if row_hash is None or self.is_full:
                continue
            self.count += row_hash not in column_bitmaps_by_hash
            column_bitmaps_by_hash[row_hash] = column_bitmaps_by_hash.get(row_hash, 0) | column_bitmap
        self.is_full = self.is_full or self.count * _HASH_BYTES * _MEMORY_DIVISOR > limits.max_memory

    def _add_conflict(self, name: str, row_hashes: Sequence[int], text: str) -> None:
        """Record that a selected row was changed again."""
        known = self.later_changes.get(name)
        changes = self.open_changes.setdefault(name, LaterChanges())
        if changes.rows.isdisjoint(row_hashes) and (known is None or known.rows.isdisjoint(row_hashes)):
            changes.rows.add(row_hashes[0])
            changes.examples += [text][: _MAX_EXAMPLES - len(changes.examples)]

    def commit_open_changes(self) -> None:
        """Add the changes of the open transaction to the later changes."""
        for name, changes in self.open_changes.items():
            later = self.later_changes.setdefault(name, LaterChanges())
            later.rows |= changes.rows
            later.examples += changes.examples[: _MAX_EXAMPLES - len(later.examples)]
            later.others += changes.others[: _MAX_EXAMPLES + 1 - len(later.others)]
        self.open_changes.clear()

    def record_unselected_rows(
        self, location: str, table: TableMap, event_type_and_body: tuple[int, memoryview], limits: Limits
    ) -> None:
        """Record the rows of an event of which no row is selected, see `add_rows`."""
        try:
            self.remember_or_compare_rows(location, table, event_type_and_body, False, limits, sets_all_columns=False)
        except (MalformedError, DecompressionError) as error:
            self.record_uncheckable_change(f"{table.qualified_name} {location}: {error.args[0]}")

    def record_later_statement(self, table_name: str, text: str) -> None:
        """Record a later statement about a table with selected rows.

        Args:
            table_name: the full name of the table.
            text: the statement, as text for messages.
        """
        if self.selected.get(table_name):
            others = self.open_changes.setdefault(table_name, LaterChanges()).others
            if len(others) <= _MAX_EXAMPLES:
                others.append(text)

    def record_uncheckable_change(self, text: str) -> None:
        """Record a text about a change that cannot be checked."""
        if len(self.unchecked) <= _MAX_EXAMPLES:
            self.unchecked.append(text)

    @property
    def tables(self) -> list[str]:
        """Full names of the tables with selected rows."""
        return [name for name, marks in self.selected.items() if marks]

    def iter_conflict_findings(self) -> Iterator[Finding]:
        """Yield the findings at the end of the script."""
        messages = list[str]()
        for name, changes in self.later_changes.items():
            if changes.rows:
                count = len(changes.rows)
                messages.append(
                    f"{name}: {count:,} {'row was' if count == 1 else 'rows were'} changed again later by changes that "
                    f"are not selected: {_join_examples(changes.examples, count)}; the flashback does not find such "
                    f"a row, or restores values from before that change; select that change as well"
                )
            if changes.others:
                messages.append(
                    f"{name}: {_join_examples(changes.others, len(changes.others))} came later and is "
                    f"not selected; when the flashback runs, the table is not in the state that the selected "
                    f"changes left"
                )
        if self.unchecked:
            texts = _join_examples(self.unchecked, len(self.unchecked))
            messages.append(f"not checked: whether the selected rows were changed again later by {texts}")
        if self.is_full:
            messages.append(
                f"more than {self.count:,} rows are reversed: not all of them could be checked for changes that came "
                "later and are not selected; raise --max-memory"
            )
        yield from (make_finding(CHANGED_LATER, None, 0, message) for message in messages)


def _join_examples(texts: Sequence[str], count: int) -> str:
    """Return the first texts joined by commas, with an ellipsis if there are more."""
    more = ", …" if count > min(len(texts), _MAX_EXAMPLES) else ""
    return ", ".join(texts[:_MAX_EXAMPLES]) + more


def _list_identifying_columns(table: TableMap) -> Sequence[int]:
    """Return the columns that identify a row; for a table without a primary key, all stored columns."""
    key = [index for index, _ in table.primary_key or ()]
    return key or [index for index, column in enumerate(table.columns) if not column.generated]


def _hash_images_of_row(table: TableMap, row: tuple[Image, Image], budget: DecodeBudget) -> list[int | None]:
    """Return the hashes of a row before and after its change; None if the image is missing or lacks columns."""
    before, after = row
    return [
        _hash_identifying_columns(table, image, budget) for image in (before, build_row_after_change(before, after))
    ]


def _hash_identifying_columns(table: TableMap, image: Image, budget: DecodeBudget) -> int | None:
    """Return the hash of the identifying columns of an image; None if the image lacks some of them."""
    values = {value.column_index: value for value in image}
    key_values = [values.get(place) for place in _list_identifying_columns(table)]
    if table.primary_key:
        return (
            None
            if None in key_values
            else hash(tuple(_normalize_key_for_collation(one, budget) for one in key_values if one is not None))
        )
    return hash(tuple(None if one is None else one.raw for one in key_values)) if image else None


def _normalize_key_for_collation(value: ImageValue, budget: DecodeBudget) -> object:
    """Return a key value in a form that is equal for all values that a collation may treat as equal."""
    if value.raw is None or value.cell.kind.kind not in _TEXT_KINDS:
        return value.raw
    text = value.cell.convert(value.raw, budget)
    if not isinstance(text, str):
        return value.raw
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))
    return text.casefold().rstrip(" ")


def _changed_column_bitmap(type_code: int, row: tuple[Image, Image]) -> int:
    """Return the bitmap of the columns that a row event changes."""
    return (
        sum(1 << value.column_index for value in find_changed_values(*row))
        if type_code in UPDATE_ROW_EVENTS
        else ALL_COLUMNS
    )


def _describe_row_change(
    table: TableMap, row: tuple[Image, Image], budget: DecodeBudget, type_code: int, location: str
) -> str:
    """Return a text: the identity of the row, the change to it, and its location."""
    image, columns = row[0] or row[1], _list_identifying_columns(table)[:_MAX_EXAMPLES]
    texts = []
    for value in image:
        if value.column_index in columns:
            text = "NULL" if value.raw is None else str(value.cell.convert(value.raw, budget))
            texts.append(f"{value.cell.key}={text[:_MAX_VALUE_CHARACTERS]}")
    return f"{' '.join(texts)} ({get_row_effect_name(type_code)} {location})"


# --- Tables whose definitions a statement changes, for flashback ---

_WORDS = re.compile(
    r"[A-Za-z]+(?:\s+(?:TABLE|DATABASE|SCHEMA|INDEX|VIEW|FROM|INTO|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|SEQUENCE|"
    r"TEMPORARY|UNIQUE|OR|DATA|IGNORE)\b)?",
    re.IGNORECASE,
)
"""The verb of a statement, with the keyword that follows it."""


def find_affected_tables(ddl: ParsedDdl, changed_tables: Iterable[str]) -> list[str] | None:
    """Return the tables that a statement creates, changes, empties or drops.

    [] for a definition without a table (users, functions); None for any other statement.

    `changed_tables`: tables with changed rows; for a dropped database the result has those of its tables.
    """
    if ddl.dropped_database is not None:
        return [name for name in changed_tables if name.startswith(qualify_name(ddl.dropped_database, ""))]
    return [] if ddl.has_no_table else ddl.list_affected_tables() or None


def _parse_logged_ddl(sql: bytes, parts: QueryParts) -> ParsedDdl:
    return parse_ddl(decode_statement_with_default_quotes(sql, parts), parts.db.decode("utf-8", "surrogateescape"))


def iter_statements_naming_tables(
    batch: Batch, start: int, stop: int, table_names: Sequence[str], limits: Limits
) -> Iterator[TableStatement]:
    """Yield the events `[start, stop)` whose statement names tables; `table_names`: see `find_affected_tables`."""
    for index, code in enumerate(to_int_list(batch.frames["type_code"], start, stop), start):
        if code not in STATEMENT_EVENTS:
            continue
        event = get_event(batch, index)
        if code in QUERY_EVENTS and get_query_kind(code, event.body) is not QueryKind.STATEMENT:
            continue
        try:
            parts, sql = read_event_query_and_text(event, limits)
            ddl = _parse_logged_ddl(sql, parts)
        except (MalformedError, DecompressionError):
            continue
        tables, changes_rows = find_affected_tables(ddl, table_names), ddl.dropped_database is not None
        if tables is None:
            table, changes_rows = find_changed_table(ddl), True
            tables = [] if table is None else [table]
        changes_rows = changes_rows or (ddl.verb != "CREATE" and bool(ddl.tables_losing_rows))
        if tables:
            yield TableStatement(index, tuple(map(unquote_name, tables)), changes_rows)


def get_statement_verb(sql: str) -> str:
    """Return the first words of a statement, for messages."""
    words = _WORDS.match(sql, find_next_word_offset(sql))
    name = " ".join(words[0].upper().split()) if words else "a statement"
    return "TRUNCATE TABLE" if name == "TRUNCATE" else name


# --- Flashback ---

_T = EventType
_EVENTS_WITHOUT_CHANGES = EVENTS_OUTSIDE_GROUPS - {_T.INCIDENT} | GTID_EVENTS | {
    _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY, _T.TRANSACTION_PAYLOAD, _T.IGNORABLE, _T.TRANSACTION_CONTEXT,
    _T.VIEW_CHANGE, _T.INTVAR, _T.RAND, _T.USER_VAR, _T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE, _T.XID,
}  # fmt: skip
"""Events that change nothing by themselves; changes that some of them prepare are refused at a later event."""

_BOUNDARY_EVENTS = GTID_EVENTS | STATEMENT_EVENTS | {_T.XID, _T.XA_PREPARE, _T.FORMAT_DESCRIPTION}
"""Events that may begin or end a transaction; row events end a group of one statement."""

_UNREADABLE_CHANGES = (_T.INCIDENT, _T.PARTIAL_ROW_DATA)
_STATEMENTS_WITHOUT_CHANGES = re.compile(
    rb"\s*(?:DROP\s+(?:/\*!\d+\s*)?TEMPORARY\b|FLUSH\b|ANALYZE\b|#|--)", re.IGNORECASE
)
_XA_STATEMENTS = (QueryKind.XA_START, QueryKind.XA_END, QueryKind.XA_FINISH)
_XA_REASON = "it is an XA transaction; its outcome is logged elsewhere"


_ROWS_LOST = "the rows that it removed cannot be brought back from this log"
_ROWS_NOT_LOGGED = "no event records which, so the script does not restore them"


class _RemainingStatement(NamedTuple):
    """A statement that the script does not reverse. removes_rows: it drops or empties a selected table."""

    subject: str
    removes_rows: bool


class FlashbackScript(msgspec.Struct):
    """Script that reverses the row changes of a log.

    `label`: name of the open transaction in messages. `changed`: some of its changes were written; None if none is
    open.
    """

    options: ScriptOptions = ScriptOptions(flashback=True)
    transactions: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    label: str = ""
    changed: bool | None = None
    description: FormatDescription | None = None
    stop_finding: Finding | None = None
    definitions: TableCatalog = msgspec.field(default_factory=TableCatalog)
    seen: set[str] = msgspec.field(default_factory=set)
    """Full names of tables whose rows were changed so far."""
    reported: set[str] = msgspec.field(default_factory=set)
    """Warnings already reported about tables whose columns are not declared."""
    sizes: LargestStatementSize = msgspec.field(default_factory=LargestStatementSize)
    conflicts: FlashbackConflicts = msgspec.field(default_factory=FlashbackConflicts)
    cascades: CascadeReporter = msgspec.field(default_factory=CascadeReporter)
    row_changes: int = 0
    """Number of row changes written."""
    skipped: TransactionGroupState = msgspec.field(default_factory=TransactionGroupState)
    """The open transaction of the records that are not selected."""
    needs_description: bool = False
    """True if a BINLOG statement after the last FORMAT_DESCRIPTION needs that event before it."""

    # -- the script ----------------------------------------------------------------------------------------------------

    def make_record_texts(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each record, to be written in reverse order."""
        self._commit_unselected_changes()
        notes = context.tracker.track_batch(batch)
        owners, maps = notes.transactions[start:stop], notes.maps[start:stop]
        return [
            self._write_record(context, get_event(batch, index), owner, table, limits)
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
        """Write nothing: flashback has no compiled path."""
        return b"", start

    @property
    def is_empty(self) -> bool:
        """True if no row change was written."""
        return not self.row_changes

    def final_findings(self) -> Sequence[Finding]:
        """Return findings about large statements and about conflicts with later changes."""
        return [*self.sizes.list_findings(self.description), *self.conflicts.iter_conflict_findings()]

    @property
    def has_open_transaction(self) -> bool:
        """True if a selected transaction has begun and its end was not read."""
        return self.transactions.is_open

    def write_text_for_gap(self, what: str = "") -> bytes:
        """Write nothing: flashback covers an unbroken range, and its caller stops at damage."""
        self.transactions.reset()
        self._commit_unselected_changes()
        self.changed = None
        return b""

    def _commit_unselected_changes(self) -> None:
        """Count the changes of the unselected transaction, whose end will not be found."""
        self.skipped.reset()
        self.conflicts.commit_open_changes()

    def finish(self) -> bytes:
        """Return the beginning of the script. Raises RefusedError: the last transaction is incomplete."""
        if self.changed:
            raise RefusedError(f"{self.label} is incomplete and cannot be reversed; choose an earlier --stop-position")
        if self.description is None:
            return b""
        mode = b"SET @@session.pseudo_slave_mode=1, @@session.completion_type=0"
        head = client_safe_statements.format_script_header(self.description.server_version)
        session = ScriptSession().write_session_for_rows(0, 0, self.description)
        return (
            head
            + b"".join(map(client_safe_statements.terminate_statement, [mode, *session]))
            + self._format_needed_description()
        )

    def _format_needed_description(self) -> bytes:
        """Return the FORMAT_DESCRIPTION of the file whose events come next in the script, if they need it."""
        is_needed, self.needs_description = self.needs_description, False
        if not is_needed or self.description is None:
            return b""
        statements = client_safe_statements.terminate_statement(format_description_binlog(self.description))
        if has_gtids(self.description):  # a BINLOG statement leaves gtid_next unset
            statements += client_safe_statements.terminate_statement(SET_GTID_AUTOMATIC)
        return statements

    # -- one record ----------------------------------------------------------------------------------------------------

    def _write_record(
        self,
        context: BinlogFileContext,
        event: Event,
        transaction: OwningTransaction,
        table: TableMap | None,
        limits: Limits,
    ) -> bytes | BodyWithFindings:
        """Return the text for one record."""
        if context.encrypted_without_key and event.code not in EVENT_TYPE_NAMES:
            return b""  # the finding about the file covers all of them
        suffix = b"" if context.description is self.description else self._format_file_boundary(context)
        reason = self._explain_missing_transaction_end(context, event)
        if reason is not None:
            return self._make_irreversible_finding(event, reason, suffix)
        was_open, step = self.transactions.is_open, GroupStep.OUTSIDE
        if event.code != _T.TRANSACTION_PAYLOAD:
            step = self.transactions.advance_to_event(event.code, event.body)
        try:
            self._record_transaction_start(event, transaction, step)
            text, remarks = self._reverse_event(
                context, event, table, limits, has_transaction_start=was_open or step is GroupStep.OPENS
            )
        except (MalformedError, DecompressionError, Irreversible) as error:
            self.changed = None if step is GroupStep.ENDS else self.changed
            finding_id = NOT_REVERSIBLE if isinstance(error, Irreversible) else error.finding_id
            return self._make_irreversible_finding(event, str(error.args[0]), suffix, finding_id)
        if step is GroupStep.ENDS:
            text = self._start_reversed_transaction(event) + text
        return BodyWithFindings(text + suffix, remarks) if remarks else text + suffix

    def _format_file_boundary(self, context: BinlogFileContext) -> bytes:
        """Return the text that the script needs between the events of a file and those of the preceding file."""
        text = self._format_needed_description()
        if self.description is None:
            text += (
                client_safe_statements.terminate_statement(b"SET @@session.pseudo_slave_mode=0")
                + client_safe_statements.SCRIPT_FOOTER
            )
        self.description = context.description
        self.definitions.load_starting_definitions(context.tracker.maps.history)
        return text

    def _explain_missing_transaction_end(self, context: BinlogFileContext, event: Event) -> str | None:
        """Return why the open transaction never ends; None if it may end, or if none of its changes was written."""
        is_restart = event.code == _T.FORMAT_DESCRIPTION and not context.is_relay_log
        if not self.changed or not (is_restart or event.code in GTID_EVENTS):
            return None
        self.changed = None
        self.transactions.reset()
        return "the transaction has no end: the server stopped in it, or some of its records are not selected"

    def _make_irreversible_finding(
        self, event: Event, reason: str, preceding_text: bytes = b"", finding_id: str = NOT_REVERSIBLE
    ) -> BodyWithFindings:
        """Return the finding that an event cannot be reversed."""
        cause = f"{type_name(event.code)} cannot be reversed: {reason}"
        message = f"{self.label or 'outside of a transaction'}: {cause}"
        size = event.end - event.start
        found = make_finding(finding_id, event.start, size, message, record=event.record, cause=cause)
        return BodyWithFindings(preceding_text, (found,))

    def _record_transaction_start(self, event: Event, transaction: OwningTransaction, step: GroupStep) -> None:
        """Record the beginning of a transaction. Raises Irreversible: it is only prepared."""
        if step is not GroupStep.OPENS:
            return
        self.label = _format_transaction_label(transaction) or f"the transaction at {event.start}"
        self.changed = False
        if event.code == _T.GTID and read_mariadb_gtid(bytes(event.body)).flags2 & PREPARED_XA:
            raise Irreversible(_XA_REASON)

    def _start_reversed_transaction(self, event: Event) -> bytes:
        """Return START TRANSACTION, which precedes the reversed changes, when the end of a changed transaction is
        read; else nothing.
        """
        changed, self.changed = self.changed, None
        if not changed:
            return b""
        note = f"# {self.label}, at {event.start}\n".encode("utf-8", "backslashreplace") if self.label else b""
        return note + client_safe_statements.terminate_statement(b"START TRANSACTION")

    # -- reversed changes ----------------------------------------------------------------------------------------------

    def _reverse_event(
        self,
        context: BinlogFileContext,
        event: Event,
        table: TableMap | None,
        limits: Limits,
        *,
        has_transaction_start: bool,
    ) -> tuple[bytes, tuple[Finding, ...]]:
        """Return the text that reverses an event, and findings about it.

        Args:
            has_transaction_start: whether the beginning of its transaction is selected.

        Raises:
            Irreversible, MalformedError, DecompressionError: the event cannot be reversed.
        """
        if event.code in ROW_EVENTS:
            if table is not None and self.definitions.is_sequence(table):
                return b"", self._warn_sequence(event, table.qualified_name)
            text = self._write_reversed_rows(context, event, table, limits, has_transaction_start=has_transaction_start)
            if not text or table is None:
                return text, ()
            return text, (*self._warn_inexact(event, table), *self._warn_cascades(event, table, limits))
        if event.code in QUERY_EVENTS:
            statement = self._require_reversible_query(event, limits)
            return b"", () if statement is None else (self._make_remaining_statement_warning(event, statement),)
        if event.code == _T.XA_PREPARE:
            raise Irreversible(_XA_REASON)
        if event.code not in _EVENTS_WITHOUT_CHANGES and not event.flags & EventFlag.IGNORABLE:
            raise Irreversible("it does not record which rows it changed")
        return b"", ()

    def _warn_inexact(self, event: Event, table: TableMap) -> tuple[Finding, ...]:
        """Return, once per table, a warning about statements that may be inexact."""
        reason = self.definitions.explain_possible_inexactness(table) if self.options.rows == "statements" else None
        message = f"{table.qualified_name}: {reason}"
        if reason is None or message in self.reported:
            return ()
        self.reported.add(message)
        return (make_event_finding(event, "statement-inexact", message, Severity.WARNING),)

    def _warn_cascades(self, event: Event, table: TableMap, limits: Limits) -> Iterator[Finding]:
        """Yield, once per table, a warning that a foreign key may have changed rows of which the log has no event."""
        keys = self.definitions.foreign_keys
        if not self.cascades.has_unreported_event_cascade(keys, event, table.table_id_size, table.full_name):
            return
        changed = _find_updated_columns(event, self.definitions.add_known_facts_and_key(table), limits)
        for key, action in self.cascades.mark_and_iter_unreported_cascades(keys, table.full_name, changed):
            subject = f"rows of {key.child} may have changed by its foreign key to {key.parent} ({action})"
            message = f"{self.label or 'outside of a transaction'}: {subject}; {_ROWS_NOT_LOGGED}"
            yield make_event_finding(event, NOT_REVERSIBLE, message, Severity.WARNING)

    def _warn_sequence(self, event: Event, name: str) -> tuple[Finding, ...]:
        """Return, once per sequence, a warning that its numbers are not reversed."""
        is_selected = self.options.includes_table
        if name in self.seen or (is_selected is not None and not is_selected(unquote_name(name))):
            return ()
        self.seen.add(name)
        return (
            self._make_left_out_warning(event, f"{name} is a sequence: the numbers that it issued are not reversed"),
        )

    def _make_left_out_warning(self, event: Event, subject: str) -> Finding:
        """Return a warning about something that is left out."""
        message = f"{self.label or 'outside of a transaction'}: {subject}"
        return make_event_finding(event, "statement-left-out", message, Severity.WARNING)

    def _make_remaining_statement_warning(self, event: Event, statement: _RemainingStatement) -> Finding:
        """Return a warning about a statement that remains in effect."""
        subject = f"{statement.subject} is not reversed because of --skip-ddl"
        if not statement.removes_rows:
            return self._make_left_out_warning(event, subject)
        message = f"{self.label or 'outside of a transaction'}: {subject}; {_ROWS_LOST}"
        return make_event_finding(event, NOT_REVERSIBLE, message, Severity.WARNING)

    def _require_reversible_query(self, event: Event, limits: Limits) -> _RemainingStatement | None:
        """Check a QUERY event; return the DDL statement that remains in effect, None if the event changes nothing.

        Raises:
            Irreversible: the statement cannot be reversed.
        """
        kind = get_query_kind(event.code, event.body)
        if kind in _XA_STATEMENTS:
            raise Irreversible(_XA_REASON)
        parts, sql = read_event_query_and_text(event, limits)
        if kind is QueryKind.ROLLBACK or (kind is QueryKind.SAVEPOINT and sql[:8].upper() == b"ROLLBACK"):
            if self.changed:
                raise Irreversible("it rolls back changes, and the log does not say which ones remained")
        elif kind is QueryKind.STATEMENT and not _is_without_changes(sql, parts):
            return self._require_reversible_statement(sql, parts)
        return None

    def _require_reversible_statement(self, sql: bytes, parts: QueryParts) -> _RemainingStatement | None:
        """Check a statement other than BEGIN, COMMIT and the like; return it if it defines selected tables.

        Raises:
            Irreversible: it changes rows, or it changes definitions and --skip-ddl is not given.
        """
        self.definitions.apply_statement(sql, parts)
        ddl = _parse_logged_ddl(sql, parts)
        verb, is_selected = get_statement_verb(ddl.text), self.options.includes_table
        names = find_affected_tables(ddl, self.seen)
        if names is None:
            table = find_changed_table(ddl)
            subject = f" ({unquote_name(table)})" if table else ""
            raise Irreversible(f"the log has {verb} as a statement{subject}, not as changed rows")
        selected = names if is_selected is None else [name for name in names if is_selected(unquote_name(name))]
        if not selected and is_selected is not None:
            return None
        subject = f"{verb} ({', '.join(selected[:3])})" if selected else verb
        removes_rows = ddl.dropped_database is not None or not set(selected).isdisjoint(ddl.tables_losing_rows)
        if self.options.skip_ddl:
            return _RemainingStatement(subject, removes_rows)
        reason = f"cannot be reversed; {_ROWS_LOST}" if removes_rows else "cannot be reversed"
        raise Irreversible(f"the log has {verb} as a statement{subject[len(verb) :]}, which {reason}")

    def _write_reversed_rows(
        self,
        context: BinlogFileContext,
        event: Event,
        table: TableMap | None,
        limits: Limits,
        *,
        has_transaction_start: bool,
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
        table = self.definitions.add_known_facts_and_key(table)
        selected, selected_rows = select_rows_by_filter(context, event, table, self.options.row_filter, limits)
        opposite = (
            None
            if selected is None
            else self._reverse_row_event(selected, table, limits, has_transaction_start=has_transaction_start)
        )
        text, is_exact = b"", True
        if selected is not None and opposite is not None:
            text, is_exact = self._format_reversing_statements(
                selected, opposite, rename_table_map_database(table, self.options.rename_databases), description, limits
            )
        if self.options.is_partial:
            location = self._describe_location(context, event, self.label)
            self.conflicts.remember_or_compare_rows(
                location, table, (event.code, event.body), selected_rows, limits, sets_all_columns=is_exact
            )
            self.conflicts.commit_open_changes()
        if selected is None:
            return b""
        self.row_changes += count_rows(selected.code, selected.body, table, limits)
        is_first, self.changed = not self.changed, True
        return text + (client_safe_statements.terminate_statement(b"COMMIT") if is_first else b"")

    @staticmethod
    def _describe_location(context: BinlogFileContext, event: Event, label: str) -> str:
        """Return "by transaction … at file:offset" for messages."""
        return (f"by {label} " if label else "") + f"at {context.name}:{event.start}"

    def _reverse_row_event(
        self, event: Event, table: TableMap, limits: Limits, *, has_transaction_start: bool
    ) -> Event:
        """Return the row event with the opposite effect.

        Raises:
            Irreversible: the beginning of its transaction is not selected, or its images lack columns.
        """
        if not has_transaction_start:
            raise Irreversible(f"{table.qualified_name}: the beginning of its transaction is not selected")
        try:
            code, body = reverse_row_event_body(event.code, event.body, table, limits)
        except Irreversible as error:
            raise Irreversible(f"{get_row_effect_name(event.code)} of {table.qualified_name}: {error}") from None
        return event._replace(code=code.value, body=memoryview(body))

    def _format_reversing_statements(
        self, event: Event, opposite_event: Event, table: TableMap, description: FormatDescription, limits: Limits
    ) -> tuple[bytes, bool]:
        """Return the reversing statements, and whether they are the reversed row event itself.

        They are INSERT, UPDATE and DELETE if these were requested and have the same effect.
        """
        statements = None
        if (
            self.options.rows == "statements"
            and self.definitions.explain_why_not_as_statements(table, description) is None
        ):
            with suppress(Inexact):
                statements = format_flashback_statements(
                    event.code, event.body, table, limits, match_all_columns=self.options.match_all
                )
        if statements is None:
            self.needs_description = True
            statements = split_large_binlog(format_rows_binlog(opposite_event, table, description, limits), description)
            self.sizes.add_statements(statements)
            return b"".join(map(client_safe_statements.terminate_statement, statements)), True
        self.sizes.add_statements(statements)
        flags = int.from_bytes(event.body[table.table_id_size : table.table_id_size + 2], "little")
        before, after = wrap_in_row_check_settings(flags, description)
        return b"".join(map(client_safe_statements.terminate_statement, [*before, *statements, *after])), False

    # -- unselected changes --------------------------------------------------------------------------------------------

    def note_unselected_records(
        self, context: BinlogFileContext, batch: Batch, start: int, stop: int, limits: Limits
    ) -> None:
        """Process records that are not selected: table definitions in them, and changes to selected rows."""
        self.definitions.load_starting_definitions(context.tracker.maps.history)
        notes, codes = context.tracker.track_batch(batch), to_int_list(batch.frames["type_code"], start, stop)
        for index, code in enumerate(codes, start):
            table = notes.maps[index] if code in ROW_EVENTS else None
            if table is not None:
                is_checked = table.full_name in self.conflicts.selected or bool(self.definitions.foreign_keys.keys)
            else:
                is_checked = code in ROW_EVENTS or code in STATEMENT_EVENTS or code in _UNREADABLE_CHANGES
            if is_checked:
                event = get_event(batch, index)
                location = self._describe_location(context, event, _format_transaction_label(notes.transactions[index]))
                if table is not None:
                    keyed_table = self.definitions.add_known_facts_and_key(table)
                    self._record_unselected_rows(event, keyed_table, location, limits)
                else:
                    self._record_unselected_statement(event, location, limits)
            if code in _BOUNDARY_EVENTS or (code in ROW_EVENTS and self.skipped.is_open and not self.skipped.is_begun):
                self._track_unselected_boundary(get_event(batch, index), is_relay_log=context.is_relay_log)

    def _track_unselected_boundary(self, event: Event, *, is_relay_log: bool) -> None:
        """Note an event that may begin or end an unselected transaction; forget the changes of one without an end."""
        is_restart = event.code == _T.FORMAT_DESCRIPTION and not is_relay_log
        if self.skipped.is_open and (is_restart or event.code in GTID_EVENTS):
            self.conflicts.open_changes.clear()
            self.skipped.reset()
        self.skipped.advance_to_event(event.code, event.body)
        if not self.skipped.is_open:
            self.conflicts.commit_open_changes()

    def _record_unselected_rows(self, event: Event, table: TableMap, location: str, limits: Limits) -> None:
        """Record the rows of an unselected event, and rows that foreign keys changed with them."""
        tables = self.conflicts.tables
        if table.full_name in tables:
            self.conflicts.record_unselected_rows(location, table, (event.code, event.body), limits)
        keys = self.definitions.foreign_keys
        if not (keys.keys and may_cascade(event, table.table_id_size)):
            return
        try:
            changed = _find_updated_columns(event, table, limits)
        except (MalformedError, DecompressionError):
            changed = frozenset((column.name or "").lower() for column in table.columns)
        for key, action in keys.iter_cascading_keys(table.full_name, changed):
            self.conflicts.record_later_statement(key.child, f"{action} of {table.qualified_name} {location}")

    def _record_unselected_statement(self, event: Event, location: str, limits: Limits) -> None:
        """Record a statement, or an unreadable change, that is not selected."""
        if event.code not in STATEMENT_EVENTS:
            if self.conflicts.tables and int.from_bytes(event.body[:6], "little") != DUMMY_TABLE_ID:
                self.conflicts.record_uncheckable_change(
                    f"{type_name(event.code)} {location}: it does not record which rows it changed"
                )
            return
        try:
            parts, sql = read_event_query_and_text(event, limits)
        except (MalformedError, DecompressionError) as error:
            self.conflicts.record_uncheckable_change(f"the statement {location}: {error.args[0]}")
            return
        tables = self.conflicts.tables
        kind = get_query_kind(event.code, event.body) if event.code in QUERY_EVENTS else QueryKind.STATEMENT
        if tables and kind is QueryKind.STATEMENT and not _is_without_changes(sql, parts):
            self._record_unselected_ddl(_parse_logged_ddl(sql, parts), location, tables)
        self.definitions.apply_statement(sql, parts)

    def _record_unselected_ddl(self, ddl: ParsedDdl, location: str, tables: Sequence[str]) -> None:
        """Record a later statement that redefines a selected table or may change its rows."""
        subject, names = f"{get_statement_verb(ddl.text)} {location}", find_affected_tables(ddl, tables)
        if names is None:
            name = find_changed_table(ddl)
            names = [] if name is None else [name]
            if self.definitions.find_only_changed_table(ddl) is None and (
                name is None or self.definitions.triggers.list_triggers(name)
            ):
                self.conflicts.record_uncheckable_change(f"{subject}, a statement that may change any table")
        for name in names:
            self.conflicts.record_later_statement(name, subject)


def _find_updated_columns(event: Event, table: TableMap, limits: Limits) -> frozenset[str] | None:
    """Return the columns that an UPDATE event changes, in lower case; None for another event.

    Raises:
        MalformedError, DecompressionError: the rows cannot be read.
    """
    if event.code not in UPDATE_ROW_EVENTS:
        return None
    rows = iter_row_images(event.code, event.body, table, limits)
    return frozenset(
        (table.columns[value.column_index].name or "").lower() for row in rows for value in find_changed_values(*row)
    )


def _is_without_changes(sql: bytes, parts: QueryParts) -> bool:
    """Return whether a statement changes neither rows nor definitions."""
    return _STATEMENTS_WITHOUT_CHANGES.match(sql) is not None or is_unfinished_alter(parts.status_vars)


def _format_transaction_label(transaction: OwningTransaction) -> str:
    """Return "transaction GTID" for messages; empty outside transactions."""
    return f"transaction {transaction.gtid}" if transaction != NO_TRANSACTION else ""
