"""Types of fields and key parts: the values that they hold, and how these compare.

Sources: `field_def.c`, `tuple_compare.cc` of the server. Values are those of decoded bodies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

FIELD_TYPES_2_6 = ("any", "unsigned", "string", "number", "double", "integer", "boolean", "varbinary", "scalar",
"decimal",
            "uuid", "array", "map")  # fmt: skip
"""The types of 2.6, in the server's order."""
FIELD_TYPES_3 = (*FIELD_TYPES_2_6, "datetime", "interval", "int8", "uint8", "int16", "uint16", "int32",
"uint32", "int64", "uint64",
           "float32", "float64", "decimal32", "decimal64", "decimal128", "decimal256")  # fmt: skip

INCOMPARABLE_TYPES = ("any", "array", "map", "interval")
"""Types that no part of a tree or hash index may have."""

_MARKS = ("$decimal", "$uuid", "$datetime", "$interval", "$error", "$ext", "$float", "$map")
_SIGNED_BITS = {f"int{bits}": bits for bits in (8, 16, 32, 64)}
_UNSIGNED_BITS = {f"uint{bits}": bits for bits in (8, 16, 32, 64)}
_NUMBER_TYPES = ("unsigned", "integer", "double", "decimal", "number", *_SIGNED_BITS, *_UNSIGNED_BITS,
"float32", "float64",
            "decimal32", "decimal64", "decimal128", "decimal256")  # fmt: skip
_SCALAR_TYPES = (*_NUMBER_TYPES, "string", "boolean", "varbinary", "scalar", "uuid", "datetime")

ValueCheck = Callable[[Any], bool]


def parse_field_type(name: Any, *, is_3: bool) -> str | None:
    """Parse the name of a type as the server does (`field_type_by_name`); None if there is no such type.

    Case does not matter; "num" and "str", also cut short, and "*" are old names.
    """
    if not isinstance(name, str) or not name:
        return None
    lower = name.lower()
    if lower in (FIELD_TYPES_3 if is_3 else FIELD_TYPES_2_6):
        return lower
    if lower == "*":
        return "any"
    return "unsigned" if "num".startswith(lower) else "string" if "str".startswith(lower) else None


def is_supertype(outer: str, inner: str) -> bool:
    """Check that a field of type `outer` can hold each value of type `inner` (`field_type1_contains_type2`)."""
    if outer in ("any", inner):
        return True
    if outer == "scalar":
        return inner in _SCALAR_TYPES
    if outer == "number":
        return inner in _NUMBER_TYPES
    if outer == "integer":
        return inner in ("unsigned", *_SIGNED_BITS, *_UNSIGNED_BITS)
    return outer == "unsigned" and inner in _UNSIGNED_BITS


def get_mark(value: Any) -> str | None:
    """Return the mark of a value of an extension type or of a special number: "$decimal", …; None if it has none."""
    if isinstance(value, dict):
        for key in value:
            return key if key in _MARKS else None
    return None


def get_server_type_name(value: Any) -> str:
    """Return the server's name for the type of a value, as in its messages (`mp_type_strs`)."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "unsigned" if value >= 0 else "integer"
    names: Mapping[type, str] = {float: "double", str: "string", bytes: "varbinary", list: "array"}
    mark = get_mark(value)
    if mark in ("$float", "$map"):
        return "double" if mark == "$float" else "map"
    return names.get(type(value)) or ("extension" if mark is not None else "map")


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_unsigned(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: Any) -> bool:
    return type(value) is str or (type(value) is bytes and not _is_utf8(value))


def _is_utf8(value: bytes) -> bool:
    """Check for bytes that are UTF-8. Stored text with such bytes would have been decoded, so they are binary."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_float(value: Any) -> bool:
    return type(value) is float or get_mark(value) == "$float"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or get_mark(value) in ("$float", "$decimal")


def _is_scalar(value: Any) -> bool:
    return type(value) in (int, float, str, bytes, bool) or get_mark(value) in ("$float", "$decimal")


def _is_scalar_3(value: Any) -> bool:
    return _is_scalar(value) or get_mark(value) in ("$uuid", "$datetime")


def _is_double_3(value: Any) -> bool:
    return type(value) in (int, float) or get_mark(value) == "$float"


def _create_mark_check(mark: str) -> ValueCheck:
    return lambda value: get_mark(value) == mark


def _create_range_check(low: int, high: int) -> ValueCheck:
    return lambda value: type(value) is int and low <= value <= high


_CHECKS: Mapping[str, ValueCheck] = MappingProxyType({
    "unsigned": _is_unsigned,
    "integer": _is_integer,
    "string": _is_text,
    "number": _is_number,
    "double": _is_float,
    "boolean": lambda value: type(value) is bool,
    "varbinary": lambda value: type(value) is bytes,
    "scalar": _is_scalar,
    "decimal": _create_mark_check("$decimal"),
    "uuid": _create_mark_check("$uuid"),
    "datetime": _create_mark_check("$datetime"),
    "interval": _create_mark_check("$interval"),
    "array": lambda value: type(value) is list,
    "map": lambda value: isinstance(value, dict) and get_mark(value) in (None, "$map"),
    **{name: _create_range_check(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _SIGNED_BITS.items()},
    **{name: _create_range_check(0, (1 << bits) - 1) for name, bits in _UNSIGNED_BITS.items()},
    "float32": _is_float,
    "float64": _is_float,
    **{f"decimal{bits}": _create_mark_check("$decimal") for bits in (32, 64, 128, 256)},
})  # fmt: skip
_CHECKS_3: Mapping[str, ValueCheck] = MappingProxyType({**_CHECKS, "scalar": _is_scalar_3, "double": _is_double_3})


def get_type_check(type_: str, *, is_3: bool) -> ValueCheck | None:
    """Return the check that a value other than null has a type; None if every value has it."""
    return (_CHECKS_3 if is_3 else _CHECKS).get(type_)


# -- comparison --------------------------------------------------------------------------------------------------------


def to_comparable(value: Any) -> Any:
    """Convert a value so that values that compare equal become equal: numbers by value, datetimes by instant."""
    mark = get_mark(value)
    if mark == "$decimal":
        try:
            number = Decimal(value["$decimal"])
        except (InvalidOperation, TypeError):
            return value
        return int(number) if number == number.to_integral_value() else {"number": str(number.normalize())}
    if mark == "$datetime":
        return {"seconds": value.get("seconds", 0), "nanoseconds": value.get("nanoseconds", 0)}
    if type(value) is float and math.isfinite(value):
        return int(value) if value.is_integer() else {"number": str(Decimal(value).normalize())}
    return value


def to_sort_value(value: Any) -> tuple[int, Any]:
    """Convert a value so that Python sorts it like the server: null, booleans, numbers, texts, binaries, uuids,
    datetimes (`mp_compare_scalar`).
    """
    mark = get_mark(value)
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, int):
        return 2, value
    if isinstance(value, float):
        return 2, value
    if mark == "$decimal":
        return 2, Decimal(value["$decimal"])
    if mark == "$float":
        return 2, float(value["$float"].replace("Infinity", "inf"))
    if isinstance(value, str):
        return 3, value.encode(errors="surrogatepass")
    if isinstance(value, bytes):
        return 4, value
    if mark == "$uuid":
        return 5, value["$uuid"]
    if mark == "$datetime":
        return 6, (value.get("seconds", 0), value.get("nanoseconds", 0))
    return 9, repr(value)
