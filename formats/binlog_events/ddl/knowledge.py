"""What is known of tables beyond their maps: their definitions, triggers, foreign keys, and which are sequences."""

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
    """Follows the statements of a log in their order."""

    history: TableHistory = msgspec.field(default_factory=TableHistory)
    triggers: Triggers = msgspec.field(default_factory=Triggers)
    keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)
    filling: int = 0
    """The last statement was CREATE TABLE ... START TRANSACTION of MySQL, and the how many; 0 = it was another one."""
    _made: int = 0
    _doubts: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """By identity of a map: all events of a table ask."""

    def seed(self, schema: str | None) -> None:
        """The statements of --schema: how the tables are before those of the log. To be called before all else.

        Raises:
            UsageError: they do not follow the lexical rules.
        """
        if schema is None or schema is self.history.schema:
            return
        self.history = TableHistory(schema)
        for statement in schema_statements(schema):
            self._take_others(statement.text, statement.database)

    def learn(self, sql: bytes, parts: QueryParts) -> None:
        """A statement of the log, without compression.

        Raises:
            MalformedError: its status variables cannot be read.
        """
        if may_define(sql):
            text, database = usual_text(sql, parts), parts.db.decode("utf-8", "surrogateescape")
            self._take_others(text, database)
            self.history.take(DdlStatement(database, text, parts.thread_id, parts.error_code != 0))

    def _take_others(self, text: str, database: str) -> None:
        """What a statement says beside the definitions of tables."""
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
        """Another number whenever more is known."""
        return self._made

    def of(self, table: TableMap) -> TableMap:
        """The map with what is known of its columns beyond names and types, which it has already."""
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
        """As `of`, with the key that a statement declares where the log does not tell it."""
        known, definition = self.of(table), self._definition(table)
        if known.primary_key is not None or definition is None or not definition.key:
            return known
        kept: tuple[Definition, TableMap] | None = known.memo.get("keyed")
        if kept is None or kept[0] is not definition:
            kept = known.memo["keyed"] = (definition, with_key(known, definition))
        return kept[1]

    def _definition(self, table: TableMap) -> Definition | None:
        found = self.history.definition(table)
        return None if isinstance(found, str) else found

    def is_declared(self, name: str) -> bool:
        """Does a statement say that this is a table, by its full name?"""
        try:
            return self.history.follow().of(name) is not None
        except UsageError:
            return False

    def changed(self, text: str, database: str) -> str | None:
        """The full name of the only table whose rows a statement can change, before that is learned: one that is made
        as a table, so it is no view, and that no trigger is defined for; None = others may be changed."""
        name = target(text, database)
        if name is None or self.triggers.of(name):
            return None
        return name if name == created(text, database) or self.is_declared(name) else None

    def unsure(self, table: TableMap) -> str | None:
        """What may be wrong with statements about this table and cannot be known; None = its columns are declared."""
        return None if self.is_sequence(table) or self._definition(table) is not None else _UNDECLARED

    def is_sequence(self, table: TableMap) -> bool:
        """Does a statement, or do the names of its columns, say that a table is a sequence?"""
        return table.full_name in self.history.follow().sequences or [c.name for c in table.columns[:1]] == [_SEQUENCE]

    def doubt(self, table: TableMap, described: FormatDescription) -> str | None:
        """Why statements about this table do not do exactly what its row events did; None = they do."""
        kept = self._doubts.get(id(table))
        if kept is None:
            if len(self._doubts) >= _MOST_MAPS:
                self._doubts.clear()
            kept = self._doubts[id(table)] = (table, self._doubt(table, described))
        return kept[1]

    def _doubt(self, table: TableMap, described: FormatDescription) -> str | None:
        if self.triggers.of(table.full_name) and not described.is_mariadb:  # MariaDB's maps say it themselves
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
    try:
        return renames(text, database) if verb(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _hidden(column: Column) -> Column:
    return structs.replace(column, generated=True) if (column.name or "").startswith(_HIDDEN) else column
