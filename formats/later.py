"""Parts of a format that few commands need: the module of each is imported when it is used for the first time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Later:
    """A function or class of a module below `binlogtool.formats`, called like that. name: "package.module:NAME"."""

    __slots__ = ("_known", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: Any = None

    @property
    def value(self) -> Any:
        """What the name stands for."""
        if self._known is None:
            module, _, name = self.name.partition(":")
            self._known = getattr(import_module(f"binlogtool.formats.{module}"), name)
        return self._known

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls it."""
        return self.value(*args, **named)

    def __repr__(self) -> str:
        return f"Later({self.name!r})"


class LaterTable(Mapping[Any, Any]):
    """A mapping of such a module. name: as for `Later`."""

    __slots__ = ("_later",)

    def __init__(self, name: str) -> None:
        self._later = Later(name)

    def __getitem__(self, key: Any) -> Any:
        return self._later.value[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._later.value)

    def __len__(self) -> int:
        return len(self._later.value)
