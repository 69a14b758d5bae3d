"""Text of a transaction message in `dump`, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from binlogtool.format_api.record_text import RecordDescriber, RecordText, RowChanges, select_members

_HIDDEN = frozenset({"transaction_context", "statement", "segment_id", "end_segment"})
_HIDDEN_IN_STATEMENT = frozenset({"type", "start_timestamp", "end_timestamp", "raw_sql_schema"})
_NUMBERS = frozenset({"INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "EPOCH"})


def start_record_text() -> RecordDescriber:
    """Return the describer of the entries of a log."""
    return _describe


def _describe(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    changes: list[RowChanges] = []
    notes: list[str] = []
    statements: list[Any] = []
    members = select_members(body, frozenset({"statement"}) if everything else _HIDDEN)
    if body.get("end_segment") is False:
        members["end_segment"] = False
    for statement in body.get("statement", ()):
        kind = str(statement.get("type", "")).lower()
        if f"{kind}_header" in statement:
            changes.append(_read_changes(statement, kind))
        elif "sql" in statement:
            statements.append(statement["sql"])
        else:
            inner = _flatten(select_members(statement, _HIDDEN_IN_STATEMENT))
            table = inner.get("table", inner.get("after"))
            if isinstance(table, Mapping) and "field" in table and not everything:
                notes.append(_list_columns(table))
            else:
                members |= inner
    return RecordText(members, " ".join(notes), changes, statements)


def _list_columns(table: Mapping[str, Any]) -> str:
    """Return the columns of a table definition, as in CREATE TABLE."""
    columns = ", ".join(f"{field.get('name')} {field.get('type')}" for field in table["field"])
    return f"({columns}) ENGINE={table.get('engine', {}).get('name', '?')}"


def _flatten(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of the only member, without the name of its message."""
    inner = next(iter(members.values()), None)
    return dict(inner) if len(members) == 1 and isinstance(inner, Mapping) else dict(members)


def _read_changes(statement: Mapping[str, Any], kind: str) -> RowChanges:
    header, data = statement[f"{kind}_header"], statement.get(f"{kind}_data", {})
    table = header.get("table_metadata", {})
    keys = header.get("key_field_metadata", ())
    values = header.get("field_metadata", header.get("set_field_metadata", ()))
    return RowChanges(
        [_read_row(record, kind, _list_names(keys), _list_names(values)) for record in data.get("record", ())],
        table=".".join(str(table[name]) for name in ("schema_name", "table_name") if name in table),
        numbers=frozenset(field.get("name", "") for field in (*keys, *values) if field.get("type") in _NUMBERS),
    )


def _list_names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(field.get("name", f"@{number}")) for number, field in enumerate(fields, start=1)]


def _read_row(record: Mapping[str, Any], kind: str, keys: list[str], names: list[str]) -> dict[str, Any]:
    key = dict(zip(keys, record.get("key_value", ()), strict=False))
    nulls = record.get("is_null", ())
    images = {
        side: {
            name: None if number < len(nulls) and nulls[number] and side != "before" else value
            for number, (name, value) in enumerate(zip(names, record[member], strict=False))
        }
        for side, member in (("before", "before_value"), ("after", "after_value"), ("after", "insert_value"))
        if member in record
    }
    return images if kind == "insert" else {"key": key, **images}
