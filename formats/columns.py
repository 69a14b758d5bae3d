"""Conversion of scanner columns to Python integers."""

from __future__ import annotations

from typing import Any


def to_int_list(column: Any, start: int = 0, stop: int | None = None) -> list[int]:
    """Return a part of a column as a list of Python integers, for any kind of column that the scanner makes."""
    part = column[start:stop]
    return part.tolist() if hasattr(part, "tolist") else list(part)
