"""Parser of one CREATE TABLE statement, as `mysqldump`, SHOW CREATE TABLE and logs write it: its columns.

The words come from sqlglot's tokenizer for MySQL (`ddl.words`). Its grammar is not used: it rejects types
and clauses that dumps of real servers have (POINT, INET6, COMPRESSED, SYSTEM VERSIONING).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.types import find_charset, parse_column
from binlogtool.formats.binlog_events.ddl.words import SqlStatement, SqlWord, split_words
from binlogtool.formats.binlog_events.values.columns import ColumnHint, ColumnType

ColumnHints = tuple[ColumnHint, ...]

_KEY_WORDS = {"PRIMARY", "KEY", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"}
_KEY_WORD_PAIRS = {("PERIOD", "FOR"), ("VECTOR", "KEY"), ("VECTOR", "INDEX"), ("LIKE",)}
ROW_TIMES = tuple(
    ColumnHint(name=name, types=frozenset({ColumnType.TIMESTAMP2.value, ColumnType.LONGLONG.value}), generated=True)
    for name in ("row_start", "row_end")
)
"""Columns that WITH SYSTEM VERSIONING adds where the statement does not declare them."""


class CreateTable:
    """One CREATE TABLE statement.

    `columns`: None if the statement does not declare them (LIKE, AS SELECT). `charset`: of columns that name
    none: the statement's, or the argument; None if unknown. `versioned`: the table keeps the history of its
    rows.

    Raises:
        UsageError: the statement is not supported.
    """

    def __init__(self, statement: SqlStatement, charset: str | None = None) -> None:
        self._statement = statement
        self._words = split_words(statement)
        self._at = next(i for i, word in enumerate(self._words) if word.upper == "TABLE") + 1
        if [word.upper for word in self._words[self._at : self._at + 3]] == ["IF", "NOT", "EXISTS"]:
            self._at += 3
        self.database, self.name = self._read_table_name()
        self.charset = charset
        self.versioned = _has_versioning([word.upper for word in self._words])
        self.columns = self._read_columns() if self._word_at(self._at).upper == "(" else None

    def _make_error(self, reason: str) -> UsageError:
        """Return the error with its line."""
        return UsageError(f"line {self._statement.line}: CREATE TABLE {reason}")

    def _word_at(self, at: int) -> SqlWord:
        """Return a word; an empty one after the end."""
        return self._words[at] if at < len(self._words) else SqlWord("", False)

    def _read_table_name(self) -> tuple[str | None, str]:
        """Read the name: (database or None, table)."""
        names = [self._word_at(self._at).text]
        self._at += 1
        while self._word_at(self._at).upper == ".":
            names.append(self._word_at(self._at + 1).text)
            self._at += 2
        if len(names) > 2 or not all(names):
            raise self._make_error("has no name that can be read")
        return (names[0] if len(names) == 2 else None), names[-1]

    def _read_columns(self) -> ColumnHints | None:
        """Read the columns; None if the statement does not declare them."""
        items = list(self._iter_items())
        options = self._words[self._at :]
        self.charset = find_charset(_table_options(options)) or self.charset
        columns = [item for item in items if not _is_key_clause(item)]
        if any(item[0].upper == "LIKE" for item in items):
            return None
        hints = [self._make_hint(item, self.charset) for item in columns]
        if not hints:
            raise self._make_error(f"{self.name} has no columns")
        periods = [item for item in items if item[0].upper == "PERIOD" and "SYSTEM_TIME" in [w.upper for w in item]]
        if self.versioned and not periods:
            hints += ROW_TIMES
        return tuple(hints)

    def _make_hint(self, item: Sequence[SqlWord], default: str | None) -> ColumnHint:
        """Return the hint for one column definition."""
        if len(item) < 2 or item[1].quoted or not item[1].text[:1].isalpha():
            raise self._make_error(f"{self.name}: column {item[0].text!r} has no type")
        return parse_column(item[0].text, item[1:], default)

    def _iter_items(self) -> Iterator[list[SqlWord]]:
        """Yield the definitions between the outer parentheses, and advance past them."""
        depth, item = 0, list[SqlWord]()
        for at in range(self._at, len(self._words)):
            word = self._words[at]
            depth += {"(": 1, ")": -1}.get(word.upper, 0)
            if depth == 0 or (depth == 1 and word.upper == ","):
                if not item:
                    raise self._make_error(f"{self.name} has an empty definition")
                yield item
                item = []
            elif depth > 1 or word.upper != "(" or item:
                item.append(word)
            if depth == 0:
                self._at = at + 1
                return
        raise self._make_error(f"{self.name}: a bracket is not closed")


def _has_versioning(upper_words: Sequence[str]) -> bool:
    """Return whether WITH SYSTEM VERSIONING is there, of the table or of a column."""
    return any(
        word == "VERSIONING" and list(upper_words[at - 2 : at]) == ["WITH", "SYSTEM"]
        for at, word in enumerate(upper_words)
    )


def _is_key_clause(item: Sequence[SqlWord]) -> bool:
    """Return whether a definition is a key or another clause, not a column."""
    first = item[0].upper
    second = item[1].upper if len(item) > 1 else ""
    return first in _KEY_WORDS or (first, second) in _KEY_WORD_PAIRS or (first,) in _KEY_WORD_PAIRS


def _table_options(words: Sequence[SqlWord]) -> list[SqlWord]:
    """Return the table's options: the words outside of parentheses and before its partitions."""
    options, depth = list[SqlWord](), 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if word.upper == "PARTITION":
            break
        if depth == 0:
            options.append(word)
    return options
