"""Tables of row statements (`format_api.format.Format.tables`): columns and types from the header of each statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.format_api.format import BodyWithFindings
from binlogtool.format_api.layout import Batch
from binlogtool.format_api.tables_and_changes import (
    RecordTableRows,
    TableColumn,
    TableRow,
    TableSchema,
    TableSupport,
    make_database_table,
    qualify_name,
)
from binlogtool.formats.drizzle.decode import decode_bodies, to_text
from binlogtool.limits import Limits

_COLUMN_TYPES = {"INTEGER": "bigint", "BIGINT": "bigint", "DOUBLE": "double", "BLOB": "binary"}
"""Types that are converted; all others stay text as in the log, which gives no precision."""

_FieldList = Sequence[Mapping[str, Any]]


class StatementTables(msgspec.Struct):
    """Table reader over the statements of a log. tables: by name, with all columns that statements named so far."""

    tables: dict[str, TableSchema] = msgspec.field(default_factory=dict)

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> Iterator[RecordTableRows]:
        """Yield the rows of each of these records; to be consumed in order."""
        for body in decode_bodies(context, batch, start, stop, limits):
            if isinstance(body, Finding):
                yield RecordTableRows(findings=(body,))
                continue
            body, findings = body if isinstance(body, BodyWithFindings) else (body, ())
            rows = [row for one in body.get("statement", ()) for row in self._decode_rows(one)]
            tables = tuple({row.table.name: row.table for row in rows}.values())
            yield RecordTableRows(
                rows, findings, tables, begins=_begins_transaction(body), ends=_ends_transaction(body)
            )

    def add_known_tables(self, tables: Iterable[TableSchema]) -> None:
        """Ignore known tables: statements define their tables themselves."""

    def limit_to(self, is_selected: Callable[[TableSchema], bool]) -> None:
        """Allow the reader to leave out the rows of other tables; their descriptions are still reported."""

    def note_gap(self) -> None:
        """Note that records may be missing here."""

    def _decode_rows(self, statement: Mapping[str, Any]) -> Iterator[TableRow]:
        kind = str(statement.get("type"))
        header, data = statement.get(f"{kind.lower()}_header"), statement.get(f"{kind.lower()}_data")
        if kind not in _IMAGE_BUILDERS or not isinstance(header, Mapping) or not isinstance(data, Mapping):
            return
        metadata = header["table_metadata"]
        keys, values = header.get("key_field_metadata", ()), header.get(_VALUE_FIELDS[kind], ())
        names = to_text(metadata["schema_name"]), to_text(metadata["table_name"])
        table = self._get_table(*names, (*keys, *values), keys)
        for record in data.get("record", ()):
            before, after = _IMAGE_BUILDERS[kind](record, keys, values)
            yield TableRow(table, kind, before, after)

    def _get_table(self, schema: str, table: str, fields: _FieldList, keys: _FieldList) -> TableSchema:
        """Return a table, extended by the columns that it does not have yet."""
        current = self.tables.get(qualify_name(schema, table))
        columns = {} if current is None else {column.name: column for column in current.columns}
        for field in fields:
            name = to_text(field["name"])
            columns.setdefault(name, TableColumn(name, _COLUMN_TYPES.get(str(field["type"]), "string")))
        key = tuple(to_text(field["name"]) for field in keys) or (() if current is None else current.key)
        extended = make_database_table(schema, table, tuple(columns.values()), key)
        if extended != current:
            self.tables[extended.name] = current = extended
        return current


def _begins_transaction(body: Mapping[str, Any]) -> bool:
    return body.get("segment_id", 1) == 1 and "transaction_context" in body


def _ends_transaction(body: Mapping[str, Any]) -> bool:
    return bool(body.get("end_segment", True)) and "transaction_context" in body


def _create_image(fields: _FieldList, values: Sequence[Any], nulls: Sequence[Any] = ()) -> dict[str, Any]:
    nulls = [*nulls, *[False] * len(fields)]
    return {
        to_text(field["name"]): None if null else _parse_value(str(field["type"]), value)
        for field, value, null in zip(fields, values, nulls, strict=False)
    }


def _parse_value(kind: str, text: Any) -> Any:
    """Convert a text to the value of its type; return the text itself if it is no such value."""
    try:
        return {"bigint": int, "double": float}.get(_COLUMN_TYPES.get(kind, ""), lambda same: same)(text)
    except (TypeError, ValueError):
        return text


def _create_insert_images(record: Mapping[str, Any], _keys: _FieldList, values: _FieldList) -> tuple[Any, Any]:
    return None, _create_image(values, record.get("insert_value", ()), record.get("is_null", ()))


def _create_update_images(record: Mapping[str, Any], keys: _FieldList, values: _FieldList) -> tuple[Any, Any]:
    key = _create_image(keys, record.get("key_value", ()))
    after = _create_image(values, record.get("after_value", ()), record.get("is_null", ()))
    return _create_image(values, record.get("before_value", ())) | key, {**key, **after}


def _create_delete_images(record: Mapping[str, Any], keys: _FieldList, _values: _FieldList) -> tuple[Any, Any]:
    return _create_image(keys, record.get("key_value", ())), None


_IMAGE_BUILDERS = {"INSERT": _create_insert_images, "UPDATE": _create_update_images, "DELETE": _create_delete_images}
_VALUE_FIELDS = {"INSERT": "field_metadata", "UPDATE": "set_field_metadata", "DELETE": ""}


def create_tables() -> TableSupport:
    """Create the table rules of the format (`format_api.format.Format.tables`)."""
    return TableSupport(StatementTables)
