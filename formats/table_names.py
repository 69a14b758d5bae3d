"""Unique full names of tables, even where names contain dots and backticks."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(`(?:[^`]|``)*`|[^.]*)\.(.*)", re.DOTALL)


def full_name(database: str, table: str) -> str:
    """Return database.table; a part with a dot, or with a leading backtick, is quoted as in a statement."""
    if "." not in database and "." not in table and database[:1] != "`" and table[:1] != "`":
        return f"{database}.{table}"
    return f"{_quoted(database)}.{_quoted(table)}"


def parts_of(name: str) -> tuple[str, str]:
    """Split a full name into database and table."""
    found = _PARTS.fullmatch(name)
    return ("", _bare(name)) if found is None else (_bare(found[1]), _bare(found[2]))


def shown_name(name: str) -> str:
    """Return a full name without quotes, as logs show it."""
    return ".".join(parts_of(name))


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or part[:1] == "`" else part


def _bare(part: str) -> str:
    return part[1:-1].replace("``", "`") if part[:1] == "`" else part
