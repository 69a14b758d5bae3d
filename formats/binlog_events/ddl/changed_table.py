"""Find the table that a statement changes: INSERT, REPLACE, UPDATE, DELETE, LOAD DATA, CREATE TABLE ... SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    SqlWord,
    StatementReader,
    TableName,
    qualify_parsed_name,
)

_MAX_STATEMENT = 1 << 16
_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "CONCURRENT", "LOCAL")
_AFTER_DELETE_TABLE = ("", "WHERE", "ORDER", "LIMIT", "RETURNING", ";")
_HARMLESS_WORDS = frozenset((
    "VALUES", "VALUE", "IN", "AND", "OR", "NOT", "XOR", "SELECT", "SET", "WHERE", "ON", "USING", "FROM", "AS", "EXISTS",
    "ALL", "ANY", "SOME", "UNION", "EXCEPT", "INTERSECT", "BETWEEN", "LIKE", "THEN", "ELSE", "WHEN", "CASE", "BY",
    "HAVING", "LIMIT", "INTERVAL", "DISTINCT", "KEY", "UPDATE", "OVER", "IS", "DIV", "MOD", "JOIN", "RETURNING",
    "NOW", "CURRENT_TIMESTAMP", "CURDATE", "CURTIME", "SYSDATE", "UTC_TIMESTAMP", "UNIX_TIMESTAMP", "FROM_UNIXTIME",
    "DATE", "TIME", "TIMESTAMP", "YEAR", "MONTH", "DAY", "DATE_ADD", "DATE_SUB", "DATE_FORMAT", "STR_TO_DATE",
    "CONCAT", "CONCAT_WS", "REPEAT", "REPLACE", "LOWER", "UPPER", "TRIM", "LTRIM", "RTRIM", "SUBSTRING", "SUBSTR",
    "LEFT", "RIGHT", "LPAD", "RPAD", "LENGTH", "CHAR_LENGTH", "HEX", "UNHEX", "MD5", "SHA1", "SHA2", "UUID", "RAND",
    "COUNT", "SUM", "MIN", "MAX", "AVG", "ABS", "ROUND", "FLOOR", "CEIL", "CEILING", "GREATEST", "LEAST", "IF",
    "IFNULL", "NULLIF", "COALESCE", "PARTITION", "CAST", "CONVERT", "CHAR", "BINARY", "DECIMAL", "VARCHAR",
    "JSON_OBJECT", "JSON_ARRAY", "JSON_SET", "JSON_EXTRACT", "JSON_VALUE", "TO_BASE64", "FROM_BASE64", "USER",
    "CURRENT_USER", "LAST_INSERT_ID",
))  # fmt: skip
"""Words that may precede a parenthesis without being a call of a stored function, which could change any table."""


def find_changed_table(statement: ParsedDdl) -> str | None:
    """Return the full name of the only table that a statement names as changed; None if that is uncertain.

    It is uncertain if several tables are named, or a stored function may be called. Triggers, views and foreign keys
    are not considered here.
    """
    if len(statement.text) > _MAX_STATEMENT:
        return None
    try:
        reader = StatementReader(statement.text)
        name = None if statement.created is not None else _read_changed_table(reader)
    except UsageError:
        return None
    table = statement.created if name is None else qualify_parsed_name(name, statement.database)
    return None if table is None or _may_call_stored_function(reader.words[reader.at :]) else table


def _read_changed_table(reader: StatementReader) -> TableName | None:
    """Read the name of the changed table, and leave the reader after it."""
    verb = reader.next_word
    reader.at += 1
    while reader.next_word in _MODIFIERS:
        reader.at += 1
    if verb in ("INSERT", "REPLACE"):
        reader.skip_words_if_next("INTO")
        return reader.read_table_name()
    if verb == "UPDATE":
        table = reader.read_table_name()
        return (
            table
            if "SET" in [word.upper for word in reader.words[reader.at : reader.at + 3]]
            and _is_single_table_update(reader)
            else None
        )
    if verb == "DELETE" and reader.skip_words_if_next("FROM"):
        table = reader.read_table_name()
        return table if reader.next_word in _AFTER_DELETE_TABLE and reader.at <= len(reader.words) else None
    while verb == "LOAD" and reader.at < len(reader.words):
        if reader.skip_words_if_next("INTO", "TABLE"):
            return reader.read_table_name()
        reader.at += 1
    return None


def _is_single_table_update(reader: StatementReader) -> bool:
    """Return whether only an alias precedes SET, so that there is a single table."""
    next_words = [word.upper for word in reader.words[reader.at : reader.at + 3]]
    return not {",", "JOIN", "("} & set(next_words[: next_words.index("SET")])


def _may_call_stored_function(words: Sequence[SqlWord]) -> bool:
    """Return whether the words may call a stored function."""
    for before, word in pairwise(words):
        if word.upper == "(" and (before.quoted or (_is_name(before.text) and before.upper not in _HARMLESS_WORDS)):
            return True
    return False


def _is_name(text: str) -> bool:
    """Return whether a word before a parenthesis is a name; names may begin with a digit."""
    return text[0].isalnum() or text[0] in "_$"
