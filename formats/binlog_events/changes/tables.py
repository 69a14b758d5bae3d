"""Describe the tables of row events for change messages (Debezium, Maxwell, Canal)."""

from __future__ import annotations

from collections.abc import Mapping

from binlogtool.formats import changes
from binlogtool.formats.binlog_events.changes.row_tables import column_type_name
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.charsets import MAX_CHARACTER_BYTES
from binlogtool.formats.binlog_events.values.columns import ColumnType, LogicalType, TableMapColumn

_C = ColumnType
_TYPE_NAMES: Mapping[int, str] = {
    _C.TINY: "tinyint",
    _C.SHORT: "smallint",
    _C.INT24: "mediumint",
    _C.LONG: "int",
    _C.LONGLONG: "bigint",
    _C.FLOAT: "float",
    _C.DOUBLE: "double",
    _C.NEWDECIMAL: "decimal",
    _C.DECIMAL: "decimal",
    _C.BIT: "bit",
    _C.ENUM: "enum",
    _C.SET: "set",
    _C.YEAR: "year",
    _C.DATE: "date",
    _C.NEWDATE: "date",
    _C.TIME: "time",
    _C.TIME2: "time",
    _C.DATETIME: "datetime",
    _C.DATETIME2: "datetime",
    _C.TIMESTAMP: "timestamp",
    _C.TIMESTAMP2: "timestamp",
    _C.JSON: "json",
    _C.TYPED_ARRAY: "json",
    _C.GEOMETRY: "geometry",
    _C.VECTOR: "vector",
}
_SIZE_PREFIXES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
"""Bytes of the length of a value -> what stands before TEXT or BLOB."""
_BLOB_LENGTH_BYTES: Mapping[int, int] = {_C.TINY_BLOB: 1, _C.MEDIUM_BLOB: 3, _C.LONG_BLOB: 4}
_FRACTION_TYPES = frozenset({_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2})
_GEOMETRIES: Mapping[int | None, str] = {
    1: "point", 2: "linestring", 3: "polygon", 4: "multipoint", 5: "multilinestring", 6: "multipolygon",
    7: "geometrycollection",
}  # fmt: skip


def change_table(table_map: TableMap) -> changes.SqlTable | None:
    """Return the table of a map for change messages; None if its column names are unknown."""
    change_table_: changes.SqlTable | None = table_map.memo.get("change")
    if change_table_ is None and table_map.column_keys == tuple(column.name for column in table_map.columns):
        columns = tuple(map(_change_column, table_map.columns, table_map.column_keys))
        key = tuple(table_map.column_keys[index] for index, _ in table_map.primary_key or ())
        change_table_ = table_map.memo["change"] = changes.SqlTable(table_map.database, table_map.table, columns, key)
    return change_table_


def _change_column(column: TableMapColumn, name: str) -> changes.SqlColumn:
    scale = column.metadata & 0xFF if column.type == _C.NEWDECIMAL else column.fraction or 0
    if column.type in _FRACTION_TYPES:
        scale = column.metadata
    return changes.SqlColumn(
        name,
        _sql_type_name(column),
        column.nullable,
        bool(column.unsigned),
        _column_size(column),
        scale,
        column.values or (),
        _character_length(column),
        _GEOMETRIES.get(column.geometry_type, "") if column.type == _C.GEOMETRY else "",
        column_type_name(column),
    )


def _column_size(column: TableMapColumn) -> int:
    if column.type == _C.NEWDECIMAL:
        return column.metadata >> 8
    return column.metadata if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.BIT) else 0


def _character_length(column: TableMapColumn) -> int:
    """Return the longest value in characters; 0 if the character set is unknown."""
    if column.type not in (_C.STRING, _C.VARCHAR, _C.VAR_STRING) or column.charset is None:
        return 0
    return column.metadata // MAX_CHARACTER_BYTES.get(column.charset, 1)


def _sql_type_name(column: TableMapColumn) -> str:
    if column.logical is not None and column.logical is not LogicalType.JSON:
        return str(column.logical.value)
    type_name = _TYPE_NAMES.get(column.type)
    if type_name is not None:
        return type_name
    is_binary = column.charset == "binary"
    if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return ("" if column.type == _C.STRING else "var") + ("binary" if is_binary else "char")
    size = _BLOB_LENGTH_BYTES.get(column.type, column.metadata if column.type == _C.BLOB else 2)
    return _SIZE_PREFIXES.get(size, "") + ("blob" if is_binary else "text")
