"""Comparisons of whole columns whose values are of the common types; same results as `where_terms.make_comparison`.

Numbers are compared as doubles first: rounding keeps their order, so that only equal ones are compared again exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from binlogtool.log.where_terms import FALSE, MAX_DIGITS, TRUE, UNKNOWN

_TRUTHS = (FALSE, TRUE)
_NUMBER_LINE = rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}(?:\.[0-9]{{1,{MAX_DIGITS}}})?"
_NON_NUMBER_LINE = re.compile(rf"^(?!{_NUMBER_LINE}$)", re.MULTILINE)
_NONE_TYPE = type(None)


def compare_with_number(
    holds: Callable[[Any, Any], bool], values: Sequence[Any], number: int | Decimal
) -> list[int] | None:
    """Return the truth of `value holds number` for each value; None = the values are of other types."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return [_TRUTHS[holds(value, number)] for value in values]
    if kinds == {int, _NONE_TYPE}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, number)] for value in values]
    if kinds == {str}:
        return _compare_texts_with_number(holds, values, number)
    return None


def compare_with_text(holds: Callable[[Any, Any], bool], values: Sequence[Any], text: str) -> list[int] | None:
    """Return the truth of `value holds text` for each value; None = the values are of other types."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return [_TRUTHS[holds(value, text)] for value in values]
    if kinds == {str, _NONE_TYPE}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, text)] for value in values]
    return None


def compare_pairwise(holds: Callable[[Any, Any], bool], left: Sequence[Any], right: Sequence[Any]) -> list[int] | None:
    """Return the truth of `left holds right` for each pair; None = the values are of other types."""
    kinds = set(map(type, left)) | set(map(type, right))
    if kinds == {int}:
        return [_TRUTHS[holds(a, b)] for a, b in zip(left, right, strict=True)]
    if kinds == {int, _NONE_TYPE}:
        pairs = zip(left, right, strict=True)
        return [UNKNOWN if a is None or b is None else _TRUTHS[holds(a, b)] for a, b in pairs]
    return None


def _compare_texts_with_number(
    holds: Callable[[Any, Any], bool], values: Sequence[str], number: int | Decimal
) -> list[int] | None:
    joined = "\n".join(values)
    if joined.count("\n") != len(values) - 1 or _NON_NUMBER_LINE.search(joined):
        return None
    nearest_double = float(Decimal(number))
    return [
        _TRUTHS[holds(double, nearest_double) if double != nearest_double else holds(Decimal(value), number)]
        for value, double in zip(values, map(float, values), strict=True)
    ]
