"""Describe partial updates of JSON columns as the functions of MySQL that made them."""

from __future__ import annotations

import json
from typing import Any

PARTIAL_UPDATE = "$diff"
"""Member of a value that holds the changes of a JSON column whose new value the log does not have."""
_MARKS = frozenset({"$decimal", "$date", "$time", "$datetime", "$timestamp"})
_CHANGES = frozenset({"REPLACE", "INSERT", "REMOVE"})


def describe_json_changes(column: str, value: Any) -> str | None:
    """Return a partial update as the functions of MySQL that made it; None for any other value.

    Two changes of `j` are JSON_REMOVE(JSON_REPLACE(j, '$.a', 99), '$.b[1]'), no change is j, as `mysqlbinlog -v` prints
    them.
    """
    changes = value.get(PARTIAL_UPDATE) if type(value) is dict and len(value) == 1 else None
    if not isinstance(changes, list):
        return None
    text = column
    for change in changes:
        if not isinstance(change, dict) or change.get("op") not in _CHANGES:
            return None
        new = "" if change["op"] == "REMOVE" else f", {_format_json_literal(change.get('value'))}"
        text = f"JSON_{change['op']}({text}, {_quote_sql(str(change.get('path')))}{new})"
    return text


def _format_json_literal(value: Any) -> str:
    is_mark = isinstance(value, dict) and len(value) == 1 and not _MARKS.isdisjoint(value)
    if isinstance(value, dict | list) and not is_mark:
        return f"CAST({_quote_sql(_format_json(value))} AS JSON)"
    text = _format_json(value)
    return _quote_sql(json.loads(text)) if text.startswith('"') else text


def _format_json(value: Any) -> str:
    """Return a value as JSON, with MySQL's own types as plain numbers and texts."""
    if isinstance(value, list):
        return f"[{', '.join(map(_format_json, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if len(value) == 1 and not _MARKS.isdisjoint(value):
        (mark, text), *_ = value.items()
        return str(text) if mark == "$decimal" else json.dumps(text, ensure_ascii=False, default=str)
    members = (f"{json.dumps(name, ensure_ascii=False)}: {_format_json(one)}" for name, one in value.items())
    return f"{{{', '.join(members)}}}"


def _quote_sql(text: str) -> str:
    return f"""'{text.replace("'", "''")}'"""
