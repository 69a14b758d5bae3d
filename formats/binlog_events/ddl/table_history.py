"""History of a log's table definitions: --schema at its beginning, then the log's own DDL.

All readers (records, scripts, tables, messages) take names, types, character sets and keys of columns from it if the
log's TABLE_MAP events lack them. Statements are applied only when a table map without names needs them, which is rare.

The catalog adds triggers, foreign keys and the row changes that these cause. MariaDB and MySQL change rows of other
tables by foreign keys without events. MySQL 9.7 does so in SQL (unless innodb_native_foreign_keys is on): a flag of its
row events says so, and the other rows have events of their own. Another flag says that the session did not check
foreign keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from binlogtool.findings import ROWS_DIVERGE, Finding, make_finding
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.ddl.changed_table import find_changed_table
from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    decode_statement_with_default_quotes,
    find_next_word_offset,
    may_be_ddl_statement,
    strip_ignored_comments,
)
from binlogtool.formats.binlog_events.ddl.table_definitions import (
    SKIPPED_PART,
    DdlStatement,
    TableDefinitions,
    has_capital_names,
    parse_schema_script,
)
from binlogtool.formats.binlog_events.ddl.table_dependencies import ForeignKey, ForeignKeys, Triggers
from binlogtool.formats.binlog_events.event_schemas import Event, QueryParts, parse_query
from binlogtool.formats.binlog_events.rows.table_map import TableMap, matches_declared_column
from binlogtool.formats.binlog_events.status_variables import decode_status_variables, is_unfinished_alter
from binlogtool.formats.binlog_events.transactions.boundaries import is_possible_ddl
from binlogtool.formats.binlog_events.values.column_types import TableMapColumn, charset_of_collation
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
    FormatDescription,
    RowsFlag,
    iter_unpacked_block_pieces,
    read_declared_unpacked_size,
    unpack_compressed_block,
)
from binlogtool.limits import MIB, Limits

MAX_PENDING_BYTES = 4 * MIB
"""Maximum total size of pending statements, and of a single one, in bytes."""

_ASSUMED_NAMES = (
    "the names of the columns of {} are assumed: a part of the log before this was skipped, which may have changed "
    "them; compare them with its CREATE TABLE on the server"
)
_UNREADABLE_STATEMENT = "a statement of the log that may be about tables cannot be read"


class TableHistory(msgspec.Struct):
    """Table definitions that result from the statements of a log, in order.

    `schema`: the text of --schema. `load_earlier_state`: returns the state that the preceding files hand over, as from
    `export_state`; called only when needed. `server_version`: version of the server that wrote the log.
    """

    schema: str | None = None
    load_earlier_state: Callable[[], Any] | None = None
    server_version: str = ""
    pending: list[DdlStatement] = msgspec.field(default_factory=list)
    size: int = 0
    _definitions: TableDefinitions | None = None
    _folded: TableDefinitions | None = None
    _is_case_sensitive: bool = False
    _carried: Any = None
    """Cached result of `carried`; None if it is outdated."""
    _start: tuple[Callable[[], Any] | None, Any] = (None, None)
    """State at the start of the part that is read, or the function that loads this state; None = no state."""

    def __post_init__(self) -> None:
        if self._start == (None, None):
            self._start = (self.load_earlier_state, None)

    def copy_start_state(self) -> TableHistory:
        """Return a history with the state at the start of the part that is read."""
        load_state, state = self._start
        result = TableHistory(self.schema, load_state, self.server_version)
        if state is not None:
            result.import_state(state)
        return result

    def add_query_if_ddl(self, type_code: int, body: memoryview) -> bool:
        """Queue the statement of a QUERY event if it may define a table; return whether definitions may differ from
        now on.
        """
        if type_code == EventType.QUERY and not is_possible_ddl(body, 0, len(body)):
            return False
        try:
            statement = _read_ddl_statement(type_code, bytes(body), self.server_version)
        except (MalformedError, DecompressionError):
            self.discard_definitions(_UNREADABLE_STATEMENT)
            return True
        if statement is not None:
            self.add_statement(statement)
        return statement is not None

    def add_statement(self, statement: DdlStatement) -> None:
        """Add one statement."""
        self._carried = None
        self.pending.append(statement)
        self.size += len(statement.database) + len(statement.text)
        if self.size > MAX_PENDING_BYTES:
            self.get_definitions()

    def discard_definitions(self, reason: str) -> None:
        """Discard all definitions, as a statement cannot be read. `reason`: text reported for tables from now on."""
        self.get_definitions().forget_logged_definitions(reason)
        self._folded = self._carried = None

    def mark_definitions_assumed(self) -> None:
        """Mark the definitions as assumed: a part of the log was skipped, which may have contained statements."""
        if not self.is_empty and self.pending[-1:] != [SKIPPED_PART]:
            self.add_statement(SKIPPED_PART)

    # -- state ---------------------------------------------------------------------------------------------------------

    def export_state(self) -> Any:
        """Return the current state for JSON; None if there were no statements."""
        if self._carried is None:
            if self._definitions is None and self.load_earlier_state is None:
                self._carried = [msgspec.to_builtins(one) for one in self.pending] or None
            else:
                state = {
                    "definitions": self.get_definitions(),
                    "folded": self._folded,
                    "sensitive": self._is_case_sensitive,
                }
                self._carried = msgspec.to_builtins(state, order="deterministic")
        return self._carried

    def continue_from(self, other: TableHistory) -> None:
        """Start with the state of another history that has read the preceding file to its end."""
        copy, self._carried = other.copy(), None
        self.load_earlier_state, self.pending, self.size = copy.load_earlier_state, copy.pending, copy.size
        self._definitions, self._folded = copy._definitions, copy._folded
        self._is_case_sensitive = copy._is_case_sensitive

    def import_state(self, state: Any) -> None:
        """Restore a state from `export_state`."""
        self.pending, self.size, self.load_earlier_state, self._definitions, self._folded = [], 0, None, None, None
        self._carried, self._start = None, (None, state)
        if isinstance(state, dict):
            self._definitions = msgspec.convert(state["definitions"], TableDefinitions)
            self._folded = msgspec.convert(state["folded"], TableDefinitions | None)
            self._is_case_sensitive = bool(state["sensitive"])
            return
        for statement in state or ():
            self.add_statement(msgspec.convert(statement, DdlStatement))

    def copy(self) -> TableHistory:
        """Return an independent copy."""
        result = msgspec.structs.replace(self, pending=list(self.pending))
        result._definitions = None if self._definitions is None else self._definitions.copy()
        result._folded = None if self._folded is None else self._folded.copy()
        return result

    def get_definitions(self) -> TableDefinitions:
        """Apply pending statements and return the definitions at this point.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        if self.load_earlier_state is not None:
            own_pending, earlier_state = self.pending, self.load_earlier_state()
            self.import_state(earlier_state)
            self.get_definitions()
            self.pending = own_pending
        if self._definitions is None:
            self._definitions = TableDefinitions() if self.schema is None else parse_schema_script(self.schema).copy()
        definitions = self._definitions
        pending, self.pending, self.size = self.pending, [], 0
        for statement in pending:
            if self._folded is None and not self._is_case_sensitive and has_capital_names(statement):
                self._folded = definitions.copy_with_lowercase_names()
            definitions.apply_statement(statement)
            if self._folded is not None:
                self._folded.apply_statement(statement)
        return definitions

    # -- maps ----------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if no statement was added and there is no --schema."""
        return (
            not self.pending and self.schema is None and self.load_earlier_state is None and self._definitions is None
        )

    def complete_table_map(self, table: TableMap) -> TableMap:
        """Add to a table map the facts that the log omits: names, types, character sets, the key.

        If nothing defines the table, the map itself is returned. If the definition is uncertain or cannot be that of
        this table, the map is returned without names and with the reason in `uncertain`.

        Raises:
            UsageError: a statement of --schema is not supported.
        """
        if self.is_empty:
            return table
        has_names = all(column.name is not None for column in table.columns)
        if has_names and self.schema is None:
            return table
        definition = self.find_definition_or_reason(table)
        if isinstance(definition, str):
            message = f"the names of the columns of {table.qualified_name} are not certain: {definition}"
            return replace(table, uncertain=message, memo={}) if definition and not has_names else table
        reason = _explain_mismatch(table, definition)
        if reason:
            return replace(table, uncertain=reason, memo={})
        completed = (
            add_column_details(table, definition)
            if has_names
            else table.complete_with_declared_columns(definition.columns)
        )
        if definition.assumed and not has_names:
            completed = replace(completed, uncertain=_ASSUMED_NAMES.format(table.qualified_name), memo={})
        return add_declared_primary_key(
            replace(completed, declared=not (has_names or definition.given), memo={}), definition
        )

    def find_definition_or_reason(self, table: TableMap) -> TableDefinition | str:
        """Return the definition of a table map's table, or why there is none ("" if no statement defines it)."""
        exact = self.get_definitions()
        if table.database != table.database.lower() or table.table != table.table.lower():
            # lower_case_table_names=1 stores names in lower case
            self._is_case_sensitive, self._folded, self._carried = True, None, None
        exact_state = exact.get_definition_or_reason(table.full_name)
        folded = self._folded
        if folded is None or (folded_state := folded.get_definition_or_reason(table.full_name)) == exact_state:
            return exact_state
        if folded.conflicts > exact.conflicts:
            return exact_state
        if folded.conflicts < exact.conflicts:
            return folded_state
        if _has_name_differing_in_case(exact, table.full_name) or (exact_state and isinstance(exact_state, str)):
            return "statements name two tables whose names differ only in case"
        return folded_state


def _has_name_differing_in_case(definitions: TableDefinitions, name: str) -> bool:
    """Return whether statements define a table whose name differs from this one only in case."""
    is_defined = isinstance(definitions.get_definition_or_reason(name), TableDefinition)
    return is_defined and any(
        isinstance(state, TableDefinition) and other != name and other.lower() == name
        for other, state in definitions.tables.items()
    )


def _explain_mismatch(table: TableMap, definition: TableDefinition) -> str:
    """Return why a definition cannot belong to this table map; "" if it can."""
    source = "--schema gives" if definition.given else "the log's DDL gives"
    if len(definition.columns) != len(table.columns):
        return f"{source} {table.qualified_name} {len(definition.columns)} columns, the log {len(table.columns)}"
    for number, (column, hint) in enumerate(zip(table.columns, definition.columns, strict=True), 1):
        if not matches_declared_column(column, hint):
            given = f"column {number} of {table.qualified_name} ({hint.name})"
            if not hint.types or column.type in hint.types:
                return f"{source} {given} another type than the log's {column.type_name}"
            types = " or ".join(msgspec.structs.replace(column, type=one).type_name for one in sorted(hint.types))
            return f"{source} {given} the type {types}, the log {column.type_name}"
    return ""


def make_earlier_state_loader(
    head: FileHead, format_name: str, is_next_file: Callable[[str, str], bool]
) -> Callable[[], Any] | None:
    """Return a function that loads the state from the preceding files; None if no preceding file is known.

    `is_next_file`: returns whether the second file directly follows the first one in the same log.
    """
    earlier = head.preceding
    if earlier is None:
        return None
    if is_next_file(earlier.last_name, head.name):
        return partial(earlier.compute_state, format_name)
    if _NUMBER.sub("", earlier.last_name) != _NUMBER.sub("", head.name):
        return None
    return partial(_load_state_as_assumed, partial(earlier.compute_state, format_name))


_NUMBER = re.compile(r"(?<=[.-])\d+(?=$|\.)")
"""Number of a log in its name."""


def _load_state_as_assumed(load_state: Callable[[], Any]) -> Any:
    """Load the table definitions from the last available file before a gap and mark them as assumed."""
    history = TableHistory()
    history.import_state(load_state())
    history.mark_definitions_assumed()
    return history.export_state()


def add_column_details(table: TableMap, definition: TableDefinition) -> TableMap:
    """Add facts that the log lacks to the columns of a table map, looked up by column name."""
    hints = {(hint.name or "").lower(): hint for hint in definition.columns}
    columns = []
    for column in table.columns:
        hint = hints.get((column.name or "").lower())
        if hint is not None and matches_declared_column(column, hint):
            column = msgspec.structs.replace(column, logical=hint.logical, generated=hint.generated)
        columns.append(column)
    return replace(table, columns=tuple(columns), memo={})


def add_declared_primary_key(table: TableMap, definition: TableDefinition) -> TableMap:
    """Add the primary key of a definition to a table map without a key, if the map has all its columns."""
    names = [(column.name or "").lower() for column in table.columns]
    if table.primary_key is not None or not definition.key or any(name not in names for name, _ in definition.key):
        return table
    return replace(table, primary_key=tuple((names.index(name), size) for name, size in definition.key), memo={})


def _read_ddl_statement(type_code: int, body: bytes, server_version: str) -> DdlStatement | None:
    """Read a statement if it may concern a table; None otherwise.

    Raises:
        MalformedError, DecompressionError: it cannot be read.
    """
    parts, is_compressed = parse_query(body), type_code == EventType.QUERY_COMPRESSED
    start = next(iter_unpacked_block_pieces(parts.sql, Limits()), b"") if is_compressed else parts.sql
    if not may_be_ddl_statement(start) or is_unfinished_alter(parts.status_vars):
        return None
    if is_compressed and read_declared_unpacked_size(parts.sql) > MAX_PENDING_BYTES:
        raise MalformedError("a statement exceeds the size limit of pending statements")
    text = decode_statement_with_default_quotes(
        unpack_compressed_block(parts.sql, Limits()) if is_compressed else parts.sql, parts
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError("a statement is not valid text in its character set") from None
    status, text = decode_status_variables(parts.status_vars), strip_ignored_comments(text, server_version)
    charset = charset_of_collation(status["charset"]["server"]) if "charset" in status else None
    database = parts.db.decode("utf-8", "backslashreplace")
    return DdlStatement(database, text, parts.thread_id, parts.error_code != 0, charset)


# --- Row changes by foreign keys ---

_CHANGING_STATEMENT = re.compile(r"(DELETE|REPLACE|UPDATE)\b", re.IGNORECASE)
RowsGetter = Callable[[], Sequence[Mapping[str, Any]]]


class CascadeReporter(msgspec.Struct):
    """Reports foreign-key cascades once per table whose rows may change; `reported`: tables reported so far."""

    reported: set[str] = msgspec.field(default_factory=set)

    def has_unreported_cascade(self, foreign_keys: ForeignKeys, table: str) -> bool:
        """Return whether deleting or updating rows of a table may change rows of a table that was not reported yet."""
        return bool(foreign_keys.keys) and any(
            key.child not in self.reported
            for changed in (None, _referenced_columns(foreign_keys))
            for key, _ in foreign_keys.iter_cascading_keys(table, changed)
        )

    def report_row_event_cascades(
        self, foreign_keys: ForeignKeys, event: Event, table_id_size: int, table: str, get_rows: RowsGetter
    ) -> Iterator[Finding]:
        """Report cascades of a row event.

        Args:
            table_id_size: size of the table id in bytes.
            get_rows: returns the event's rows; called only if needed.
        """
        if self.has_unreported_event_cascade(foreign_keys, event, table_id_size, table):
            changed_columns = None if event.code in DELETE_ROW_EVENTS else frozenset(_changed_columns(get_rows()))
            yield from self.report_change_cascades(foreign_keys, event, table, changed_columns)

    def has_unreported_event_cascade(
        self, foreign_keys: ForeignKeys, event: Event, table_id_size: int, table: str
    ) -> bool:
        """Return whether a row event may change rows of a table that was not reported yet.

        `table_id_size`: size of the table id in bytes.
        """
        return may_cascade(event, table_id_size) and self.has_unreported_cascade(foreign_keys, table)

    def report_change_cascades(
        self, foreign_keys: ForeignKeys, event: Event, table: str, changed_columns: frozenset[str] | None
    ) -> Iterator[Finding]:
        """Report cascades of a change to a table.

        `changed_columns`: updated columns, in lower case; None = rows are deleted.
        """
        for key, action in self.mark_and_iter_unreported_cascades(foreign_keys, table, changed_columns):
            text = (
                f"rows of {key.child} may change by its foreign key to {key.parent} ({action}): no event records which"
            )
            yield make_finding(
                ROWS_DIVERGE, event.start, event.end - event.start, text, record=event.record, table=key.child
            )

    def mark_and_iter_unreported_cascades(
        self, foreign_keys: ForeignKeys, table: str, changed_columns: frozenset[str] | None
    ) -> Iterator[tuple[ForeignKey, str]]:
        """Yield the key and action of each cascade to a table that was not reported yet; it counts as reported then."""
        for key, action in foreign_keys.iter_cascading_keys(table, changed_columns):
            if key.child not in self.reported:
                self.reported.add(key.child)
                yield key, action

    def report_statement_cascades(
        self, foreign_keys: ForeignKeys, event: Event, table: str | None, sql: str
    ) -> Iterator[Finding]:
        """Yield a finding for each table whose rows a statement may change by foreign keys and that was not reported
        yet.
        """
        matched = (
            _CHANGING_STATEMENT.match(sql, find_next_word_offset(sql))
            if foreign_keys.keys and table is not None
            else None
        )
        if table is not None and matched is not None:
            is_update = matched[1].upper() == "UPDATE"
            yield from self.report_change_cascades(
                foreign_keys, event, table, _referenced_columns(foreign_keys) if is_update else None
            )


def may_cascade(event: Event, id_size: int) -> bool:
    """Return whether InnoDB may follow foreign keys from the rows of an event, without events of its own.

    `id_size`: size of the table id in bytes.
    """
    is_logged = RowsFlag.NO_FOREIGN_KEY_CHECKS | RowsFlag.USE_SQL_FOREIGN_KEY
    return event.code in DELETE_ROW_EVENTS | UPDATE_ROW_EVENTS and not event.body[id_size] & is_logged


def _referenced_columns(keys: ForeignKeys) -> frozenset[str]:
    return frozenset(name for key in keys.keys for name in key.references)


def _changed_columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the columns that an event changes; a partial after image has only changed columns."""
    for row in rows:
        before, after = row.get("before") or {}, row.get("after") or {}
        yield from (name.lower() for name, value in after.items() if name not in before or before[name] != value)


# --- Facts about tables beyond their table maps ---

_MAX_CACHED_MAPS = 10_000
_HIDDEN_COLUMN_PREFIX = "!hidden!"
"""Name prefix of columns that MySQL computes for an index on an expression; statements cannot name them."""

_UNDECLARED_COLUMNS = (
    "neither the log nor --schema declares its columns: if one is generated, servers refuse statements that give it "
    "a value (--rows exact avoids this)"
)
_SEQUENCE_COLUMN = "next_not_cached_value"
"""First column of a sequence; none of its columns is generated."""

_CREATE_START_TRANSACTION = re.compile(r"\)\s*START\s+TRANSACTION\b", re.IGNORECASE)


class TableCatalog(msgspec.Struct):
    """Facts about tables, collected from the statements of a log in order."""

    history: TableHistory = msgspec.field(default_factory=TableHistory)
    has_started: bool = False
    filling: int = 0
    """Number of the last statement if it was MySQL's CREATE TABLE ... START TRANSACTION, else 0."""
    version: int = 0
    """Number that changes whenever new facts become known."""
    _reasons: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """Cache by identity of the table map, because it is looked up for every event."""

    def load_starting_definitions(self, history: TableHistory | None) -> None:
        """Start with the definitions known at the beginning of the part that is read; must be called first.

        `history`: of the file; None = nothing is known.
        """
        if self.has_started:
            return
        self.has_started = True
        if history is not None:
            self.history = history.copy_start_state()

    def apply_statement(self, sql: bytes, parts: QueryParts) -> None:
        """Apply a statement of the log, uncompressed. Raises MalformedError: its status variables cannot be read."""
        if may_be_ddl_statement(sql) and not is_unfinished_alter(parts.status_vars):
            text, database = (
                decode_statement_with_default_quotes(sql, parts),
                parts.db.decode("utf-8", "backslashreplace"),
            )
            self._reasons.clear()
            self.version += 1
            self.filling = self.version if _CREATE_START_TRANSACTION.search(text) else 0
            self.history.add_statement(DdlStatement(database, text, parts.thread_id, parts.error_code != 0))

    @property
    def triggers(self) -> Triggers:
        """Triggers at this point."""
        return self.history.get_definitions().dependencies.triggers

    @property
    def foreign_keys(self) -> ForeignKeys:
        """Foreign keys at this point."""
        return self.history.get_definitions().dependencies.foreign_keys

    def add_known_column_facts(self, table: TableMap) -> TableMap:
        """Return the table map completed by known facts about its columns, beyond names and types."""
        definition = self._find_definition(table)
        cached = table.memo.get("known")
        if cached is not None and cached[0] is definition:
            cached_map: TableMap = cached[1]
            return cached_map
        described = table
        if None not in [column.name for column in table.columns]:
            described = table if definition is None else add_column_details(table, definition)
            described = replace(described, columns=tuple(map(_mark_hidden, described.columns)), memo={})
        table.memo["known"] = (definition, described)
        return described

    def add_known_facts_and_key(self, table: TableMap) -> TableMap:
        """Return the table map like `describe_table`, with a primary key from a statement if the map has none."""
        described, definition = self.add_known_column_facts(table), self._find_definition(table)
        if described.primary_key is not None or definition is None or not definition.key:
            return described
        cached: tuple[TableDefinition, TableMap] | None = described.memo.get("keyed")
        if cached is None or cached[0] is not definition:
            cached = described.memo["keyed"] = (definition, add_declared_primary_key(described, definition))
        return cached[1]

    def _find_definition(self, table: TableMap) -> TableDefinition | None:
        """Return the definition of a table; None if it is not known."""
        state = self.history.find_definition_or_reason(table)
        return None if isinstance(state, str) else state

    def find_only_changed_table(self, statement: ParsedDdl) -> str | None:
        """Return the full name of the only table whose rows a statement can change; None if there may be others.

        The statement is not applied yet. The table must be declared as a table (so it is not a view) and have no
        trigger.
        """
        name = find_changed_table(statement)
        if name is None or self.triggers.list_triggers(name):
            return None
        is_declared = isinstance(self.history.get_definitions().get_definition_or_reason(name), TableDefinition)
        return name if is_declared or name == statement.created else None

    def explain_possible_inexactness(self, table: TableMap) -> str | None:
        """Return why SQL statements about this table may be inexact; None if its columns are declared."""
        return None if self.is_sequence(table) or self._find_definition(table) is not None else _UNDECLARED_COLUMNS

    def is_sequence(self, table: TableMap) -> bool:
        """Return whether a statement, or the names of the columns, identify a table as a sequence."""
        return table.full_name in self.history.get_definitions().sequences or [c.name for c in table.columns[:1]] == [
            _SEQUENCE_COLUMN
        ]

    def explain_why_not_as_statements(self, table: TableMap, description: FormatDescription) -> str | None:
        """Return why SQL statements cannot reproduce the row events of this table; None if they can."""
        cached = self._reasons.get(id(table))
        if cached is None:
            if len(self._reasons) >= _MAX_CACHED_MAPS:
                self._reasons.clear()
            cached = self._reasons[id(table)] = (table, self._explain_why_not_uncached(table, description))
        return cached[1]

    def _explain_why_not_uncached(self, table: TableMap, description: FormatDescription) -> str | None:
        """Compute the reason for `explain_why_not_as_statements`."""
        if (
            self.triggers.list_triggers(table.full_name) and not description.is_mariadb
        ):  # MariaDB's table maps have a flag for it
            return "statements would fire its triggers again"
        if table.uncertain:
            return table.uncertain
        definition = self.history.find_definition_or_reason(table)
        if isinstance(definition, str):
            return f"its generated columns are unknown: {definition}" if definition else None
        if definition.versioned:
            return "the table is system-versioned, and no statement can set the times of its rows"
        declared = {(column.name or "").lower() for column in definition.columns}
        for column in table.columns if declared else ():
            if (column.name or "").lower() not in declared and not column.generated:
                return f"no CREATE or ALTER TABLE declares its column {column.name}"
        return None


def _mark_hidden(column: TableMapColumn) -> TableMapColumn:
    """Return the column, marked as generated if MySQL hides it."""
    return structs.replace(column, generated=True) if (column.name or "").startswith(_HIDDEN_COLUMN_PREFIX) else column
