"""Unique full names of tables, even where names contain dots and backticks."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(`(?:[^`]|``)*`|[^.]*)\.(.*)", re.DOTALL)


def qualify_name(database: str, table: str) -> str:
    """Return database.table; a part with a dot, or with a leading backtick, is quoted as in a statement."""
    if "." not in database and "." not in table and database[:1] != "`" and table[:1] != "`":
        return f"{database}.{table}"
    return f"{_quote_part(database)}.{_quote_part(table)}"


def split_name(name: str) -> tuple[str, str]:
    """Split a full name into database and table."""
    match = _PARTS.fullmatch(name)
    return ("", _unquote_part(name)) if match is None else (_unquote_part(match[1]), _unquote_part(match[2]))


def unquote_name(name: str) -> str:
    """Return a full name without quotes, as logs show it."""
    return ".".join(split_name(name))


def _quote_part(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or part[:1] == "`" else part


def _unquote_part(part: str) -> str:
    return part[1:-1].replace("``", "`") if part[:1] == "`" else part
