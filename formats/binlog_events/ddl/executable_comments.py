"""Executable comments that a server ignores: those for other servers and newer versions."""

from __future__ import annotations

import re

from binlogtool.formats.binlog_events.ddl.words import COMMENT, DOUBLE_QUOTED, SINGLE_QUOTED
from binlogtool.formats.binlog_events.wire.description import parse_version_numbers

_COMMENT_PATTERN = re.compile(
    rf"{SINGLE_QUOTED}|{DOUBLE_QUOTED}|`[^`]*`|/\*(M?)!(\d{{5,6}})?|--(?=\s|\Z)[^\n]*|\#[^\n]*|{COMMENT}", re.DOTALL
)
_NOT_FOR_MARIADB = range(50700, 100000)
"""Versions of MySQL whose comments MariaDB does not execute."""


def strip_ignored_comments(sql: str, server_version: str) -> str:
    """Return the statement without the executable comments that a server of this version ignores."""
    major, minor, patch = parse_version_numbers(server_version)
    number = 10000 * major + 100 * minor + patch
    if not number or ("/*!" not in sql and "/*M!" not in sql):
        return sql
    mariadb, parts, at = "mariadb" in server_version.lower(), list[str](), 0
    while (match := _COMMENT_PATTERN.search(sql, at)) is not None:
        end = match.end()
        if match[1] is not None and not _is_executed(match, number, is_mariadb=mariadb):
            close = sql.find("*/", end)
            parts.append(sql[at : match.start()] + " ")
            at = len(sql) if close < 0 else close + 2
            continue
        parts.append(sql[at:end])
        at = end
    return "".join(parts) + sql[at:]


def _is_executed(match: re.Match[str], number: int, *, is_mariadb: bool) -> bool:
    """Return whether a server executes this comment."""
    if match[1] and not is_mariadb:
        return False
    required_version = int(match[2] or 0)
    return required_version <= number and not (is_mariadb and not match[1] and required_version in _NOT_FOR_MARIADB)
