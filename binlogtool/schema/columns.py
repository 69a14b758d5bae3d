"""Questions about whole columns, answered without a loop over their entries in Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def holds_any(column: Any, values: Collection[int]) -> bool:
    """Is one of a few values in the column (a list, or memory)?"""
    if isinstance(column, list):
        return not frozenset(values).isdisjoint(column)
    from binlogtool.schema.library import Held, library

    native, held = library(), Held(column)
    assert native is not None
    return any(native.column_holds(held.address, len(column), value) for value in values)


def joined(columns: Sequence[Any]) -> Any:
    """Parts of one column behind each other; a copy."""
    if all(isinstance(column, list) for column in columns):
        return [value for column in columns for value in column]
    from binlogtool.schema.library import integers

    if len(columns) == 1:
        return memoryview(bytearray(integers(columns[0]))).cast("q")
    return memoryview(bytearray().join(map(integers, columns))).cast("q")
