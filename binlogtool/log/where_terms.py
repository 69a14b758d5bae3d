"""Terms of a condition, and the comparison of two values: three-valued, typed, exact.

Truth is a number, so that `and` is the minimum, `or` the maximum, and `not` the mirror image.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from binlogtool.log.plain import text_bytes

FALSE, UNKNOWN, TRUE = 0, 1, 2

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

MOST_DIGITS = 100
_NUMBER = re.compile(rf"[+-]?[0-9]{{1,{MOST_DIGITS}}}(?:\.[0-9]{{1,{MOST_DIGITS}}})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBERS = (int, float, Decimal)


class Moment(int):
    """A time in microseconds since 1970-01-01 UTC; other numbers do not compare with it."""


class Literal(msgspec.Struct, frozen=True):
    """A constant in the expression."""

    value: Any


class Field(msgspec.Struct, frozen=True):
    """A member of a record, or a path below it. A list, or a name below one, means each of its elements."""

    path: tuple[str | int, ...]


Operand = Literal | Field


class Test(msgspec.Struct, frozen=True):
    """A condition on operands. evaluate: their values -> truth. holds: the operator, if it compares two values."""

    operands: tuple[Operand, ...]
    judge: Callable[..., int]
    holds: Callable[[Any, Any], bool] | None = None


class Not(msgspec.Struct, frozen=True):
    """`not`: the mirror image of a term."""

    term: Term


class Every(msgspec.Struct, frozen=True):
    """`and` of terms."""

    terms: tuple[Term, ...]


class Some(msgspec.Struct, frozen=True):
    """`or` of terms."""

    terms: tuple[Term, ...]


Term = Test | Not | Every | Some


def moment(text: str) -> Moment | None:
    """Parse an ISO 8601 time, UTC unless it has a zone; return None if it is invalid."""
    try:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return Moment((found - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        return None


def compared(sign: str, left: Operand, right: Operand) -> Test:
    """Create `left sign right`. A text compared with the member `time` is a time."""
    left, right = _timely(left, right), _timely(right, left)
    alike = _akin if isinstance(left, Field) and isinstance(right, Field) else _alike
    holds = OPERATORS[sign]
    if isinstance(right, Literal) and type(right.value) in (int, Decimal):
        return Test((left, right), _beside_number(holds, right.value), holds)

    def judge(a: Any, b: Any) -> int:
        pair = None if a is None or b is None else alike(a, b)
        return UNKNOWN if pair is None else TRUE if holds(*pair) else FALSE

    return Test((left, right), judge, holds)


def _beside_number(holds: Callable[[Any, Any], bool], number: int | Decimal) -> Callable[[Any, Any], int]:
    """Return the evaluation of values compared with a number: as any other, with fewer steps for common types."""
    is_number = _NUMBER.fullmatch

    def judge(value: Any, _number: Any) -> int:
        kind = type(value)
        if kind is int:
            return TRUE if holds(value, number) else FALSE
        if kind is str:
            return UNKNOWN if is_number(value) is None else TRUE if holds(Decimal(value), number) else FALSE
        pair = None if value is None else _alike(value, number)
        return UNKNOWN if pair is None else TRUE if holds(*pair) else FALSE

    return judge


def is_null(operand: Operand) -> Test:
    """Create `operand is null`, which is never unknown."""
    return Test((operand,), lambda value: TRUE if value is None else FALSE)


def within(operand: Operand, values: tuple[Literal, ...]) -> Some:
    """Create `operand in (values)`."""
    return Some(tuple(compared("=", operand, value) for value in values))


def like(operand: Operand, pattern: str) -> Test:
    """Create `operand like 'pattern'`: `%` is any text, `_` one character, a backslash quotes the next one."""
    return globbed(operand, _LIKE.sub(_as_glob, pattern))


def globbed(operand: Operand, pattern: str) -> Test:
    """Create `operand ~ 'pattern'`: `*`, `?` and `[…]` as in `--object`; of bytes `?` is one byte.

    The patterns that `fnmatch` makes never backtrack past a `*`: their time is bounded by length of text x pattern.
    """
    texts = re.compile(fnmatch.translate(pattern)).match
    octets = re.compile(fnmatch.translate(text_bytes(pattern).decode("latin-1"))).match

    def judge(value: Any) -> int:
        if isinstance(value, str):
            return TRUE if texts(value) else FALSE
        if isinstance(value, bytes):
            return TRUE if octets(value.decode("latin-1")) else FALSE
        return UNKNOWN

    return Test((operand,), judge)


_LIKE = re.compile(r"\\(.)|[%_*?\[]", re.DOTALL)


def _as_glob(found: re.Match[str]) -> str:
    one = found[1] if found[1] is not None else found[0]
    if found[1] is None and one in "%_":
        return "*" if one == "%" else "?"
    return f"[{one}]" if one in "*?[" else one


def _timely(one: Operand, other: Operand) -> Operand:
    if isinstance(one, Literal) and isinstance(one.value, str) and other == Field(("time",)):
        return Literal(moment(one.value))
    return one


def _akin(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Convert two field values for comparison: texts that are both decimal numbers are compared as such."""
    if isinstance(a, str) and isinstance(b, str):
        numbers = _decimal(a), _decimal(b)
        return (a, b) if None in numbers else numbers
    return _alike(a, b)


def _alike(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Convert two values that are not NULL to comparable ones; None if they cannot be compared."""
    if isinstance(a, Moment) or isinstance(b, Moment):
        return _both(a, b, _as_moment)
    if isinstance(a, str) and isinstance(b, str):
        return a, b
    if isinstance(a, _NUMBERS) or isinstance(b, _NUMBERS):
        return _both(a, b, _as_double if isinstance(a, float) or isinstance(b, float) else _as_number)
    return _both(a, b, _as_bytes)


def _both(a: Any, b: Any, as_kind: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    pair = as_kind(a), as_kind(b)
    return None if None in pair else pair


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _as_moment(value: Any) -> Any:
    return value if isinstance(value, Moment) else moment(value) if isinstance(value, str) else None


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        return _decimal(value)
    return value if isinstance(value, _NUMBERS) else None


def _as_double(value: Any) -> Any:
    """Return a decimal as the nearest double, for comparison with a double; integers stay exact."""
    number = _as_number(value)
    if number != number:  # not a number
        return None
    return float(number) if isinstance(number, Decimal) else number


def _as_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return text_bytes(value)
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
