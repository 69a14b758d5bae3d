"""Recognize statements that change rows without row events, or undo rows that the log has (binlog_format)."""

from __future__ import annotations

import re

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.alter import has_select
from binlogtool.formats.binlog_events.ddl.tables import find_created_table
from binlogtool.formats.binlog_events.ddl.words import skip_gap
from binlogtool.formats.binlog_events.groups.kinds import QueryKind

STATEMENT_WITHOUT_ROWS = "a statement that changes rows, and the log does not tell which"
INCIDENT = "the server lost events here"
_WRITING_STATEMENT = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH|SELECT)\b", re.IGNORECASE)

_SELECTS = re.compile(r"\bSELECT\b", re.IGNORECASE)
_MAX_PARSED_CHARS = 1 << 20
_VERB_BYTES, _SHOWN_BYTES = 16, 80


def describe_rollback(kind: QueryKind | None, sql: bytes, *, ends_group: bool) -> str:
    """Describe a statement that rolls back rows that are in the log; "" if it does not.

    Args:
        ends_group: the statement ends its group.
    """
    start = sql[:_VERB_BYTES].upper()
    if kind is QueryKind.ROLLBACK and ends_group:
        return "this transaction was rolled back, and its rows are in the log"
    if kind is QueryKind.SAVEPOINT and start.startswith(b"ROLLBACK"):
        return "this transaction was rolled back to a savepoint, and the rows since then are in the log"
    if kind is QueryKind.XA_FINISH and start.startswith(b"XA ROLLBACK"):
        return f"{sql[:_SHOWN_BYTES].decode('utf-8', 'replace')}: the rows that were prepared are in the log"
    return ""


def changes_rows(sql: str) -> bool:
    """Check if a logged statement changes rows; a SELECT is logged only if it called a function that does."""
    if _WRITING_STATEMENT.match(sql, skip_gap(sql)):
        return True
    if find_created_table(sql, "") is None or not _SELECTS.search(sql):
        return False
    try:
        return len(sql) > _MAX_PARSED_CHARS or has_select(sql)
    except UsageError:
        return True
