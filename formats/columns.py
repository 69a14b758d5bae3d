"""Columns of the scanner as plain numbers."""

from __future__ import annotations

from typing import Any


def integers(column: Any, start: int = 0, stop: int | None = None) -> list[int]:
    """A part of a column as plain Python integers, whatever kind of column the scanner makes."""
    part = column[start:stop]
    return part.tolist() if hasattr(part, "tolist") else list(part)
