"""Tables whose definitions a statement changes, for flashback."""

from __future__ import annotations

import re
from collections.abc import Iterable

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import find_exchanged_table, find_renames
from binlogtool.formats.binlog_events.ddl.tables import (
    TABLE_PATTERN,
    find_altered_table,
    find_created_table,
    find_dropped_database,
    find_sequence,
    iter_emptied_tables,
    qualify_table_name,
)
from binlogtool.formats.binlog_events.ddl.words import skip_gap
from binlogtool.formats.table_names import qualify_name

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
    rf".*?\sON\s+{TABLE_PATTERN}",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+)?")


def find_defined_tables(sql: str, database: str, changed_tables: Iterable[str]) -> list[str] | None:
    """Return the tables that a statement creates, changes, empties or drops; None if it defines nothing.

    Args:
        changed_tables: tables whose rows changed before it; of these the result has the ones in a dropped
            database.
    """
    start = skip_gap(sql)
    dropped = find_dropped_database(sql)
    if dropped is not None:
        return [name for name in changed_tables if name.startswith(qualify_name(dropped, ""))]
    if _NO_TABLE.match(sql, start):
        return []
    names = [*iter_emptied_tables(sql, database)]
    created_name, change = find_created_table(sql, database), find_altered_table(sql, database)
    names += [created_name] if created_name is not None else []
    names += [change[0]] if change is not None else []
    index, sequence = _INDEX.match(sql, start), find_sequence(sql, database)
    names += [] if index is None else [qualify_table_name(index["table"], database)]
    names += [] if sequence is None else [sequence]
    names += _find_other_tables(sql, database)
    return list(dict.fromkeys(names)) or None


def _find_other_tables(sql: str, database: str) -> list[str]:
    """Return the tables that a statement renames, and the one with which it exchanges a partition."""
    if not re.match(r"(?:ALTER|RENAME)\s", sql[skip_gap(sql) :], re.IGNORECASE):
        return []
    try:
        exchanged_table = find_exchanged_table(sql, database)
        return [name for pair in find_renames(sql, database) for name in pair] + (
            [] if exchanged_table is None else [exchanged_table]
        )
    except UsageError:
        return []


def statement_name(sql: str) -> str:
    """Return the first words of a statement, for messages."""
    words = _WORDS.match(sql, skip_gap(sql))
    return " ".join(words[0].upper().split()) if words else "a statement"
