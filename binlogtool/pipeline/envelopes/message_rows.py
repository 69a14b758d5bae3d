"""Messages as rows of a table: the members of an envelope are its columns.

Members that differ from table to table (row images, keys, headers) are JSON texts. If the output is one table, or one
directory per table, the images instead have the table's columns with their types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.changes import ChangeEvent
from binlogtool.formats.tables import TableColumn, TableRow, TableSchema, pad_image
from binlogtool.pipeline.envelopes.maxwell import old_values
from binlogtool.pipeline.images import to_cells
from binlogtool.pipeline.object_columns import TypedColumn

ColumnTypes = Mapping[str, Any]
"""Names of columns and their types, as Spark writes them; of a struct its members."""

TypedImages = Callable[[dict[str, Any], ChangeEvent, TableSchema, Sequence[TypedColumn]], dict[str, Any] | None]
"""A row with its images as JSON, its change, its table, and the fields that the table has had so far."""

_NULL = msgspec.Raw(b"null")
_TRAILING_COLUMNS: ColumnTypes = {"unfit": "string", "absent": "array<string>"}
"""Columns after typed images: values that do not fit, as JSON, and columns that the log does not have."""
_SOURCE_COLUMNS: ColumnTypes = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "bigint", "snapshot": "string",
    "db": "string", "sequence": "string", "ts_us": "bigint", "ts_ns": "bigint", "table": "string",
    "server_id": "bigint", "gtid": "string", "file": "string", "pos": "bigint", "row": "int", "thread": "bigint",
    "query": "string",
}  # fmt: skip
_TRANSACTION_COLUMNS: ColumnTypes = {"id": "string", "total_order": "bigint", "data_collection_order": "bigint"}


class MessageRowLayout(msgspec.Struct, frozen=True):
    """How the messages of an envelope become rows.

    Args:
        columns: all columns, in order.
        images: those that hold row images.
        row: converts a message to columns.
        typed: returns the images with the given fields of their table; None = it has none.
        rest: columns after typed images.
        lists: True if each image holds several rows, of texts.
    """

    columns: ColumnTypes
    images: tuple[str, ...]
    row: Callable[[bytes], dict[str, Any]]
    typed: TypedImages
    rest: ColumnTypes
    lists: bool


def to_table(change: ChangeEvent) -> TableSchema | None:
    """Return the table of a row change as `formats.tables` describes it; None if its columns are unknown."""
    table = change.table
    if table is None or not table.columns:
        return None
    columns = tuple(TableColumn(column.name, column.kind) for column in table.columns)
    return TableSchema(table.full_name, columns, tuple(table.key))


def _image_cells(
    change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn], *images: Any
) -> dict[str, Any]:
    """Return the cells of two images; columns that the table does not have now are not listed as absent."""
    change_columns = change.table.columns if change.table is not None else ()
    sizes = {one.name: one.size for one in change_columns if one.type == "binary"}
    cells = to_cells(TableRow(table, change.kind, *(pad_image(image, sizes) for image in images)), fields)
    table_columns = {column.name for column in table.columns}
    cells["absent"] = [path for path in cells["absent"] or () if path.partition(".")[2] in table_columns] or None
    return cells


def _raw_to_text(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    return None if data == b"null" else data.decode()


# -- Debezium ----------------------------------------------------------------------------------------------------------


class _DebeziumValue(msgspec.Struct):
    op: str
    source: dict[str, Any]
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    transaction: dict[str, Any] | None = None


class _DebeziumMessage(msgspec.Struct):
    value: _DebeziumValue
    key: msgspec.Raw = _NULL
    headers: msgspec.Raw = _NULL


def _debezium_row(line: bytes) -> dict[str, Any]:
    message = _decode_debezium(line)
    value = message.value
    return {
        "key": _raw_to_text(message.key),
        "headers": _raw_to_text(message.headers),
        "before": _raw_to_text(value.before),
        "after": _raw_to_text(value.after),
        "source": value.source,
        "transaction": value.transaction,
        "op": value.op,
    }


def _debezium_images(
    row: dict[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    images = [getattr(change, name) if row[name] is not None else None for name in ("before", "after")]
    cells = _image_cells(change, table, fields, *images)
    return {name: cells[name] for name in ("before", "after", "unfit", "absent")}


# -- Maxwell -----------------------------------------------------------------------------------------------------------


class _MaxwellMessage(msgspec.Struct):
    type: str
    database: str
    table: str | None = None
    query: str | None = None
    ts: int | None = None
    xid: int | None = None
    xoffset: int | None = None
    commit: bool | None = None
    position: str | None = None
    gtid: str | None = None
    server_id: int | None = None
    thread_id: int | None = None
    primary_key: msgspec.Raw = _NULL
    primary_key_columns: list[str] | None = None
    data: msgspec.Raw = _NULL
    old: msgspec.Raw = _NULL
    sql: str | None = None


def _maxwell_row(line: bytes) -> dict[str, Any]:
    message = _decode_maxwell(line)
    members = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: _raw_to_text(value) if isinstance(value, msgspec.Raw) else value for name, value in members.items()}


def _maxwell_images(
    row: dict[str, Any], change: ChangeEvent, table: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    """Return the typed images of a row; `changed` lists the columns in `old`, where NULL may be a value."""
    if row["data"] is None:
        return None
    old = old_values(change) if row["old"] is not None else None
    data_cells = _image_cells(change, table, fields, None, change.before if change.after is None else change.after)
    old_cells = _image_cells(change, table, fields, old, None)
    absent = [path.replace("after.", "data.", 1) for path in data_cells["absent"] or ()]
    unfit = [text.replace(f'"{a}.', f'"{b}.') for text, a, b in (
        (data_cells["unfit"], "after", "data"), (old_cells["unfit"], "before", "old")) if text]  # fmt: skip
    return {
        "data": data_cells["after"],
        "old": old_cells["before"],
        "changed": None if old is None else list(old),
        "unfit": None if not unfit else f"{{{','.join(one[1:-1] for one in unfit)}}}",
        "absent": absent or None,
    }


# -- Canal -------------------------------------------------------------------------------------------------------------


class _CanalMessage(msgspec.Struct):
    data: msgspec.Raw
    database: str
    es: int | None
    gtid: str
    isDdl: bool
    mysqlType: msgspec.Raw
    old: msgspec.Raw
    pkNames: list[str] | None
    sql: str
    sqlType: msgspec.Raw
    table: str
    type: str


def _canal_row(line: bytes) -> dict[str, Any]:
    message = _decode_canal(line)
    members = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: _raw_to_text(value) if isinstance(value, msgspec.Raw) else value for name, value in members.items()}


def _canal_images(
    row: dict[str, Any], _: ChangeEvent, __: TableSchema, fields: Sequence[TypedColumn]
) -> dict[str, Any] | None:
    if row["data"] is None:
        return None
    decoded = {name: None if row[name] is None else msgspec.json.decode(row[name]) for name in ("data", "old")}
    return {
        name: None if rows is None else [_complete_row(one, fields) for one in rows] for name, rows in decoded.items()
    }


def _complete_row(row: dict[str, Any], fields: Sequence[TypedColumn]) -> dict[str, Any]:
    return {name: row.get(name) for name, _ in fields}


_decode_debezium = msgspec.json.Decoder(_DebeziumMessage).decode
_decode_maxwell = msgspec.json.Decoder(_MaxwellMessage).decode
_decode_canal = msgspec.json.Decoder(_CanalMessage).decode

MESSAGE_LAYOUTS: Mapping[str, MessageRowLayout] = {
    "debezium": MessageRowLayout(
        {"key": "string", "headers": "string", "before": "string", "after": "string", "source": _SOURCE_COLUMNS,
         "transaction": _TRANSACTION_COLUMNS, "op": "string"},
        ("before", "after"), _debezium_row, _debezium_images, _TRAILING_COLUMNS, False,
    ),
    "maxwell": MessageRowLayout(
        {"type": "string", "database": "string", "table": "string", "query": "string", "ts": "bigint", "xid": "bigint",
         "xoffset": "bigint", "commit": "boolean", "position": "string", "gtid": "string", "server_id": "bigint",
         "thread_id": "bigint", "primary_key": "string", "primary_key_columns": "array<string>", "data": "string",
         "old": "string", "sql": "string"},
        ("data", "old"), _maxwell_row, _maxwell_images, {"changed": "array<string>", **_TRAILING_COLUMNS}, False,
    ),
    "canal": MessageRowLayout(
        {"data": "string", "database": "string", "es": "bigint", "gtid": "string", "isDdl": "boolean",
         "mysqlType": "string", "old": "string", "pkNames": "array<string>", "sql": "string", "sqlType": "string",
         "table": "string", "type": "string"},
        ("data", "old"), _canal_row, _canal_images, {}, True,
    ),
}  # fmt: skip
