"""The newest file of a rotated log, by name: the one that its server appends to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_DIGITS = re.compile(r"\d+")

NewestByKind = Mapping[str, tuple[tuple[int, ...], str]]
"""For each kind of name the one with the highest numbers."""


def find_newest(names: Iterable[str]) -> NewestByKind:
    """Return the newest files of a log."""
    newest_by_kind: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in names:
        kind, numbers = _split_numbers(name)
        newest_by_kind[kind] = max(newest_by_kind.get(kind, (numbers, name)), (numbers, name))
    return newest_by_kind


def find_later(name: str, newest_by_kind: NewestByKind) -> str | None:
    """Return the newest file with the same name except for higher numbers, if it is not this one."""
    kind, number = _split_numbers(name)
    numbers, other = newest_by_kind.get(kind, (number, name))
    return other if numbers > number else None


def _split_numbers(name: str) -> tuple[str, tuple[int, ...]]:
    return _DIGITS.sub("#", name), tuple(int(digits) for digits in _DIGITS.findall(name) if len(digits) < 100)
