"""Evaluate update operations as the server does (`xrow_update.c`).

Values are those of decoded bodies. An operation whose result cannot be determined exactly gives None: nothing is
guessed. Source: `docs/spec/tarantool-xlog.md#24-update-operations`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

Token = int | str
"""A step of a path: a field counted from 0, or a key of a map."""

Operation = tuple[str, list[Token] | None, list[Any]]
"""Name, path (None = it cannot be told), arguments."""

_STEP = re.compile(r"\[(\d+)\]|\[\"([^\"\\]*)\"\]|\['([^'\\]*)'\]|(?:^|\.)([^\W\d]\w*)")
_ARGUMENTS = {"=": 1, "+": 1, "-": 1, "&": 1, "|": 1, "^": 1, "!": 1, "#": 1, ":": 3}
_DIGITS, _DIGITS_3 = 38, 76
_DOUBLE_DIGITS = 15
"""Significant digits of a double that is added to a decimal (`decimal_from_double`)."""
_MAX_FIELDS = 100_000
_MAX_UINT, _MIN_INT = (1 << 64) - 1, -(1 << 63)


class FailsError(Exception):
    """The server cannot apply the operation: an UPDATE then changes nothing at all, an UPSERT skips the operation."""


class UnknownError(Exception):
    """The result of the operation on the server cannot be determined."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_operations(stored: Any, base: int, fields: Mapping[str, int]) -> list[Operation] | None:
    """Parse the operations of a row, with field numbers that count from 0; None if they have another shape.

    Args:
        base: index_base of the row.
        fields: names of the space's fields -> their numbers.
    """
    if not isinstance(stored, list):
        return None
    result = []
    for one in stored:
        if not isinstance(one, list) or len(one) < 2 or _ARGUMENTS.get(str(one[0])) != len(one) - 2:
            return None
        arguments = one[2:]
        if one[0] == ":" and type(arguments[0]) is int and arguments[0] >= 0:
            arguments = [arguments[0] - base if arguments[0] >= base else None, *arguments[1:]]
        result.append((str(one[0]), _path(one[1], base, fields), arguments))
    return result


def _path(place: Any, base: int, fields: Mapping[str, int]) -> list[Token] | None:
    if type(place) is int:
        return None if 0 <= place < base else [place - base if place >= 0 else place]
    if not isinstance(place, str):
        return None
    if place in fields:
        return [fields[place]]
    tokens = path_tokens(place)
    if tokens and isinstance(tokens[0], str):
        tokens = [fields[tokens[0]], *tokens[1:]] if tokens[0] in fields else None
    return tokens


def path_tokens(path: str) -> list[Token] | None:
    """Parse a path such as `[6].k[3].deep` to its steps; numbers in it count from 1. None if the syntax is wrong."""
    tokens: list[Token] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        number = step[1]
        if number is not None and int(number) == 0:
            return None
        tokens.append(int(number) - 1 if number is not None else next(s for s in step.groups()[1:] if s is not None))
        at = step.end()
    return tokens or None


def fault_of(stored: Any, base: int, fields: Mapping[str, int]) -> str | None:
    """Return the server's message about operations that it cannot decode (`xrow_update_op_decode`); None if it can."""
    if not isinstance(stored, list):
        return "Illegal parameters, update operations must be an array {{op,..}, {op,..}}"
    for number, one in enumerate(stored, 1):
        fault = _fault_of_one(number, one, base, fields)
        if fault is not None:
            return fault
    return None


def _fault_of_one(number: int, one: Any, base: int, fields: Mapping[str, int]) -> str | None:
    if not isinstance(one, list) or not one:
        return "Illegal parameters, update operation must be an array {op,..}"
    name, count = one[0], len(one)
    if not isinstance(name, str):
        return "Illegal parameters, update operation name must be a string"
    if name not in _ARGUMENTS:
        return f'Unknown UPDATE operation #{number}: "{name}"'
    if count != _ARGUMENTS[name] + 2:
        text = f"wrong number of arguments, expected {_ARGUMENTS[name] + 2}, got {count}"
        return f"Unknown UPDATE operation #{number}: {text}"
    place = one[1]
    if type(place) is int:
        if 0 <= place < base:
            return f"Field {place} was not found in the tuple"
    elif not isinstance(place, str):
        return "Illegal parameters, field id must be a number or a string"
    elif _path(place, base, fields) is None:
        return None if path_tokens(place) is None else f"Field '{place}' was not found in the tuple"
    fault = _fault_of_argument(name, place, one[2])
    if fault is None and name == ":":
        if type(one[3]) is not int:
            fault = _wrong_argument(name, place, "an integer")
        elif not isinstance(one[4], str | bytes):
            fault = _wrong_argument(name, place, "a string")
    return fault


def _fault_of_argument(name: str, place: Any, argument: Any) -> str | None:
    positive = type(argument) is int and argument >= 0
    if name == "#" and argument == 0 and positive:
        return f"Field {place} UPDATE error: cannot delete 0 fields"
    wrong = {
        "+": None if _is_number(argument) else "a number",
        "&": None if positive else "a positive integer",
        "#": None if positive else "a positive integer",
        ":": None if type(argument) is int else "an integer",
    }
    expected = wrong.get({"-": "+", "|": "&", "^": "&"}.get(name, name))
    return None if expected is None else _wrong_argument(name, place, expected)


def _wrong_argument(name: str, place: Any, expected: str) -> str:
    return f"Argument type in operation '{name}' on field {place} does not match field type: expected {expected}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or _is_decimal(value) or (isinstance(value, dict) and "$float" in value)


# -- applying ----------------------------------------------------------------------------------------------------------


def update(row: list[Any], operations: Sequence[Operation], *, is_3: bool = False) -> list[Any] | None:
    """Apply an UPDATE to a row; None if the result cannot be determined or the server would refuse it."""
    try:
        return updated(row, operations, is_3=is_3, fills=True)
    except (FailsError, UnknownError):
        return None


def updated(row: list[Any], operations: Sequence[Operation], *, is_3: bool, fills: bool) -> list[Any]:
    """Apply an UPDATE to a row.

    Args:
        fills: fields that the row lacks before a new one become null (after 2.6).

    Raises:
        UpdateRefusedError: the server refuses it; with its message.
        UpdateUndeterminedError: the result cannot be determined.
    """
    for name, path, arguments in operations:
        if is_3 and name == "#" and path is not None and len(path) == 1 and _is_past(row, path[0]):
            continue
        filled = _filled(row, name, path) if fills else row
        row = _applied(filled, name, path, arguments, _DIGITS_3 if is_3 else _DIGITS)
    return row


def upsert(row: list[Any], operations: Sequence[Operation], *, is_3: bool = False) -> list[Any] | None:
    """Apply the operations of an UPSERT to a row, skipping those that cannot be applied; None if not determined."""
    touched: list[int] = [_FRESH] * len(row)
    for name, path, arguments in operations:
        try:
            filled = _filled(row, name, path) if is_3 else row
            changed = _applied(filled, name, path, arguments, _DIGITS_3 if is_3 else _DIGITS)
            touched += [_WHOLE] * (len(filled) - len(row))
            _touch(touched, name, path or [], len(changed) - len(filled), adds=is_3)
        except FailsError:
            continue
        except UnknownError:
            return None
        row = changed
    return row


def _is_past(row: list[Any], at: Token) -> bool:
    return isinstance(at, int) and at >= len(row)


_FRESH, _WHOLE, _INSIDE = range(3)


def _touch(touched: list[int], name: str, path: list[Token], growth: int, *, adds: bool) -> None:
    """Mark the fields that were changed: the server refuses to change one twice (`xrow_update_err_double`).

    Args:
        adds: several `+` and `-` on one field are allowed (3.x).
    """
    at = path[0]
    assert isinstance(at, int)
    if at < 0:
        at += len(touched) + (name == "!")
    if len(path) == 1 and growth:
        touched[at : at - min(growth, 0)] = [_FRESH if name == "!" else _WHOLE] * max(growth, 0)
        return
    summed = adds and name in "+-" and len(path) == 1
    if touched[at] == _WHOLE and not summed and (name != "=" or len(path) > 1):
        raise FailsError
    if touched[at] == _INSIDE and (name != "=" or len(path) > 1):
        raise UnknownError
    touched[at] = _INSIDE if len(path) > 1 else _WHOLE


def _filled(row: list[Any], name: str, path: list[Token] | None) -> list[Any]:
    """Fill a row with nulls up to the field of an operation: a logged UPDATE was possible, so the server had done
    so.
    """
    at = path[0] if path is not None and len(path) == 1 and name in "=!" else 0
    missing = at - len(row) if isinstance(at, int) else 0
    return [*row, *[None] * missing] if 0 < missing <= _MAX_FIELDS else row


def _applied(
    row: list[Any], name: str, path: list[Token] | None, arguments: list[Any], digits: int = _DIGITS
) -> list[Any]:
    if path is None:
        raise UnknownError
    changed: list[Any] = _below(row, name, path, arguments, digits)
    return changed


def _below(value: Any, name: str, path: list[Token], arguments: list[Any], digits: int) -> Any:
    """Return a copy of the value with the operation applied at the end of the path."""
    if isinstance(value, dict) and not any(key[:1] == "$" for key in value):
        _must(isinstance(path[0], str), "can't update a map by an array's index")
        return _in_map(dict(value), name, str(path[0]), path, arguments, digits)
    if isinstance(value, list) and isinstance(path[0], int):
        return _in_array(list(value), name, path[0], path, arguments, digits)
    raise FailsError(f"Field {_number(path[0])} was not found in the tuple")


def _in_array(items: list[Any], name: str, at: int, path: list[Token], arguments: list[Any], digits: int) -> list[Any]:
    count, missing = len(items), f"Field {_number(at)} was not found in the tuple"
    if at < 0:
        at += count + (name == "!" and len(path) == 1)
    _must(0 <= at <= count, missing)
    if len(path) > 1:
        _must(at < count, missing)
        items[at] = _below(items[at], name, path[1:], arguments, digits)
    elif name == "!":
        items.insert(at, arguments[0])
    elif name == "#":
        _must(at < count and _positive(arguments[0]), missing)
        del items[at : at + arguments[0]]
    elif name == "=" and at == count:
        items.append(arguments[0])
    else:
        _must(at < count, missing)
        items[at] = _value(name, items[at], arguments, at, digits)
    return items


def _in_map(
    pairs: dict[str, Any], name: str, key: str, path: list[Token], arguments: list[Any], digits: int
) -> dict[str, Any]:
    if len(path) > 1:
        _must(key in pairs)
        pairs[key] = _below(pairs[key], name, path[1:], arguments, digits)
    elif name == "!":
        _must(key not in pairs)
        pairs[key] = arguments[0]
    elif name == "#":
        _must(key in pairs and arguments[0] == 1)
        del pairs[key]
    elif name == "=":
        pairs[key] = arguments[0]
    else:
        _must(key in pairs)
        pairs[key] = _value(name, pairs[key], arguments, key, digits)
    return pairs


def _must(true: bool, text: str = "the field was not found in the tuple, or cannot be changed so") -> None:
    if not true:
        raise FailsError(text)


def _number(step: Token) -> Token:
    """Convert a step to the server's counting, from 1."""
    return step + 1 if isinstance(step, int) and step >= 0 else step


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0


# -- values ------------------------------------------------------------------------------------------------------------


def _value(name: str, old: Any, arguments: list[Any], place: Token, digits: int) -> Any:
    if name == "=":
        return arguments[0]
    if name == ":":
        _must(isinstance(old, str | bytes), _wrong_argument(name, _number(place), "a string"))
        return _spliced(old, *arguments)
    if name in "&|^":
        _must(type(old) is int and old >= 0, _wrong_argument(name, _number(place), "a positive integer"))
        return _bits(name, old, arguments[0])
    _must(_is_number(old), _wrong_argument(name, _number(place), "a number"))
    return _sum(old, arguments[0], name == "-", digits)


def _bits(name: str, a: Any, b: Any) -> int:
    _must(type(a) is int and type(b) is int and a >= 0 and b >= 0)
    result: int = a & b if name == "&" else a | b if name == "|" else a ^ b
    return result


def _sum(a: Any, b: Any, negative: bool, digits: int) -> Any:
    """Add or subtract: integers stay integers, a decimal makes the result one, else a double
    (`xrow_update_arith_make`).
    """
    if type(a) is int and type(b) is int:
        whole: int = a - b if negative else a + b
        _must(
            _MIN_INT <= whole <= _MAX_UINT, f"Integer overflow when performing '{'-' if negative else '+'}' operation"
        )
        return whole
    if _is_decimal(a) or _is_decimal(b):
        return _decimal_sum(a, b, negative, digits)
    _must(type(a) in (int, float) and type(b) in (int, float))
    return float(a) - float(b) if negative else float(a) + float(b)


def _is_decimal(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"$decimal"}


def _decimal_sum(a: Any, b: Any, negative: bool, digits: int) -> dict[str, str]:
    left, right = _decimal(a), _decimal(b)
    try:
        with localcontext() as context:
            context.prec = digits
            return {"$decimal": f"{left - right if negative else left + right:f}"}
    except (InvalidOperation, ValueError):
        raise FailsError("Decimal overflow") from None


def _decimal(value: Any) -> Decimal:
    if _is_decimal(value):
        return Decimal(value["$decimal"])
    if type(value) is float:
        _must(math.isfinite(value))
        return Decimal(f"{value:.{_DOUBLE_DIGITS}g}")
    _must(type(value) is int)
    return Decimal(value)


def _spliced(old: Any, start: Any, cut: Any, text: Any) -> Any:
    _must(isinstance(old, str | bytes) and isinstance(text, str | bytes) and type(start) is int and type(cut) is int)
    data, new = (one.encode() if isinstance(one, str) else one for one in (old, text))
    size = len(data)
    if start < 0:
        start += size + 1
        _must(start >= 0)
    start = min(start, size)
    cut = max(0, cut + size - start) if cut < 0 else min(cut, size - start)
    joined = data[:start] + new + data[start + cut :]
    try:
        return joined.decode()
    except UnicodeDecodeError:
        return joined
