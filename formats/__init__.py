"""The registry of formats: built-in ones in a table, others by the entry point group `binlogtool.formats`."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binlogtool.formats.base import Format

_BUILT_IN = {
    "tarantool": "binlogtool.formats.tarantool",
    "drizzle": "binlogtool.formats.drizzle",
}


def names() -> list[str]:
    """All format names, built-in ones first. Plug-ins are found by their metadata; none of them is imported."""
    return [*_BUILT_IN, *sorted(e.name for e in entry_points(group="binlogtool.formats") if e.name not in _BUILT_IN)]


def get(name: str) -> Format:
    """The description of one format.

    Raises:
        KeyError: there is no such format.
    """
    if name in _BUILT_IN:
        format_: Format = importlib.import_module(_BUILT_IN[name]).FORMAT
        return format_
    for entry in entry_points(group="binlogtool.formats"):
        if entry.name == name:
            plugin: Format = entry.load()
            return plugin
    raise KeyError(name)
