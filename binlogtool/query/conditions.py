"""Terms of a --where condition, and the comparison of two values: three-valued, typed, exact.

Truth values are numbers, so that `and` is the minimum, `or` the maximum, and `not` the mirrored number.

Numbers are compared as doubles first: rounding keeps their order, so only equal doubles are compared again exactly.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.format_api.encode_json import encode_text

# --- Terms of a condition, and the comparison of two values ---

FALSE, UNKNOWN, TRUE = 0, 1, 2

MEMBERS = ("type", "seq", "time", "object", "origin", "txn", "record", "offset", "size")
"""Members of a record that are known without its body."""

BODY_MEMBERS = ("body", "before", "after")
"""First names of paths into the body."""

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

MAX_DIGITS = 100
_NUMBER = re.compile(rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}(?:\.[0-9]{{1,{MAX_DIGITS}}})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBER_TYPES = (int, float, Decimal)
_NUMBER_MEMBERS = ("seq", "record", "offset", "size")


class Timestamp(int):
    """Time in microseconds since 1970-01-01 UTC; it cannot be compared with other numbers."""


class Constant(msgspec.Struct, frozen=True):
    """Constant in an expression."""

    value: Any


class MemberPath(msgspec.Struct, frozen=True):
    """Member of a record, or a path below it. A path through a list means each of its elements."""

    path: tuple[str | int, ...]


Operand = Constant | MemberPath


class Comparison(msgspec.Struct, frozen=True):
    """Test of operands. evaluate: their values -> truth value. holds: the operator; None if it is no comparison."""

    operands: tuple[Operand, ...]
    evaluate: Callable[..., int]
    holds: Callable[[Any, Any], bool] | None = None


class NotTerm(msgspec.Struct, frozen=True):
    """Negation (`not`) of a term."""

    term: Term


class AndTerm(msgspec.Struct, frozen=True):
    """Conjunction (`and`) of terms."""

    terms: tuple[Term, ...]


class OrTerm(msgspec.Struct, frozen=True):
    """Disjunction (`or`) of terms."""

    terms: tuple[Term, ...]


Term = Comparison | NotTerm | AndTerm | OrTerm


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse an ISO 8601 time, UTC unless it has a zone; return None if it is invalid."""
    try:
        parsed_time = datetime.fromisoformat(text)
        parsed_time = parsed_time.replace(tzinfo=UTC) if parsed_time.tzinfo is None else parsed_time
        return Timestamp((parsed_time - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        return None


def make_comparison(sign: str, left: Operand, right: Operand) -> Comparison:
    """Create the term `left sign right`. A text compared with the member `time` is parsed as a time."""
    _refuse_incomparable_constant(left, right)
    _refuse_incomparable_constant(right, left)
    left, right = _convert_time_constant(left, right), _convert_time_constant(right, left)
    convert = (
        _convert_fields
        if isinstance(left, MemberPath) and isinstance(right, MemberPath)
        else _convert_to_comparable_pair
    )
    holds = OPERATORS[sign]
    if isinstance(right, Constant) and type(right.value) in (int, Decimal):
        return Comparison((left, right), _make_number_comparison(holds, right.value), holds)

    def evaluate(a: Any, b: Any) -> int:
        pair = None if a is None or b is None else convert(a, b)
        return UNKNOWN if pair is None else TRUE if holds(*pair) else FALSE

    return Comparison((left, right), evaluate, holds)


def _refuse_incomparable_constant(member: Operand, constant: Operand) -> None:
    """Check a constant that is compared with a member. Raises UsageError: the comparison can never be true."""
    if not isinstance(member, MemberPath) or not isinstance(constant, Constant):
        return
    name, value = member.path[0], constant.value
    is_time = isinstance(value, Timestamp) or (isinstance(value, str) and parse_timestamp(value) is not None)
    if name == "time" and value is not None and not is_time:
        raise UsageError(f"--where: time is compared with {value!r}, which is not a time; write '2026-01-31T12:00:00Z'")
    if name in _NUMBER_MEMBERS and isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise UsageError(f"--where: {name} is a number, and is compared with the text {value!r}")


def _make_number_comparison(holds: Callable[[Any, Any], bool], number: int | Decimal) -> Callable[[Any, Any], int]:
    """Return a function that compares values with a number: the general comparison, but faster for common types."""
    is_number = _NUMBER.fullmatch

    def evaluate(value: Any, _number: Any) -> int:
        kind = type(value)
        if kind is int:
            return TRUE if holds(value, number) else FALSE
        if kind is str:
            return UNKNOWN if is_number(value) is None else TRUE if holds(Decimal(value), number) else FALSE
        pair = None if value is None else _convert_to_comparable_pair(value, number)
        return UNKNOWN if pair is None else TRUE if holds(*pair) else FALSE

    return evaluate


def make_null_test(operand: Operand) -> Comparison:
    """Create the term `operand is null`, which is never unknown."""
    return Comparison((operand,), lambda value: TRUE if value is None else FALSE)


def make_in_test(operand: Operand, values: tuple[Constant, ...]) -> OrTerm:
    """Create the term `operand in (values)`."""
    return OrTerm(tuple(make_comparison("=", operand, value) for value in values))


def make_like_test(operand: Operand, pattern: str) -> Comparison:
    """Create the term `operand like 'pattern'`: `%` is any text, `_` one character, a backslash quotes a character."""
    return make_glob_test(operand, _LIKE_SPECIAL.sub(_translate_like_wildcard, pattern))


def make_glob_test(operand: Operand, pattern: str) -> Comparison:
    """Create the term `operand ~ 'pattern'`: `*`, `?` and `[…]` as in `--object`; in bytes, `?` is one byte.

    The patterns that `fnmatch` makes never backtrack past a `*`: their time is bounded by length of text x pattern.
    """
    texts = re.compile(fnmatch.translate(pattern)).match
    octets = re.compile(fnmatch.translate(encode_text(pattern).decode("latin-1"))).match

    def evaluate(value: Any) -> int:
        if isinstance(value, str):
            return TRUE if texts(value) else FALSE
        if isinstance(value, bytes):
            return TRUE if octets(value.decode("latin-1")) else FALSE
        return UNKNOWN

    return Comparison((operand,), evaluate)


_LIKE_SPECIAL = re.compile(r"\\(.)|[%_*?\[]", re.DOTALL)


def _translate_like_wildcard(match: re.Match[str]) -> str:
    character = match[1] if match[1] is not None else match[0]
    if match[1] is None and character in "%_":
        return "*" if character == "%" else "?"
    return f"[{character}]" if character in "*?[" else character


def _convert_time_constant(operand: Operand, other: Operand) -> Operand:
    if isinstance(operand, Constant) and isinstance(operand.value, str) and other == MemberPath(("time",)):
        return Constant(parse_timestamp(operand.value))
    return operand


def _convert_fields(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Convert two field values for comparison: two texts that are decimal numbers are compared as numbers."""
    if isinstance(a, str) and isinstance(b, str):
        numbers = _parse_decimal(a), _parse_decimal(b)
        return (a, b) if None in numbers else numbers
    return _convert_to_comparable_pair(a, b)


def _convert_to_comparable_pair(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Convert two non-NULL values to comparable values; None if they cannot be compared."""
    if isinstance(a, Timestamp) or isinstance(b, Timestamp):
        return _convert_both(a, b, _as_timestamp)
    if isinstance(a, str) and isinstance(b, str):
        return a, b
    if isinstance(a, _NUMBER_TYPES) or isinstance(b, _NUMBER_TYPES):
        return _convert_both(a, b, _as_double if isinstance(a, float) or isinstance(b, float) else _as_number)
    return _convert_both(a, b, _as_bytes)


def _convert_both(a: Any, b: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    pair = convert(a), convert(b)
    return None if None in pair else pair


def _parse_decimal(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _as_timestamp(value: Any) -> Any:
    return value if isinstance(value, Timestamp) else parse_timestamp(value) if isinstance(value, str) else None


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        return _parse_decimal(value)
    return value if isinstance(value, _NUMBER_TYPES) else None


def _as_double(value: Any) -> Any:
    """Return a decimal as the nearest double, for comparison with a double; integers stay exact."""
    number = _as_number(value)
    if number != number:  # not a number
        return None
    return float(number) if isinstance(number, Decimal) else number


def _as_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return encode_text(value)
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


# --- Comparisons of whole columns whose values are of the common types ---

_TRUTHS = (FALSE, TRUE)
_NUMBER_LINE = rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}(?:\.[0-9]{{1,{MAX_DIGITS}}})?"
_NON_NUMBER_LINE = re.compile(rf"^(?!{_NUMBER_LINE}$)", re.MULTILINE)
_NONE_TYPE = type(None)


def compare_column_with_number(
    holds: Callable[[Any, Any], bool], values: Sequence[Any], number: int | Decimal
) -> list[int] | None:
    """Return the truth of `value holds number` for each value; None = the values have other types."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return [_TRUTHS[holds(value, number)] for value in values]
    if kinds == {int, _NONE_TYPE}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, number)] for value in values]
    if kinds == {str}:
        joined = "\n".join(values)
        if joined.count("\n") != len(values) - 1 or _NON_NUMBER_LINE.search(joined):
            return None
        nearest_double = float(Decimal(number))
        return [
            _TRUTHS[holds(double, nearest_double) if double != nearest_double else holds(Decimal(value), number)]
            for value, double in zip(values, map(float, values), strict=True)
        ]
    return None


def compare_column_with_text(holds: Callable[[Any, Any], bool], values: Sequence[Any], text: str) -> list[int] | None:
    """Return the truth of `value holds text` for each value; None = the values have other types."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return [_TRUTHS[holds(value, text)] for value in values]
    if kinds == {str, _NONE_TYPE}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, text)] for value in values]
    return None


def compare_columns_pairwise(
    holds: Callable[[Any, Any], bool], left: Sequence[Any], right: Sequence[Any]
) -> list[int] | None:
    """Return the truth of `left holds right` for each pair; None = the values have other types."""
    kinds = set(map(type, left)) | set(map(type, right))
    if kinds == {int}:
        return [_TRUTHS[holds(a, b)] for a, b in zip(left, right, strict=True)]
    if kinds == {int, _NONE_TYPE}:
        pairs = zip(left, right, strict=True)
        return [UNKNOWN if a is None or b is None else _TRUTHS[holds(a, b)] for a, b in pairs]
    return None
