"""Database renames in a script: in TABLE_MAP events and in the names that statements mention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.rows.table_map import TableMap

_MAX_NAME_BYTES = 64 * 3
"""Bytes of a name: the servers allow 64 characters."""


def rename_database(table: TableMap, databases: Mapping[str, str]) -> TableMap:
    """Return the TABLE_MAP with its database renamed, in its bytes as well.

    Raises:
        UsageError: the new name is too long for a TABLE_MAP.
    """
    new_name = databases.get(table.database)
    if new_name is None:
        return table
    cached = table.memo.get(("renamed", new_name))
    if cached is None:
        raw = new_name.encode()
        if not 0 < len(raw) <= _MAX_NAME_BYTES:
            raise UsageError(f"--rewrite: {new_name!r} is no name of a database")
        start = table.table_id_size + 2
        body = table.body[:start] + bytes([len(raw)]) + raw + table.body[start + 1 + table.body[start] :]
        cached = table.memo["renamed", new_name] = replace(table, database=new_name, body=body, memo={})
    result: TableMap = cached
    return result


def find_renamed_database(sql: bytes, databases: Mapping[str, str]) -> str | None:
    """Return the first database to be renamed that the text of a statement mentions; None if it mentions none."""
    for old in databases:
        pattern = rb"(?<![\w$])" + re.escape(old.encode()) + rb"(?![\w$])"
        if re.search(pattern, sql, re.IGNORECASE):
            return old
    return None
