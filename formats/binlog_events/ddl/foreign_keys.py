"""Foreign keys whose actions change rows of other tables, from the CREATE and ALTER TABLE statements of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import StatementReader, is_create_if_not_exists, read_altered_table
from binlogtool.formats.binlog_events.ddl.tables import (
    find_created_table,
    find_dropped_database,
    first_keyword,
    is_truncate,
    iter_emptied_tables,
)
from binlogtool.formats.binlog_events.ddl.words import SqlWord
from binlogtool.formats.table_names import qualify_name, split_name

MAX_FOREIGN_KEYS = 100_000
_CHANGING_ACTIONS = ("CASCADE", "SET")
"""First words of the actions that change rows. Of the others the one refuses, and InnoDB has no SET DEFAULT."""


class ForeignKey(msgspec.Struct, frozen=True):
    """Foreign key of a table (child) that references another one (parent), both by full name.

    `columns`, `references`: of child and parent, in lower case. `on_delete`, `on_update`: the action on the
    child's rows in SQL, "" for none.
    """

    child: str
    parent: str
    name: str
    columns: tuple[str, ...]
    references: tuple[str, ...]
    on_delete: str
    on_update: str


class ForeignKeys(msgspec.Struct):
    """Foreign keys with actions, of all tables of a log."""

    keys: list[ForeignKey] = msgspec.field(default_factory=list)

    def apply_statement(self, sql: str, database: str) -> None:
        """Apply a statement of the log that ran in this default database."""
        word = first_keyword(sql)
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
        """Follow the rename of a table."""
        self.keys = [
            msgspec.structs.replace(
                key,
                child=new_name if key.child == old_name else key.child,
                parent=new_name if key.parent == old_name else key.parent,
            )
            for key in self.keys
        ]

    def iter_affected(self, parent: str, changed: frozenset[str] | None) -> Iterator[tuple[ForeignKey, str]]:
        """Yield each key by which a change of rows continues in other tables, once, with its action.

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
        """Yield the keys that reference a table; a user's statement that names no database refers to any."""
        database, name = split_name(parent)
        for key in self.keys:
            if key.parent == parent:
                yield key
            elif key.parent == qualify_name("", name):
                child = qualify_name(database, split_name(key.child)[1])
                yield msgspec.structs.replace(key, child=child, parent=parent)

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
        """Add the foreign key of a definition item, if it is one."""
        heads = [word.upper for word in item]
        if "REFERENCES" not in heads or len(self.keys) >= MAX_FOREIGN_KEYS:
            return
        at = heads.index("REFERENCES")
        reader = StatementReader("")
        reader.words, reader.at = list(item), at + 1
        parent, database = reader.read_name(), split_name(child)[0]
        child_columns = _names_in_parentheses(item[:at]) if "FOREIGN" in heads[:at] else (item[0].text.lower(),)
        number = 1 + sum(key.child == child for key in self.keys)
        has_name = heads[0] == "CONSTRAINT" and heads[1:2] != ["FOREIGN"] and len(item) > 1
        name = item[1].text.lower() if has_name else f"{split_name(child)[1]}_ibfk_{number}".lower()
        foreign_key = ForeignKey(
            child, qualify_name(*parent) if len(parent) > 1 else qualify_name(database, parent[0]), name, child_columns,
            _names_in_parentheses(item[reader.at :]), _find_action(heads, "DELETE"), _find_action(heads, "UPDATE"),
        )  # fmt: skip
        self.keys.append(foreign_key)


def _names_in_parentheses(words: Sequence[SqlWord]) -> tuple[str, ...]:
    """Return the names in the first parentheses."""
    names, inside = list[str](), False
    for word in words:
        if word.upper == ")" and inside:
            break
        if inside and word.upper not in (",", "ASC", "DESC"):
            names.append(word.text.lower())
        inside = inside or word.upper == "("
    return tuple(names)


def _find_action(heads: Sequence[str], change: str) -> str:
    """Return the action for ON DELETE or ON UPDATE that changes rows; "" for none."""
    for at in range(len(heads) - 2):
        if heads[at] == "ON" and heads[at + 1] == change and heads[at + 2] in _CHANGING_ACTIONS:
            action = "CASCADE" if heads[at + 2] == "CASCADE" else "SET NULL"
            return "" if "DEFAULT" in heads[at + 3 : at + 4] else action
    return ""


def _is_innodb(words: Sequence[SqlWord]) -> bool:
    """Return whether the table is InnoDB's: by name, or because no engine is named."""
    heads = [word.upper for word in words]
    if "ENGINE" not in heads:
        return True
    at = heads.index("ENGINE") + 1
    at += heads[at : at + 1] == ["="]
    return "".join(word.text for word in words[at : at + 1]).casefold() == "innodb"
