"""Foreign keys whose actions change rows of other tables, from the CREATE and ALTER TABLE statements of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import Reading, altered_table, creates_if_missing
from binlogtool.formats.binlog_events.ddl.tables import created, dropped_database, emptied, truncates, verb
from binlogtool.formats.binlog_events.ddl.words import Word
from binlogtool.formats.table_names import full_name, parts_of

MOST_KEYS = 100_000
_ACTS = ("CASCADE", "SET")
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
    deletes: str
    updates: str


class ForeignKeys(msgspec.Struct):
    """Foreign keys with actions, of all tables of a log."""

    keys: list[ForeignKey] = msgspec.field(default_factory=list)

    def learn(self, sql: str, database: str) -> None:
        """Apply a statement of the log that ran in this default database."""
        word = verb(sql)
        try:
            if word == "CREATE":
                self._create(sql, database)
            elif word == "ALTER":
                self._alter(sql, database)
            elif word == "DROP" and self.keys:
                self._drop(sql, database)
        except UsageError:
            return

    def renamed(self, one: str, other: str) -> None:
        """Follow the rename of a table."""
        self.keys = [
            msgspec.structs.replace(
                key,
                child=other if key.child == one else key.child,
                parent=other if key.parent == one else key.parent,
            )
            for key in self.keys
        ]

    def reached(self, parent: str, changed: frozenset[str] | None) -> Iterator[tuple[ForeignKey, str]]:
        """Yield each key by which a change of rows continues in other tables, once, with its action.

        Args:
            parent: full name of the changed table.
            changed: columns in lower case; None if rows are deleted.
        """
        ahead, seen = [(parent, changed)], set[tuple[ForeignKey, bool]]()
        while ahead:
            table, columns = ahead.pop()
            for key in self._of(table):
                action = key.deletes if columns is None else key.updates
                hit = columns is None or not columns.isdisjoint(key.references)
                if not action or not hit or (key, columns is None) in seen:
                    continue
                seen.add((key, columns is None))
                yield key, f"ON {'DELETE' if columns is None else 'UPDATE'} {action}"
                goes_on = None if columns is None and action == "CASCADE" else frozenset(key.columns)
                ahead.append((key.child, goes_on))

    def _of(self, parent: str) -> Iterator[ForeignKey]:
        """Yield the keys that reference a table; a user's statement that names no database refers to any."""
        home, name = parts_of(parent)
        for key in self.keys:
            if key.parent == parent:
                yield key
            elif key.parent == full_name("", name):
                child = full_name(home, parts_of(key.child)[1])
                yield msgspec.structs.replace(key, child=child, parent=parent)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _create(self, sql: str, database: str) -> None:
        """Apply CREATE TABLE."""
        child = created(sql, database)
        if child is None or (creates_if_missing(sql) and any(key.child == child for key in self.keys)):
            return
        self.keys = [key for key in self.keys if key.child != child]
        read = Reading(sql)
        if "REFERENCES" not in [word.upper for word in read.words] or not _is_innodb(read.words):
            return
        inside = read.words[[word.upper for word in read.words].index("(") + 1 :]
        read.words, read.at = inside, 0
        for item in read.clauses():
            self._add(child, item)

    def _alter(self, sql: str, database: str) -> None:
        """Apply ALTER TABLE."""
        table = altered_table(sql, database)
        if table is None:
            return
        for clause in table[1].clauses():
            heads = [word.upper for word in clause[:4]]
            if heads[:1] == ["ADD"]:
                self._add(table[0], clause[1:])
            elif heads[:3] == ["DROP", "FOREIGN", "KEY"] or heads[:2] == ["DROP", "CONSTRAINT"]:
                gone = clause[-1].text.lower()
                self.keys = [key for key in self.keys if (key.child, key.name) != (table[0], gone)]

    def _drop(self, sql: str, database: str) -> None:
        """Apply DROP TABLE and DROP DATABASE."""
        home = dropped_database(sql)
        gone = set(emptied(sql, database)) if not truncates(sql) else set()
        start = None if home is None else full_name(home, "")
        self.keys = [k for k in self.keys if k.child not in gone and (start is None or not k.child.startswith(start))]

    def _add(self, child: str, item: Sequence[Word]) -> None:
        """Add the foreign key of a definition item, if it is one."""
        heads = [word.upper for word in item]
        if "REFERENCES" not in heads or len(self.keys) >= MOST_KEYS:
            return
        at = heads.index("REFERENCES")
        read = Reading("")
        read.words, read.at = list(item), at + 1
        parent, database = read.name(), parts_of(child)[0]
        own = _names(item[:at]) if "FOREIGN" in heads[:at] else (item[0].text.lower(),)
        number = 1 + sum(key.child == child for key in self.keys)
        named = heads[0] == "CONSTRAINT" and heads[1:2] != ["FOREIGN"] and len(item) > 1
        name = item[1].text.lower() if named else f"{parts_of(child)[1]}_ibfk_{number}".lower()
        made = ForeignKey(
            child, full_name(*parent) if len(parent) > 1 else full_name(database, parent[0]), name, own,
            _names(item[read.at :]), _action(heads, "DELETE"), _action(heads, "UPDATE"),
        )  # fmt: skip
        self.keys.append(made)


def _names(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the names in the first parentheses."""
    found, inside = list[str](), False
    for word in words:
        if word.upper == ")" and inside:
            break
        if inside and word.upper not in (",", "ASC", "DESC"):
            found.append(word.text.lower())
        inside = inside or word.upper == "("
    return tuple(found)


def _action(heads: Sequence[str], change: str) -> str:
    """Return the action for ON DELETE or ON UPDATE that changes rows; "" for none."""
    for at in range(len(heads) - 2):
        if heads[at] == "ON" and heads[at + 1] == change and heads[at + 2] in _ACTS:
            action = "CASCADE" if heads[at + 2] == "CASCADE" else "SET NULL"
            return "" if "DEFAULT" in heads[at + 3 : at + 4] else action
    return ""


def _is_innodb(words: Sequence[Word]) -> bool:
    """Return whether the table is InnoDB's: by name, or because no engine is named."""
    heads = [word.upper for word in words]
    if "ENGINE" not in heads:
        return True
    at = heads.index("ENGINE") + 1
    at += heads[at : at + 1] == ["="]
    return "".join(word.text for word in words[at : at + 1]).casefold() == "innodb"
