"""CREATE TABLE statements, as `mysqldump` and SHOW CREATE TABLE write them, as hints about the columns of tables.

The words come from sqlglot's reader of MySQL's lexical rules (`ddl.words`). Its grammar is not used: it refuses types
and clauses that dumps of real servers have (POINT, INET6, COMPRESSED, SYSTEM VERSIONING).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.ddl.types import charset_of_words, column_hint
from binlogtool.formats.binlog_events.ddl.words import Statement, Word, statements, words
from binlogtool.formats.binlog_events.events.event import Fault
from binlogtool.formats.binlog_events.rows.table_map import TableMap, fits, parse_table_map
from binlogtool.formats.binlog_events.values.columns import ColumnHint, ColumnType
from binlogtool.formats.table_names import full_name

Columns = tuple[ColumnHint, ...]

_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?TABLE\b", re.IGNORECASE)
_USE = re.compile(r"USE\b", re.IGNORECASE)
_KEYS = {"PRIMARY", "KEY", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"}
_PAIRS = {("PERIOD", "FOR"), ("VECTOR", "KEY"), ("VECTOR", "INDEX"), ("LIKE",)}
ROW_TIMES = tuple(
    ColumnHint(name=name, types=frozenset({ColumnType.TIMESTAMP2.value, ColumnType.LONGLONG.value}), generated=True)
    for name in ("row_start", "row_end")
)
"""Columns that WITH SYSTEM VERSIONING adds where the statement does not declare them."""


def load(sql: str) -> Mapping[str, Columns]:
    """The columns of each table: by "database.table", or by "table" where nothing says the database.

    Statements of other kinds are passed over, USE aside. Of a table without a database that is created twice, in two
    ways, there are no columns (): nothing says which one is meant.

    Raises:
        UsageError: a CREATE TABLE cannot be understood; the message names its line.
    """
    found: dict[str, Columns] = {}
    database: str | None = None
    for statement in statements(sql):
        if _USE.match(statement.text):
            database = "".join(word.text for word in words(statement)[1:2]) or None
        elif _CREATE.match(statement.text):
            table = CreateTable(statement)
            home = table.database or database
            name = table.name if home is None else full_name(home, table.name)
            if table.columns is not None:
                certain = home is not None or found.get(name, table.columns) == table.columns
                found[name] = table.columns if certain else ()
    return found


class CreateTable:
    """One CREATE TABLE. columns: None = the statement does not declare them (LIKE, AS SELECT). charset: of columns that
    name none; None = the statement does not say. versioned: it keeps the history of its rows.

    Raises:
        UsageError: it cannot be understood.
    """

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._words = words(statement)
        self._at = next(i for i, word in enumerate(self._words) if word.upper == "TABLE") + 1
        if [word.upper for word in self._words[self._at : self._at + 3]] == ["IF", "NOT", "EXISTS"]:
            self._at += 3
        self.database, self.name = self._table_name()
        self.charset: str | None = None
        self.versioned = _versioned([word.upper for word in self._words])
        self.columns = self._columns() if self._word(self._at).upper == "(" else None

    def _fail(self, reason: str) -> UsageError:
        return UsageError(f"line {self._statement.line}: CREATE TABLE {reason}")

    def _word(self, at: int) -> Word:
        return self._words[at] if at < len(self._words) else Word("", False)

    def _table_name(self) -> tuple[str | None, str]:
        names = [self._word(self._at).text]
        self._at += 1
        while self._word(self._at).upper == ".":
            names.append(self._word(self._at + 1).text)
            self._at += 2
        if len(names) > 2 or not all(names):
            raise self._fail("has no name that can be read")
        return (names[0] if len(names) == 2 else None), names[-1]

    def _columns(self) -> Columns | None:
        items = list(self._items())
        options = self._words[self._at :]
        self.charset = charset_of_words(_top_level(options))
        columns = [item for item in items if not _is_key(item)]
        if any(item[0].upper == "LIKE" for item in items):
            return None
        hints = [self._column(item, self.charset) for item in columns]
        if not hints:
            raise self._fail(f"{self.name} has no columns")
        versioned = [word.upper for word in options]
        periods = [item for item in items if item[0].upper == "PERIOD" and "SYSTEM_TIME" in [w.upper for w in item]]
        if "VERSIONING" in versioned and not periods:
            hints += ROW_TIMES
        return tuple(hints)

    def _column(self, item: Sequence[Word], default: str | None) -> ColumnHint:
        if len(item) < 2 or item[1].quoted or not item[1].text[:1].isalpha():
            raise self._fail(f"{self.name}: column {item[0].text!r} has no type")
        return column_hint(item[0].text, item[1:], default)

    def _items(self) -> Iterator[list[Word]]:
        """What stands between the outer brackets, by commas; the place is behind them afterwards."""
        depth, item = 0, list[Word]()
        for at in range(self._at, len(self._words)):
            word = self._words[at]
            depth += {"(": 1, ")": -1}.get(word.upper, 0)
            if depth == 0 or (depth == 1 and word.upper == ","):
                if not item:
                    raise self._fail(f"{self.name} has an empty definition")
                yield item
                item = []
            elif depth > 1 or word.upper != "(" or item:
                item.append(word)
            if depth == 0:
                self._at = at + 1
                return
        raise self._fail(f"{self.name}: a bracket is not closed")


def _versioned(upper: Sequence[str]) -> bool:
    """WITH SYSTEM VERSIONING, of the table or of a column."""
    return any(word == "VERSIONING" and list(upper[at - 2 : at]) == ["WITH", "SYSTEM"] for at, word in enumerate(upper))


def _is_key(item: Sequence[Word]) -> bool:
    """Is it no column?"""
    first = item[0].upper
    second = item[1].upper if len(item) > 1 else ""
    return first in _KEYS or (first, second) in _PAIRS or (first,) in _PAIRS


def _top_level(words: Sequence[Word]) -> list[Word]:
    """The table's options: what is in no brackets and before its partitions."""
    out, depth = list[Word](), 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if word.upper == "PARTITION":
            break
        if depth == 0:
            out.append(word)
    return out


class SchemaHints(msgspec.Struct):
    """What a user's statements say of the tables of a log. Read when the first table map asks."""

    sql: str
    _tables: Mapping[str, Columns] | None = None
    _told: set[str] = msgspec.field(default_factory=set)

    def of(self, table: TableMap) -> Columns | None:
        """The columns that are declared for this table.

        Raises:
            UsageError: a statement cannot be understood.
        """
        if self._tables is None:
            try:
                self._tables = load(self.sql)
            except UsageError as error:
                raise UsageError(f"--schema: {error}") from None
        return self._tables.get(table.full_name, self._tables.get(table.table))

    def hinted(self, table: TableMap) -> TableMap:
        """The same map with what is declared of its columns; the map itself where that is about another table."""
        columns = self.of(table)
        return table if columns is None else table.with_hints(columns)

    def faults(self, table_map: memoryview, id_size: int) -> Iterator[Fault]:
        """What is declared and not used, once for each table.

        Raises:
            MalformedError: the event is no TABLE_MAP. UsageError: a statement cannot be understood.
        """
        table = parse_table_map(table_map, id_size)
        text = self.misfit(table)
        if text is not None and table.full_name not in self._told:
            self._told.add(table.full_name)
            yield Fault("meta-mismatch", text, "schema", Severity.WARNING)

    def misfit(self, table: TableMap) -> str | None:
        """Why what is declared of this table is not used; None = it is, or nothing is."""
        columns = self.of(table)
        if columns is None or not columns:
            return None if columns is None else f"--schema has two tables {table.table!r} and no database for them"
        if len(columns) != len(table.columns):
            return f"--schema gives {table.qualified_name} {len(columns)} columns, the log {len(table.columns)}"
        odd = (i for i, (column, hint) in enumerate(zip(table.columns, columns, strict=True)) if not fits(column, hint))
        place = next(odd, None)
        if place is None:
            return None
        name = columns[place].name
        return f"--schema gives column {place + 1} of {table.qualified_name} ({name}) another type than the log's"
