"""What is known of tables beyond their maps: from the statements of the log, from the user's, from the maps."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
from msgspec import structs

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import renames
from binlogtool.formats.binlog_events.ddl.columns import Definition, Definitions, defined
from binlogtool.formats.binlog_events.ddl.foreign_keys import ForeignKeys
from binlogtool.formats.binlog_events.ddl.modes import usual_text
from binlogtool.formats.binlog_events.ddl.tables import (
    about_sequence,
    about_tables,
    created,
    dropped_database,
    emptied,
    truncates,
    verb,
)
from binlogtool.formats.binlog_events.ddl.targets import target
from binlogtool.formats.binlog_events.ddl.triggers import Triggers
from binlogtool.formats.binlog_events.ddl.words import QUOTED, statements
from binlogtool.formats.binlog_events.events.decoding import QueryParts
from binlogtool.formats.binlog_events.rows.table_map import TableMap, fits
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

_OF_SEQUENCES = f"""CREATE TABLE s ({_SEQUENCE} BIGINT, minimum_value BIGINT, maximum_value BIGINT, start_value BIGINT,
increment BIGINT, cache_size BIGINT UNSIGNED, cycle_option TINYINT UNSIGNED, cycle_count BIGINT)"""
"""Those of CREATE SEQUENCE without a type of its own."""

_FILLED = re.compile(r"\)\s*START\s+TRANSACTION\b", re.IGNORECASE)
_USE = re.compile(rf"\s*USE\s+({QUOTED}|\S+)\s*\Z", re.IGNORECASE)


class Knowledge(msgspec.Struct):
    """Follows the statements of a log in their order."""

    definitions: Definitions = msgspec.field(default_factory=Definitions)
    triggers: Triggers = msgspec.field(default_factory=Triggers)
    keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)
    sequences: set[str] = msgspec.field(default_factory=set)
    """Those that a statement names."""
    filling: int = 0
    """The last statement was CREATE TABLE ... START TRANSACTION of MySQL, and the how many; 0 = it was another one."""
    _made: int = 0
    _schema: str | None = None
    _doubts: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """By identity of a map: all events of a table ask."""

    def seed(self, schema: str | None) -> None:
        """The user's statements: how the tables are before those of the log. To be called before all else."""
        if schema is None or schema is self._schema:
            return
        self._schema = schema
        database = ""
        for statement in statements(schema):
            used = _USE.match(statement.text)
            if used is not None:
                database = used[1].strip("`").replace("``", "`")
            else:
                self.take(statement.text, database)

    def learn(self, sql: bytes, parts: QueryParts) -> None:
        """A statement of the log, without compression.

        Raises:
            MalformedError: its status variables cannot be read.
        """
        if about_tables(sql[:4096].decode("latin-1")):
            self.take(usual_text(sql, parts), parts.db.decode("utf-8", "surrogateescape"))

    def take(self, text: str, database: str) -> None:
        """A statement about tables, as text."""
        self._doubts.clear()
        self._made += 1
        self.filling = self._made if _FILLED.search(text) else 0
        self.triggers.learn(text, database)
        self.keys.learn(text, database)
        sequence, gone = about_sequence(text, database), dropped_database(text)
        self.sequences |= set() if sequence is None else {sequence}
        self.sequences -= {created(text, database)}
        for name in list(emptied(text, database)) if not truncates(text) else ():
            self.triggers.dropped(name)
        if gone is not None:
            self.triggers.dropped(full_name(gone, ""))
        for one, other in _renames(text, database):
            self.triggers.renamed(one, other)
            self.keys.renamed(one, other)
        self.definitions.learn(text, database)

    @property
    def version(self) -> int:
        """Another number whenever more is known."""
        return self._made

    def of(self, table: TableMap) -> TableMap:
        """The map with what is known of its columns."""
        definition = self._definition(table)
        kept = table.memo.get("known")
        if kept is not None and kept[0] is definition:
            known: TableMap = kept[1]
            return known
        made = (
            _named(table, definition) if None not in [c.name for c in table.columns] else _by_place(table, definition)
        )
        table.memo["known"] = (definition, made)
        return made

    def keyed(self, table: TableMap) -> TableMap:
        """As `of`, with the key that a statement declares where the log does not tell it."""
        known, definition = self.of(table), self._definition(table)
        if known.primary_key is not None or definition is None or not definition.key:
            return known
        kept: tuple[Definition, TableMap] | None = known.memo.get("keyed")
        if kept is None or kept[0] is not definition:
            kept = known.memo["keyed"] = (definition, _with_key(known, definition))
        return kept[1]

    def _definition(self, table: TableMap) -> Definition | None:
        try:
            found = self.definitions.of(table.full_name)
        except UsageError:
            return None
        return defined(_OF_SEQUENCES) if found is None and table.full_name in self.sequences else found

    def is_declared(self, name: str) -> bool:
        """Does a statement say that this is a table, by its full name?"""
        try:
            return self.definitions.of(name) is not None
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
        return table.full_name in self.sequences or [c.name for c in table.columns[:1]] == [_SEQUENCE]

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
        try:
            definition = self.definitions.of(table.full_name)
        except UsageError as error:
            return f"which of its columns are generated is not known: {error}"
        if definition is not None and definition.versioned:
            return "it keeps the history of its rows, and no statement can say their times"
        declared = set() if definition is None else {(column.name or "").lower() for column in definition.columns}
        for column in table.columns if declared else ():
            if (column.name or "").lower() not in declared and not column.generated:
                return f"no CREATE or ALTER TABLE declares its column {column.name}"
        return None


def _renames(text: str, database: str) -> list[tuple[str, str]]:
    try:
        return renames(text, database) if verb(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _named(table: TableMap, definition: Definition | None) -> TableMap:
    """The log has the names of the columns: each is looked up by its own."""
    hints = {} if definition is None else {(hint.name or "").lower(): hint for hint in definition.columns}

    def known(column: Column) -> Column:
        hint = hints.get((column.name or "").lower())
        if hint is not None and fits(column, hint):
            return structs.replace(column, logical=hint.logical, generated=hint.generated)
        if (column.name or "").startswith(_HIDDEN):
            return structs.replace(column, generated=True)
        return column

    return replace(table, columns=tuple(map(known, table.columns)), memo={})


def _by_place(table: TableMap, definition: Definition | None) -> TableMap:
    """The log has no names: the columns are those of the definition in their order, if these can be them."""
    if definition is None:
        return table
    made = table.with_hints(definition.columns)
    return made if made is table or made.primary_key is not None else _with_key(made, definition)


def _with_key(table: TableMap, definition: Definition) -> TableMap:
    """The map with the primary key of a definition, if it has all of its columns."""
    names = [(column.name or "").lower() for column in table.columns]
    if not definition.key or any(name not in names for name, _ in definition.key):
        return table
    return replace(table, primary_key=tuple((names.index(name), size) for name, size in definition.key), memo={})
