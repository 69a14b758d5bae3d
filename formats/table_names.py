"""The full names of tables: two tables never have the same one, though names may hold points and backticks."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(`(?:[^`]|``)*`|[^.]*)\.(.*)", re.DOTALL)


def full_name(database: str, table: str) -> str:
    """database.table; a part that has a point, or begins with a backtick, is quoted as in a statement."""
    if "." not in database and "." not in table and database[:1] != "`" and table[:1] != "`":
        return f"{database}.{table}"
    return f"{_quoted(database)}.{_quoted(table)}"


def parts_of(name: str) -> tuple[str, str]:
    """The database and the table of a full name."""
    found = _PARTS.fullmatch(name)
    return ("", _bare(name)) if found is None else (_bare(found[1]), _bare(found[2]))


def shown_name(name: str) -> str:
    """A full name without quotation, as logs show it."""
    return ".".join(parts_of(name))


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or part[:1] == "`" else part


def _bare(part: str) -> str:
    return part[1:-1].replace("``", "`") if part[:1] == "`" else part
