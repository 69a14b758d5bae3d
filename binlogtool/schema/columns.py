"""Questions about whole columns, answered without a loop over their entries in Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def holds_any(column: Any, values: Collection[int]) -> bool:
    """Is one of a few values in the column (a list, or a numpy array)?"""
    if isinstance(column, list):
        return not frozenset(values).isdisjoint(column)
    return any(bool((column == value).any()) for value in values)


def joined(columns: Sequence[Any]) -> Any:
    """Parts of one column behind each other, of the same kind as they are; a copy."""
    if isinstance(columns[0], list):
        return [value for column in columns for value in column]
    import numpy

    return numpy.concatenate(columns)
