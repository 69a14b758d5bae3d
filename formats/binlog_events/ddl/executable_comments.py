"""Executable comments that a server ignores: those for other servers and newer versions."""

from __future__ import annotations

import re

from binlogtool.formats.binlog_events.ddl.words import COMMENT, DOUBLE, SINGLE
from binlogtool.formats.binlog_events.wire.description import version_numbers

_PIECES = re.compile(rf"{SINGLE}|{DOUBLE}|`[^`]*`|/\*(M?)!(\d{{5,6}})?|--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}", re.DOTALL)
_NOT_FOR_MARIADB = range(50700, 100000)
"""Versions of MySQL whose comments MariaDB does not execute."""


def executed_text(sql: str, server_version: str) -> str:
    """Return the statement without the executable comments that a server of this version ignores."""
    major, minor, patch = version_numbers(server_version)
    number = 10000 * major + 100 * minor + patch
    if not number or ("/*!" not in sql and "/*M!" not in sql):
        return sql
    mariadb, parts, at = "mariadb" in server_version.lower(), list[str](), 0
    while (match := _PIECES.search(sql, at)) is not None:
        end = match.end()
        if match[1] is not None and not _is_executed(match, number, mariadb=mariadb):
            close = sql.find("*/", end)
            parts.append(sql[at : match.start()] + " ")
            at = len(sql) if close < 0 else close + 2
            continue
        parts.append(sql[at:end])
        at = end
    return "".join(parts) + sql[at:]


def _is_executed(match: re.Match[str], number: int, *, mariadb: bool) -> bool:
    """Return whether a server executes this comment."""
    if match[1] and not mariadb:
        return False
    asked = int(match[2] or 0)
    return asked <= number and not (mariadb and not match[1] and asked in _NOT_FOR_MARIADB)
