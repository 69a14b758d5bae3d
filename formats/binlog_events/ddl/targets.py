"""The table that a DML statement changes, where the statement alone decides it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import Name, Reading
from binlogtool.formats.binlog_events.ddl.tables import created
from binlogtool.formats.binlog_events.ddl.words import Word
from binlogtool.formats.table_names import full_name

_MOST_READ = 1 << 16
_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "CONCURRENT", "LOCAL")
_BEHIND_DELETE = ("", "WHERE", "ORDER", "LIMIT", "RETURNING", ";")
_PLAIN = frozenset((
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
"""Words that a bracket can follow without a call of a stored function, which could change any table."""


def target(sql: str, database: str) -> str | None:
    """Return the full name of the only table that the statement names as changed; None if that cannot be decided.

    It may change several, or call what could change others. Triggers, views and foreign keys are not considered
    here.
    """
    if len(sql) > _MOST_READ:
        return None
    try:
        read = Reading(sql)
        made = created(sql, database)
        table = (made,) if made is not None else _named(read)
    except UsageError:
        return None
    if table is None or _calls(read.words[read.at :]):
        return None
    if made is not None:
        return made
    return full_name(*table) if len(table) > 1 else full_name(database, table[0])


def _named(read: Reading) -> Name | None:
    """Read the changed table, and leave the reader after it."""
    verb = read.next
    read.at += 1
    while read.next in _MODIFIERS:
        read.at += 1
    if verb in ("INSERT", "REPLACE"):
        read.passes("INTO")
        return read.name()
    if verb == "UPDATE":
        table = read.name()
        return table if "SET" in [word.upper for word in read.words[read.at : read.at + 3]] and _alone(read) else None
    if verb == "DELETE" and read.passes("FROM"):
        table = read.name()
        return table if read.next in _BEHIND_DELETE and read.at <= len(read.words) else None
    while verb == "LOAD" and read.at < len(read.words):
        if read.passes("INTO", "TABLE"):
            return read.name()
        read.at += 1
    return None


def _alone(read: Reading) -> bool:
    """Return whether nothing but an alias precedes SET."""
    words = [word.upper for word in read.words[read.at : read.at + 3]]
    return not {",", "JOIN", "("} & set(words[: words.index("SET")])


def _calls(words: Sequence[Word]) -> bool:
    """Return whether what may be a stored function is called."""
    for before, word in pairwise(words):
        if word.upper == "(" and (before.quoted or (_is_name(before.text) and before.upper not in _PLAIN)):
            return True
    return False


def _is_name(text: str) -> bool:
    """Return whether a word is a name; names may begin with a digit, and no number precedes a parenthesis."""
    return text[0].isalnum() or text[0] in "_$"
