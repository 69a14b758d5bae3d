"""Facts about tables beyond their table maps: definitions, triggers, foreign keys, sequences."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
from msgspec import structs

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import find_renames
from binlogtool.formats.binlog_events.ddl.columns import TableDefinition
from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement
from binlogtool.formats.binlog_events.ddl.foreign_keys import ForeignKeys
from binlogtool.formats.binlog_events.ddl.modes import normalize_statement
from binlogtool.formats.binlog_events.ddl.schema_sql import parse_schema_statements
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, add_column_details, add_primary_key
from binlogtool.formats.binlog_events.ddl.tables import (
    find_created_table,
    find_dropped_database,
    first_keyword,
    is_truncate,
    iter_emptied_tables,
    may_be_table_statement,
)
from binlogtool.formats.binlog_events.ddl.targets import find_changed_table
from binlogtool.formats.binlog_events.ddl.triggers import Triggers
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.columns import TableMapColumn
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.table_names import qualify_name

_MAX_CACHED_MAPS = 10_000
_HIDDEN_COLUMN_PREFIX = "!hidden!"
"""Columns that MySQL computes for an index of an expression are called so; no statement knows them."""

_UNDECLARED_COLUMNS = (
    "neither the log nor --schema declares its columns: if one is generated, servers refuse statements that give it "
    "a value (--rows exact has no such fault)"
)
_SEQUENCE_COLUMN = "next_not_cached_value"
"""The first column of a sequence: all of its columns are plain ones."""

_CREATE_START_TRANSACTION = re.compile(r"\)\s*START\s+TRANSACTION\b", re.IGNORECASE)


class TableKnowledge(msgspec.Struct):
    """Facts about tables, from the statements of a log in order."""

    history: TableHistory = msgspec.field(default_factory=TableHistory)
    triggers: Triggers = msgspec.field(default_factory=Triggers)
    foreign_keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)
    filling: int = 0
    """The last statement was CREATE TABLE ... START TRANSACTION of MySQL, and the how many; 0 = it was another one."""
    _version: int = 0
    _reasons: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """By identity of a map: all events of a table ask."""

    def load_schema(self, schema: str | None) -> None:
        """Apply the statements of --schema, which define the tables before the log; to be called first.

        Raises:
            UsageError: they do not follow the lexical rules.
        """
        if schema is None or schema is self.history.schema:
            return
        self.history = TableHistory(schema)
        for statement in parse_schema_statements(schema):
            self._apply_other_facts(statement.text, statement.database)

    def apply_statement(self, sql: bytes, parts: QueryParts) -> None:
        """Apply a statement of the log, uncompressed.

        Raises:
            MalformedError: its status variables cannot be read.
        """
        if may_be_table_statement(sql):
            text, database = normalize_statement(sql, parts), parts.db.decode("utf-8", "surrogateescape")
            self._apply_other_facts(text, database)
            self.history.add_statement(DdlStatement(database, text, parts.thread_id, parts.error_code != 0))

    def _apply_other_facts(self, text: str, database: str) -> None:
        """Apply a statement to everything but the definitions of tables."""
        self._reasons.clear()
        self._version += 1
        self.filling = self._version if _CREATE_START_TRANSACTION.search(text) else 0
        self.triggers.apply_statement(text, database)
        self.foreign_keys.apply_statement(text, database)
        dropped = find_dropped_database(text)
        for name in list(iter_emptied_tables(text, database)) if not is_truncate(text) else ():
            self.triggers.drop_table(name)
        if dropped is not None:
            self.triggers.drop_table(qualify_name(dropped, ""))
        for old_name, new_name in _find_renames(text, database):
            self.triggers.rename_table(old_name, new_name)
            self.foreign_keys.rename_table(old_name, new_name)

    @property
    def version(self) -> int:
        """A number that changes whenever more is known."""
        return self._version

    def describe_table(self, table: TableMap) -> TableMap:
        """Return the table map with what is known of its columns beyond the names and types that it has."""
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
        """Return the table map like `describe_table`, with the primary key that a statement declares if the log has
        none.
        """
        described, definition = self.describe_table(table), self._find_definition(table)
        if described.primary_key is not None or definition is None or not definition.key:
            return described
        cached: tuple[TableDefinition, TableMap] | None = described.memo.get("keyed")
        if cached is None or cached[0] is not definition:
            cached = described.memo["keyed"] = (definition, add_primary_key(described, definition))
        return cached[1]

    def _find_definition(self, table: TableMap) -> TableDefinition | None:
        """Return the definition of a table; None if there is none."""
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

        The statement is not applied yet. The table must be declared as a table, so that it is no view, and have no
        trigger.
        """
        name = find_changed_table(text, database)
        if name is None or self.triggers.list_triggers(name):
            return None
        return name if name == find_created_table(text, database) or self.is_declared(name) else None

    def find_caveat(self, table: TableMap) -> str | None:
        """Return why statements about this table may be inexact; None if its columns are declared."""
        return None if self.is_sequence(table) or self._find_definition(table) is not None else _UNDECLARED_COLUMNS

    def is_sequence(self, table: TableMap) -> bool:
        """Return whether a statement, or the names of its columns, identify a table as a sequence."""
        return table.full_name in self.history.get_definitions().sequences or [c.name for c in table.columns[:1]] == [
            _SEQUENCE_COLUMN
        ]

    def reason_against_statements(self, table: TableMap, description: FormatDescription) -> str | None:
        """Return why statements about this table differ in effect from its row events; None if they do not."""
        cached = self._reasons.get(id(table))
        if cached is None:
            if len(self._reasons) >= _MAX_CACHED_MAPS:
                self._reasons.clear()
            cached = self._reasons[id(table)] = (table, self._find_reason(table, description))
        return cached[1]

    def _find_reason(self, table: TableMap, description: FormatDescription) -> str | None:
        """Find that reason."""
        if (
            self.triggers.list_triggers(table.full_name) and not description.is_mariadb
        ):  # MariaDB's table maps have a flag for it
            return "statements would fire its triggers once more"
        if table.uncertain:
            return table.uncertain
        definition = self.history.find_definition(table)
        if isinstance(definition, str):
            return f"which of its columns are generated is not known: {definition}" if definition else None
        if definition.versioned:
            return "it keeps the history of its rows, and no statement can say their times"
        declared = {(column.name or "").lower() for column in definition.columns}
        for column in table.columns if declared else ():
            if (column.name or "").lower() not in declared and not column.generated:
                return f"no CREATE or ALTER TABLE declares its column {column.name}"
        return None


def _find_renames(text: str, database: str) -> list[tuple[str, str]]:
    """Return the (old, new) names that a statement renames."""
    try:
        return find_renames(text, database) if first_keyword(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _mark_hidden(column: TableMapColumn) -> TableMapColumn:
    """Return the column, marked as generated if MySQL hides it."""
    return structs.replace(column, generated=True) if (column.name or "").startswith(_HIDDEN_COLUMN_PREFIX) else column
