"""What the columns of tables are, by the DDL of a log: CREATE TABLE, and every change of it that comes later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import (
    Reading,
    altered_table,
    copied,
    creates_if_missing,
    renames,
    selects,
)
from binlogtool.formats.binlog_events.ddl.schema_sql import ROW_TIMES, Columns, CreateTable
from binlogtool.formats.binlog_events.ddl.tables import created, dropped_database, emptied, key_of, truncates, verb
from binlogtool.formats.binlog_events.ddl.types import charset_of_words, column_hint
from binlogtool.formats.binlog_events.ddl.words import Statement, Word, statements
from binlogtool.formats.binlog_events.values.columns import ColumnHint
from binlogtool.formats.table_names import full_name, parts_of

MOST_TABLES = 100_000
"""Tables that are followed."""

Part = tuple[str, int]
"""A column of a key, in lower case, and its characters; 0 = all."""

_KEYS = frozenset(
    ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION", "PERIOD", "VECTOR")
)
_HARMLESS = frozenset((
    "ENGINE", "TYPE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "CHECKSUM",
    "TABLE_CHECKSUM", "PAGE_CHECKSUM", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "PACK_KEYS", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID",
    "TRANSACTIONAL", "INSERT_METHOD", "CONNECTION", "DATA", "UNION", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK",
    "ORDER", "WITH", "WITHOUT", "TABLESPACE", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "AUTOEXTEND_SIZE",
    "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "TRUNCATE",
    "EXCHANGE", "DISCARD", "IMPORT", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "SECONDARY_ENGINE", "INDEX", "STORAGE",
))  # fmt: skip
"""First words of clauses that leave the columns as they are."""


class Definition(msgspec.Struct, frozen=True):
    """A table. key: its primary key. charset: of columns that name none; None = not known. versioned: it keeps the
    history of its rows."""

    columns: Columns
    key: tuple[Part, ...] = ()
    charset: str | None = None
    versioned: bool = False


class Definitions(msgspec.Struct):
    """The tables of a log as its statements made them, by "database.table".

    None in place of a definition: it was changed in a way that cannot be followed.
    """

    tables: dict[str, Definition | None] = msgspec.field(default_factory=dict)

    def learn(self, sql: str, database: str) -> None:
        """A statement of the log, in the database that it ran in."""
        word = verb(sql)
        if word == "CREATE":
            self._create(sql, database)
        elif word == "DROP":
            self._drop(sql, database)
        elif word in ("ALTER", "RENAME"):
            self._change(sql, database)

    def of(self, name: str) -> Definition | None:
        """The table "database.table"; where only "table" is known, that.

        Raises:
            UsageError: it was changed in a way that cannot be followed.
        """
        if name not in self.tables:
            name = parts_of(name)[1]
        found = self.tables.get(name)
        if found is None and name in self.tables:
            raise UsageError("its last CREATE or ALTER TABLE cannot be followed")
        return found

    def _put(self, name: str, definition: Definition | None) -> None:
        if name in self.tables or len(self.tables) < MOST_TABLES:
            self.tables[name] = definition

    def _known(self, name: str) -> Definition | None:
        try:
            return self.of(name)
        except UsageError:
            return None

    # -- statements ----------------------------------------------------------------------------------------------------

    def _create(self, sql: str, database: str) -> None:
        name = created(sql, database)
        if name is None or (name in self.tables and creates_if_missing(sql)):
            return
        try:
            source = copied(sql, database)
            self._put(name, defined(sql) if source is None else self._known(source))
        except UsageError:
            self._put(name, None)

    def _drop(self, sql: str, database: str) -> None:
        gone = dropped_database(sql)
        names = list(emptied(sql, database))
        if gone is not None:
            names = [name for name in self.tables if name.startswith(full_name(gone, ""))]
        for name in names if not truncates(sql) else ():
            self.tables.pop(name, None)

    def _change(self, sql: str, database: str) -> None:
        try:
            table = altered_table(sql, database)
            pairs = renames(sql, database)
        except UsageError:
            return
        if table is not None:
            name, read = table
            before = self._known(name)
            if before is not None:
                self._put(name, _followed(before, read))
        for one, other in pairs:
            definition = self._known(one)
            self.tables.pop(one, None)
            self._put(other, definition)


def _followed(before: Definition, read: Reading) -> Definition | None:
    try:
        return altered_definition(before, list(read.clauses()))
    except UsageError:
        return None


def defined(sql: str) -> Definition | None:
    """The table of a CREATE TABLE; None if the statement does not declare all of its columns.

    The last ones are remembered: a plan, its proof and the verify behind it read the same statements.

    Raises:
        UsageError: it cannot be understood.
    """
    return _defined(sql) if len(sql) > _LONG else _remembered(sql)


_LONG = 16 << 10
"""Characters of a statement that is not worth its place among the remembered ones."""


def _defined(sql: str) -> Definition | None:
    statement = next(iter(statements(sql)), Statement(1, ""))
    table = CreateTable(statement)
    if table.columns is None or selects(sql):
        return None
    key = key_of(sql)
    parts = () if key is None else tuple((_lower(table.columns[at]), size) for at, size in key.parts)
    return Definition(table.columns, parts, table.charset, table.versioned)


_remembered = lru_cache(256)(_defined)


# -- ALTER TABLE -------------------------------------------------------------------------------------------------------


class _Change(msgspec.Struct):
    """A definition while the clauses of one ALTER TABLE change it."""

    columns: list[ColumnHint]
    key: tuple[Part, ...]
    charset: str | None
    versioned: bool

    def take(self, clause: Sequence[Word]) -> None:
        """One clause.

        Raises:
            UsageError: it is not understood.
        """
        if not clause:
            return
        first, rest = clause[0].upper, list(clause[1:])
        change = _CLAUSES.get(first)
        if change is not None:
            change(self, rest)
        elif first not in _HARMLESS:
            raise UsageError(f"ALTER TABLE has a clause {first or clause[0].text}")

    # -- columns -------------------------------------------------------------------------------------------------------

    def _add(self, rest: list[Word]) -> None:
        first = _upper(rest, 0)
        if first == "SYSTEM":
            self.versioned = True
            if not any(column.name in ("row_start", "row_end") and column.generated for column in self.columns):
                self.columns += ROW_TIMES
        elif first == "PRIMARY" or (first == "CONSTRAINT" and "PRIMARY" in [_upper(rest, i) for i in (1, 2)]):
            self.key = _key(rest)
        elif first in _KEYS or first == "CONSTRAINT":
            return
        else:
            rest = _behind(rest, "COLUMN", "IF", "NOT", "EXISTS")
            for one in _between_brackets(rest) if _upper(rest, 0) == "(" else [rest]:
                self._put(one, replaced=None)

    def _drop(self, rest: list[Word]) -> None:
        first = _upper(rest, 0)
        if first == "SYSTEM":
            self.versioned = False
            self.columns = [c for c in self.columns if c not in ROW_TIMES]
        elif first == "PRIMARY":
            self.key = ()
        elif first not in _KEYS and first != "CONSTRAINT":
            name = _name(_behind(rest, "COLUMN", "IF", "EXISTS"))
            self.columns = [column for column in self.columns if _lower(column) != name]
            self.key = tuple(part for part in self.key if part[0] != name)

    def _modify(self, rest: list[Word]) -> None:
        rest = _behind(rest, "COLUMN", "IF", "EXISTS")
        self._put(rest, replaced=_name(rest))

    def _change(self, rest: list[Word]) -> None:
        rest = _behind(rest, "COLUMN", "IF", "EXISTS")
        self._put(rest[1:], replaced=_name(rest))

    def _rename(self, rest: list[Word]) -> None:
        if _upper(rest, 0) != "COLUMN":
            return
        rest = _behind(rest, "COLUMN", "IF", "EXISTS")
        self._renamed(_name(rest), rest[2].text if len(rest) > 2 else "")

    def _convert(self, rest: list[Word]) -> None:
        if _upper(rest, 0) != "TO":
            raise UsageError("ALTER TABLE ... CONVERT is not understood")
        self.charset = charset_of_words(rest)
        self.columns = [
            replace(c, charset=self.charset) if c.charset not in (None, "binary") else c for c in self.columns
        ]

    def _default(self, rest: list[Word]) -> None:
        self.charset = charset_of_words([Word("DEFAULT", False), *rest])

    def _of_charset(self, rest: list[Word]) -> None:
        self.charset = charset_of_words([Word("CHARACTER", False), *rest])

    def _nothing(self, rest: list[Word]) -> None:
        """ALTER COLUMN ... SET DEFAULT, and what is about keys."""

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _put(self, words: list[Word], replaced: str | None) -> None:
        """A column with its definition, and its place. replaced: the column that it takes the place of."""
        words, behind = _placed(words)
        if len(words) < 2 or not words[0].text:
            raise UsageError("ALTER TABLE has a column without a type")
        hint = column_hint(words[0].text, words[1:], self.charset)
        names = [_lower(column) for column in self.columns]
        if replaced is None and _lower(hint) in names:
            return  # it is there already: IF NOT EXISTS, or the definition is of later
        at = len(names) if replaced is None else self._place(replaced)
        if replaced is None:
            at -= sum(column in ROW_TIMES for column in self.columns)
        else:
            del self.columns[at]
            self.key = tuple((_lower(hint) if name == replaced else name, size) for name, size in self.key)
        if behind is not None:
            at = 0 if behind == "" else self._place(behind) + 1
        self.columns.insert(at, hint)
        if any(word.upper == "PRIMARY" for word in words[1:]):
            self.key = ((_lower(hint), 0),)

    def _place(self, name: str) -> int:
        names = [_lower(column) for column in self.columns]
        if name not in names:
            raise UsageError(f"ALTER TABLE names a column {name} that is not known")
        return names.index(name)

    def _renamed(self, old: str, new: str) -> None:
        at = self._place(old)
        self.columns[at] = replace(self.columns[at], name=new)
        self.key = tuple((new.lower() if name == old else name, size) for name, size in self.key)


_CLAUSES: dict[str, Callable[[_Change, list[Word]], None]] = {
    "ADD": _Change._add,
    "DROP": _Change._drop,
    "MODIFY": _Change._modify,
    "CHANGE": _Change._change,
    "RENAME": _Change._rename,
    "CONVERT": _Change._convert,
    "DEFAULT": _Change._default,
    "CHARACTER": _Change._of_charset,
    "CHARSET": _Change._default,
    "COLLATE": _Change._nothing,
    "ALTER": _Change._nothing,
}


def altered_definition(before: Definition, clauses: Sequence[Sequence[Word]]) -> Definition:
    """The table behind these clauses of ALTER TABLE.

    Raises:
        UsageError: one of them is not understood.
    """
    change = _Change(list(before.columns), before.key, before.charset, before.versioned)
    for clause in clauses:
        change.take(clause)
    return Definition(tuple(change.columns), change.key, change.charset, change.versioned)


def _lower(column: ColumnHint) -> str:
    return (column.name or "").lower()


def _upper(words: Sequence[Word], at: int) -> str:
    return words[at].upper if at < len(words) else ""


def _name(words: Sequence[Word]) -> str:
    if not words:
        raise UsageError("ALTER TABLE has no name of a column where one should be")
    return words[0].text.lower()


def _behind(words: list[Word], *optional: str) -> list[Word]:
    """The words behind those of these that stand there first."""
    at = 0
    for word in optional:
        at += _upper(words, at) == word
    return words[at:]


def _placed(words: list[Word]) -> tuple[list[Word], str | None]:
    """(the definition, behind which column it goes; "" = it is the first one, None = not said)"""
    if _upper(words, len(words) - 1) == "FIRST":
        return words[:-1], ""
    if len(words) > 2 and words[-2].upper == "AFTER":
        return words[:-2], words[-1].text.lower()
    return words, None


def _between_brackets(words: list[Word]) -> list[list[Word]]:
    """The definitions of ADD (a ..., b ...)."""
    found, depth = [list[Word]()], 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0:
            break
        if depth == 1 and word.upper == ",":
            found.append([])
        elif depth > 1 or word.upper != "(":
            found[-1].append(word)
    return found


def _key(words: Sequence[Word]) -> tuple[Part, ...]:
    """The columns in the brackets behind PRIMARY KEY."""
    parts: list[Part] = []
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 2 and word.text.isdecimal() and parts:
            parts[-1] = parts[-1][0], int(word.text)
        elif depth == 1 and word.upper not in ("(", ")", ",", "ASC", "DESC"):
            parts.append((word.text.lower(), 0))
    return tuple(parts)
