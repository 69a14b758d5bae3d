"""Describe the tables of row events for change messages (Debezium, Maxwell, Canal)."""

from __future__ import annotations

from collections.abc import Mapping

from binlogtool.formats import changes
from binlogtool.formats.binlog_events.changes.row_tables import type_of
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.charsets import LONGEST
from binlogtool.formats.binlog_events.values.columns import Column, ColumnType, Logical

_C = ColumnType
_WORDS: Mapping[int, str] = {
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
_LENGTHS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
"""Bytes of the length of a value -> what stands before TEXT or BLOB."""
_BLOBS: Mapping[int, int] = {_C.TINY_BLOB: 1, _C.MEDIUM_BLOB: 3, _C.LONG_BLOB: 4}
_FRACTIONS = frozenset({_C.TIME2, _C.DATETIME2, _C.TIMESTAMP2})
_GEOMETRIES: Mapping[int | None, str] = {
    1: "point", 2: "linestring", 3: "polygon", 4: "multipoint", 5: "multilinestring", 6: "multipolygon",
    7: "geometrycollection",
}  # fmt: skip


def table_of(table: TableMap) -> changes.Table | None:
    """Return the table of a map for change messages; None if its column names are unknown."""
    kept: changes.Table | None = table.memo.get("change")
    if kept is None and table.keys == tuple(column.name for column in table.columns):
        columns = tuple(map(_column, table.columns, table.keys))
        key = tuple(table.keys[index] for index, _ in table.primary_key or ())
        kept = table.memo["change"] = changes.Table(table.database, table.table, columns, key)
    return kept


def _column(column: Column, name: str) -> changes.Column:
    scale = column.metadata & 0xFF if column.type == _C.NEWDECIMAL else column.fraction or 0
    if column.type in _FRACTIONS:
        scale = column.metadata
    return changes.Column(
        name,
        _word(column),
        column.nullable,
        bool(column.unsigned),
        _size(column),
        scale,
        column.values or (),
        _length(column),
        _GEOMETRIES.get(column.geometry_type, "") if column.type == _C.GEOMETRY else "",
        type_of(column),
    )


def _size(column: Column) -> int:
    if column.type == _C.NEWDECIMAL:
        return column.metadata >> 8
    return column.metadata if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.BIT) else 0


def _length(column: Column) -> int:
    """Return the longest value in characters; 0 if the character set is unknown."""
    if column.type not in (_C.STRING, _C.VARCHAR, _C.VAR_STRING) or column.charset is None:
        return 0
    return column.metadata // LONGEST.get(column.charset, 1)


def _word(column: Column) -> str:
    if column.logical is not None and column.logical is not Logical.JSON:
        return str(column.logical.value)
    known = _WORDS.get(column.type)
    if known is not None:
        return known
    binary = column.charset == "binary"
    if column.type in (_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return ("" if column.type == _C.STRING else "var") + ("binary" if binary else "char")
    size = _BLOBS.get(column.type, column.metadata if column.type == _C.BLOB else 2)
    return _LENGTHS.get(size, "") + ("blob" if binary else "text")
