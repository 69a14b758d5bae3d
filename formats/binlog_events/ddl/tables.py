"""Tables named in the statements of a log: created, altered, emptied or dropped; engine and primary key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.words import (
    QUOTED_NAME,
    SqlWord,
    is_undecided,
    skip_gap,
    split_statements,
    split_words,
)
from binlogtool.formats.table_names import qualify_name

_NAME = rf"(?:{QUOTED_NAME}|[\w$]+)"
TABLE_PATTERN = rf"(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)"
_EXISTS = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_START = re.compile(r"(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b", re.I)
_CREATE = re.compile(r"CREATE", re.I)
_CREATE_TABLE = re.compile(rf"(?P<replace>OR\s+REPLACE\s+)?TABLE\s+{_EXISTS}{TABLE_PATTERN}", re.I)
_ALTER = re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+{_EXISTS}{TABLE_PATTERN}", re.I)
_DROP = re.compile(rf"DROP\s+TABLES?\s+{_EXISTS}(?P<list>{_NAME}(?:\s*[.,]\s*{_NAME})*)", re.I)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{TABLE_PATTERN}", re.I)
_SEQUENCE = re.compile(rf"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?SEQUENCE\s+{_EXISTS}{TABLE_PATTERN}", re.I)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+{_EXISTS}(?P<database>{_NAME})", re.I)
_ENGINE = re.compile(r"\bENGINE(?:\s*=)?\s*['\"`]?(\w+)", re.I)
_KEY_CHANGES = re.compile(r"\b(?:PRIMARY|DROP|FIRST|AFTER|MODIFY|CHANGE|RENAME)\b", re.I)
_NON_TRANSACTIONAL_ENGINES = frozenset(
    {"MYISAM", "ARIA", "MEMORY", "HEAP", "CSV", "ARCHIVE", "MERGE", "MRG_MYISAM", "BLACKHOLE", "S3"}
)
_WORDS = re.compile(_NAME)
_MAX_SEARCHED = 1 << 20
_MAX_START = 4096


class TableEngine(NamedTuple):
    """Table ("database.table"), and whether its engine can roll back."""

    table: str
    transactional: bool


class DeclaredKey(NamedTuple):
    """Primary key that a CREATE TABLE declares.

    `columns`: number of columns of the table. `parts`: (column index from 0, characters in the key; 0 = all).
    """

    columns: int
    parts: tuple[tuple[int, int], ...]


def _match_start(pattern: re.Pattern[str], sql: str) -> re.Match[str] | None:
    """Match a pattern at the first word of a statement."""
    return pattern.match(sql, skip_gap(sql))


def _match_create_table(sql: str) -> re.Match[str] | None:
    """Match CREATE TABLE: between its first words servers write comments, and comment marks around OR REPLACE."""
    create = _match_start(_CREATE, sql)
    return None if create is None else _CREATE_TABLE.match(sql, skip_gap(sql, create.end()))


def is_table_statement(sql: str) -> bool:
    """Return whether a statement may be one of those that are supported here."""
    return _match_start(_START, sql) is not None


def may_be_table_statement(sql: bytes) -> bool:
    """Return whether the beginning of a statement may be one of those that are supported here.

    Usually its first bytes decide.
    """
    text = sql[:_MAX_START].decode("latin-1")
    if len(sql) > _MAX_START and is_undecided(text):
        text = sql.decode("latin-1")
    return is_table_statement(text)


def first_keyword(sql: str) -> str:
    """Return the first word of a supported statement in capitals; "" for others."""
    matched = _match_start(_START, sql)
    return "" if matched is None else matched[1].upper()


def find_engine(sql: str, database: str) -> TableEngine | None:
    """Return the engine that CREATE TABLE or ALTER TABLE gives a table; None if the statement names none."""
    if not is_table_statement(sql):
        return None
    matched = _match_create_table(sql) or _match_start(_ALTER, sql)
    engine = None if matched is None else _ENGINE.search(sql, matched.end(), matched.end() + _MAX_SEARCHED)
    if matched is None or engine is None:
        return None
    return TableEngine(
        qualify_table_name(matched["table"], database), engine[1].upper() not in _NON_TRANSACTIONAL_ENGINES
    )


def mentions_any_table(sql: str, database: str, tables: Collection[str]) -> bool:
    """Return whether a statement names one of these tables; names in strings and comments count too."""
    names = [_unquote_name(name) for name in _WORDS.findall(sql[:_MAX_SEARCHED])]
    return any(qualify_name(database, name) in tables for name in names) or any(
        qualify_name(first, second) in tables for first, second in pairwise(names)
    )


def find_created_table(sql: str, database: str) -> str | None:
    """Return the table that a CREATE TABLE creates."""
    matched = _match_create_table(sql)
    return None if matched is None else qualify_table_name(matched["table"], database)


def find_altered_table(sql: str, database: str) -> tuple[str, bool] | None:
    """Return the table that an ALTER TABLE changes, and whether its key may change."""
    matched = _match_start(_ALTER, sql)
    return (
        None
        if matched is None
        else (qualify_table_name(matched["table"], database), _KEY_CHANGES.search(sql) is not None)
    )


def iter_emptied_tables(sql: str, database: str) -> Iterator[str]:
    """Yield the tables that a statement drops or empties."""
    if (matched := _match_start(_DROP, sql)) is not None:
        for name in _iter_table_names(matched["list"]):
            yield qualify_table_name(name, database)
    elif (matched := _match_start(_TRUNCATE, sql)) is not None or (
        (matched := _match_create_table(sql)) is not None and matched["replace"]
    ):
        yield qualify_table_name(matched["table"], database)


def find_sequence(sql: str, database: str) -> str | None:
    """Return the sequence that a statement creates, changes or drops."""
    matched = _match_start(_SEQUENCE, sql)
    return None if matched is None else qualify_table_name(matched["table"], database)


def is_truncate(sql: str) -> bool:
    """Return whether a statement empties a table that remains."""
    return _match_start(_TRUNCATE, sql) is not None


def find_dropped_database(sql: str) -> str | None:
    """Return the database that a statement drops."""
    matched = _match_start(_DROP_DATABASE, sql)
    return None if matched is None else _unquote_name(matched["database"])


def qualify_table_name(name: str, database: str) -> str:
    """Return database.table for a table as a statement writes it."""
    parts = [_unquote_name(part) for part in _WORDS.findall(name)]
    return qualify_name(*parts[:2]) if len(parts) > 1 else qualify_name(database, parts[0])


def _iter_table_names(names: str) -> Iterator[str]:
    """Yield the table names of a list."""
    for matched in re.finditer(TABLE_PATTERN, names):
        yield matched["table"]


def _unquote_name(name: str) -> str:
    """Return a name without backticks."""
    return name[1:-1].replace("``", "`") if name[:1] == "`" else name


# -- keys --------------------------------------------------------------------------------------------------------------


def find_primary_key(sql: str) -> DeclaredKey | None:
    """Return the primary key of a CREATE TABLE; None if it has none or is not supported."""
    try:
        statement = next(iter(split_statements(sql)), None)
        word_list = [] if statement is None else split_words(statement)
    except UsageError:
        return None
    items = list(_iter_items(word_list))
    columns = [item for item in items if not _is_clause(item)]
    names = [item[0].text.lower() for item in columns]
    for item in items:
        parts = _parse_key_parts(item)
        if _is_clause(item) and parts and all(name in names for name, _ in parts):
            return DeclaredKey(len(columns), tuple((names.index(name), size) for name, size in parts))
    for index, item in enumerate(columns):
        if _is_key_column(item):
            return DeclaredKey(len(columns), ((index, 0),))
    return None


def _iter_items(word_list: list[SqlWord]) -> Iterator[list[SqlWord]]:
    """Yield the columns and clauses between the outer parentheses."""
    depth, item = 0, list[SqlWord]()
    for word in word_list:
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


def _is_clause(item: list[SqlWord]) -> bool:
    """Return whether a definition item is a key or another clause."""
    return item[0].upper in _CLAUSES


def _parse_key_parts(item: list[SqlWord]) -> list[tuple[str, int]]:
    """Return the columns of PRIMARY KEY (a, b(10)), in lower case."""
    upper_words = [word.upper for word in item]
    if "PRIMARY" not in upper_words or "(" not in upper_words:
        return []
    parts: list[tuple[str, int]] = []
    depth = 0
    for word in item[upper_words.index("(") :]:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0:
            break
        if depth == 2 and word.text.isdecimal() and parts:
            parts[-1] = parts[-1][0], int(word.text)
        elif depth == 1 and word.upper not in ("(", ")", ",", "ASC", "DESC"):
            parts.append((word.text.lower(), 0))
    return parts


def _is_key_column(item: list[SqlWord]) -> bool:
    """Return whether a column definition declares the primary key."""
    upper_words = [word.upper for word in item[1:]]
    return any(
        word == "PRIMARY" or (word == "KEY" and upper_words[max(at - 1, 0)] not in ("UNIQUE", "PRIMARY", "COLUMN"))
        for at, word in enumerate(upper_words)
    )
