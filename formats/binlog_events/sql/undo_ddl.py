"""Tables whose definitions a statement changes, for flashback."""

from __future__ import annotations

import re
from collections.abc import Iterable

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import exchanged, renames
from binlogtool.formats.binlog_events.ddl.tables import (
    TABLE,
    about_sequence,
    altered,
    created,
    dropped_database,
    emptied,
    qualified,
)
from binlogtool.formats.binlog_events.ddl.words import after_gap
from binlogtool.formats.table_names import full_name

_NO_TABLE = re.compile(
    r"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:(?:DEFINER|ALGORITHM)\s*=\s*\S+\s+|SQL\s+SECURITY\s+\w+\s+"
    r"|AGGREGATE\s+)*(?:DATABASE|SCHEMA|PROCEDURE|FUNCTION|PACKAGE|EVENT|VIEW|TRIGGER|USER|ROLE|SERVER|TABLESPACE"
    r"|UNDO|RESOURCE|SPATIAL\s+REFERENCE|INSTANCE|LOGFILE)\b"
    r"|(?:GRANT|REVOKE|SET|FLUSH|ANALYZE|OPTIMIZE|REPAIR|CHECK|CACHE|INSTALL|UNINSTALL|USE)\b|RENAME\s+USER\b",
    re.IGNORECASE,
)
"""Statements that define something else than tables, or nothing."""

_INDEX = re.compile(
    rf"(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:ONLINE\s+|OFFLINE\s+|UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+|VECTOR\s+)*INDEX\s"
    rf".*?\sON\s+{TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+)?")


def defined_tables(sql: str, database: str, seen: Iterable[str]) -> list[str] | None:
    """Return the tables that a statement creates, changes, empties or drops; None if it defines nothing.

    Args:
        changed_tables: tables whose rows changed before it; of these the result has the ones in a dropped
            database.
    """
    start = after_gap(sql)
    gone = dropped_database(sql)
    if gone is not None:
        return [name for name in seen if name.startswith(full_name(gone, ""))]
    if _NO_TABLE.match(sql, start):
        return []
    names = [*emptied(sql, database)]
    one, change = created(sql, database), altered(sql, database)
    names += [one] if one is not None else []
    names += [change[0]] if change is not None else []
    index, sequence = _INDEX.match(sql, start), about_sequence(sql, database)
    names += [] if index is None else [qualified(index["table"], database)]
    names += [] if sequence is None else [sequence]
    names += _others(sql, database)
    return list(dict.fromkeys(names)) or None


def _others(sql: str, database: str) -> list[str]:
    """Return the tables that a statement renames, and the one with which it exchanges a partition."""
    if not re.match(r"(?:ALTER|RENAME)\s", sql[after_gap(sql) :], re.IGNORECASE):
        return []
    try:
        other = exchanged(sql, database)
        return [name for pair in renames(sql, database) for name in pair] + ([] if other is None else [other])
    except UsageError:
        return []


def first_words(sql: str) -> str:
    """Return the first words of a statement, for messages."""
    words = _WORDS.match(sql, after_gap(sql))
    return " ".join(words[0].upper().split()) if words else "a statement"
