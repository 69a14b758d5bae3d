"""Operations on whole columns without a Python loop over their entries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def has_any_value(column: Any, values: Collection[int]) -> bool:
    """Return True if one of a few values is in the column (a list, or memory)."""
    if isinstance(column, list):
        return not frozenset(values).isdisjoint(column)
    from binlogtool.schema.library import PinnedMemory, load_library

    native, held = load_library(), PinnedMemory(column)
    assert native is not None
    return any(native.column_holds(held.address, len(column), value) for value in values)


def copy_column(column: Any) -> Any:
    """Return a copy of a column, which stays valid when its scanner continues."""
    if isinstance(column, memoryview) and column.itemsize == 8:
        return memoryview(bytearray(column)).cast("q")
    return list(column)


def concatenate_columns(columns: Sequence[Any]) -> Any:
    """Concatenate parts of one column; return a copy."""
    if len(columns) == 1:
        return copy_column(columns[0])
    if all(isinstance(column, list) for column in columns):
        return [value for column in columns for value in column]
    from binlogtool.schema.library import as_int64_memory

    return memoryview(bytearray().join(map(as_int64_memory, columns))).cast("q")
