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
from binlogtool.format_api.tables_and_changes import qualify_name, split_table_name
from binlogtool.formats.binlog_events.ddl.column_definitions import TableDefinition
from binlogtool.formats.binlog_events.ddl.statements import (
    QUOTED_NAME,
    TABLE_PATTERN,
    SqlWord,
    StatementReader,
    find_changed_table,
    find_created_table,
    find_dropped_database,
    find_renames,
    get_ddl_keyword,
    is_create_if_not_exists,
    is_truncate,
    iter_emptied_tables,
    may_be_table_statement,
    normalize_statement,
    parse_key_parts,
    qualify_parsed_name,
    qualify_table_name,
    read_altered_table,
    skip_gap,
)
from binlogtool.formats.binlog_events.ddl.table_definitions import DdlStatement, parse_schema_statements
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, add_column_details, add_primary_key
from binlogtool.formats.binlog_events.event_schemas import Event, QueryParts
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.column_types import TableMapColumn
from binlogtool.formats.binlog_events.wire_format import DELETE_ROW_EVENTS, UPDATE_ROW_EVENTS, FormatDescription

# --- Foreign keys whose actions change other tables ---

MAX_FOREIGN_KEYS = 100_000
_CHANGING_ACTIONS = ("CASCADE", "SET")
"""First words of actions that change rows. Other actions refuse the change, and InnoDB has no SET DEFAULT."""


class ForeignKey(msgspec.Struct, frozen=True):
    """Foreign key of a table (child) that references another table (parent), both by full name.

    `columns`, `references`: columns of child and parent, in lower case. `on_delete`, `on_update`: the action on the
    child's rows as in SQL, "" for none.
    """

    child: str
    parent: str
    name: str
    columns: tuple[str, ...]
    references: tuple[str, ...]
    on_delete: str
    on_update: str


class ForeignKeys(msgspec.Struct):
    """Foreign keys with actions of all tables in a log."""

    keys: list[ForeignKey] = msgspec.field(default_factory=list)

    def apply_statement(self, sql: str, database: str) -> None:
        """Apply a statement of the log; `database`: the default database in which it ran."""
        word = get_ddl_keyword(sql)
        try:
            if word == "CREATE":
                self._apply_create(sql, database)
            elif word == "ALTER":
                self._apply_alter(sql, database)
            elif word == "DROP" and self.keys:
                self._apply_drop(sql, database)
        except UsageError:
            return

    def rename_table(self, old_name: str, new_name: str) -> None:
        """Apply the rename of a table."""
        self.keys = [
            structs.replace(
                key,
                child=new_name if key.child == old_name else key.child,
                parent=new_name if key.parent == old_name else key.parent,
            )
            for key in self.keys
        ]

    def iter_affected(self, parent: str, changed: frozenset[str] | None) -> Iterator[tuple[ForeignKey, str]]:
        """Yield each foreign key through which a row change propagates to other tables, once, with its action.

        Args:
            parent: full name of the changed table.
            changed: columns in lower case; None if rows are deleted.
        """
        queue, seen = [(parent, changed)], set[tuple[ForeignKey, bool]]()
        while queue:
            table, columns = queue.pop()
            for key in self._iter_keys_of(table):
                action = key.on_delete if columns is None else key.on_update
                is_affected = columns is None or not columns.isdisjoint(key.references)
                if not action or not is_affected or (key, columns is None) in seen:
                    continue
                seen.add((key, columns is None))
                yield key, f"ON {'DELETE' if columns is None else 'UPDATE'} {action}"
                next_columns = None if columns is None and action == "CASCADE" else frozenset(key.columns)
                queue.append((key.child, next_columns))

    def _iter_keys_of(self, parent: str) -> Iterator[ForeignKey]:
        """Yield the keys that reference a table; keys from statements without a database name match any database."""
        database, name = split_table_name(parent)
        for key in self.keys:
            if key.parent == parent:
                yield key
            elif key.parent == qualify_name("", name):
                child = qualify_name(database, split_table_name(key.child)[1])
                yield structs.replace(key, child=child, parent=parent)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _apply_create(self, sql: str, database: str) -> None:
        """Apply CREATE TABLE."""
        child = find_created_table(sql, database)
        if child is None or (is_create_if_not_exists(sql) and any(key.child == child for key in self.keys)):
            return
        self.keys = [key for key in self.keys if key.child != child]
        reader = StatementReader(sql)
        if "REFERENCES" not in [word.upper for word in reader.words] or not _is_innodb(reader.words):
            return
        inside = reader.words[[word.upper for word in reader.words].index("(") + 1 :]
        reader.words, reader.at = inside, 0
        for item in reader.iter_clauses():
            self._add_key(child, item)

    def _apply_alter(self, sql: str, database: str) -> None:
        """Apply ALTER TABLE."""
        table = read_altered_table(sql, database)
        if table is None:
            return
        for clause in table[1].iter_clauses():
            heads = [word.upper for word in clause[:4]]
            if heads[:1] == ["ADD"]:
                self._add_key(table[0], clause[1:])
            elif heads[:3] == ["DROP", "FOREIGN", "KEY"] or heads[:2] == ["DROP", "CONSTRAINT"]:
                dropped_name = clause[-1].text.lower()
                self.keys = [key for key in self.keys if (key.child, key.name) != (table[0], dropped_name)]

    def _apply_drop(self, sql: str, database: str) -> None:
        """Apply DROP TABLE and DROP DATABASE."""
        dropped = find_dropped_database(sql)
        dropped_tables = set(iter_emptied_tables(sql, database)) if not is_truncate(sql) else set()
        prefix = None if dropped is None else qualify_name(dropped, "")
        self.keys = [
            k for k in self.keys if k.child not in dropped_tables and (prefix is None or not k.child.startswith(prefix))
        ]

    def _add_key(self, child: str, item: Sequence[SqlWord]) -> None:
        """Add the foreign key in a definition item, if the item is one."""
        heads = [word.upper for word in item]
        if "REFERENCES" not in heads or len(self.keys) >= MAX_FOREIGN_KEYS:
            return
        at = heads.index("REFERENCES")
        reader = StatementReader("")
        reader.words, reader.at = list(item), at + 1
        parent, database = reader.read_name(), split_table_name(child)[0]
        child_columns = _names_in_parentheses(item[:at]) if "FOREIGN" in heads[:at] else (item[0].text.lower(),)
        number = 1 + sum(key.child == child for key in self.keys)
        has_name = heads[0] == "CONSTRAINT" and heads[1:2] != ["FOREIGN"] and len(item) > 1
        name = item[1].text.lower() if has_name else f"{split_table_name(child)[1]}_ibfk_{number}".lower()
        foreign_key = ForeignKey(
            child, qualify_parsed_name(parent, database), name, child_columns,
            _names_in_parentheses(item[reader.at :]), _find_action(heads, "DELETE"), _find_action(heads, "UPDATE"),
        )  # fmt: skip
        self.keys.append(foreign_key)


def _names_in_parentheses(words: Sequence[SqlWord]) -> tuple[str, ...]:
    """Return the names in the first parentheses."""
    return tuple(name for name, _ in parse_key_parts(words))


def _find_action(heads: Sequence[str], change: str) -> str:
    """Return the row-changing action for ON DELETE or ON UPDATE; "" for none."""
    for at in range(len(heads) - 2):
        if heads[at] == "ON" and heads[at + 1] == change and heads[at + 2] in _CHANGING_ACTIONS:
            action = "CASCADE" if heads[at + 2] == "CASCADE" else "SET NULL"
            return "" if "DEFAULT" in heads[at + 3 : at + 4] else action
    return ""


def _is_innodb(words: Sequence[SqlWord]) -> bool:
    """Return whether the table uses InnoDB: by name, or because no engine is named."""
    heads = [word.upper for word in words]
    if "ENGINE" not in heads:
        return True
    at = heads.index("ENGINE") + 1
    at += heads[at : at + 1] == ["="]
    return "".join(word.text for word in words[at : at + 1]).casefold() == "innodb"


# --- Tables with triggers ---

_EXISTS = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_QUOTED_ANY = rf"{QUOTED_NAME}|'[^']*'|\"[^\"]*\""
_CREATE = re.compile(r"CREATE\b", re.IGNORECASE)
_CREATE_OPTIONS = re.compile(rf"OR\s+REPLACE\b|DEFINER\s*=\s*(?:[^\s`'\"*]|{_QUOTED_ANY})+", re.IGNORECASE)
_TRIGGER = re.compile(
    rf"TRIGGER\s+{_EXISTS}{TABLE_PATTERN.replace('table', 'name')}\s+(?:BEFORE|AFTER)\s+(?:INSERT|UPDATE|DELETE)"
    rf"(?:\s+OR\s+(?:INSERT|UPDATE|DELETE))*\s+ON\s+{TABLE_PATTERN}",
    re.IGNORECASE,
)
_DROP = re.compile(rf"DROP\s+TRIGGER\s+{_EXISTS}{TABLE_PATTERN}", re.IGNORECASE)
MAX_TRIGGERS = 100_000


class Triggers(msgspec.Struct):
    """Triggers by name ("database.trigger") with their tables ("database.table")."""

    tables: dict[str, str] = msgspec.field(default_factory=dict)

    def apply_statement(self, sql: str, database: str) -> None:
        """Apply a statement of the log; `database`: the default database in which it ran."""
        start = skip_gap(sql, 0)
        if (matched := _match_create_trigger(sql, start)) is not None:
            table = qualify_table_name(matched["table"], database)
            name = qualify_table_name(matched["name"], split_table_name(table)[0])
            if len(self.tables) < MAX_TRIGGERS:
                self.tables[name] = table
        elif (matched := _DROP.match(sql, start)) is not None:
            self.tables.pop(qualify_table_name(matched["table"], database), None)

    def list_triggers(self, table: str) -> list[str]:
        """Return the triggers of "database.table"."""
        return [name for name, owner in self.tables.items() if owner == table] if self.tables else []

    def drop_table(self, table: str) -> None:
        """Drop the triggers of a table, or of a whole database if the name ends with a dot."""
        is_database = table.endswith(".")
        for name, owner in list(self.tables.items()):
            if owner == table or (is_database and owner.startswith(table)):
                del self.tables[name]

    def rename_table(self, old_name: str, new_name: str) -> None:
        """Apply the rename of a table."""
        for name, owner in self.tables.items():
            if owner == old_name:
                self.tables[name] = new_name


def _match_create_trigger(sql: str, at: int) -> re.Match[str] | None:
    """Match the name and the table of a CREATE TRIGGER."""
    matched = _CREATE.match(sql, at)
    while matched is not None:
        at = skip_gap(sql, matched.end())
        matched = _CREATE_OPTIONS.match(sql, at)
    return _TRIGGER.match(sql, at)


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
    triggers: Triggers = msgspec.field(default_factory=Triggers)
    foreign_keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)
    filling: int = 0
    """Number of the last statement if it was MySQL's CREATE TABLE ... START TRANSACTION, else 0."""
    version: int = 0
    """Number that changes whenever new facts become known."""
    _reasons: dict[int, tuple[TableMap, str | None]] = msgspec.field(default_factory=dict)
    """Cache by identity of the table map, because it is looked up for every event."""

    def load_schema(self, schema: str | None) -> None:
        """Apply the statements of --schema, which define the tables before the log; must be called first.

        Raises:
            UsageError: the statements do not follow the lexical rules.
        """
        if schema is None or schema is self.history.schema:
            return
        self.history = TableHistory(schema)
        for statement in parse_schema_statements(schema):
            self._apply_other_facts(statement.text, statement.database)

    def apply_statement(self, sql: bytes, parts: QueryParts) -> None:
        """Apply a statement of the log, uncompressed. Raises MalformedError: its status variables cannot be read."""
        if may_be_table_statement(sql):
            text, database = normalize_statement(sql, parts), parts.db.decode("utf-8", "surrogateescape")
            self._apply_other_facts(text, database)
            self.history.add_statement(DdlStatement(database, text, parts.thread_id, parts.error_code != 0))

    def _apply_other_facts(self, text: str, database: str) -> None:
        """Apply the effects of a statement except those on table definitions."""
        self._reasons.clear()
        self.version += 1
        self.filling = self.version if _CREATE_START_TRANSACTION.search(text) else 0
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
        """Return why SQL statements about this table would not have the effect of its row events; None if they do."""
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


def _find_renames(text: str, database: str) -> list[tuple[str, str]]:
    """Return the (old, new) names that a statement renames."""
    try:
        return find_renames(text, database) if get_ddl_keyword(text) in ("ALTER", "RENAME") else []
    except UsageError:
        return []


def _mark_hidden(column: TableMapColumn) -> TableMapColumn:
    """Return the column, marked as generated if MySQL hides it."""
    return structs.replace(column, generated=True) if (column.name or "").startswith(_HIDDEN_COLUMN_PREFIX) else column
