"""The newest file of a rotated log, by name: the one that its server appends to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_DIGITS = re.compile(r"\d+")

Newest = Mapping[str, tuple[tuple[int, ...], str]]
"""For each kind of name the one with the highest numbers."""


def newest(names: Iterable[str]) -> Newest:
    """Return the newest files of a log."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in names:
        kind, numbers = _split(name)
        found[kind] = max(found.get(kind, (numbers, name)), (numbers, name))
    return found


def later(name: str, log: Newest) -> str | None:
    """Return the newest file with the same name except for higher numbers, if it is not this one."""
    kind, number = _split(name)
    numbers, other = log.get(kind, (number, name))
    return other if numbers > number else None


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    return _DIGITS.sub("#", name), tuple(int(digits) for digits in _DIGITS.findall(name) if len(digits) < 100)
