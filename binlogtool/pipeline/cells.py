"""Types of columns of a table, as Spark writes them, and values for them: exact, or none at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.log.bodies import json_text

GEOMETRY = "struct<srid:bigint,wkb:binary>"
JSON = "json"
"""Text of JSON: a null of JSON is the text `null`, a string has its quotes."""
MOST_DIGITS = 38
"""Of a decimal; one with more is text."""

_ARROW = {
    "string": pa.string(),
    JSON: pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
    "array<double>": pa.list_(pa.float64()),
    GEOMETRY: pa.struct([("srid", pa.int64()), ("wkb", pa.binary())]),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def sql_type(kind: str) -> str:
    """The type of a column in Spark SQL, with a comment where that alone does not say what its texts are."""
    return f"string COMMENT '{JSON}'" if kind == JSON else kind


def kind_of(column: Any) -> str:
    """The type of a column in a schema that Spark gives back."""
    plain: str = column.dataType.simpleString()
    return JSON if plain == "string" and column.metadata.get("comment") == JSON else plain


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column.

    Raises:
        UsageError: no column of an object has such a type.
    """
    digits = _DECIMAL.fullmatch(kind)
    if digits:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if kind not in _ARROW:
        raise UsageError(f"columns of type {kind} are not made; choose one of {', '.join(_ARROW)}, decimal(p,s)")
    return _ARROW[kind]


# -- the types of columns ----------------------------------------------------------------------------------------------

_SMALL = ("TINY", "SHORT", "INT24", "YEAR")
_MYSQL = {
    "LONGLONG": "bigint", "FLOAT": "double", "DOUBLE": "double", "DATE": "date", "NEWDATE": "date",
    "DATETIME": "timestamp_ntz", "DATETIME2": "timestamp_ntz", "TIMESTAMP": "timestamp", "TIMESTAMP2": "timestamp",
    "JSON": JSON, "VECTOR": "array<double>", "GEOMETRY": GEOMETRY, "SET": "array<string>",
}  # fmt: skip
_BYTES = ("STRING", "VAR_STRING", "VARCHAR", "BLOB", "TINY_BLOB", "MEDIUM_BLOB", "LONG_BLOB")


def mysql_type(column: Mapping[str, Any]) -> str:
    """The type for a column of a TABLE_MAP body; what is not known better is text."""
    type_, metadata, unsigned = column["type"], column.get("metadata", 0), bool(column.get("unsigned"))
    if type_ in _SMALL:
        return "int"
    if type_ == "LONG":
        return "bigint" if unsigned else "int"
    if type_ == "LONGLONG" and unsigned:
        return "decimal(20,0)"
    if type_ == "BIT":
        return "bigint" if metadata < 64 else "decimal(20,0)"
    if type_ == "NEWDECIMAL":
        precision, scale = metadata >> 8, metadata & 0xFF
        return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else "string"
    if type_ in ("ENUM", "SET") and not column.get("values"):
        return "decimal(20,0)" if type_ == "SET" else "int"
    if type_ in _BYTES and (column.get("charset") == "binary" or (type_.endswith("BLOB") and "charset" not in column)):
        return "binary"
    return _MYSQL.get(type_, "string")


_TARANTOOL = {
    "unsigned": "bigint", "integer": "bigint", "int": "bigint", "uint": "bigint", "num": "bigint",
    "int8": "int", "uint8": "int", "int16": "int", "uint16": "int", "int32": "int", "uint32": "bigint",
    "int64": "bigint", "uint64": "bigint", "double": "double", "float32": "double", "float64": "double",
    "number": "double", "boolean": "boolean", "varbinary": "binary",
}  # fmt: skip


def tarantool_type(name: Any) -> str:
    """The type for a field of a space; fields of any type are JSON text."""
    return _TARANTOOL.get(name, "string")


# -- values ------------------------------------------------------------------------------------------------------------


def cell_maker(kind: str) -> Callable[[Any], Any]:
    """What makes a value for a column of this type; it raises ValueError, TypeError or ArithmeticError for others."""
    digits = _DECIMAL.fullmatch(kind)
    return partial(_decimal, int(digits[1]), int(digits[2])) if digits else _MAKERS[kind]


def _integer(bits: int, value: Any) -> int:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    if type(value) not in (int, str):
        raise TypeError
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent > scale or len(digits) + exponent > precision - scale:
        raise ValueError
    return number


def _double(value: Any) -> float:
    number = float(value) if type(value) in (int, float) else None
    if number is None or number != value:
        raise ValueError
    return number


_PLAIN = frozenset({"$decimal", "$uuid"})


def _text(value: Any) -> str:
    """Text as it is, decimals and UUIDs as text, anything else as JSON; bytes are none."""
    if isinstance(value, bytes):
        raise TypeError
    if isinstance(value, Mapping) and len(value) == 1 and not _PLAIN.isdisjoint(value):
        (value,) = value.values()
    if isinstance(value, str):
        value.encode()
        return value
    return json_text(value)


def _json(value: Any) -> str:
    return json_text(None if value == {"$json": None} else value)


def _binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else memoryview(value).tobytes()


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _time(value: Any) -> datetime:
    return datetime.fromisoformat(value)


def _instant(value: Any) -> datetime:
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


def _list(of: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return [of(one) for one in value]


def _geometry(value: Any) -> dict[str, Any]:
    return {"srid": _integer(64, value["srid"]), "wkb": _binary(value["wkb"])}


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "string": _text,
    JSON: _json,
    "binary": _binary,
    "boolean": _boolean,
    "int": partial(_integer, 32),
    "bigint": partial(_integer, 64),
    "double": _double,
    "date": date.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _time,
    "array<string>": partial(_list, _text),
    "array<double>": partial(_list, _double),
    GEOMETRY: _geometry,
}
