"""Check rows and keys against the format of their space (`tuple_format.c`, `index.cc: exact_key_validate`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from binlogtool.formats.replay_rules import canonical
from binlogtool.formats.tarantool.replay.update_ops import Token
from binlogtool.formats.tarantool.spaces.definitions import FieldCheck, Index, KeyPart, SpaceDefinition
from binlogtool.formats.tarantool.spaces.field_types import check_of, comparable, order_of, type_name

_MISSING = object()


def check_row(space: SpaceDefinition, row: Sequence[Any], *, is_3: bool) -> str | None:
    """Return the server's message about a row that does not fit the format of its space; None if it fits."""
    count = len(row)
    if space.exact and count != space.exact:
        return f"Tuple field count {count} does not match space field count {space.exact}"
    for one in space.checks:
        if one.number >= count:
            break
        value = row[one.number]
        if one.path:
            fault = _check_below(one, value, is_3=is_3)
            if fault is not None:
                return fault
        elif value is None:
            if not one.nullable:
                return _wrong_type(str(one.number + 1), one.type, value, is_3=is_3)
        elif not one.check(value):  # type: ignore[misc]
            return _wrong_type(str(one.number + 1), one.type, value, is_3=is_3)
    for number in space.required:
        if number >= count:
            return f"Tuple field {number + 1} required by space format is missing"
    return None


def _wrong_type(place: str, wanted: str, value: Any, *, is_3: bool) -> str:
    text = f"Tuple field {place} type does not match one required by operation: expected {wanted}"
    return f"{text}, got {type_name(value)}" if is_3 else text


def _check_below(check: FieldCheck, value: Any, *, is_3: bool) -> str | None:
    """Check the value at the path of a field; each step of the path must be an array or a map."""
    for step in check.path:
        container = list if isinstance(step, int) else dict
        if not isinstance(value, container):
            if value is None and check.nullable:
                return None
            wanted = "array" if container is list else "map"
            return _wrong_type(str(check.number + 1), wanted, value, is_3=is_3)
        value = _step(value, step)
        if value is _MISSING:
            text = f"Tuple field {_place(check)} required by space format is missing"
            return None if check.nullable else text
    if value is None:
        return None if check.nullable else _wrong_type(_place(check), check.type, value, is_3=is_3)
    fits = check.check is None or check.check(value)
    return None if fits else _wrong_type(_place(check), check.type, value, is_3=is_3)


def _step(value: Any, step: Token) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _MISSING
    return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING


def _place(check: FieldCheck) -> str:
    """Format the path of a field as the server prints it."""
    steps = (f"[{step + 1}]" if isinstance(step, int) else f'["{step}"]' for step in check.path)
    return f"[{check.number + 1}]" + "".join(steps)


# -- keys --------------------------------------------------------------------------------------------------------------


def check_key(index: Index, key: Sequence[Any], *, is_3: bool, partial: bool = False) -> str | None:
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
        check = check_of(part.type, is_3=is_3)
        if check is not None and (value is None or not check(value)):
            return f"Supplied key type of part {number} does not match index part type: expected {part.type}"
    return None


def key_values(parts: Sequence[KeyPart], row: Sequence[Any]) -> list[Any] | None:
    """Return the values of a key's parts in a row, None for a missing one; None as a whole if a part has a `[*]`."""
    values = []
    for part in parts:
        value = row[part.field] if part.field < len(row) else None
        if part.path is None:
            return None
        for step in part.path:
            value = _step(value, step)
            if value is _MISSING:
                value = None
                break
        values.append(value)
    return values


def key_bytes(values: Sequence[Any]) -> bytes:
    """Encode a key so that keys that compare equal have equal bytes."""
    return canonical([comparable(value) for value in values])


def ordered(index: Index, values: Sequence[Any]) -> list[Any]:
    """Convert a key to values that Python orders like the index; descending parts compare the other way round."""
    pairs = zip(index.parts, values, strict=False)
    return [_Reversed(order_of(value)) if part.descending else order_of(value) for part, value in pairs]


class _Reversed:
    """A value whose order is reversed."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[int, Any]) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def in_range(index: Index, values: Sequence[Any], begin: Sequence[Any], end: Sequence[Any]) -> bool:
    """Check that a key is at or after `begin` and before `end`. Either may have fewer parts; an empty one is open."""
    key = ordered(index, values)
    if key[: len(begin)] < ordered(index, begin):
        return False
    return not end or key[: len(end)] < ordered(index, end)


def unique_keys(index: Index, row: Sequence[Any]) -> Iterator[bytes]:
    """Yield the key of a row in a unique index, unless it has a null: such keys are never equal."""
    values = key_values(index.parts, row)
    if values is not None and not any(value is None for value in values):
        yield key_bytes(values)
