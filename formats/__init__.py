"""The registry of formats: built-in ones in a table, others by the entry point group `binlogtool.formats`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from binlogtool.formats.base import Format

_BUILT_IN = {
    "tarantool": "binlogtool.formats.tarantool",
    "drizzle": "binlogtool.formats.drizzle",
    "manticore": "binlogtool.formats.manticore",
    "eblob": "binlogtool.formats.eblob",
    "mysql-binlog": "binlogtool.formats.mysql_binlog",
    "mariadb-innodb-binlog": "binlogtool.formats.mariadb_innodb_binlog",
}


def names() -> list[str]:
    """All format names, built-in ones first. Plug-ins are found by their metadata; none of them is imported."""
    return [*_BUILT_IN, *_plugins()]


def get(name: str) -> Format:
    """The description of one format.

    Raises:
        KeyError: there is no such format.
    """
    if name in _BUILT_IN:
        format_: Format = importlib.import_module(_BUILT_IN[name]).FORMAT
        return format_
    plugin: Format = _plugins()[name].load()
    return plugin


def each() -> Iterator[Format]:
    """The formats one by one, built-in ones first: who stops early imports no more than what was needed."""
    yield from map(get, _BUILT_IN)
    yield from map(get, _plugins())


@cache
def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found = entry_points(group="binlogtool.formats")
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name) if entry.name not in _BUILT_IN}
