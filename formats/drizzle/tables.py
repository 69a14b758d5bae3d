"""Tables of row statements (`formats.base.Format.tables`): columns and types from the header of each statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.formats.described import Noted
from binlogtool.formats.drizzle.meaning import bodies, name_text
from binlogtool.formats.layouts import Batch
from binlogtool.formats.table_names import full_name
from binlogtool.formats.tables import Column, Row, Table, Tables, Told, in_database
from binlogtool.limits import Limits

_TYPES = {"INTEGER": "bigint", "BIGINT": "bigint", "DOUBLE": "double", "BLOB": "binary"}
"""Types of which values are made; all others are text as the log has it: it tells no precision."""

_Fields = Sequence[Mapping[str, Any]]


class StatementTables(msgspec.Struct):
    """Table reader over the statements of a log.

    Attributes:
        tables: by name, with all columns that statements named so far.
    """

    known: dict[str, Table] = msgspec.field(default_factory=dict)

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> Iterator[Told]:
        """See `formats.tables.TableReader`."""
        for body in bodies(context, batch, start, stop, limits):
            if isinstance(body, Finding):
                yield Told(findings=(body,))
                continue
            body, found = body if isinstance(body, Noted) else (body, ())
            rows = [row for one in body.get("statement", ()) for row in self._rows(one)]
            tables = tuple({row.table.name: row.table for row in rows}.values())
            yield Told(rows, found, tables, begins=_begins(body), ends=_ends(body))

    def know(self, tables: Iterable[Table]) -> None:
        """Do nothing: statements define their tables themselves."""

    def only(self, wants: Callable[[Table], bool]) -> None:
        """See `formats.tables.TableReader`."""

    def lost(self) -> None:
        """See `formats.tables.TableReader`."""

    def _rows(self, statement: Mapping[str, Any]) -> Iterator[Row]:
        kind = str(statement.get("type"))
        header, data = statement.get(f"{kind.lower()}_header"), statement.get(f"{kind.lower()}_data")
        if kind not in _IMAGES or not isinstance(header, Mapping) or not isinstance(data, Mapping):
            return
        given = header["table_metadata"]
        keys, values = header.get("key_field_metadata", ()), header.get(_VALUES[kind], ())
        names = name_text(given["schema_name"]), name_text(given["table_name"])
        table = self._table(*names, (*keys, *values), keys)
        for record in data.get("record", ()):
            before, after = _IMAGES[kind](record, keys, values)
            yield Row(table, kind, before, after)

    def _table(self, schema: str, table: str, fields: _Fields, keys: _Fields) -> Table:
        """Return a table, extended by the columns that it does not have yet."""
        known = self.known.get(full_name(schema, table))
        columns = {} if known is None else {column.name: column for column in known.columns}
        for field in fields:
            name = name_text(field["name"])
            columns.setdefault(name, Column(name, _TYPES.get(str(field["type"]), "string")))
        key = tuple(name_text(field["name"]) for field in keys) or (() if known is None else known.key)
        made = in_database(schema, table, tuple(columns.values()), key)
        if made != known:
            self.known[made.name] = known = made
        return known


def _begins(body: Mapping[str, Any]) -> bool:
    return body.get("segment_id", 1) == 1 and "transaction_context" in body


def _ends(body: Mapping[str, Any]) -> bool:
    return bool(body.get("end_segment", True)) and "transaction_context" in body


def _image(fields: _Fields, values: Sequence[Any], nulls: Sequence[Any] = ()) -> dict[str, Any]:
    nulls = [*nulls, *[False] * len(fields)]
    return {
        name_text(field["name"]): None if null else _value(str(field["type"]), value)
        for field, value, null in zip(fields, values, nulls, strict=False)
    }


def _value(kind: str, text: Any) -> Any:
    """Convert a text to the value of its type; return the text itself if it is no such value."""
    try:
        return {"bigint": int, "double": float}.get(_TYPES.get(kind, ""), lambda same: same)(text)
    except (TypeError, ValueError):
        return text


def _inserted(record: Mapping[str, Any], _keys: _Fields, values: _Fields) -> tuple[Any, Any]:
    return None, _image(values, record.get("insert_value", ()), record.get("is_null", ()))


def _updated(record: Mapping[str, Any], keys: _Fields, values: _Fields) -> tuple[Any, Any]:
    key = _image(keys, record.get("key_value", ()))
    after = _image(values, record.get("after_value", ()), record.get("is_null", ()))
    return _image(values, record.get("before_value", ())) | key, {**key, **after}


def _deleted(record: Mapping[str, Any], keys: _Fields, _values: _Fields) -> tuple[Any, Any]:
    return _image(keys, record.get("key_value", ())), None


_IMAGES = {"INSERT": _inserted, "UPDATE": _updated, "DELETE": _deleted}
_VALUES = {"INSERT": "field_metadata", "UPDATE": "set_field_metadata", "DELETE": ""}


def tables() -> Tables:
    """Create the table rules of the format (`formats.base.Format.tables`)."""
    return Tables(StatementTables)
