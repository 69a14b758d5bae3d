"""Evaluate update operations as the server does (`xrow_update.c`).

Values are in the form of decoded bodies. If the result of an operation cannot be determined exactly, it is None:
nothing is guessed. Source: `docs/spec/tarantool.md#update-operations`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

PathStep = int | str
"""Step of a path: a field counted from 0, or a key of a map."""

UpdateOperation = tuple[str, list[PathStep] | None, list[Any]]
"""(name, path, arguments); path None = cannot be determined."""

_PATH_STEP = re.compile(r"\[(\d+)\]|\[\"([^\"\\]*)\"\]|\['([^'\\]*)'\]|(?:^|\.)([^\W\d]\w*)")
_ARGUMENT_COUNTS = {"=": 1, "+": 1, "-": 1, "&": 1, "|": 1, "^": 1, "!": 1, "#": 1, ":": 3}
_DECIMAL_DIGITS, _DECIMAL_DIGITS_3 = 38, 76
_DOUBLE_DIGITS = 15
"""Significant digits of a double that is added to a decimal (`decimal_from_double`)."""
_MAX_FIELDS = 100_000
_MAX_UINT, _MIN_INT = (1 << 64) - 1, -(1 << 63)


class UpdateRefusedError(Exception):
    """Error: the server refuses the operation. An UPDATE then changes nothing at all, an UPSERT skips the operation."""


class UpdateUndeterminedError(Exception):
    """Error: the result of the operation on the server cannot be determined."""


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_operations(
    stored_operations: Any, index_base: int, field_numbers: Mapping[str, int]
) -> list[UpdateOperation] | None:
    """Parse the operations of a row, with field numbers that count from 0; None if they have another shape.

    Args:
        index_base: index_base of the row.
        field_numbers: names of the space's fields -> their numbers.
    """
    if not isinstance(stored_operations, list):
        return None
    result = []
    for operation in stored_operations:
        if (
            not isinstance(operation, list)
            or len(operation) < 2
            or _ARGUMENT_COUNTS.get(str(operation[0])) != len(operation) - 2
        ):
            return None
        arguments = operation[2:]
        if operation[0] == ":" and type(arguments[0]) is int and arguments[0] >= 0:
            arguments = [arguments[0] - index_base if arguments[0] >= index_base else None, *arguments[1:]]
        result.append((str(operation[0]), _parse_target(operation[1], index_base, field_numbers), arguments))
    return result


def _parse_target(target: Any, index_base: int, field_numbers: Mapping[str, int]) -> list[PathStep] | None:
    if type(target) is int:
        return None if 0 <= target < index_base else [target - index_base if target >= 0 else target]
    if not isinstance(target, str):
        return None
    if target in field_numbers:
        return [field_numbers[target]]
    steps = parse_path(target)
    if steps and isinstance(steps[0], str):
        steps = [field_numbers[steps[0]], *steps[1:]] if steps[0] in field_numbers else None
    return steps


def parse_path(path: str) -> list[PathStep] | None:
    """Parse a path such as `[6].k[3].deep` into steps; its numbers count from 1. None if the syntax is wrong."""
    steps: list[PathStep] = []
    position = 0
    while position < len(path):
        match = _PATH_STEP.match(path, position)
        if match is None:
            return None
        number = match[1]
        if number is not None and int(number) == 0:
            return None
        steps.append(int(number) - 1 if number is not None else next(s for s in match.groups()[1:] if s is not None))
        position = match.end()
    return steps or None


def check_operations(stored_operations: Any, index_base: int, field_numbers: Mapping[str, int]) -> str | None:
    """Return the server's message about operations that it cannot decode (`xrow_update_op_decode`); None if it can."""
    if not isinstance(stored_operations, list):
        return "Illegal parameters, update operations must be an array {{op,..}, {op,..}}"
    for number, operation in enumerate(stored_operations, 1):
        fault = _check_operation(number, operation, index_base, field_numbers)
        if fault is not None:
            return fault
    return None


def _check_operation(number: int, operation: Any, index_base: int, field_numbers: Mapping[str, int]) -> str | None:
    """Return the server's message about one operation that it cannot decode, else None."""
    if not isinstance(operation, list) or not operation:
        return "Illegal parameters, update operation must be an array {op,..}"
    name, count = operation[0], len(operation)
    if not isinstance(name, str):
        return "Illegal parameters, update operation name must be a string"
    if name not in _ARGUMENT_COUNTS:
        return f'Unknown UPDATE operation #{number}: "{name}"'
    if count != _ARGUMENT_COUNTS[name] + 2:
        text = f"wrong number of arguments, expected {_ARGUMENT_COUNTS[name] + 2}, got {count}"
        return f"Unknown UPDATE operation #{number}: {text}"
    target = operation[1]
    if type(target) is int:
        if 0 <= target < index_base:
            return f"Field {target} was not found in the tuple"
    elif not isinstance(target, str):
        return "Illegal parameters, field id must be a number or a string"
    elif _parse_target(target, index_base, field_numbers) is None:
        return None if parse_path(target) is None else f"Field '{target}' was not found in the tuple"
    fault = _check_argument(name, target, operation[2])
    if fault is None and name == ":":
        if type(operation[3]) is not int:
            fault = _format_argument_error(name, target, "an integer")
        elif not isinstance(operation[4], str | bytes):
            fault = _format_argument_error(name, target, "a string")
    return fault


def _check_argument(name: str, target: Any, argument: Any) -> str | None:
    is_positive = type(argument) is int and argument >= 0
    if name == "#" and argument == 0 and is_positive:
        return f"Field {target} UPDATE error: cannot delete 0 fields"
    expectations = {
        "+": None if _is_number(argument) else "a number",
        "&": None if is_positive else "a positive integer",
        "#": None if is_positive else "a positive integer",
        ":": None if type(argument) is int else "an integer",
    }
    expected = expectations.get({"-": "+", "|": "&", "^": "&"}.get(name, name))
    return None if expected is None else _format_argument_error(name, target, expected)


def _format_argument_error(name: str, target: Any, expected: str) -> str:
    return f"Argument type in operation '{name}' on field {target} does not match field type: expected {expected}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or _is_decimal(value) or (isinstance(value, dict) and "$float" in value)


# -- applying ----------------------------------------------------------------------------------------------------------


def try_update(
    row: list[Any], operations: Sequence[UpdateOperation], *, is_version_3: bool = False
) -> list[Any] | None:
    """Apply an UPDATE to a row; None if the result cannot be determined or the server would refuse it."""
    try:
        return apply_update(row, operations, is_version_3=is_version_3, fill_gaps_with_null=True)
    except (UpdateRefusedError, UpdateUndeterminedError):
        return None


def apply_update(
    row: list[Any], operations: Sequence[UpdateOperation], *, is_version_3: bool, fill_gaps_with_null: bool
) -> list[Any]:
    """Apply an UPDATE to a row.

    Args:
        fill_gaps_with_null: missing fields before a new field become null (after 2.6).

    Raises:
        UpdateRefusedError: the server refuses the update; the error has its message.
        UpdateUndeterminedError: the result cannot be determined.
    """
    for name, path, arguments in operations:
        if is_version_3 and name == "#" and path is not None and len(path) == 1 and _is_past_end(row, path[0]):
            continue
        filled = _fill_with_nulls(row, name, path) if fill_gaps_with_null else row
        row = _apply_operation(filled, name, path, arguments, _DECIMAL_DIGITS_3 if is_version_3 else _DECIMAL_DIGITS)
    return row


def apply_upsert(
    row: list[Any], operations: Sequence[UpdateOperation], *, is_version_3: bool = False
) -> list[Any] | None:
    """Apply an UPSERT's operations to a row, skipping those that cannot be applied; None if not determined."""
    field_states: list[int] = [_UNCHANGED] * len(row)
    for name, path, arguments in operations:
        try:
            filled = _fill_with_nulls(row, name, path) if is_version_3 else row
            changed = _apply_operation(
                filled, name, path, arguments, _DECIMAL_DIGITS_3 if is_version_3 else _DECIMAL_DIGITS
            )
            field_states += [_CHANGED] * (len(filled) - len(row))
            _mark_changed_or_refuse(
                field_states, name, path or [], len(changed) - len(filled), allows_repeated_sums=is_version_3
            )
        except UpdateRefusedError:
            continue
        except UpdateUndeterminedError:
            return None
        row = changed
    return row


def _is_past_end(row: list[Any], step: PathStep) -> bool:
    return isinstance(step, int) and step >= len(row)


_UNCHANGED, _CHANGED, _CHANGED_INSIDE = range(3)


def _mark_changed_or_refuse(
    field_states: list[int], name: str, path: list[PathStep], growth: int, *, allows_repeated_sums: bool
) -> None:
    """Mark the fields that were changed: the server refuses to change a field twice (`xrow_update_err_double`).

    Args:
        allows_repeated_sums: several `+` and `-` on one field are allowed (3.x).
    """
    index = path[0]
    assert isinstance(index, int)
    if index < 0:
        index += len(field_states) + (name == "!")
    if len(path) == 1 and growth:
        field_states[index : index - min(growth, 0)] = [_UNCHANGED if name == "!" else _CHANGED] * max(growth, 0)
        return
    is_repeated_sum = allows_repeated_sums and name in "+-" and len(path) == 1
    if field_states[index] == _CHANGED and not is_repeated_sum and (name != "=" or len(path) > 1):
        raise UpdateRefusedError
    if field_states[index] == _CHANGED_INSIDE and (name != "=" or len(path) > 1):
        raise UpdateUndeterminedError
    field_states[index] = _CHANGED_INSIDE if len(path) > 1 else _CHANGED


def _fill_with_nulls(row: list[Any], name: str, path: list[PathStep] | None) -> list[Any]:
    """Fill a row with nulls up to the field of an operation: since the UPDATE was logged, the server did so too."""
    index = path[0] if path is not None and len(path) == 1 and name in "=!" else 0
    missing = index - len(row) if isinstance(index, int) else 0
    return [*row, *[None] * missing] if 0 < missing <= _MAX_FIELDS else row


def _apply_operation(
    row: list[Any], name: str, path: list[PathStep] | None, arguments: list[Any], digits: int = _DECIMAL_DIGITS
) -> list[Any]:
    if path is None:
        raise UpdateUndeterminedError
    changed: list[Any] = _apply_at_path(row, name, path, arguments, digits)
    return changed


def _apply_at_path(value: Any, name: str, path: list[PathStep], arguments: list[Any], digits: int) -> Any:
    """Return a copy of the value with the operation applied at the end of the path."""
    if isinstance(value, dict) and not any(key[:1] == "$" for key in value):
        _refuse_unless(isinstance(path[0], str), "can't update a map by an array's index")
        return _apply_to_map(dict(value), name, str(path[0]), path, arguments, digits)
    if isinstance(value, list) and isinstance(path[0], int):
        return _apply_to_array(list(value), name, path[0], path, arguments, digits)
    raise UpdateRefusedError(f"Field {_to_server_step(path[0])} was not found in the tuple")


def _apply_to_array(
    items: list[Any], name: str, index: int, path: list[PathStep], arguments: list[Any], digits: int
) -> list[Any]:
    count, not_found_text = len(items), f"Field {_to_server_step(index)} was not found in the tuple"
    if index < 0:
        index += count + (name == "!" and len(path) == 1)
    _refuse_unless(0 <= index <= count, not_found_text)
    if len(path) > 1:
        _refuse_unless(index < count, not_found_text)
        items[index] = _apply_at_path(items[index], name, path[1:], arguments, digits)
    elif name == "!":
        items.insert(index, arguments[0])
    elif name == "#":
        _refuse_unless(index < count and _is_positive(arguments[0]), not_found_text)
        del items[index : index + arguments[0]]
    elif name == "=" and index == count:
        items.append(arguments[0])
    else:
        _refuse_unless(index < count, not_found_text)
        items[index] = _compute_value(name, items[index], arguments, index, digits)
    return items


def _apply_to_map(
    pairs: dict[str, Any], name: str, key: str, path: list[PathStep], arguments: list[Any], digits: int
) -> dict[str, Any]:
    if len(path) > 1:
        _refuse_unless(key in pairs)
        pairs[key] = _apply_at_path(pairs[key], name, path[1:], arguments, digits)
    elif name == "!":
        _refuse_unless(key not in pairs)
        pairs[key] = arguments[0]
    elif name == "#":
        _refuse_unless(key in pairs and arguments[0] == 1)
        del pairs[key]
    elif name == "=":
        pairs[key] = arguments[0]
    else:
        _refuse_unless(key in pairs)
        pairs[key] = _compute_value(name, pairs[key], arguments, key, digits)
    return pairs


def _refuse_unless(
    condition: bool, text: str = "the field was not found in the tuple, or cannot be changed that way"
) -> None:
    if not condition:
        raise UpdateRefusedError(text)


def _to_server_step(step: PathStep) -> PathStep:
    """Convert a step to the server's numbering, which starts at 1."""
    return step + 1 if isinstance(step, int) and step >= 0 else step


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0


# -- values ------------------------------------------------------------------------------------------------------------


def _compute_value(name: str, old: Any, arguments: list[Any], step: PathStep, digits: int) -> Any:
    """Return the value after one operation. Raises UpdateRefusedError."""
    if name == "=":
        return arguments[0]
    if name == ":":
        _refuse_unless(isinstance(old, str | bytes), _format_argument_error(name, _to_server_step(step), "a string"))
        return _splice(old, *arguments)
    if name in "&|^":
        _refuse_unless(
            type(old) is int and old >= 0, _format_argument_error(name, _to_server_step(step), "a positive integer")
        )
        return _apply_bitwise(name, old, arguments[0])
    _refuse_unless(_is_number(old), _format_argument_error(name, _to_server_step(step), "a number"))
    return _add_or_subtract(old, arguments[0], name == "-", digits)


def _apply_bitwise(name: str, a: Any, b: Any) -> int:
    _refuse_unless(type(a) is int and type(b) is int and a >= 0 and b >= 0)
    result: int = a & b if name == "&" else a | b if name == "|" else a ^ b
    return result


def _add_or_subtract(a: Any, b: Any, subtract: bool, digits: int) -> Any:
    """Add or subtract: two integers give an integer, a decimal gives a decimal, else a double
    (`xrow_update_arith_make`).
    """
    if type(a) is int and type(b) is int:
        total: int = a - b if subtract else a + b
        _refuse_unless(
            _MIN_INT <= total <= _MAX_UINT, f"Integer overflow when performing '{'-' if subtract else '+'}' operation"
        )
        return total
    if _is_decimal(a) or _is_decimal(b):
        return _add_decimals(a, b, subtract, digits)
    _refuse_unless(type(a) in (int, float) and type(b) in (int, float))
    return float(a) - float(b) if subtract else float(a) + float(b)


def _is_decimal(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"$decimal"}


def _add_decimals(a: Any, b: Any, negative: bool, digits: int) -> dict[str, str]:
    left, right = _to_decimal(a), _to_decimal(b)
    try:
        with localcontext() as context:
            context.prec = digits
            return {"$decimal": f"{left - right if negative else left + right:f}"}
    except (InvalidOperation, ValueError):
        raise UpdateRefusedError("Decimal overflow") from None


def _to_decimal(value: Any) -> Decimal:
    if _is_decimal(value):
        return Decimal(value["$decimal"])
    if type(value) is float:
        _refuse_unless(math.isfinite(value))
        return Decimal(f"{value:.{_DOUBLE_DIGITS}g}")
    _refuse_unless(type(value) is int)
    return Decimal(value)


def _splice(old: Any, start: Any, cut_size: Any, text: Any) -> Any:
    _refuse_unless(
        isinstance(old, str | bytes) and isinstance(text, str | bytes) and type(start) is int and type(cut_size) is int
    )
    data, insertion = (one.encode() if isinstance(one, str) else one for one in (old, text))
    size = len(data)
    if start < 0:
        start += size + 1
        _refuse_unless(start >= 0)
    start = min(start, size)
    cut_size = max(0, cut_size + size - start) if cut_size < 0 else min(cut_size, size - start)
    joined = data[:start] + insertion + data[start + cut_size :]
    try:
        return joined.decode()
    except UnicodeDecodeError:
        return joined
