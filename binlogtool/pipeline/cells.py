"""Column types of a table as Spark names them, and exact conversion of values to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.formats.tables import GEOMETRY, JSON, MAX_DECIMAL_DIGITS
from binlogtool.log.body_json import to_json_text

_ARROW_TYPES = {
    "string": pa.string(),
    JSON: pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
    "array<double>": pa.list_(pa.float64()),
    GEOMETRY: pa.struct([("srid", pa.int64()), ("wkb", pa.binary())]),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def to_sql_type(kind: str) -> str:
    """Return the Spark SQL type of a column; JSON columns become strings with a comment."""
    return f"string COMMENT '{JSON}'" if kind == JSON else kind


def from_spark_column(column: Any) -> str:
    """Return the column type of a field in a schema that Spark passes back."""
    plain: str = column.dataType.simpleString()
    return JSON if plain == "string" and column.metadata.get("comment") == JSON else plain


def to_arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column type.

    Raises:
        UsageError: the type is not supported.
    """
    digits = _DECIMAL.fullmatch(kind)
    if digits:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if kind not in _ARROW_TYPES:
        raise UsageError(f"columns of type {kind} are not made; choose one of {', '.join(_ARROW_TYPES)}, decimal(p,s)")
    return _ARROW_TYPES[kind]


# -- wider types -------------------------------------------------------------------------------------------------------

_INTEGER_DIGITS = {"int": 10, "bigint": 19}
"""Maximum number of decimal digits of each type."""
_TEXT_CONVERTIBLE = frozenset(
    ("boolean", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string", JSON)
)


def widen_type(first: str, second: str) -> str | None:
    """Return the type that holds the values of both types; None if there is none."""
    if first == second:
        return first
    if {first, second} <= {"float", "double"}:
        return "double"
    if {first, second} <= set(_INTEGER_DIGITS):
        return "bigint"
    sizes = [_digit_counts(kind) for kind in (first, second)]
    if sizes[0] is not None and sizes[1] is not None:
        whole, scale = (max(pair) for pair in zip(*sizes, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= MAX_DECIMAL_DIGITS else "string"
    fits = all(kind in _TEXT_CONVERTIBLE or _digit_counts(kind) is not None for kind in (first, second))
    return "string" if fits else None


def _digit_counts(kind: str) -> tuple[int, int] | None:
    """Return the maximum number of digits before and after the decimal point; None if the type is not a number."""
    if kind in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[kind], 0
    digits = _DECIMAL.fullmatch(kind)
    return None if digits is None else (int(digits[1]) - int(digits[2]), int(digits[2]))


# -- values ------------------------------------------------------------------------------------------------------------


def make_cell_converter(kind: str) -> Callable[[Any], Any]:
    """Return the function that converts a value for a column of this type.

    It raises ValueError, TypeError or ArithmeticError for values that the column cannot hold exactly.
    """
    digits = _DECIMAL.fullmatch(kind)
    return partial(_to_decimal, int(digits[1]), int(digits[2])) if digits else _CONVERTERS[kind]


def _to_integer(bits: int, value: Any) -> int:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _to_decimal(precision: int, scale: int, value: Any) -> Decimal:
    if type(value) not in (int, str):
        raise TypeError
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent > scale or len(digits) + exponent > precision - scale:
        raise ValueError
    return number


def _to_double(value: Any) -> float:
    number = float(value) if type(value) in (int, float) else None
    if number is None or number != value:
        raise ValueError
    return number


_TEXT_WRAPPERS = frozenset({"$decimal", "$uuid"})


def _to_text(value: Any) -> str:
    """Return text unchanged, decimals and UUIDs as text, anything else as JSON; raise TypeError for bytes."""
    if isinstance(value, bytes):
        raise TypeError
    if isinstance(value, Mapping) and len(value) == 1 and not _TEXT_WRAPPERS.isdisjoint(value):
        (value,) = value.values()
    if isinstance(value, str):
        value.encode()
        return value
    return to_json_text(value)


def _to_json(value: Any) -> str:
    return to_json_text(None if value == {"$json": None} else value)


def _to_binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else memoryview(value).tobytes()


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _to_local_datetime(value: Any) -> datetime:
    return datetime.fromisoformat(value)


def _to_utc_datetime(value: Any) -> datetime:
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


def _to_list(convert_item: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return [convert_item(one) for one in value]


def _to_geometry(value: Any) -> dict[str, Any]:
    return {"srid": _to_integer(64, value["srid"]), "wkb": _to_binary(value["wkb"])}


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "string": _to_text,
    JSON: _to_json,
    "binary": _to_binary,
    "boolean": _to_boolean,
    "int": partial(_to_integer, 32),
    "bigint": partial(_to_integer, 64),
    "float": _to_double,
    "double": _to_double,
    "date": date.fromisoformat,
    "timestamp": _to_utc_datetime,
    "timestamp_ntz": _to_local_datetime,
    "array<string>": partial(_to_list, _to_text),
    "array<double>": partial(_to_list, _to_double),
    GEOMETRY: _to_geometry,
}
