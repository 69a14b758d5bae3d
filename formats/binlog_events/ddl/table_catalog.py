"""Facts about tables beyond their table maps: definitions, triggers, foreign keys and the row changes that these cause.

MariaDB and MySQL change rows of other tables by foreign keys without events. MySQL 9.7 does so in SQL (unless
innodb_native_foreign_keys is on): a flag of its row events says so, and the other rows have events of their own.
Another flag says that the session did not check foreign keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from binlogtool.errors import UsageError
from binlogtool.findings import ROWS_DIVERGE, Finding, make_finding
from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
from binlogtool.formats.binlog_events.ddl.statements import (
    find_changed_table,
    find_created_table,
    may_be_table_statement,
    normalize_statement,
    skip_gap,
)
from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement
from binlogtool.formats.binlog_events.ddl.table_dependencies import ForeignKeys, Triggers
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, add_column_details, add_primary_key
from binlogtool.formats.binlog_events.event_schemas import Event, QueryParts
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.column_types import TableMapColumn
from binlogtool.formats.binlog_events.wire_format import DELETE_ROW_EVENTS, UPDATE_ROW_EVENTS, FormatDescription

# --- Row changes by foreign keys ---

_NO_FOREIGN_KEY_CHECKS, _USE_SQL_FOREIGN_KEY = 0x02, 0x10
_CHANGING_STATEMENT = re.compile(r"(DELETE|REPLACE|UPDATE)\b", re.IGNORECASE)
RowsGetter = Callable[[], Sequence[Mapping[str, Any]]]


class CascadeReporter(msgspec.Struct):
    """Reports foreign-key cascades once per table whose rows may change; `reported`: tables reported so far."""

    reported: set[str] = msgspec.field(default_factory=set)

    def has_unreported(self, keys: ForeignKeys, table: str) -> bool:
        """Return whether deleting or updating rows of a table may change rows of a table that was not reported yet."""
        return bool(keys.keys) and any(
            key.child not in self.reported
            for changed in (None, _referenced_columns(keys))
            for key, _ in keys.iter_affected(table, changed)
        )

    def check_event(
        self, keys: ForeignKeys, event: Event, id_size: int, table: str, get_rows: RowsGetter
    ) -> Iterator[Finding]:
        """Report cascades of a row event.

        Args:
            id_size: size of the table id in bytes.
            get_rows: returns the event's rows; called only if needed.
        """
        if event.code not in DELETE_ROW_EVENTS | UPDATE_ROW_EVENTS or not self.has_unreported(keys, table):
            return
        if event.body[id_size] & (_NO_FOREIGN_KEY_CHECKS | _USE_SQL_FOREIGN_KEY):
            return
        changed_columns = None if event.code in DELETE_ROW_EVENTS else frozenset(_changed_columns(get_rows()))
        yield from self.check_change(keys, event, table, changed_columns)

    def check_change(
        self, keys: ForeignKeys, event: Event, table: str, changed_columns: frozenset[str] | None
    ) -> Iterator[Finding]:
        """Report cascades of a change to a table.

        `changed_columns`: updated columns, in lower case; None = rows are deleted.
        """
        for key, action in keys.iter_affected(table, changed_columns):
            if key.child in self.reported:
                continue
            self.reported.add(key.child)
            text = (
                f"rows of {key.child} may change by its foreign key to {key.parent} ({action}): no event records which"
            )
            yield make_finding(
                ROWS_DIVERGE, event.start, event.end - event.start, text, record=event.record, table=key.child
            )

    def check_statement(self, keys: ForeignKeys, event: Event, table: str | None, sql: str) -> Iterator[Finding]:
        """Report cascades of a statement that changes (and possibly deletes) rows of one table."""
        matched = _CHANGING_STATEMENT.match(sql, skip_gap(sql)) if keys.keys and table is not None else None
        if table is not None and matched is not None:
            is_update = matched[1].upper() == "UPDATE"
            yield from self.check_change(keys, event, table, _referenced_columns(keys) if is_update else None)


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

    def load_start(self, history: TableHistory | None) -> None:
        """Start with the definitions known at the beginning of the part that is read; must be called first.

        `history`: of the file; None = nothing is known.
        """
        if self.has_started:
            return
        self.has_started = True
        if history is not None:
            self.history = history.copy_start()

    def apply_statement(self, sql: bytes, parts: QueryParts) -> None:
        """Apply a statement of the log, uncompressed. Raises MalformedError: its status variables cannot be read."""
        if may_be_table_statement(sql):
            text, database = normalize_statement(sql, parts), parts.db.decode("utf-8", "backslashreplace")
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

    def describe_table(self, table: TableMap) -> TableMap:
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

    def describe_with_key(self, table: TableMap) -> TableMap:
        """Return the table map like `describe_table`, with a primary key from a statement if the map has none."""
        described, definition = self.describe_table(table), self._find_definition(table)
        if described.primary_key is not None or definition is None or not definition.key:
            return described
        cached: tuple[TableDefinition, TableMap] | None = described.memo.get("keyed")
        if cached is None or cached[0] is not definition:
            cached = described.memo["keyed"] = (definition, add_primary_key(described, definition))
        return cached[1]

    def _find_definition(self, table: TableMap) -> TableDefinition | None:
        """Return the definition of a table; None if it is not known."""
        state = self.history.find_definition(table)
        return None if isinstance(state, str) else state

    def is_declared(self, name: str) -> bool:
        """Return whether a statement declares this full name as a table."""
        try:
            return self.history.get_definitions().get_definition(name) is not None
        except UsageError:
            return False

    def find_only_changed_table(self, text: str, database: str) -> str | None:
        """Return the full name of the only table whose rows a statement can change; None if there may be others.

        The statement is not applied yet. The table must be declared as a table (so it is not a view) and have no
        trigger.
        """
        name = find_changed_table(text, database)
        if name is None or self.triggers.list_triggers(name):
            return None
        return name if name == find_created_table(text, database) or self.is_declared(name) else None

    def find_caveat(self, table: TableMap) -> str | None:
        """Return why SQL statements about this table may be inexact; None if its columns are declared."""
        return None if self.is_sequence(table) or self._find_definition(table) is not None else _UNDECLARED_COLUMNS

    def is_sequence(self, table: TableMap) -> bool:
        """Return whether a statement, or the names of the columns, identify a table as a sequence."""
        return table.full_name in self.history.get_definitions().sequences or [c.name for c in table.columns[:1]] == [
            _SEQUENCE_COLUMN
        ]

    def reason_against_statements(self, table: TableMap, description: FormatDescription) -> str | None:
        """Return why SQL statements cannot reproduce the row events of this table; None if they can."""
        cached = self._reasons.get(id(table))
        if cached is None:
            if len(self._reasons) >= _MAX_CACHED_MAPS:
                self._reasons.clear()
            cached = self._reasons[id(table)] = (table, self._find_reason(table, description))
        return cached[1]

    def _find_reason(self, table: TableMap, description: FormatDescription) -> str | None:
        """Compute the reason for `reason_against_statements`."""
        if (
            self.triggers.list_triggers(table.full_name) and not description.is_mariadb
        ):  # MariaDB's table maps have a flag for it
            return "statements would fire its triggers again"
        if table.uncertain:
            return table.uncertain
        definition = self.history.find_definition(table)
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
