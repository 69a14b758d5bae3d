"""Registry of formats: built-in ones in a table, plug-ins by the entry point group `binlogtool.formats`.

A built-in format is a package: its `FILE_PATTERNS` (file-name patterns of its logs) are cheap to import; everything
else is imported with its `format` module.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from fnmatch import translate
from functools import cache
from typing import TYPE_CHECKING

from binlogtool.errors import InputOutputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from binlogtool.format_api.format import Format


_BUILT_IN = {
    "tarantool": "binlogtool.formats.tarantool",
    "drizzle": "binlogtool.formats.drizzle",
    "manticore": "binlogtool.formats.manticore",
    "eblob": "binlogtool.formats.eblob",
    "mysql-binlog": "binlogtool.formats.mysql_binlog",
    "mariadb-innodb-binlog": "binlogtool.formats.mariadb_innodb_binlog",
}


def list_names() -> list[str]:
    """Return all format names, built-in ones first; plug-ins are found by metadata and not imported."""
    return [*_BUILT_IN, *_find_plugins()]


def load_format(name: str) -> Format:
    """Load the description of one format.

    Raises:
        KeyError: the format is unknown.
        InputOutputError: the format is a plug-in that cannot be loaded.
    """
    if name in _BUILT_IN:
        format_: Format = importlib.import_module(f"{_BUILT_IN[name]}.format").FORMAT
        return format_
    loaded = _load_plugin(_find_plugins()[name])
    if isinstance(loaded, str):
        raise InputOutputError(f"the plug-in format {name} cannot be loaded: {loaded}")
    return loaded


def iter_built_in() -> Iterator[Format]:
    """Yield the built-in formats."""
    yield from map(load_format, _BUILT_IN)


def iter_formats() -> Iterator[Format]:
    """Yield all formats, built-in ones first; plug-ins that cannot be loaded are omitted."""
    yield from iter_built_in()
    loaded = map(_load_plugin, _find_plugins().values())
    yield from (one for one in loaded if not isinstance(one, str))


def find_broken_plugins() -> dict[str, str]:
    """Return the plug-ins that cannot be loaded: name -> reason."""
    loaded = {name: _load_plugin(entry) for name, entry in _find_plugins().items()}
    return {name: why for name, why in loaded.items() if isinstance(why, str)}


def is_plugin(name: str) -> bool:
    """Return whether a format is a plug-in. Its kernels run as Python: only this package is compiled."""
    return name not in _BUILT_IN


def read_help_page(name: str) -> str | None:
    """Return the help page of a format (`help.md` in its package); None if there is no page."""
    from importlib.resources import files

    package = _BUILT_IN[name] if name in _BUILT_IN else _find_plugins()[name].module.rpartition(".")[0]
    text = files(package) / "help.md" if package else None
    return text.read_text("utf-8") if text is not None and text.is_file() else None


def find_by_file_name(file: str) -> Iterator[str]:
    """Yield the names of formats whose logs have such a file name (a base name), in the order of `list_names`.

    Plug-ins are searched only after the built-in formats, if the caller keeps iterating.
    """
    yield from (name for name in _BUILT_IN if _compile_pattern(name).match(file))
    yield from (
        name for name in _find_plugins() if name not in find_broken_plugins() and _compile_pattern(name).match(file)
    )


@cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    members = (
        importlib.import_module(_BUILT_IN[name]).FILE_PATTERNS
        if name in _BUILT_IN
        else load_format(name).files.patterns
    )
    return re.compile("|".join(map(translate, members)))


@cache
def _find_plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    entries = entry_points(group="binlogtool.formats")
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name) if entry.name not in _BUILT_IN}


@cache
def _load_plugin(entry: EntryPoint) -> Format | str:
    """Load a plug-in; return its description, or an error text: one broken plug-in must not stop the others."""
    from binlogtool.format_api.format import Format

    try:
        loaded = entry.load()
    except Exception as error:
        return f"{entry.value}: {type(error).__name__}: {error}"
    if not isinstance(loaded, Format):
        return f"{entry.value} is no binlogtool.format_api.format.Format"
    if loaded.name != entry.name:
        return f"the entry point is called {entry.name}, the format {loaded.name}"
    return loaded
