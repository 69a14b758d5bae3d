"""Facts about tables beyond their table maps: definitions, triggers, foreign keys, sequences."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
from msgspec import structs

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import renames
from binlogtool.formats.binlog_events.ddl.columns import Definition
from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement
from binlogtool.formats.binlog_events.ddl.foreign_keys import ForeignKeys
from binlogtool.formats.binlog_events.ddl.modes import usual_text
from binlogtool.formats.binlog_events.ddl.schema_sql import schema_statements
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, named_columns, with_key
from binlogtool.formats.binlog_events.ddl.tables import (
    created,
    dropped_database,
    emptied,
    may_define,
    truncates,
    verb,
)
from binlogtool.formats.binlog_events.ddl.targets import target
from binlogtool.formats.binlog_events.ddl.triggers import Triggers
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.columns import Column
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.table_names import full_name

_MOST_MAPS = 10_000
_HIDDEN = "!hidden!"
"""Columns that MySQL computes for an index of an expression are called so; no statement knows them."""

_UNDECLARED = (
    "neither the log nor --schema declares its columns: if one is generated, servers refuse statements that give it "
    "a value (--rows exact has no such fault)"
)
_SEQUENCE = "next_not_cached_value"
"""The first column of a sequence: all of its columns are plain ones."""

_FILLED = re.compile(r"\)\s*START\s+TRANSACTION\b", re.IGNORECASE)


class Knowledge(msgspec.Struct):
    """Facts about tables, from the statements of a log in order."""

    history: TableHistory = msgspec.field(default_factory=TableHistory)
    triggers: Triggers = msgspec.field(default_factory=Triggers)
    keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)
    filling: int = 0
    """The last statement was CREATE TABLE ... START TRANSACTION of MySQL, and the how many; 0 = it was another one."""
    _made: int = 0
    _doubts: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """By identity of a map: all events of a table ask."""

    def seed(self, schema: str | None) -> None:
        """Apply the statements of --schema, which define the tables before the log; to be called first.

        Raises:
            UsageError: they do not follow the lexical rules.
        """
        if schema is None or schema is self.history.schema:
            return
        self.history = TableHistory(schema)
        for statement in schema_statements(schema):
            self._take_others(statement.text, statement.database)

    def learn(self, sql: bytes, parts: QueryParts) -> None:
        """Apply a statement of the log, uncompressed.

        Raises:
            MalformedError: its status variables cannot be read.
        """
        if may_define(sql):
            text, database = usual_text(sql, parts), parts.db.decode("utf-8", "surrogateescape")
            self._take_others(text, database)
            self.history.take(DdlStatement(database, text, parts.thread_id, parts.error_code != 0))

    def _take_others(self, text: str, database: str) -> None:
        """Apply a statement to everything but the definitions of tables."""
        self._doubts.clear()
        self._made += 1
        self.filling = self._made if _FILLED.search(text) else 0
        self.triggers.learn(text, database)
        self.keys.learn(text, database)
        gone = dropped_database(text)
        for name in list(emptied(text, database)) if not truncates(text) else ():
            self.triggers.dropped(name)
        if gone is not None:
            self.triggers.dropped(full_name(gone, ""))
        for one, other in _renames(text, database):
            self.triggers.renamed(one, other)
            self.keys.renamed(one, other)

    @property
    def version(self) -> int:
        """A number that changes whenever more is known."""
        return self._made

    def of(self, table: TableMap) -> TableMap:
        """Return the table map with what is known of its columns beyond the names and types that it has."""
        definition = self._definition(table)
        kept = table.memo.get("known")
        if kept is not None and kept[0] is definition:
            known: TableMap = kept[1]
            return known
        made = table
        if None not in [column.name for column in table.columns]:
            made = table if definition is None else named_columns(table, definition)
            made = replace(made, columns=tuple(map(_hidden, made.columns)), memo={})
        table.memo["known"] = (definition, made)
        return made

    def keyed(self, table: TableMap) -> TableMap:
        """Return the table map like `describe_table`, with the primary key that a statement declares if the log has
        none.
        """
        known, definition = self.of(table), self._definition(table)
        if known.primary_key is not None or definition is None or not definition.key:
            return known
        kept: tuple[Definition, TableMap] | None = known.memo.get("keyed")
        if kept is None or kept[0] is not definition:
            kept = known.memo["keyed"] = (definition, with_key(known, definition))
        return kept[1]

    def _definition(self, table: TableMap) -> Definition | None:
        """Return the definition of a table; None if there is none."""
        found = self.history.definition(table)
        return None if isinstance(found, str) else found

    def is_declared(self, name: str) -> bool:
        """Return whether a statement declares this full name as a table."""
        try:
            return self.history.follow().of(name) is not None
        except UsageError:
            return False

    def changed(self, text: str, database: str) -> str | None:
        """Return the full name of the only table whose rows a statement can change; None if there may be others.

        The statement is not applied yet. The table must be declared as a table, so that it is no view, and have no
        trigger.
        """
        name = target(text, database)
        if name is None or self.triggers.of(name):
            return None
        return name if name == created(text, database) or self.is_declared(name) else None

    def unsure(self, table: TableMap) -> str | None:
        """Return why statements about this table may be inexact; None if its columns are declared."""
        return None if self.is_sequence(table) or self._definition(table) is not None else _UNDECLARED

    def is_sequence(self, table: TableMap) -> bool:
        """Return whether a statement, or the names of its columns, identify a table as a sequence."""
        return table.full_name in self.history.follow().sequences or [c.name for c in table.columns[:1]] == [_SEQUENCE]

    def doubt(self, table: TableMap, described: FormatDescription) -> str | None:
        """Return why statements about this table differ in effect from its row events; None if they do not."""
        kept = self._doubts.get(id(table))
        if kept is None:
            if len(self._doubts) >= _MOST_MAPS:
                self._doubts.clear()
            kept = self._doubts[id(table)] = (table, self._doubt(table, described))
        return kept[1]

    def _doubt(self, table: TableMap, described: FormatDescription) -> str | None:
        """Find that reason."""
        if self.triggers.of(table.full_name) and not described.is_mariadb:  # MariaDB's table maps have a flag for it
            return "statements would fire its triggers once more"
        if table.uncertain:
            return table.uncertain
        definition = self.history.definition(table)
        if isinstance(definition, str):
            return f"which of its columns are generated is not known: {definition}" if definition else None
        if definition.versioned:
            return "it keeps the history of its rows, and no statement can say their times"
        declared = {(column.name or "").lower() for column in definition.columns}
        for column in table.columns if declared else ():
            if (column.name or "").lower() not in declared and not column.generated:
                return f"no CREATE or ALTER TABLE declares its column {column.name}"
        return None


def _renames(text: str, database: str) -> list[tuple[str, str]]:
    """Return the (old, new) names that a statement renames."""
    try:
        return renames(text, database) if verb(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _hidden(column: Column) -> Column:
    """Return the column, marked as generated if MySQL hides it."""
    return structs.replace(column, generated=True) if (column.name or "").startswith(_HIDDEN) else column
