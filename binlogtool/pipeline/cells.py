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
from binlogtool.formats.tables import GEOMETRY, JSON, MOST_DIGITS
from binlogtool.log.body_json import json_text

_ARROW = {
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


def sql_type(kind: str) -> str:
    """Return the Spark SQL type of a column; JSON columns become strings with a comment."""
    return f"string COMMENT '{JSON}'" if kind == JSON else kind


def kind_of(column: Any) -> str:
    """Return the column type of a field in a schema that Spark passes back."""
    plain: str = column.dataType.simpleString()
    return JSON if plain == "string" and column.metadata.get("comment") == JSON else plain


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column type.

    Raises:
        UsageError: the type is not supported.
    """
    digits = _DECIMAL.fullmatch(kind)
    if digits:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if kind not in _ARROW:
        raise UsageError(f"columns of type {kind} are not made; choose one of {', '.join(_ARROW)}, decimal(p,s)")
    return _ARROW[kind]


# -- wider types -------------------------------------------------------------------------------------------------------

_INTEGERS = {"int": 10, "bigint": 19}
"""Maximum number of decimal digits of each type."""
_AS_TEXT = frozenset(
    ("boolean", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string", JSON)
)


def widened(one: str, other: str) -> str | None:
    """Return the type that holds the values of both types; None if there is none."""
    if one == other:
        return one
    if {one, other} <= {"float", "double"}:
        return "double"
    if {one, other} <= set(_INTEGERS):
        return "bigint"
    sizes = [_digits(kind) for kind in (one, other)]
    if sizes[0] is not None and sizes[1] is not None:
        whole, scale = (max(pair) for pair in zip(*sizes, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= MOST_DIGITS else "string"
    fits = all(kind in _AS_TEXT or _digits(kind) is not None for kind in (one, other))
    return "string" if fits else None


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the maximum number of digits before and after the decimal point; None if the type is not a number."""
    if kind in _INTEGERS:
        return _INTEGERS[kind], 0
    digits = _DECIMAL.fullmatch(kind)
    return None if digits is None else (int(digits[1]) - int(digits[2]), int(digits[2]))


# -- values ------------------------------------------------------------------------------------------------------------


def cell_maker(kind: str) -> Callable[[Any], Any]:
    """Return the function that converts a value for a column of this type.

    It raises ValueError, TypeError or ArithmeticError for values that the column cannot hold exactly.
    """
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
    """Return text unchanged, decimals and UUIDs as text, anything else as JSON; raise TypeError for bytes."""
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
    "float": _double,
    "double": _double,
    "date": date.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _time,
    "array<string>": partial(_list, _text),
    "array<double>": partial(_list, _double),
    GEOMETRY: _geometry,
}
