"""Effects of ALTER TABLE, RENAME TABLE and CREATE TABLE on existing rows: renames, changed columns, copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.words import SqlStatement, SqlWord, skip_gap, split_statements, split_words
from binlogtool.formats.table_names import qualify_name

_CLAUSES_WITHOUT_EFFECT = frozenset((
    "ENGINE", "TYPE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "CHECKSUM",
    "TABLE_CHECKSUM", "PAGE_CHECKSUM", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "PACK_KEYS", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID",
    "TRANSACTIONAL", "INSERT_METHOD", "CONNECTION", "DATA", "UNION", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE",
    "ALTER", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK", "ORDER", "WITH", "WITHOUT", "TABLESPACE",
    "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "AUTOEXTEND_SIZE",
))  # fmt: skip
"""First words of clauses that leave rows and columns as they are."""

_INDEX_WORDS = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"))
_RENAME_OBJECTS = frozenset(("COLUMN", "INDEX", "KEY"))

TableName = tuple[str, ...]
"""(table,) or (database, table)."""


class StatementReader:
    """Reader of the words of one statement.

    Raises:
        UsageError: the statement does not follow the lexical rules, or `read_name` finds no name.
    """

    def __init__(self, sql: str) -> None:
        statement = next(iter(split_statements(sql[skip_gap(sql) :])), SqlStatement(1, ";"))
        first, *rest = statement.text.split(None, 1)
        if first.upper() in ("CREATE", "ALTER", "DROP"):
            self.words = split_words(statement)
        else:  # sqlglot returns a whole RENAME as one word
            self.words = [SqlWord(first, False), *split_words(statement._replace(text="".join(rest)))]
        self.at = 0

    @classmethod
    def from_words(cls, word_list: Sequence[SqlWord]) -> StatementReader:
        """Create a reader of some words of a statement."""
        reader = cls(";")
        reader.words = list(word_list)
        return reader

    @property
    def next_word(self) -> str:
        """The next word in capitals; empty for a quoted one and at the end."""
        return self.words[self.at].upper if self.at < len(self.words) else ""

    def skip_words(self, *expected: str) -> bool:
        """Skip these words and return True if they are next; otherwise return False."""
        upcoming = [word.upper for word in self.words[self.at : self.at + len(expected)]]
        if upcoming != list(expected):
            return False
        self.at += len(expected)
        return True

    def read_name(self) -> TableName:
        """Read the name of a table."""
        parts = self.words[self.at : self.at + 3]
        if not parts or parts[0].upper in (",", "(", ")", ".", "="):
            raise UsageError("the statement has no name where one should be")
        if len(parts) == 3 and parts[1].upper == ".":
            self.at += 3
            return parts[0].text, parts[2].text
        self.at += 1
        return (parts[0].text,)

    def skip_wait(self) -> None:
        """Skip WAIT n and NOWAIT."""
        if self.skip_words("WAIT"):
            self.at += 1
        self.skip_words("NOWAIT")

    def iter_clauses(self) -> Iterator[list[SqlWord]]:
        """Yield the remaining words, split at commas outside of parentheses."""
        depth, clause = 0, list[SqlWord]()
        for word in self.words[self.at :]:
            depth += {"(": 1, ")": -1}.get(word.upper, 0)
            if depth == 0 and word.upper == ",":
                yield clause
                clause = []
            else:
                clause.append(word)
        yield clause


def find_renames(sql: str, database: str) -> list[tuple[str, str]]:
    """Return the (old, new) names of tables that RENAME TABLE or ALTER TABLE ... RENAME renames, in order.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = StatementReader(sql)
    if reader.skip_words("RENAME", "TABLE") or reader.skip_words("RENAME", "TABLES"):
        return [(_qualify(one, database), _qualify(other, database)) for one, other in iter_renamed_pairs(reader)]
    table = _read_altered_name(reader)
    if table is None:
        return []
    new_names = [name for name in map(find_new_table_name, reader.iter_clauses()) if name is not None]
    return [(_qualify(table, database), _qualify(name, database)) for name in new_names]


def read_altered_table(sql: str, database: str) -> tuple[str, StatementReader] | None:
    """Return the table that an ALTER TABLE changes, and a reader positioned at its clauses.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = StatementReader(sql)
    table = _read_altered_name(reader)
    return None if table is None else (_qualify(table, database), reader)


def is_row_preserving(sql: str) -> bool:
    """Return whether an ALTER TABLE leaves all rows of its table, their columns and key unchanged.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = StatementReader(sql)
    return _read_altered_name(reader) is None or all(map(_is_row_preserving_clause, reader.iter_clauses()))


def find_exchanged_table(sql: str, database: str) -> str | None:
    """Return the table that ALTER TABLE ... EXCHANGE PARTITION p WITH TABLE name changes too.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = StatementReader(sql)
    if _read_altered_name(reader) is None or not reader.skip_words("EXCHANGE", "PARTITION"):
        return None
    reader.at += 1
    return _qualify(reader.read_name(), database) if reader.skip_words("WITH", "TABLE") else None


def find_like_source(sql: str, database: str) -> str | None:
    """Return the table whose definition CREATE TABLE ... LIKE copies.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = _skip_created_name(sql)
    if reader is None or not (reader.skip_words("LIKE") or reader.skip_words("(", "LIKE")):
        return None
    return _qualify(reader.read_name(), database)


def has_select(sql: str) -> bool:
    """Return whether it is CREATE TABLE ... SELECT, which also inserts rows.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader = _skip_created_name(sql)
    return reader is not None and any(word.upper == "SELECT" for word in reader.words[reader.at :])


def is_create_if_not_exists(sql: str) -> bool:
    """Return whether it is CREATE TABLE IF NOT EXISTS, which changes nothing if the table exists.

    Raises:
        UsageError: the statement cannot be read.
    """
    return StatementReader(sql).skip_words("CREATE", "TABLE", "IF", "NOT", "EXISTS")


def _skip_created_name(sql: str) -> StatementReader | None:
    """Return a reader positioned after the table name of a CREATE TABLE; None for other statements."""
    reader = StatementReader(sql)
    if not reader.skip_words("CREATE"):
        return None
    reader.skip_words("OR", "REPLACE")
    if not reader.skip_words("TABLE"):
        return None
    reader.skip_words("IF", "NOT", "EXISTS")
    reader.read_name()
    return reader


def _read_altered_name(reader: StatementReader) -> TableName | None:
    """Read the table name of an ALTER TABLE; its clauses are next. None for other statements."""
    if not reader.skip_words("ALTER"):
        return None
    while reader.next_word in ("ONLINE", "IGNORE"):
        reader.at += 1
    if not reader.skip_words("TABLE"):
        return None
    reader.skip_words("IF", "EXISTS")
    name = reader.read_name()
    reader.skip_wait()
    return name


def iter_renamed_pairs(reader: StatementReader) -> Iterator[tuple[TableName, TableName]]:
    """Yield the (old, new) names of RENAME TABLE, from the reader's position on.

    Raises:
        UsageError: the statement cannot be read.
    """
    reader.skip_words("IF", "EXISTS")
    while True:
        old_name = reader.read_name()
        reader.skip_wait()
        if not reader.skip_words("TO"):
            raise UsageError("RENAME TABLE has no TO")
        yield old_name, reader.read_name()
        if not reader.skip_words(","):
            return


def find_new_table_name(clause: Sequence[SqlWord]) -> TableName | None:
    """Return the name that a clause RENAME [TO | AS | =] of ALTER TABLE gives its table; None for other clauses.

    Raises:
        UsageError: the clause has no name.
    """
    heads = [word.upper for word in clause[:2]]
    if heads[:1] != ["RENAME"] or heads[1:] in ([one] for one in _RENAME_OBJECTS):
        return None
    start = 2 if heads[1:] in (["TO"], ["AS"], ["="]) else 1
    parts = [word.text for word in clause[start : start + 3]]
    if not parts:
        raise UsageError("ALTER TABLE ... RENAME has no name")
    return (parts[0], parts[2]) if parts[1:2] == ["."] and len(parts) == 3 else (parts[0],)


def _is_row_preserving_clause(clause: Sequence[SqlWord]) -> bool:
    """Return whether a clause of ALTER TABLE leaves rows, columns and key unchanged."""
    heads = [word.upper for word in clause if word.upper not in ("IF", "NOT", "EXISTS")][:3] + [""] * 3
    first, second = heads[:2]
    if first == "RENAME":
        return second != "COLUMN"
    if first == "ADD":
        adds_primary_key = second == "CONSTRAINT" and "PRIMARY" in [word.upper for word in clause[:4]]
        return second in (*_INDEX_WORDS, "CONSTRAINT", "PARTITION") and not adds_primary_key
    if first == "DROP":
        return second in (*_INDEX_WORDS, "CONSTRAINT")
    return first in _CLAUSES_WITHOUT_EFFECT or not clause


def _qualify(name: TableName, database: str) -> str:
    """Return the full name of a table."""
    return qualify_name(*name) if len(name) > 1 else qualify_name(database, name[0])
