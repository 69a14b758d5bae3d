"""Which file of a log its server appends to, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DIGITS = re.compile(r"\d+")


def later(name: str, names: Sequence[str]) -> str | None:
    """The newest file that has the same name but for higher numbers, if it is not this one."""
    kind, number = _split(name)
    split = [(*_split(other), other) for other in names]
    newest = max(((digits, other) for same, digits, other in split if same == kind), default=None)
    return newest[1] if newest is not None and newest[0] > number else None


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    return _DIGITS.sub("#", name), tuple(int(digits) for digits in _DIGITS.findall(name) if len(digits) < 100)
