"""Triggers and foreign keys of a log's tables, from the statements of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import structs

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import qualify_name, split_table_name
from binlogtool.formats.binlog_events.ddl.parse_ddl import TRIGGER, ParsedDdl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    SqlWord,
    StatementReader,
    parse_key_parts,
    qualify_parsed_name,
)

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

    def apply_statement(self, ddl: ParsedDdl) -> None:
        """Apply a statement of the log."""
        with suppress(UsageError):
            if ddl.created is not None:
                self._apply_create_table(ddl.created, ddl)
            elif ddl.altered is not None:
                self._apply_alter_table(ddl.altered, ddl)
            elif self.keys:
                prefix = None if ddl.dropped_database is None else qualify_name(ddl.dropped_database, "")
                self.keys = [
                    key
                    for key in self.keys
                    if key.child not in ddl.dropped_or_replaced and (prefix is None or not key.child.startswith(prefix))
                ]

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

    def iter_cascading_keys(
        self, parent: str, changed_columns: frozenset[str] | None
    ) -> Iterator[tuple[ForeignKey, str]]:
        """Yield each foreign key through which a row change propagates to other tables, once, with its action.

        Args:
            parent: full name of the changed table.
            changed_columns: columns in lower case; None if rows are deleted.
        """
        queue, seen = [(parent, changed_columns)], set[tuple[ForeignKey, bool]]()
        while queue:
            table, columns = queue.pop()
            for key in self._iter_keys_referencing(table):
                action = key.on_delete if columns is None else key.on_update
                is_affected = columns is None or not columns.isdisjoint(key.references)
                if not action or not is_affected or (key, columns is None) in seen:
                    continue
                seen.add((key, columns is None))
                yield key, f"ON {'DELETE' if columns is None else 'UPDATE'} {action}"
                next_columns = None if columns is None and action == "CASCADE" else frozenset(key.columns)
                queue.append((key.child, next_columns))

    def _iter_keys_referencing(self, parent: str) -> Iterator[ForeignKey]:
        """Yield the keys that reference a table; keys from statements without a database name match any database."""
        database, name = split_table_name(parent)
        for key in self.keys:
            if key.parent == parent:
                yield key
            elif key.parent == qualify_name("", name):
                child = qualify_name(database, split_table_name(key.child)[1])
                yield structs.replace(key, child=child, parent=parent)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _apply_create_table(self, child: str, ddl: ParsedDdl) -> None:
        """Apply CREATE TABLE."""
        if ddl.clauses.error or (ddl.is_conditional and any(key.child == child for key in self.keys)):
            return
        self.keys = [key for key in self.keys if key.child != child]
        words = ddl.clauses.words
        upper_words = [word.upper for word in words]
        if "REFERENCES" in upper_words and "(" in upper_words and _is_innodb(words):
            for item in StatementReader.from_words(words[upper_words.index("(") + 1 :]).iter_clauses():
                self._add_foreign_key(child, item)

    def _apply_alter_table(self, child: str, ddl: ParsedDdl) -> None:
        """Apply ALTER TABLE."""
        for clause in ddl.clauses.items:
            heads = [word.upper for word in clause[:4]]
            if heads[:1] == ["ADD"]:
                self._add_foreign_key(child, clause[1:])
            elif heads[:3] == ["DROP", "FOREIGN", "KEY"] or heads[:2] == ["DROP", "CONSTRAINT"]:
                dropped_name = clause[-1].text.lower()
                self.keys = [key for key in self.keys if (key.child, key.name) != (child, dropped_name)]

    def _add_foreign_key(self, child: str, definition_words: Sequence[SqlWord]) -> None:
        """Add the foreign key in a definition item, if the item is one."""
        heads = [word.upper for word in definition_words]
        if "REFERENCES" not in heads or len(self.keys) >= MAX_FOREIGN_KEYS:
            return
        at = heads.index("REFERENCES")
        reader = StatementReader.from_words(definition_words)
        reader.at = at + 1
        parent, database = reader.read_table_name(), split_table_name(child)[0]
        child_columns = (
            _names_in_parentheses(definition_words[:at])
            if "FOREIGN" in heads[:at]
            else (definition_words[0].text.lower(),)
        )
        number = 1 + sum(key.child == child for key in self.keys)
        has_name = heads[0] == "CONSTRAINT" and heads[1:2] != ["FOREIGN"] and len(definition_words) > 1
        name = definition_words[1].text.lower() if has_name else f"{split_table_name(child)[1]}_ibfk_{number}".lower()
        foreign_key = ForeignKey(
            child, qualify_parsed_name(parent, database), name, child_columns,
            _names_in_parentheses(definition_words[reader.at :]), _find_cascade_action(heads, "DELETE"),
            _find_cascade_action(heads, "UPDATE"),
        )  # fmt: skip
        self.keys.append(foreign_key)


def _names_in_parentheses(words: Sequence[SqlWord]) -> tuple[str, ...]:
    """Return the names in the first parentheses."""
    return tuple(name for name, _ in parse_key_parts(words))


def _find_cascade_action(upper_words: Sequence[str], change: str) -> str:
    """Return the row-changing action for ON DELETE or ON UPDATE; "" for none."""
    for at in range(len(upper_words) - 2):
        if upper_words[at] == "ON" and upper_words[at + 1] == change and upper_words[at + 2] in _CHANGING_ACTIONS:
            action = "CASCADE" if upper_words[at + 2] == "CASCADE" else "SET NULL"
            return "" if "DEFAULT" in upper_words[at + 3 : at + 4] else action
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

MAX_TRIGGERS = 100_000


class Triggers(msgspec.Struct):
    """Triggers by name ("database.trigger") with their tables ("database.table")."""

    tables: dict[str, str] = msgspec.field(default_factory=dict)

    def apply_statement(self, ddl: ParsedDdl) -> None:
        """Apply a statement of the log."""
        if ddl.kind != TRIGGER:
            return
        for name in ddl.names:
            if ddl.verb == "DROP":
                self.tables.pop(name, None)
            elif ddl.owner is not None and len(self.tables) < MAX_TRIGGERS:
                self.tables[name] = ddl.owner

    def list_triggers(self, table: str) -> list[str]:
        """Return the triggers of "database.table"."""
        return [name for name, owner in self.tables.items() if owner == table] if self.tables else []

    def drop_triggers_of_table(self, table: str) -> None:
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


# --- Both ---


class TableDependencies(msgspec.Struct):
    """Triggers and foreign keys of all tables in a log."""

    triggers: Triggers = msgspec.field(default_factory=Triggers)
    foreign_keys: ForeignKeys = msgspec.field(default_factory=ForeignKeys)

    def apply_statement(self, ddl: ParsedDdl) -> None:
        """Apply a statement of the log."""
        self.triggers.apply_statement(ddl)
        self.foreign_keys.apply_statement(ddl)
        for name in ddl.dropped_or_replaced:
            self.triggers.drop_triggers_of_table(name)
        if ddl.dropped_database is not None:
            self.triggers.drop_triggers_of_table(qualify_name(ddl.dropped_database, ""))
        for old_name, new_name in ddl.renames:
            self.triggers.rename_table(old_name, new_name)
            self.foreign_keys.rename_table(old_name, new_name)

    def copy(self) -> TableDependencies:
        """Return an independent copy."""
        return TableDependencies(Triggers(dict(self.triggers.tables)), ForeignKeys(list(self.foreign_keys.keys)))
