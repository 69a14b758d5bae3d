"""Definitions of spaces and indexes from the rows of `_space` and `_index`, with the checks that make the server
refuse.

Sources: `alter.cc` (`space_def_new_from_tuple`, `index_def_new_from_tuple`), `space_def.c`, `index_def.c`,
  `key_def.c`,
`tuple_format.c` of the server; messages are the server's.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.formats.tarantool.replay.update_ops import Token, path_tokens
from binlogtool.formats.tarantool.spaces.field_types import INCOMPARABLE, Check, check_of, contains, field_type

MAX_NAME = 65_000
_MAX_SPACE = 2147483647
_MAX_INDEX, _MAX_PARTS, _MAX_FIELD = 128, 255, 2147483647
_UINT32 = (1 << 32) - 1
_ENGINES = ("memtx", "vinyl", "blackhole", "sysview", "service")
_ENGINES_3 = (*_ENGINES, "memcs")
_INDEX_TYPES = ("hash", "tree", "bitset", "rtree")
_ACTIONS = ("none", "rollback", "abort", "fail", "ignore", "replace", "default")
_BINARY = (None, 0, 3)
"""Collations under which texts are equal only where their bytes are: none, and `binary`."""

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


class RefusedError(Exception):
    """The server refuses a row; the argument is its message."""


class CrashError(RefusedError):
    """The server crashes at a row, also with force_recovery."""


class Field(msgspec.Struct, frozen=True):
    """A field of a space's format.

    Attributes:
        action: `nullable_action`.
        constrained: it has a constraint or a foreign key.
    """

    name: str
    type: str
    nullable: bool
    action: str
    constrained: bool = False


class KeyPart(msgspec.Struct, frozen=True):
    """A part of a key.

    Attributes:
        field: counted from 0.
        path: below the field; None = it has a `[*]`.
        collation: id, or None.
    """

    field: int
    type: str
    nullable: bool = False
    path: tuple[Token, ...] | None = ()
    collation: int | None = None
    exclude_null: bool = False
    descending: bool = False
    action: str = "default"


class Index(msgspec.Struct, frozen=True):
    """An index. unchecked_reason: why its keys cannot be compared here; "" = they can."""

    number: int
    name: str
    type: str
    unique: bool
    parts: tuple[KeyPart, ...]
    doubt: str = ""


class FieldCheck(msgspec.Struct, frozen=True):
    """Condition for the values of one field of a row. check: None = anything. path: below the field."""

    number: int
    type: str
    nullable: bool
    check: Check | None
    path: tuple[Token, ...] = ()


class SpaceDefinition(msgspec.Struct):
    """Definition of a space.

    Attributes:
        exact: number of fields that each row must have; 0 = any.
        checks, required: of its tuple format.
        unchecked_reason: why not every rule for its rows is known here; "" = all are.
    """

    number: int
    name: str
    engine: str
    exact: int = 0
    fields: tuple[Field, ...] = ()
    local: bool = False
    view: bool = False
    temporary: bool = False
    synchronous: bool = False
    indexes: dict[int, Index] = msgspec.field(default_factory=dict)
    checks: tuple[FieldCheck, ...] = ()
    required: tuple[int, ...] = ()
    doubt: str = ""

    @property
    def names(self) -> dict[str, int]:
        """Field numbers by field name."""
        return {field.name: number for number, field in enumerate(self.fields)}

    def with_index(self, index: Index | None, number: int, *, is_3: bool) -> SpaceDefinition:
        """Return the space with an index added or replaced, or removed (None); its tuple format is updated.

        Raises:
            RowRefusedError: types of parts and fields contradict each other.
        """
        indexes = {n: one for n, one in self.indexes.items() if n != number}
        if index is not None:
            indexes[number] = index
        made = msgspec.structs.replace(self, indexes=dict(sorted(indexes.items())))
        made.checks, made.required = tuple_format(made, is_3=is_3)
        return made


# -- spaces ------------------------------------------------------------------------------------------------------------


def read_space(row: Sequence[Any], before: SpaceDefinition | None, *, is_3: bool) -> SpaceDefinition:
    """Parse a row of `_space` to a definition with the indexes of the one `before` it, without its tuple format.

    Raises:
        RowRefusedError: the server refuses the row.
    """
    number, name, engine = _field(row, 0, "unsigned"), _field(row, 2, "string"), _field(row, 3, "string")
    failed = f"Can't modify space '{name}': " if before is not None else f"Failed to create space '{name}': "
    _check_identifier(name)
    if number > _MAX_SPACE or number == 0:
        raise RefusedError(failed + ("space id 0 is reserved" if number == 0 else "space id is too big"))
    exact = _field(row, 4, "unsigned")
    _check_identifier(engine)
    options, form = _field(row, 5, "map"), _field(row, 6, "array")
    fields = tuple(_read_field(failed, at, stored, is_3=is_3) for at, stored in enumerate(form))
    if 0 != exact < len(fields):
        raise RefusedError(failed + "exact_field_count must be either 0 or >= formatted field count")
    options = _options(options, _SPACE_OPTIONS_3 if is_3 else _SPACE_OPTIONS, "Wrong space options", 5, is_3=is_3)
    group = options.get("group_id", 0)
    if group not in (0, 1):
        raise RefusedError(f"Replication group '{group}' does not exist")
    view = options.get("view") is True
    if view and not options.get("sql"):
        raise RefusedError("Space declared as a view must have SQL statement")
    if options.get("is_sync") is True and group == 1:
        raise RefusedError(failed + "local space can't be synchronous")
    if engine not in (_ENGINES_3 if is_3 else _ENGINES):
        raise RefusedError(f"Space engine '{engine}' does not exist")
    _check_names(fields)
    constrained = any(field.constrained for field in fields) or options.get("constraint") or options.get("foreign_key")
    return SpaceDefinition(
        number, name, engine, exact, fields, group == 1, view,
        temporary=options.get("temporary") is True or options.get("type") in ("temporary", "data-temporary"),
        synchronous=options.get("is_sync") is True,
        indexes={} if before is None else before.indexes,
        doubt="constraints and foreign keys" if constrained else "",
    )  # fmt: skip


def check_altered(before: SpaceDefinition, made: SpaceDefinition) -> None:
    """Check that a change of a space alters nothing immutable (`on_replace_dd_space`).

    Raises:
        RowRefusedError: the server refuses the change.
    """
    failed = f"Can't modify space '{before.name}': "
    if made.engine != before.engine:
        raise RefusedError(failed + "can not change space engine")
    if made.local != before.local:
        raise RefusedError(failed + "replication group is immutable")
    if made.view != before.view:
        raise RefusedError(failed + "can not convert a space to a view and vice versa")


def _read_field(failed: str, number: int, stored: Any, *, is_3: bool) -> Field:
    if not isinstance(stored, dict) or "$map" in stored:
        raise RefusedError(f"{failed}field {number + 1} is not map")
    wrong = f"Wrong space format (field {number + 1}): "
    for key, kind in _FIELD_OPTIONS.items():
        if key in stored:
            _check_option(key, stored[key], kind, wrong)
    name, nullable = stored.get("name"), stored.get("is_nullable") is True
    if not name:
        raise RefusedError(f"{failed}field {number + 1} name is not specified")
    _check_identifier(name)
    type_ = field_type(stored.get("type", "any"), is_3=is_3)
    if type_ is None:
        raise RefusedError(f"{failed}field {number + 1} has unknown field type")
    action = str(stored.get("nullable_action", "none" if nullable else "default")).lower()
    if action not in _ACTIONS:
        raise RefusedError(f"{failed}field {number + 1} has unknown field on conflict nullable action")
    if nullable != (action == "none"):
        text = "has conflicting nullability and nullable action properties"
        raise RefusedError(f"{failed}field {number + 1} {text}")
    if stored.get("collation") is not None and type_ not in ("string", "scalar", "any"):
        raise RefusedError(failed + "collation is reasonable only for string, scalar and any fields")
    constrained = bool(is_3 and (stored.get("constraint") or stored.get("foreign_key") or stored.get("compression")))
    return Field(name, type_, nullable, action, constrained)


def _check_names(fields: Sequence[Field]) -> None:
    seen = set()
    for field in fields:
        if field.name in seen:
            raise RefusedError(f"Space field '{field.name}' is duplicate")
        seen.add(field.name)


def _check_identifier(name: str) -> None:
    """Check that a name has printable symbols only (`identifier_check`)."""
    for symbol in name or "\0":
        if symbol == "\ufffd" or unicodedata.category(symbol) in ("Cn", "Zl", "Cc", "Zp", "Cs"):
            raise RefusedError(f"Invalid identifier '{name}' (expected printable symbols only or it is too long)")


def _field(row: Sequence[Any], number: int, type_: str) -> Any:
    """Return a field of a system row if it has its type (`tuple_field_str`, `tuple_field_u32`, …)."""
    value = row[number] if number < len(row) else None
    check = check_of(type_, is_3=False)
    if check is None or not check(value) or (isinstance(value, dict) and "$map" in value):
        raise RefusedError(f"Tuple field {number + 1} type does not match one required by operation: expected {type_}")
    return value


def _options(
    stored: Mapping[str, Any], known: Mapping[str, str], wrong: str, number: int, *, is_3: bool
) -> Mapping[str, Any]:
    """Check that all options are known and have their types (`opts_decode`); return them."""
    words = f"{wrong}: " if is_3 else f"{wrong} (field {number}): "
    for key, value in stored.items():
        if key not in known:
            raise RefusedError(f"{words}unexpected option '{key}'")
        _check_option(key, value, known[key], words)
    return stored


def _check_option(key: str, value: Any, kind: str, words: str) -> None:
    fits = {
        "boolean": type(value) is bool,
        "unsigned": type(value) is int and 0 <= value <= _UINT32,
        "integer": type(value) is int and value < 1 << 63,
        "float": type(value) in (int, float),
        "string": type(value) is str,
        "enum": type(value) is str,
    }
    if kind and not fits[kind]:
        raise RefusedError(f"{words}'{key}' must be {kind}")


# -- indexes -----------------------------------------------------------------------------------------------------------


def read_index(row: Sequence[Any], space: SpaceDefinition, *, is_3: bool) -> Index:
    """Parse a row of `_index`.

    Raises:
        RowRefusedError: the server refuses the row.
    """
    shape = ("unsigned", "unsigned", "string", "string", "map", "array")
    checks = [check_of(one, is_3=False) for one in shape]
    if len(row) != len(shape) or not all(c is not None and c(v) for c, v in zip(checks, row, strict=True)):
        raise RefusedError("Wrong record in _index space")
    _, number, name, kind, options, parts = row
    known = _INDEX_OPTIONS_3 if is_3 else _INDEX_OPTIONS
    options = _options(options, known, "Wrong index options", 4, is_3=is_3)
    _check_index_options(options, "Wrong index options: " if is_3 else "Wrong index options (field 4): ")
    _check_identifier(name)
    if not parts and not is_3:
        raise CrashError("the server crashes at an index without parts (key_def_set_extract_func)")
    read = _read_parts(parts, space, is_3=is_3)
    made = Index(number, name, kind.lower(), options.get("unique", True), read, _doubt(read, options))
    failed = f"Can't create or modify index '{name}' in space '{space.name}': "
    _check_index(made, failed, functional=bool(options.get("func")))
    if space.engine == "memtx":
        _check_memtx_index(made, failed, space)
    elif space.engine == "vinyl" and made.type != "tree":
        raise RefusedError(f"Unsupported index type supplied for index '{name}' in space '{space.name}'")
    return made


def _check_index_options(options: Mapping[str, Any], words: str) -> None:
    if str(options.get("distance", "euclid")).lower() not in ("euclid", "manhattan"):
        raise RefusedError(words + "distance must be either 'euclid' or 'manhattan'")
    page, size = options.get("page_size", 8192), options.get("range_size", 0)
    if page <= 0 or 0 < size < page:
        raise RefusedError(words + "page_size must be greater than 0 and less than or equal to range_size")
    if options.get("run_count_per_level", 2) <= 0:
        raise RefusedError(words + "run_count_per_level must be greater than 0")
    if options.get("run_size_ratio", 3.5) <= 1:
        raise RefusedError(words + "run_size_ratio must be greater than 1")
    if not 0 < options.get("bloom_fpr", 0.05) <= 1:
        raise RefusedError(words + "bloom_fpr must be greater than 0 and less than or equal to 1")


def _check_index(index: Index, failed: str, *, functional: bool) -> None:
    """Check an index (`index_def_is_valid`)."""
    multikey = any(part.path is None for part in index.parts)
    if index.number >= _MAX_INDEX:
        raise RefusedError(failed + "index id too big")
    if index.number == 0 and not index.unique:
        raise RefusedError(failed + "primary key must be unique")
    if not index.parts:
        raise RefusedError(failed + "part count must be positive")
    if len(index.parts) > _MAX_PARTS:
        raise RefusedError(failed + "too many key parts")
    if index.number == 0 and multikey:
        raise RefusedError(failed + "primary key cannot be multikey")
    if index.number == 0 and functional:
        raise RefusedError(failed + "primary key can not use a function")
    places = [(part.field, part.path) for part in index.parts]
    if any(part.field > _MAX_FIELD for part in index.parts):
        raise RefusedError(failed + "field no is too big")
    if not multikey and len(set(places)) != len(places):
        raise RefusedError(failed + "same key part is indexed twice")


def _check_memtx_index(index: Index, failed: str, space: SpaceDefinition) -> None:
    """Check an index of a memtx space (`memtx_space_check_index_def`)."""
    if any(part.nullable for part in index.parts):
        if index.number == 0:
            raise RefusedError(f"Primary index of space '{space.name}' can not contain nullable parts")
        if index.type != "tree":
            raise RefusedError(f"{index.type.upper()} does not support nullable parts")
    if index.type not in _INDEX_TYPES:
        raise RefusedError(f"Unsupported index type supplied for index '{index.name}' in space '{space.name}'")
    if index.type in ("rtree", "bitset"):
        kind = index.type.upper()
        if len(index.parts) != 1:
            raise RefusedError(f"{failed}{kind} index key can not be multipart")
        if index.unique:
            raise RefusedError(
                failed + ("RTREE index can not be unique" if kind == "RTREE" else "BITSET can not be unique")
            )
        if kind == "RTREE" and index.parts[0].type != "array":
            raise RefusedError(failed + "RTREE index field type must be ARRAY")
        if kind == "BITSET" and index.parts[0].type not in ("unsigned", "string", "varbinary"):
            raise RefusedError(failed + "BITSET index field type must be NUM or STR")
        return
    if index.type == "hash" and not index.unique:
        raise RefusedError(failed + "HASH index must be unique")
    if index.type == "hash" and any(part.path is None for part in index.parts):
        raise RefusedError(failed + "HASH index cannot be multikey")
    for part in index.parts:
        if part.type in INCOMPARABLE:
            raise RefusedError(f"{failed}field type '{part.type}' is not supported")


def _read_parts(stored: Sequence[Any], space: SpaceDefinition, *, is_3: bool) -> tuple[KeyPart, ...]:
    """Parse the parts of an index (`key_def_decode_parts`)."""
    if stored and isinstance(stored[0], list):
        return tuple(_read_old_part(one, space, is_3=is_3) for one in stored)
    return tuple(_read_part(number, one, is_3=is_3) for number, one in enumerate(stored, 1))


def _read_old_part(stored: Any, space: SpaceDefinition, *, is_3: bool) -> KeyPart:
    """Parse a part in the form `[field, type]` (before 1.7)."""
    more = "; expected field1 id (number), field1 type (string), ..."
    if not isinstance(stored, list) or not stored:
        text = "expected an array" if not isinstance(stored, list) else "expected a non-empty array"
        raise RefusedError(f"Wrong index parts: {text}{more}")
    if len(stored) < 2:
        raise RefusedError(f"Wrong index parts: a field type is missing{more}")
    number, name = stored[:2]
    if type(number) is not int or number < 0:
        raise RefusedError(f"Wrong index parts: field id must be an integer{more}")
    if not isinstance(name, str):
        raise RefusedError(f"Wrong index parts: field type must be a string{more}")
    type_ = field_type(name, is_3=is_3)
    if type_ is None:
        raise RefusedError(f"Wrong index parts: unknown field type{more}")
    nullable = number < len(space.fields) and space.fields[number].nullable
    return KeyPart(number, type_, nullable)


def _read_part(number: int, stored: Any, *, is_3: bool) -> KeyPart:
    wrong = "Wrong index options: " if is_3 else f"Wrong index options (field {number}): "
    if not isinstance(stored, dict):
        raise RefusedError(wrong + "index part is expected to be a map")
    options = _options(stored, _PART_OPTIONS_3 if is_3 else _PART_OPTIONS, "Wrong index options", number, is_3=is_3)
    nullable = options.get("is_nullable") is True
    action = str(options.get("nullable_action", "none" if nullable else "default")).lower()
    type_ = field_type(options.get("type", "unsigned"), is_3=is_3)
    if type_ is None:
        raise RefusedError(wrong + "index part: unknown field type")
    collation = options.get("collation")
    if collation is not None and type_ not in ("string", "scalar"):
        raise RefusedError(wrong + "collation is reasonable only for string and scalar parts")
    if action not in _ACTIONS or nullable != (action == "none"):
        raise RefusedError(wrong + "index part: conflicting nullability and nullable action properties")
    order = str(options.get("sort_order", "asc")).lower()
    if order not in ("asc", "desc", "undef"):
        raise RefusedError(wrong + "index part: unknown sort order")
    path = _path(options.get("path", ""), wrong)
    exclude = options.get("exclude_null") is True
    return KeyPart(options.get("field", 0), type_, nullable, path, collation, exclude, order == "desc", action)


def _path(text: str, wrong: str) -> tuple[Token, ...] | None:
    if not text or "[*]" in text:
        return None if text else ()
    tokens = path_tokens(text.lstrip("."))
    if tokens is None:
        raise RefusedError(wrong + "invalid path")
    return tuple(tokens)


def _doubt(parts: Sequence[KeyPart], options: Mapping[str, Any]) -> str:
    if options.get("func"):
        return "a function makes its keys"
    if any(part.path is None for part in parts):
        return "a multikey index"
    if any(part.collation not in _BINARY for part in parts):
        return "a collation compares its keys"
    return ""


# -- tuple formats -----------------------------------------------------------------------------------------------------


def tuple_format(space: SpaceDefinition, *, is_3: bool) -> tuple[tuple[FieldCheck, ...], tuple[int, ...]]:
    """Create the checks and required fields of a space's rows from fields and key parts (`tuple_format_create`).

    Raises:
        RowRefusedError: a part and a field, or two parts, have types that contradict each other.
    """
    types: dict[tuple[int, tuple[Token, ...]], tuple[str, str]] = {
        (number, ()): (field.type, field.action) for number, field in enumerate(space.fields)
    }
    keyed: set[tuple[int, tuple[Token, ...]]] = set()
    for index in space.indexes.values():
        if index.doubt == "a function makes its keys":
            continue
        for part in index.parts:
            if part.path is not None:
                place = part.field, part.path
                types[place] = _merged(types.get(place), part, place in keyed, part.field < len(space.fields))
                keyed.add(place)
    checks = []
    for (number, path), (type_, action) in sorted(types.items(), key=lambda one: (one[0][0], str(one[0][1]))):
        checks.append(FieldCheck(number, type_, action == "none", check_of(type_, is_3=is_3), path))
    required = tuple(one.number for one in checks if not one.nullable and not one.path)
    return tuple(one for one in checks if one.check is not None or one.path), required


def _merged(before: tuple[str, str] | None, part: KeyPart, keyed: bool, formatted: bool) -> tuple[str, str]:
    """Return type and nullable action of a field after one more key part (`tuple_format_use_key_part`)."""
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
        raise RefusedError(f"Field {number} {text}")
    if contains(type_, part.type):
        return part.type, action
    if not contains(part.type, type_):
        text = f"has type '{type_}' in space format, but type '{part.type}' in index definition"
        if keyed:
            text = f"has type '{type_}' in one index, but type '{part.type}' in another"
        raise RefusedError(f"Field {part.field + 1} {text}")
    return type_, action
