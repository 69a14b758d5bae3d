"""Comparisons of whole columns whose values are of the common types; same results as `where_terms.make_comparison`.

Numbers are compared as doubles first: rounding keeps their order, so that only equal ones are compared again exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from binlogtool.log.where_terms import FALSE, MOST_DIGITS, TRUE, UNKNOWN

_TRUTHS = (FALSE, TRUE)
_LINE = rf"[+-]?[0-9]{{1,{MOST_DIGITS}}}(?:\.[0-9]{{1,{MOST_DIGITS}}})?"
_NO_NUMBER = re.compile(rf"^(?!{_LINE}$)", re.MULTILINE)
_NOTHING = type(None)


def beside_number(holds: Callable[[Any, Any], bool], values: Sequence[Any], number: int | Decimal) -> list[int] | None:
    """Return the truth of `value holds number` for each value; None = the values are of other types."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return [_TRUTHS[holds(value, number)] for value in values]
    if kinds == {int, _NOTHING}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, number)] for value in values]
    if kinds == {str}:
        return _of_texts(holds, values, number)
    return None


def beside_text(holds: Callable[[Any, Any], bool], values: Sequence[Any], text: str) -> list[int] | None:
    """Return the truth of `value holds text` for each value; None = the values are of other types."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return [_TRUTHS[holds(value, text)] for value in values]
    if kinds == {str, _NOTHING}:
        return [UNKNOWN if value is None else _TRUTHS[holds(value, text)] for value in values]
    return None


def beside_each_other(holds: Callable[[Any, Any], bool], left: Sequence[Any], right: Sequence[Any]) -> list[int] | None:
    """Return the truth of `left holds right` for each pair; None = the values are of other types."""
    kinds = set(map(type, left)) | set(map(type, right))
    if kinds == {int}:
        return [_TRUTHS[holds(a, b)] for a, b in zip(left, right, strict=True)]
    if kinds == {int, _NOTHING}:
        pairs = zip(left, right, strict=True)
        return [UNKNOWN if a is None or b is None else _TRUTHS[holds(a, b)] for a, b in pairs]
    return None


def _of_texts(holds: Callable[[Any, Any], bool], values: Sequence[str], number: int | Decimal) -> list[int] | None:
    joined = "\n".join(values)
    if joined.count("\n") != len(values) - 1 or _NO_NUMBER.search(joined):
        return None
    near = float(Decimal(number))
    return [
        _TRUTHS[holds(double, near) if double != near else holds(Decimal(value), number)]
        for value, double in zip(values, map(float, values), strict=True)
    ]
