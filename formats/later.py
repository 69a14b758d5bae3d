"""Lazy references that import a format's optional modules on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Later:
    """A callable reference to an object of a module below `binlogtool.formats`. name: "package.module:NAME"."""

    __slots__ = ("_known", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: Any = None

    @property
    def value(self) -> Any:
        """The referenced object."""
        if self._known is None:
            module, _, name = self.name.partition(":")
            self._known = getattr(import_module(f"binlogtool.formats.{module}"), name)
        return self._known

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the referenced object."""
        return self.value(*args, **named)

    def __repr__(self) -> str:
        return f"Later({self.name!r})"


class LaterTable(Mapping[Any, Any]):
    """A lazily imported mapping. name: as for `LazyRef`."""

    __slots__ = ("_later",)

    def __init__(self, name: str) -> None:
        self._later = Later(name)

    def __getitem__(self, key: Any) -> Any:
        return self._later.value[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._later.value)

    def __len__(self) -> int:
        return len(self._later.value)
