"""Update operations, evaluated as the server does (specification section 2.4, `xrow_update.c`).

Values are those of decoded bodies (`values.plain`). An operation that cannot be told exactly gives None: nothing is
guessed.
"""

from __future__ import annotations

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
_DIGITS = 38
_MAX_FIELDS = 100_000
_MAX_UINT, _MIN_INT = (1 << 64) - 1, -(1 << 63)


class FailsError(Exception):
    """The server cannot apply the operation: an UPDATE as a whole then changes nothing, an UPSERT leaves it out."""


class UnknownError(Exception):
    """What the server would make of it cannot be told."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_operations(stored: Any, base: int, fields: Mapping[str, int]) -> list[Operation] | None:
    """The operations of a row, with field numbers that count from 0. None: another shape.

    base: index_base of the row. fields: names of the space's fields -> their numbers.
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
    """The steps of a path such as `[6].k[3].deep`; numbers in it count from 1. None: another syntax."""
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


# -- applying ----------------------------------------------------------------------------------------------------------


def update(row: list[Any], operations: Sequence[Operation]) -> list[Any] | None:
    """The row after an UPDATE; None where that cannot be told, or where the server would refuse it."""
    try:
        for name, path, arguments in operations:
            row = _applied(_filled(row, name, path), name, path, arguments)
    except (FailsError, UnknownError):
        return None
    return row


def upsert(row: list[Any], operations: Sequence[Operation]) -> list[Any] | None:
    """The row after the operations of an UPSERT: those that cannot be applied are left out; None: cannot be told."""
    touched: list[int] = [_FRESH] * len(row)
    for name, path, arguments in operations:
        try:
            changed = _applied(row, name, path, arguments)
            _touch(touched, name, path or [], len(changed) - len(row))
        except FailsError:
            continue
        except UnknownError:
            return None
        row = changed
    return row


_FRESH, _WHOLE, _INSIDE = range(3)


def _touch(touched: list[int], name: str, path: list[Token], growth: int) -> None:
    """Notes which fields were changed: the server refuses to change one twice (`xrow_update_err_double`)."""
    at = path[0]
    assert isinstance(at, int)
    if at < 0:
        at += len(touched) + (name == "!")
    if len(path) == 1 and growth:
        touched[at : at - min(growth, 0)] = [_FRESH if name == "!" else _WHOLE] * max(growth, 0)
        return
    if touched[at] == _WHOLE and (name != "=" or len(path) > 1):
        raise FailsError
    if touched[at] == _INSIDE and (name != "=" or len(path) > 1):
        raise UnknownError
    touched[at] = _INSIDE if len(path) > 1 else _WHOLE


def _filled(row: list[Any], name: str, path: list[Token] | None) -> list[Any]:
    """An UPDATE that stands in a log was possible: a server after 2.6 had filled the row up to its field with null."""
    at = path[0] if path is not None and len(path) == 1 and name in "=!" else 0
    missing = at - len(row) if isinstance(at, int) else 0
    return [*row, *[None] * missing] if 0 < missing <= _MAX_FIELDS else row


def _applied(row: list[Any], name: str, path: list[Token] | None, arguments: list[Any]) -> list[Any]:
    if path is None:
        raise UnknownError
    changed: list[Any] = _below(row, name, path, arguments)
    return changed


def _below(value: Any, name: str, path: list[Token], arguments: list[Any]) -> Any:
    """A copy of the value with the operation applied at the end of the path."""
    if isinstance(value, dict) and not any(key[:1] == "$" for key in value):
        return _in_map(dict(value), name, str(path[0] + 1) if isinstance(path[0], int) else path[0], path, arguments)
    if isinstance(value, list) and isinstance(path[0], int):
        return _in_array(list(value), name, path[0], path, arguments)
    raise FailsError


def _in_array(items: list[Any], name: str, at: int, path: list[Token], arguments: list[Any]) -> list[Any]:
    count = len(items)
    if at < 0:
        at += count + (name == "!" and len(path) == 1)
    _must(0 <= at <= count)
    if len(path) > 1:
        _must(at < count)
        items[at] = _below(items[at], name, path[1:], arguments)
    elif name == "!":
        items.insert(at, arguments[0])
    elif name == "#":
        _must(at < count and _positive(arguments[0]))
        del items[at : at + arguments[0]]
    elif name == "=" and at == count:
        items.append(arguments[0])
    else:
        _must(at < count)
        items[at] = _value(name, items[at], arguments)
    return items


def _in_map(pairs: dict[str, Any], name: str, key: str, path: list[Token], arguments: list[Any]) -> dict[str, Any]:
    if len(path) > 1:
        _must(key in pairs)
        pairs[key] = _below(pairs[key], name, path[1:], arguments)
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
        pairs[key] = _value(name, pairs[key], arguments)
    return pairs


def _must(true: bool) -> None:
    if not true:
        raise FailsError


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0


# -- values ------------------------------------------------------------------------------------------------------------


def _value(name: str, old: Any, arguments: list[Any]) -> Any:
    if name == "=":
        return arguments[0]
    if name == ":":
        return _spliced(old, *arguments)
    if name in "&|^":
        return _bits(name, old, arguments[0])
    return _sum(old, arguments[0], negative=name == "-")


def _bits(name: str, a: Any, b: Any) -> int:
    _must(type(a) is int and type(b) is int and a >= 0 and b >= 0)
    result: int = a & b if name == "&" else a | b if name == "|" else a ^ b
    return result


def _sum(a: Any, b: Any, *, negative: bool) -> Any:
    """Integers stay integers, a decimal makes the result one, else a double (`xrow_update_arith_make`)."""
    if type(a) is int and type(b) is int:
        whole: int = a - b if negative else a + b
        _must(_MIN_INT <= whole <= _MAX_UINT)
        return whole
    if _is_decimal(a) or _is_decimal(b):
        return _decimal_sum(a, b, negative)
    _must(type(a) in (int, float) and type(b) in (int, float))
    return float(a) - float(b) if negative else float(a) + float(b)


def _is_decimal(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"$decimal"}


def _decimal_sum(a: Any, b: Any, negative: bool) -> dict[str, str]:
    left, right = _decimal(a), _decimal(b)
    try:
        with localcontext() as context:
            context.prec = _DIGITS
            return {"$decimal": f"{left - right if negative else left + right:f}"}
    except (InvalidOperation, ValueError):
        raise FailsError from None


def _decimal(value: Any) -> Decimal:
    if _is_decimal(value):
        return Decimal(value["$decimal"])
    if type(value) is float:
        raise UnknownError  # the server prints it with 15 digits first
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
