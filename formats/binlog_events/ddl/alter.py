"""Effects of ALTER TABLE, RENAME TABLE and CREATE TABLE on existing rows: renames, changed columns, copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.words import Statement, Word, after_gap, statements, words
from binlogtool.formats.table_names import full_name

_HARMLESS = frozenset((
    "ENGINE", "TYPE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "CHECKSUM",
    "TABLE_CHECKSUM", "PAGE_CHECKSUM", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "PACK_KEYS", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID",
    "TRANSACTIONAL", "INSERT_METHOD", "CONNECTION", "DATA", "UNION", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE",
    "ALTER", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK", "ORDER", "WITH", "WITHOUT", "TABLESPACE",
    "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "AUTOEXTEND_SIZE",
))  # fmt: skip
"""First words of clauses that leave rows and columns as they are."""

_INDEX = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"))
_NOT_A_NAME = frozenset(("COLUMN", "INDEX", "KEY"))

Name = tuple[str, ...]
"""(table,) or (database, table)."""


class Reading:
    """Reader of the words of one statement.

    Raises:
        UsageError: the statement does not follow the lexical rules, or `read_name` finds no name.
    """

    def __init__(self, sql: str) -> None:
        statement = next(iter(statements(sql[after_gap(sql) :])), Statement(1, ";"))
        first, *rest = statement.text.split(None, 1)
        if first.upper() in ("CREATE", "ALTER", "DROP"):
            self.words = words(statement)
        else:  # sqlglot returns a whole RENAME as one word
            self.words = [Word(first, False), *words(statement._replace(text="".join(rest)))]
        self.at = 0

    @classmethod
    def of(cls, words: Sequence[Word]) -> Reading:
        """Create a reader of some words of a statement."""
        made = cls(";")
        made.words = list(words)
        return made

    @property
    def next(self) -> str:
        """The next word in capitals; empty for a quoted one and at the end."""
        return self.words[self.at].upper if self.at < len(self.words) else ""

    def passes(self, *expected: str) -> bool:
        """Skip these words and return True if they are next; otherwise return False."""
        found = [word.upper for word in self.words[self.at : self.at + len(expected)]]
        if found != list(expected):
            return False
        self.at += len(expected)
        return True

    def name(self) -> Name:
        """Read the name of a table."""
        parts = self.words[self.at : self.at + 3]
        if not parts or parts[0].upper in (",", "(", ")", ".", "="):
            raise UsageError("the statement has no name where one should be")
        if len(parts) == 3 and parts[1].upper == ".":
            self.at += 3
            return parts[0].text, parts[2].text
        self.at += 1
        return (parts[0].text,)

    def waits(self) -> None:
        """Skip WAIT n and NOWAIT."""
        if self.passes("WAIT"):
            self.at += 1
        self.passes("NOWAIT")

    def clauses(self) -> Iterator[list[Word]]:
        """Yield the remaining words, split at commas outside of parentheses."""
        depth, clause = 0, list[Word]()
        for word in self.words[self.at :]:
            depth += {"(": 1, ")": -1}.get(word.upper, 0)
            if depth == 0 and word.upper == ",":
                yield clause
                clause = []
            else:
                clause.append(word)
        yield clause


def renames(sql: str, database: str) -> list[tuple[str, str]]:
    """Return the (old, new) names of tables that RENAME TABLE or ALTER TABLE ... RENAME renames, in order.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = Reading(sql)
    if read.passes("RENAME", "TABLE") or read.passes("RENAME", "TABLES"):
        return [(_full(one, database), _full(other, database)) for one, other in renamed_pairs(read)]
    table = _altered(read)
    if table is None:
        return []
    new = [name for name in map(new_table_name, read.clauses()) if name is not None]
    return [(_full(table, database), _full(name, database)) for name in new]


def altered_table(sql: str, database: str) -> tuple[str, Reading] | None:
    """Return the table that an ALTER TABLE changes, and a reader positioned at its clauses.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = Reading(sql)
    table = _altered(read)
    return None if table is None else (_full(table, database), read)


def keeps_rows(sql: str) -> bool:
    """Return whether an ALTER TABLE leaves all rows of its table, their columns and key unchanged.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = Reading(sql)
    return _altered(read) is None or all(map(_is_harmless, read.clauses()))


def exchanged(sql: str, database: str) -> str | None:
    """Return the table that ALTER TABLE ... EXCHANGE PARTITION p WITH TABLE name changes too.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = Reading(sql)
    if _altered(read) is None or not read.passes("EXCHANGE", "PARTITION"):
        return None
    read.at += 1
    return _full(read.name(), database) if read.passes("WITH", "TABLE") else None


def copied(sql: str, database: str) -> str | None:
    """Return the table whose definition CREATE TABLE ... LIKE copies.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = _created(sql)
    if read is None or not (read.passes("LIKE") or read.passes("(", "LIKE")):
        return None
    return _full(read.name(), database)


def selects(sql: str) -> bool:
    """Return whether it is CREATE TABLE ... SELECT, which also inserts rows.

    Raises:
        UsageError: the statement cannot be read.
    """
    read = _created(sql)
    return read is not None and any(word.upper == "SELECT" for word in read.words[read.at :])


def creates_if_missing(sql: str) -> bool:
    """Return whether it is CREATE TABLE IF NOT EXISTS, which changes nothing if the table exists.

    Raises:
        UsageError: the statement cannot be read.
    """
    return Reading(sql).passes("CREATE", "TABLE", "IF", "NOT", "EXISTS")


def _created(sql: str) -> Reading | None:
    """Return a reader positioned after the table name of a CREATE TABLE; None for other statements."""
    read = Reading(sql)
    if not read.passes("CREATE"):
        return None
    read.passes("OR", "REPLACE")
    if not read.passes("TABLE"):
        return None
    read.passes("IF", "NOT", "EXISTS")
    read.name()
    return read


def _altered(read: Reading) -> Name | None:
    """Read the table name of an ALTER TABLE; its clauses are next. None for other statements."""
    if not read.passes("ALTER"):
        return None
    while read.next in ("ONLINE", "IGNORE"):
        read.at += 1
    if not read.passes("TABLE"):
        return None
    read.passes("IF", "EXISTS")
    name = read.name()
    read.waits()
    return name


def renamed_pairs(read: Reading) -> Iterator[tuple[Name, Name]]:
    """Yield the (old, new) names of RENAME TABLE, from the reader's position on.

    Raises:
        UsageError: the statement cannot be read.
    """
    read.passes("IF", "EXISTS")
    while True:
        one = read.name()
        read.waits()
        if not read.passes("TO"):
            raise UsageError("RENAME TABLE has no TO")
        yield one, read.name()
        if not read.passes(","):
            return


def new_table_name(clause: Sequence[Word]) -> Name | None:
    """Return the name that a clause RENAME [TO | AS | =] of ALTER TABLE gives its table; None for other clauses.

    Raises:
        UsageError: the clause has no name.
    """
    heads = [word.upper for word in clause[:2]]
    if heads[:1] != ["RENAME"] or heads[1:] in ([one] for one in _NOT_A_NAME):
        return None
    start = 2 if heads[1:] in (["TO"], ["AS"], ["="]) else 1
    parts = [word.text for word in clause[start : start + 3]]
    if not parts:
        raise UsageError("ALTER TABLE ... RENAME has no name")
    return (parts[0], parts[2]) if parts[1:2] == ["."] and len(parts) == 3 else (parts[0],)


def _is_harmless(clause: Sequence[Word]) -> bool:
    """Return whether a clause of ALTER TABLE leaves rows, columns and key unchanged."""
    heads = [word.upper for word in clause if word.upper not in ("IF", "NOT", "EXISTS")][:3] + [""] * 3
    first, second = heads[:2]
    if first == "RENAME":
        return second != "COLUMN"
    if first == "ADD":
        named = second == "CONSTRAINT" and "PRIMARY" in [word.upper for word in clause[:4]]
        return second in (*_INDEX, "CONSTRAINT", "PARTITION") and not named
    if first == "DROP":
        return second in (*_INDEX, "CONSTRAINT")
    return first in _HARMLESS or not clause


def _full(name: Name, database: str) -> str:
    """Return the full name of a table."""
    return full_name(*name) if len(name) > 1 else full_name(database, name[0])
