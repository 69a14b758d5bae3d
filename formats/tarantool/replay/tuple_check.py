"""Check rows and keys against the format of their space (`tuple_format.c`, `index.cc: exact_key_validate`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from binlogtool.formats.replay_rules import encode_canonical
from binlogtool.formats.tarantool.replay.update_ops import PathStep
from binlogtool.formats.tarantool.spaces.definitions import FieldCheck, IndexDefinition, KeyPart, SpaceDefinition
from binlogtool.formats.tarantool.spaces.field_types import (
    get_server_type_name,
    get_type_check,
    to_comparable,
    to_sort_value,
)

_MISSING = object()


def check_row(space: SpaceDefinition, row: Sequence[Any], *, is_3: bool) -> str | None:
    """Return the server's message about a row that does not fit the format of its space; None if it fits."""
    count = len(row)
    if space.exact and count != space.exact:
        return f"Tuple field count {count} does not match space field count {space.exact}"
    for field_check in space.checks:
        if field_check.number >= count:
            break
        value = row[field_check.number]
        if field_check.path:
            fault = _check_nested_value(field_check, value, is_3=is_3)
            if fault is not None:
                return fault
        elif value is None:
            if not field_check.nullable:
                return _format_type_error(str(field_check.number + 1), field_check.type, value, is_3=is_3)
        elif not field_check.check(value):  # type: ignore[misc]
            return _format_type_error(str(field_check.number + 1), field_check.type, value, is_3=is_3)
    for number in space.required:
        if number >= count:
            return f"Tuple field {number + 1} required by space format is missing"
    return None


def _format_type_error(field: str, expected_type: str, value: Any, *, is_3: bool) -> str:
    text = f"Tuple field {field} type does not match one required by operation: expected {expected_type}"
    return f"{text}, got {get_server_type_name(value)}" if is_3 else text


def _check_nested_value(check: FieldCheck, value: Any, *, is_3: bool) -> str | None:
    """Check the value at the path of a field; each step of the path must be an array or a map."""
    for step in check.path:
        container = list if isinstance(step, int) else dict
        if not isinstance(value, container):
            if value is None and check.nullable:
                return None
            expected_type = "array" if container is list else "map"
            return _format_type_error(str(check.number + 1), expected_type, value, is_3=is_3)
        value = _follow_step(value, step)
        if value is _MISSING:
            text = f"Tuple field {_format_field_path(check)} required by space format is missing"
            return None if check.nullable else text
    if value is None:
        return None if check.nullable else _format_type_error(_format_field_path(check), check.type, value, is_3=is_3)
    is_valid = check.check is None or check.check(value)
    return None if is_valid else _format_type_error(_format_field_path(check), check.type, value, is_3=is_3)


def _follow_step(value: Any, step: PathStep) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _MISSING
    return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING


def _format_field_path(check: FieldCheck) -> str:
    """Format the path of a field as the server prints it."""
    steps = (f"[{step + 1}]" if isinstance(step, int) else f'["{step}"]' for step in check.path)
    return f"[{check.number + 1}]" + "".join(steps)


# -- keys --------------------------------------------------------------------------------------------------------------


def check_key(index: IndexDefinition, key: Sequence[Any], *, is_3: bool, partial: bool = False) -> str | None:
    """Return the server's message about the key of a request; None if it is a key of this index.

    Args:
        partial: it may have fewer parts, and nulls where parts may be null.
    """
    parts = index.parts
    if partial and len(key) > len(parts):
        return f"Invalid key part count (expected [0..{len(parts)}], got {len(key)})"
    if not partial and len(key) != len(parts):
        return f"Invalid key part count in an exact match (expected {len(parts)}, got {len(key)})"
    for number, (part, value) in enumerate(zip(parts, key, strict=False)):
        if value is None and partial and part.nullable:
            continue
        check = get_type_check(part.type, is_3=is_3)
        if check is not None and (value is None or not check(value)):
            return f"Supplied key type of part {number} does not match index part type: expected {part.type}"
    return None


def extract_key_values(parts: Sequence[KeyPart], row: Sequence[Any]) -> list[Any] | None:
    """Return the values of a key's parts in a row, None for a missing one; None as a whole if a part has a `[*]`."""
    values = []
    for part in parts:
        value = row[part.field] if part.field < len(row) else None
        if part.path is None:
            return None
        for step in part.path:
            value = _follow_step(value, step)
            if value is _MISSING:
                value = None
                break
        values.append(value)
    return values


def encode_key(values: Sequence[Any]) -> bytes:
    """Encode a key so that keys that compare equal have equal bytes."""
    return encode_canonical([to_comparable(value) for value in values])


def make_key_order(index: IndexDefinition, values: Sequence[Any]) -> list[Any]:
    """Convert a key to values that Python orders like the index; descending parts compare the other way round."""
    pairs = zip(index.parts, values, strict=False)
    return [
        _DescendingValue(to_sort_value(value)) if part.descending else to_sort_value(value) for part, value in pairs
    ]


class _DescendingValue:
    """A value whose order is reversed."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[int, Any]) -> None:
        self.value = value

    def __lt__(self, other: _DescendingValue) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DescendingValue) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def is_in_range(index: IndexDefinition, values: Sequence[Any], begin: Sequence[Any], end: Sequence[Any]) -> bool:
    """Check that a key is at or after `begin` and before `end`. Either may have fewer parts; an empty one is open."""
    key = make_key_order(index, values)
    if key[: len(begin)] < make_key_order(index, begin):
        return False
    return not end or key[: len(end)] < make_key_order(index, end)


def encode_unique_key(index: IndexDefinition, row: Sequence[Any]) -> Iterator[bytes]:
    """Yield the key of a row in a unique index, unless it has a null: such keys are never equal."""
    values = extract_key_values(index.parts, row)
    if values is not None and not any(value is None for value in values):
        yield encode_key(values)
