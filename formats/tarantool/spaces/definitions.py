"""Definitions of spaces and indexes, and the types of their fields. Values are in the form of decoded bodies.

Sources: `field_def.c`, `tuple_compare.cc` of the server; `alter.cc` (`space_def_new_from_tuple`,
`index_def_new_from_tuple`), `space_def.c`, `index_def.c`, `key_def.c`, `tuple_format.c`. Messages are the server's.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.formats.tarantool.codes import MAX_SPACE_ID
from binlogtool.formats.tarantool.replay.update_operations import PathStep, parse_path

# --- Types of fields and key parts ---

FIELD_TYPES_2_6 = ("any", "unsigned", "string", "number", "double", "integer", "boolean", "varbinary", "scalar",
"decimal",
            "uuid", "array", "map")  # fmt: skip
"""Field types of 2.6, in the server's order."""
FIELD_TYPES_3 = (*FIELD_TYPES_2_6, "datetime", "interval", "int8", "uint8", "int16", "uint16", "int32",
"uint32", "int64", "uint64",
           "float32", "float64", "decimal32", "decimal64", "decimal128", "decimal256")  # fmt: skip

INCOMPARABLE_TYPES = ("any", "array", "map", "interval")
"""Types that parts of tree and hash indexes cannot have."""

_MARKS = ("$decimal", "$uuid", "$datetime", "$interval", "$error", "$ext", "$float", "$map")
_SIGNED_BITS = {f"int{bits}": bits for bits in (8, 16, 32, 64)}
_UNSIGNED_BITS = {f"uint{bits}": bits for bits in (8, 16, 32, 64)}
_NUMBER_TYPES = ("unsigned", "integer", "double", "decimal", "number", *_SIGNED_BITS, *_UNSIGNED_BITS,
"float32", "float64",
            "decimal32", "decimal64", "decimal128", "decimal256")  # fmt: skip
_SCALAR_TYPES = (*_NUMBER_TYPES, "string", "boolean", "varbinary", "scalar", "uuid", "datetime")

ValueCheck = Callable[[Any], bool]


def parse_field_type(name: Any, *, is_version_3: bool) -> str | None:
    """Parse the name of a type as the server does (`field_type_by_name`); None if there is no such type.

    Case does not matter; "num" and "str" (or prefixes of them) and "*" are old names.
    """
    if not isinstance(name, str) or not name:
        return None
    lower = name.lower()
    if lower in (FIELD_TYPES_3 if is_version_3 else FIELD_TYPES_2_6):
        return lower
    if lower == "*":
        return "any"
    return "unsigned" if "num".startswith(lower) else "string" if "str".startswith(lower) else None


def is_supertype(outer: str, inner: str) -> bool:
    """Return whether a field of type `outer` can hold each value of type `inner` (`field_type1_contains_type2`)."""
    if outer in ("any", inner):
        return True
    if outer == "scalar":
        return inner in _SCALAR_TYPES
    if outer == "number":
        return inner in _NUMBER_TYPES
    if outer == "integer":
        return inner in ("unsigned", *_SIGNED_BITS, *_UNSIGNED_BITS)
    return outer == "unsigned" and inner in _UNSIGNED_BITS


def get_extension_mark(value: Any) -> str | None:
    """Return the mark of an extension value or a special number ("$decimal", …); None if the value has no mark."""
    if isinstance(value, dict):
        for key in value:
            return key if key in _MARKS else None
    return None


def get_server_type_name(value: Any) -> str:
    """Return the server's name for the type of a value, as used in its messages (`mp_type_strs`)."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "unsigned" if value >= 0 else "integer"
    names: Mapping[type, str] = {float: "double", str: "string", bytes: "varbinary", list: "array"}
    mark = get_extension_mark(value)
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
    """Return whether bytes are UTF-8. A stored string would have been decoded, so such bytes are a binary value."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_float(value: Any) -> bool:
    return type(value) is float or get_extension_mark(value) == "$float"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or get_extension_mark(value) in ("$float", "$decimal")


def _is_scalar(value: Any) -> bool:
    return type(value) in (int, float, str, bytes, bool) or get_extension_mark(value) in ("$float", "$decimal")


def _is_scalar_3(value: Any) -> bool:
    return _is_scalar(value) or get_extension_mark(value) in ("$uuid", "$datetime")


def _is_double_3(value: Any) -> bool:
    return type(value) in (int, float) or get_extension_mark(value) == "$float"


def _create_mark_check(mark: str) -> ValueCheck:
    return lambda value: get_extension_mark(value) == mark


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
    "map": lambda value: isinstance(value, dict) and get_extension_mark(value) in (None, "$map"),
    **{name: _create_range_check(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _SIGNED_BITS.items()},
    **{name: _create_range_check(0, (1 << bits) - 1) for name, bits in _UNSIGNED_BITS.items()},
    "float32": _is_float,
    "float64": _is_float,
    **{f"decimal{bits}": _create_mark_check("$decimal") for bits in (32, 64, 128, 256)},
})  # fmt: skip
_CHECKS_3: Mapping[str, ValueCheck] = MappingProxyType({**_CHECKS, "scalar": _is_scalar_3, "double": _is_double_3})


def get_type_check(type_: str, *, is_version_3: bool) -> ValueCheck | None:
    """Return the check of a type for values other than null; None if the type allows every value."""
    return (_CHECKS_3 if is_version_3 else _CHECKS).get(type_)


# -- comparison --------------------------------------------------------------------------------------------------------


def to_comparable(value: Any) -> Any:
    """Convert a value so that values the server considers equal are equal: numbers by value, datetimes by instant."""
    mark = get_extension_mark(value)
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
    """Convert a value so that Python sorts it like the server (`mp_compare_scalar`): null, booleans, numbers, texts,
    binaries, uuids, datetimes.
    """
    mark = get_extension_mark(value)
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


# --- Definitions of spaces and indexes ---

_MAX_INDEX_ID, _MAX_PARTS, _MAX_FIELD_NUMBER = 128, 255, 2147483647
_MAX_UINT32 = (1 << 32) - 1
_ENGINES = ("memtx", "vinyl", "blackhole", "sysview", "service")
_ENGINES_3 = (*_ENGINES, "memcs")
_INDEX_TYPES = ("hash", "tree", "bitset", "rtree")
_NULLABLE_ACTIONS = ("none", "rollback", "abort", "fail", "ignore", "replace", "default")
_BINARY_COLLATIONS = (None, 0, 3)
"""Collations that compare texts byte by byte: none, and `binary`."""

_SPACE_OPTIONS: Mapping[str, str] = {
    "group_id": "unsigned", "temporary": "boolean", "view": "boolean", "is_sync": "boolean", "sql": "string",
    "checks": "",
}  # fmt: skip
_SPACE_OPTIONS_3 = {**_SPACE_OPTIONS, "type": "", "defer_deletes": "boolean", "constraint": "", "foreign_key": "",
                    "upgrade": ""}  # fmt: skip
_INDEX_OPTIONS: Mapping[str, str] = {
    "unique": "boolean", "dimension": "integer", "distance": "enum", "range_size": "integer", "page_size": "integer",
    "run_count_per_level": "integer", "run_size_ratio": "float", "bloom_fpr": "float", "lsn": "integer",
    "func": "unsigned", "sql": "",
}  # fmt: skip
_INDEX_OPTIONS_3 = {**_INDEX_OPTIONS, "hint": "", "covers": "", "layout": "", "aggregates": ""}
_PART_OPTIONS: Mapping[str, str] = {
    "type": "enum", "field": "unsigned", "collation": "unsigned", "is_nullable": "boolean", "nullable_action": "enum",
    "sort_order": "enum", "path": "string",
}  # fmt: skip
_PART_OPTIONS_3 = {**_PART_OPTIONS, "exclude_null": "boolean", "scale": "integer"}
_FIELD_OPTIONS: Mapping[str, str] = {
    "type": "enum", "name": "string", "is_nullable": "boolean", "nullable_action": "enum", "collation": "unsigned",
}  # fmt: skip


class RowRefusedError(Exception):
    """Error: the server refuses a row; the argument is its message."""


class ServerCrashError(RowRefusedError):
    """Error: the server crashes at a row, even with force_recovery."""


class FieldDefinition(msgspec.Struct, frozen=True):
    """Field of a space's format. action: `nullable_action`. constrained: it has a constraint or a foreign key."""

    name: str
    type: str
    nullable: bool
    action: str
    constrained: bool = False


class KeyPart(msgspec.Struct, frozen=True):
    """Part of a key. field: counted from 0. path: below the field; None = it has a `[*]`. collation: id, or None."""

    field: int
    type: str
    nullable: bool = False
    path: tuple[PathStep, ...] | None = ()
    collation: int | None = None
    exclude_null: bool = False
    descending: bool = False
    action: str = "default"


class IndexDefinition(msgspec.Struct, frozen=True):
    """Index. unchecked_reason: why its keys cannot be compared here; "" = they can."""

    number: int
    name: str
    type: str
    unique: bool
    parts: tuple[KeyPart, ...]
    unchecked_reason: str = ""


class FieldCheck(msgspec.Struct, frozen=True):
    """Condition for the values of one field of a row. check: None = anything. path: below the field."""

    number: int
    type: str
    nullable: bool
    check: ValueCheck | None
    path: tuple[PathStep, ...] = ()


class SpaceDefinition(msgspec.Struct):
    """Definition of a space.

    Attributes:
        exact: number of fields that each row must have; 0 = any number.
        checks, required: checks and required fields of its tuple format.
        unchecked_reason: why some rules for its rows are not known here; "" = all are known.
    """

    number: int
    name: str
    engine: str
    exact: int = 0
    fields: tuple[FieldDefinition, ...] = ()
    local: bool = False
    view: bool = False
    temporary: bool = False
    synchronous: bool = False
    indexes: dict[int, IndexDefinition] = msgspec.field(default_factory=dict)
    checks: tuple[FieldCheck, ...] = ()
    required: tuple[int, ...] = ()
    unchecked_reason: str = ""

    @property
    def names(self) -> dict[str, int]:
        """Field numbers by field name."""
        return {field.name: number for number, field in enumerate(self.fields)}

    def copy_with_index(self, index: IndexDefinition | None, number: int, *, is_version_3: bool) -> SpaceDefinition:
        """Return the space with an index added, replaced, or removed (None), and its tuple format updated.

        Raises:
            RowRefusedError: types of parts and fields contradict each other.
        """
        indexes = {n: one for n, one in self.indexes.items() if n != number}
        if index is not None:
            indexes[number] = index
        definition = msgspec.structs.replace(self, indexes=dict(sorted(indexes.items())))
        definition.checks, definition.required = create_tuple_format(definition, is_version_3=is_version_3)
        return definition


# -- spaces ------------------------------------------------------------------------------------------------------------


def parse_space(row: Sequence[Any], before: SpaceDefinition | None, *, is_version_3: bool) -> SpaceDefinition:
    """Parse a row of `_space` to a definition with the indexes of `before` but without its tuple format.

    Raises:
        RowRefusedError: the server refuses the row.
    """
    number, name, engine = (
        _require_field_of_type(row, 0, "unsigned"),
        _require_field_of_type(row, 2, "string"),
        _require_field_of_type(row, 3, "string"),
    )
    message = f"Can't modify space '{name}': " if before is not None else f"Failed to create space '{name}': "
    _check_identifier(name)
    if number > MAX_SPACE_ID or number == 0:
        raise RowRefusedError(message + ("space id 0 is reserved" if number == 0 else "space id is too big"))
    exact = _require_field_of_type(row, 4, "unsigned")
    _check_identifier(engine)
    options, space_format = _require_field_of_type(row, 5, "map"), _require_field_of_type(row, 6, "array")
    fields = tuple(
        _parse_field(message, at, stored, is_version_3=is_version_3) for at, stored in enumerate(space_format)
    )
    if 0 != exact < len(fields):
        raise RowRefusedError(message + "exact_field_count must be either 0 or >= formatted field count")
    options = _check_options(
        options,
        _SPACE_OPTIONS_3 if is_version_3 else _SPACE_OPTIONS,
        "Wrong space options",
        5,
        is_version_3=is_version_3,
    )
    group = options.get("group_id", 0)
    if group not in (0, 1):
        raise RowRefusedError(f"Replication group '{group}' does not exist")
    view = options.get("view") is True
    if view and not options.get("sql"):
        raise RowRefusedError("Space declared as a view must have SQL statement")
    if options.get("is_sync") is True and group == 1:
        raise RowRefusedError(message + "local space can't be synchronous")
    if engine not in (_ENGINES_3 if is_version_3 else _ENGINES):
        raise RowRefusedError(f"Space engine '{engine}' does not exist")
    _require_unique_field_names(fields)
    constrained = any(field.constrained for field in fields) or options.get("constraint") or options.get("foreign_key")
    return SpaceDefinition(
        number, name, engine, exact, fields, group == 1, view,
        temporary=options.get("temporary") is True or options.get("type") in ("temporary", "data-temporary"),
        synchronous=options.get("is_sync") is True,
        indexes={} if before is None else before.indexes,
        unchecked_reason="constraints and foreign keys" if constrained else "",
    )  # fmt: skip


def check_space_change(before: SpaceDefinition, after: SpaceDefinition) -> None:
    """Check that a change of a space leaves its immutable properties unchanged (`on_replace_dd_space`).

    Raises:
        RowRefusedError: the server refuses the change.
    """
    message = f"Can't modify space '{before.name}': "
    if after.engine != before.engine:
        raise RowRefusedError(message + "can not change space engine")
    if after.local != before.local:
        raise RowRefusedError(message + "replication group is immutable")
    if after.view != before.view:
        raise RowRefusedError(message + "can not convert a space to a view and vice versa")


def _parse_field(message: str, number: int, stored: Any, *, is_version_3: bool) -> FieldDefinition:
    if not isinstance(stored, dict) or "$map" in stored:
        raise RowRefusedError(f"{message}field {number + 1} is not map")
    option_message = f"Wrong space format (field {number + 1}): "
    for key, kind in _FIELD_OPTIONS.items():
        if key in stored:
            _check_option(key, stored[key], kind, option_message)
    name, nullable = stored.get("name"), stored.get("is_nullable") is True
    if not name:
        raise RowRefusedError(f"{message}field {number + 1} name is not specified")
    _check_identifier(name)
    type_ = parse_field_type(stored.get("type", "any"), is_version_3=is_version_3)
    if type_ is None:
        raise RowRefusedError(f"{message}field {number + 1} has unknown field type")
    action = str(stored.get("nullable_action", "none" if nullable else "default")).lower()
    if action not in _NULLABLE_ACTIONS:
        raise RowRefusedError(f"{message}field {number + 1} has unknown field on conflict nullable action")
    if nullable != (action == "none"):
        text = "has conflicting nullability and nullable action properties"
        raise RowRefusedError(f"{message}field {number + 1} {text}")
    if stored.get("collation") is not None and type_ not in ("string", "scalar", "any"):
        raise RowRefusedError(message + "collation is reasonable only for string, scalar and any fields")
    constrained = bool(
        is_version_3 and (stored.get("constraint") or stored.get("foreign_key") or stored.get("compression"))
    )
    return FieldDefinition(name, type_, nullable, action, constrained)


def _require_unique_field_names(fields: Sequence[FieldDefinition]) -> None:
    seen = set()
    for field in fields:
        if field.name in seen:
            raise RowRefusedError(f"Space field '{field.name}' is duplicate")
        seen.add(field.name)


def _check_identifier(name: str | bytes) -> None:
    """Check that a name has only printable characters (`identifier_check`); bytes: the text is not UTF-8."""
    if isinstance(name, bytes):
        name = name.decode(errors="replace")
    for symbol in name or "\0":
        if symbol == "\ufffd" or unicodedata.category(symbol) in ("Cn", "Zl", "Cc", "Zp", "Cs"):
            raise RowRefusedError(f"Invalid identifier '{name}' (expected printable symbols only or it is too long)")


def _require_field_of_type(row: Sequence[Any], number: int, type_: str) -> Any:
    """Return a field of a system row if it has its type (`tuple_field_str`, `tuple_field_u32`, …)."""
    value = row[number] if number < len(row) else None
    check = get_type_check(type_, is_version_3=False)
    if check is None or not check(value) or (isinstance(value, dict) and "$map" in value):
        raise RowRefusedError(
            f"Tuple field {number + 1} type does not match one required by operation: expected {type_}"
        )
    return value


def _check_options(
    stored: Mapping[str, Any], option_types: Mapping[str, str], message: str, number: int, *, is_version_3: bool
) -> Mapping[str, Any]:
    """Check that all options are known and have their types (`opts_decode`); return them."""
    prefix = f"{message}: " if is_version_3 else f"{message} (field {number}): "
    for key, value in stored.items():
        if key not in option_types:
            raise RowRefusedError(f"{prefix}unexpected option '{key}'")
        _check_option(key, value, option_types[key], prefix)
    return stored


def _check_option(key: str, value: Any, kind: str, prefix: str) -> None:
    is_valid = {
        "boolean": type(value) is bool,
        "unsigned": type(value) is int and 0 <= value <= _MAX_UINT32,
        "integer": type(value) is int and value < 1 << 63,
        "float": type(value) in (int, float),
        "string": type(value) is str,
        "enum": type(value) is str,
    }
    if kind and not is_valid[kind]:
        raise RowRefusedError(f"{prefix}'{key}' must be {kind}")


# -- indexes -----------------------------------------------------------------------------------------------------------


def parse_index(row: Sequence[Any], space: SpaceDefinition, *, is_version_3: bool) -> IndexDefinition:
    """Parse a row of `_index`. Raises RowRefusedError: the server refuses the row."""
    field_types = ("unsigned", "unsigned", "string", "string", "map", "array")
    checks = [get_type_check(one, is_version_3=False) for one in field_types]
    if len(row) != len(field_types) or not all(c is not None and c(v) for c, v in zip(checks, row, strict=True)):
        raise RowRefusedError("Wrong record in _index space")
    _, number, name, kind, options, parts = row
    option_types = _INDEX_OPTIONS_3 if is_version_3 else _INDEX_OPTIONS
    options = _check_options(options, option_types, "Wrong index options", 4, is_version_3=is_version_3)
    prefix = "Wrong index options: " if is_version_3 else "Wrong index options (field 4): "
    if str(options.get("distance", "euclid")).lower() not in ("euclid", "manhattan"):
        raise RowRefusedError(prefix + "distance must be either 'euclid' or 'manhattan'")
    page, size = options.get("page_size", 8192), options.get("range_size", 0)
    if page <= 0 or 0 < size < page:
        raise RowRefusedError(prefix + "page_size must be greater than 0 and less than or equal to range_size")
    if options.get("run_count_per_level", 2) <= 0:
        raise RowRefusedError(prefix + "run_count_per_level must be greater than 0")
    if options.get("run_size_ratio", 3.5) <= 1:
        raise RowRefusedError(prefix + "run_size_ratio must be greater than 1")
    if not 0 < options.get("bloom_fpr", 0.05) <= 1:
        raise RowRefusedError(prefix + "bloom_fpr must be greater than 0 and less than or equal to 1")
    _check_identifier(name)
    if not parts and not is_version_3:
        raise ServerCrashError("the server crashes at an index without parts (key_def_set_extract_func)")
    key_parts = _parse_parts(parts, space, is_version_3=is_version_3)
    index = IndexDefinition(
        number, name, kind.lower(), options.get("unique", True), key_parts, _explain_unchecked(key_parts, options)
    )
    message = f"Can't create or modify index '{name}' in space '{space.name}': "
    _check_index(index, message, functional=bool(options.get("func")))
    if space.engine == "memtx":
        _check_memtx_index(index, message, space)
    elif space.engine == "vinyl" and index.type != "tree":
        raise RowRefusedError(f"Unsupported index type supplied for index '{name}' in space '{space.name}'")
    return index


def _check_index(index: IndexDefinition, message: str, *, functional: bool) -> None:
    """Check an index (`index_def_is_valid`)."""
    multikey = any(part.path is None for part in index.parts)
    if index.number >= _MAX_INDEX_ID:
        raise RowRefusedError(message + "index id too big")
    if index.number == 0 and not index.unique:
        raise RowRefusedError(message + "primary key must be unique")
    if not index.parts:
        raise RowRefusedError(message + "part count must be positive")
    if len(index.parts) > _MAX_PARTS:
        raise RowRefusedError(message + "too many key parts")
    if index.number == 0 and multikey:
        raise RowRefusedError(message + "primary key cannot be multikey")
    if index.number == 0 and functional:
        raise RowRefusedError(message + "primary key can not use a function")
    places = [(part.field, part.path) for part in index.parts]
    if any(part.field > _MAX_FIELD_NUMBER for part in index.parts):
        raise RowRefusedError(message + "field no is too big")
    if not multikey and len(set(places)) != len(places):
        raise RowRefusedError(message + "same key part is indexed twice")


def _check_memtx_index(index: IndexDefinition, message: str, space: SpaceDefinition) -> None:
    """Check an index of a memtx space (`memtx_space_check_index_def`)."""
    if any(part.nullable for part in index.parts):
        if index.number == 0:
            raise RowRefusedError(f"Primary index of space '{space.name}' can not contain nullable parts")
        if index.type != "tree":
            raise RowRefusedError(f"{index.type.upper()} does not support nullable parts")
    if index.type not in _INDEX_TYPES:
        raise RowRefusedError(f"Unsupported index type supplied for index '{index.name}' in space '{space.name}'")
    if index.type in ("rtree", "bitset"):
        kind = index.type.upper()
        if len(index.parts) != 1:
            raise RowRefusedError(f"{message}{kind} index key can not be multipart")
        if index.unique:
            raise RowRefusedError(
                message + ("RTREE index can not be unique" if kind == "RTREE" else "BITSET can not be unique")
            )
        if kind == "RTREE" and index.parts[0].type != "array":
            raise RowRefusedError(message + "RTREE index field type must be ARRAY")
        if kind == "BITSET" and index.parts[0].type not in ("unsigned", "string", "varbinary"):
            raise RowRefusedError(message + "BITSET index field type must be NUM or STR")
        return
    if index.type == "hash" and not index.unique:
        raise RowRefusedError(message + "HASH index must be unique")
    if index.type == "hash" and any(part.path is None for part in index.parts):
        raise RowRefusedError(message + "HASH index cannot be multikey")
    for part in index.parts:
        if part.type in INCOMPARABLE_TYPES:
            raise RowRefusedError(f"{message}field type '{part.type}' is not supported")


def _parse_parts(stored: Sequence[Any], space: SpaceDefinition, *, is_version_3: bool) -> tuple[KeyPart, ...]:
    """Parse the parts of an index (`key_def_decode_parts`)."""
    if stored and isinstance(stored[0], list):
        return tuple(_parse_old_part(one, space, is_version_3=is_version_3) for one in stored)
    return tuple(_parse_part(number, one, is_version_3=is_version_3) for number, one in enumerate(stored, 1))


def _parse_old_part(stored: Any, space: SpaceDefinition, *, is_version_3: bool) -> KeyPart:
    """Parse a part in the form `[field, type]` (before 1.7)."""
    suffix = "; expected field1 id (number), field1 type (string), ..."
    if not isinstance(stored, list) or not stored:
        text = "expected an array" if not isinstance(stored, list) else "expected a non-empty array"
        raise RowRefusedError(f"Wrong index parts: {text}{suffix}")
    if len(stored) < 2:
        raise RowRefusedError(f"Wrong index parts: a field type is missing{suffix}")
    number, name = stored[:2]
    if type(number) is not int or number < 0:
        raise RowRefusedError(f"Wrong index parts: field id must be an integer{suffix}")
    if not isinstance(name, str):
        raise RowRefusedError(f"Wrong index parts: field type must be a string{suffix}")
    type_ = parse_field_type(name, is_version_3=is_version_3)
    if type_ is None:
        raise RowRefusedError(f"Wrong index parts: unknown field type{suffix}")
    nullable = number < len(space.fields) and space.fields[number].nullable
    return KeyPart(number, type_, nullable)


def _parse_part(number: int, stored: Any, *, is_version_3: bool) -> KeyPart:
    message = "Wrong index options: " if is_version_3 else f"Wrong index options (field {number}): "
    if not isinstance(stored, dict):
        raise RowRefusedError(message + "index part is expected to be a map")
    options = _check_options(
        stored,
        _PART_OPTIONS_3 if is_version_3 else _PART_OPTIONS,
        "Wrong index options",
        number,
        is_version_3=is_version_3,
    )
    nullable = options.get("is_nullable") is True
    action = str(options.get("nullable_action", "none" if nullable else "default")).lower()
    type_ = parse_field_type(options.get("type", "unsigned"), is_version_3=is_version_3)
    if type_ is None:
        raise RowRefusedError(message + "index part: unknown field type")
    collation = options.get("collation")
    if collation is not None and type_ not in ("string", "scalar"):
        raise RowRefusedError(message + "collation is reasonable only for string and scalar parts")
    if action not in _NULLABLE_ACTIONS or nullable != (action == "none"):
        raise RowRefusedError(message + "index part: conflicting nullability and nullable action properties")
    order = str(options.get("sort_order", "asc")).lower()
    if order not in ("asc", "desc", "undef"):
        raise RowRefusedError(message + "index part: unknown sort order")
    path = _parse_part_path(options.get("path", ""), message)
    exclude = options.get("exclude_null") is True
    return KeyPart(options.get("field", 0), type_, nullable, path, collation, exclude, order == "desc", action)


def _parse_part_path(text: str, message: str) -> tuple[PathStep, ...] | None:
    if not text or "[*]" in text:
        return None if text else ()
    steps = parse_path(text.lstrip("."))
    if steps is None:
        raise RowRefusedError(message + "invalid path")
    return tuple(steps)


def _explain_unchecked(parts: Sequence[KeyPart], options: Mapping[str, Any]) -> str:
    if options.get("func"):
        return "a function computes its keys"
    if any(part.path is None for part in parts):
        return "a multikey index"
    if any(part.collation not in _BINARY_COLLATIONS for part in parts):
        return "a collation compares its keys"
    return ""


# -- tuple formats -----------------------------------------------------------------------------------------------------


def create_tuple_format(
    space: SpaceDefinition, *, is_version_3: bool
) -> tuple[tuple[FieldCheck, ...], tuple[int, ...]]:
    """Create the checks and required fields of a space's rows from fields and key parts (`tuple_format_create`).

    Raises:
        RowRefusedError: a part and a field, or two parts, have types that contradict each other.
    """
    types: dict[tuple[int, tuple[PathStep, ...]], tuple[str, str]] = {
        (number, ()): (field.type, field.action) for number, field in enumerate(space.fields)
    }
    key_targets: set[tuple[int, tuple[PathStep, ...]]] = set()
    for index in space.indexes.values():
        if index.unchecked_reason == "a function computes its keys":
            continue
        for part in index.parts:
            if part.path is not None:
                target = part.field, part.path
                types[target] = _merge_key_part(
                    types.get(target), part, target in key_targets, part.field < len(space.fields)
                )
                key_targets.add(target)
    checks = []
    for (number, path), (type_, action) in sorted(types.items(), key=lambda one: (one[0][0], str(one[0][1]))):
        checks.append(
            FieldCheck(number, type_, action == "none", get_type_check(type_, is_version_3=is_version_3), path)
        )
    required = tuple(one.number for one in checks if not one.nullable and not one.path)
    return tuple(one for one in checks if one.check is not None or one.path), required


def _merge_key_part(before: tuple[str, str] | None, part: KeyPart, keyed: bool, formatted: bool) -> tuple[str, str]:
    """Return (type, nullable action) of a field after adding one more key part (`tuple_format_use_key_part`)."""
    if before is None or (not formatted and not keyed):
        return part.type, part.action
    type_, action = before
    if action == "default":
        if part.action != "none" or part.path:
            action = part.action
    elif part.action == "default":
        action = "default" if action == "none" else action
    elif action != part.action:
        number = part.field + 1
        text = f"contains {action} on conflict action, but {part.action} in index parts"
        raise RowRefusedError(f"Field {number} {text}")
    if is_supertype(type_, part.type):
        return part.type, action
    if not is_supertype(part.type, type_):
        text = f"has type '{type_}' in space format, but type '{part.type}' in index definition"
        if keyed:
            text = f"has type '{type_}' in one index, but type '{part.type}' in another"
        raise RowRefusedError(f"Field {part.field + 1} {text}")
    return type_, action
