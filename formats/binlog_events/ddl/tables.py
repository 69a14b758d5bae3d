"""Tables named in the statements of a log: created, altered, emptied or dropped; engine and primary key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.words import QUOTED, Word, after_gap, is_undecided, statements, words
from binlogtool.formats.table_names import full_name

_NAME = rf"(?:{QUOTED}|[\w$]+)"
TABLE = rf"(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)"
_EXISTS = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_START = re.compile(r"(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b", re.I)
_CREATE = re.compile(r"CREATE", re.I)
_CREATED = re.compile(rf"(?P<replace>OR\s+REPLACE\s+)?TABLE\s+{_EXISTS}{TABLE}", re.I)
_ALTER = re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+{_EXISTS}{TABLE}", re.I)
_DROP = re.compile(rf"DROP\s+TABLES?\s+{_EXISTS}(?P<list>{_NAME}(?:\s*[.,]\s*{_NAME})*)", re.I)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{TABLE}", re.I)
_SEQUENCE = re.compile(rf"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?SEQUENCE\s+{_EXISTS}{TABLE}", re.I)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+{_EXISTS}(?P<database>{_NAME})", re.I)
_ENGINE = re.compile(r"\bENGINE(?:\s*=)?\s*['\"`]?(\w+)", re.I)
_MOVES = re.compile(r"\b(?:PRIMARY|DROP|FIRST|AFTER|MODIFY|CHANGE|RENAME)\b", re.I)
_WITHOUT_UNDO = frozenset(
    {"MYISAM", "ARIA", "MEMORY", "HEAP", "CSV", "ARCHIVE", "MERGE", "MRG_MYISAM", "BLACKHOLE", "S3"}
)
_WORDS = re.compile(_NAME)
_MOST_TEXT = 1 << 20
_MOST_START = 4096


class Engine(NamedTuple):
    """Table ("database.table"), and whether its engine can roll back."""

    table: str
    transactional: bool


class Key(NamedTuple):
    """Primary key that a CREATE TABLE declares.

    `columns`: number of columns of the table. `parts`: (column index from 0, characters in the key; 0 = all).
    """

    columns: int
    parts: tuple[tuple[int, int], ...]


def _begins(pattern: re.Pattern[str], sql: str) -> re.Match[str] | None:
    """Match a pattern at the first word of a statement."""
    return pattern.match(sql, after_gap(sql))


def _creates(sql: str) -> re.Match[str] | None:
    """Match CREATE TABLE: between its first words servers write comments, and comment marks around OR REPLACE."""
    create = _begins(_CREATE, sql)
    return None if create is None else _CREATED.match(sql, after_gap(sql, create.end()))


def about_tables(sql: str) -> bool:
    """Return whether a statement may be one of those that are supported here."""
    return _begins(_START, sql) is not None


def may_define(sql: bytes) -> bool:
    """Return whether the beginning of a statement may be one of those that are supported here.

    Usually its first bytes decide.
    """
    shown = sql[:_MOST_START].decode("latin-1")
    if len(sql) > _MOST_START and is_undecided(shown):
        shown = sql.decode("latin-1")
    return about_tables(shown)


def verb(sql: str) -> str:
    """Return the first word of a supported statement in capitals; "" for others."""
    matched = _begins(_START, sql)
    return "" if matched is None else matched[1].upper()


def engine_of(sql: str, database: str) -> Engine | None:
    """Return the engine that CREATE TABLE or ALTER TABLE gives a table; None if the statement names none."""
    if not about_tables(sql):
        return None
    matched = _creates(sql) or _begins(_ALTER, sql)
    engine = None if matched is None else _ENGINE.search(sql, matched.end(), matched.end() + _MOST_TEXT)
    if matched is None or engine is None:
        return None
    return Engine(qualified(matched["table"], database), engine[1].upper() not in _WITHOUT_UNDO)


def names_any(sql: str, database: str, tables: Collection[str]) -> bool:
    """Return whether a statement names one of these tables; names in strings and comments count too."""
    found = [_bare(name) for name in _WORDS.findall(sql[:_MOST_TEXT])]
    return any(full_name(database, name) in tables for name in found) or any(
        full_name(first, second) in tables for first, second in pairwise(found)
    )


def created(sql: str, database: str) -> str | None:
    """Return the table that a CREATE TABLE creates."""
    matched = _creates(sql)
    return None if matched is None else qualified(matched["table"], database)


def altered(sql: str, database: str) -> tuple[str, bool] | None:
    """Return the table that an ALTER TABLE changes, and whether its key may change."""
    matched = _begins(_ALTER, sql)
    return None if matched is None else (qualified(matched["table"], database), _MOVES.search(sql) is not None)


def emptied(sql: str, database: str) -> Iterator[str]:
    """Yield the tables that a statement drops or empties."""
    if (matched := _begins(_DROP, sql)) is not None:
        for name in _tables(matched["list"]):
            yield qualified(name, database)
    elif (matched := _begins(_TRUNCATE, sql)) is not None or (
        (matched := _creates(sql)) is not None and matched["replace"]
    ):
        yield qualified(matched["table"], database)


def about_sequence(sql: str, database: str) -> str | None:
    """Return the sequence that a statement creates, changes or drops."""
    matched = _begins(_SEQUENCE, sql)
    return None if matched is None else qualified(matched["table"], database)


def truncates(sql: str) -> bool:
    """Return whether a statement empties a table that remains."""
    return _begins(_TRUNCATE, sql) is not None


def dropped_database(sql: str) -> str | None:
    """Return the database that a statement drops."""
    matched = _begins(_DROP_DATABASE, sql)
    return None if matched is None else _bare(matched["database"])


def qualified(name: str, database: str) -> str:
    """Return database.table for a table as a statement writes it."""
    parts = [_bare(part) for part in _WORDS.findall(name)]
    return full_name(*parts[:2]) if len(parts) > 1 else full_name(database, parts[0])


def _tables(names: str) -> Iterator[str]:
    """Yield the table names of a list."""
    for matched in re.finditer(TABLE, names):
        yield matched["table"]


def _bare(name: str) -> str:
    """Return a name without backticks."""
    return name[1:-1].replace("``", "`") if name[:1] == "`" else name


# -- keys --------------------------------------------------------------------------------------------------------------


def key_of(sql: str) -> Key | None:
    """Return the primary key of a CREATE TABLE; None if it has none or is not supported."""
    try:
        statement = next(iter(statements(sql)), None)
        found = [] if statement is None else words(statement)
    except UsageError:
        return None
    items = list(_items(found))
    columns = [item for item in items if not _is_clause(item)]
    names = [item[0].text.lower() for item in columns]
    for item in items:
        parts = _key_parts(item)
        if _is_clause(item) and parts and all(name in names for name, _ in parts):
            return Key(len(columns), tuple((names.index(name), size) for name, size in parts))
    for index, item in enumerate(columns):
        if _is_key_column(item):
            return Key(len(columns), ((index, 0),))
    return None


def _items(found: list[Word]) -> Iterator[list[Word]]:
    """Yield the columns and clauses between the outer parentheses."""
    depth, item = 0, list[Word]()
    for word in found:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0 and word.upper == ")":
            break
        if depth == 1 and word.upper in ("(", ","):
            if item:
                yield item
            item = []
        elif depth >= 1:
            item.append(word)
    if item:
        yield item


_CLAUSES = {"PRIMARY", "KEY", "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "PERIOD"}


def _is_clause(item: list[Word]) -> bool:
    """Return whether a definition item is a key or another clause."""
    return item[0].upper in _CLAUSES


def _key_parts(item: list[Word]) -> list[tuple[str, int]]:
    """Return the columns of PRIMARY KEY (a, b(10)), in lower case."""
    upper = [word.upper for word in item]
    if "PRIMARY" not in upper or "(" not in upper:
        return []
    parts: list[tuple[str, int]] = []
    depth = 0
    for word in item[upper.index("(") :]:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0:
            break
        if depth == 2 and word.text.isdecimal() and parts:
            parts[-1] = parts[-1][0], int(word.text)
        elif depth == 1 and word.upper not in ("(", ")", ",", "ASC", "DESC"):
            parts.append((word.text.lower(), 0))
    return parts


def _is_key_column(item: list[Word]) -> bool:
    """Return whether a column definition declares the primary key."""
    upper = [word.upper for word in item[1:]]
    return any(
        word == "PRIMARY" or (word == "KEY" and upper[max(at - 1, 0)] not in ("UNIQUE", "PRIMARY", "COLUMN"))
        for at, word in enumerate(upper)
    )
