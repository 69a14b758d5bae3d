"""Lazy references that import a format's optional modules on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class LazyRef:
    """Callable reference to an object of a module, which is imported on first use.

    name: "package.module:NAME", with the module relative to `binlogtool.formats`, or in full ("binlogtool.…").
    """

    __slots__ = ("_value", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The referenced object."""
        if self._value is None:
            module, _, name = self.name.partition(":")
            self._value = getattr(
                import_module(module if module.startswith("binlogtool.") else f"binlogtool.formats.{module}"), name
            )
        return self._value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the referenced object."""
        return self.value(*args, **kwargs)

    def __repr__(self) -> str:
        return f"LazyRef({self.name!r})"


class LazyMapping(Mapping[Any, Any]):
    """Lazily imported mapping. name: as for `LazyRef`."""

    __slots__ = ("_reference",)

    def __init__(self, name: str) -> None:
        self._reference = LazyRef(name)

    def __getitem__(self, key: Any) -> Any:
        return self._reference.value[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._reference.value)

    def __len__(self) -> int:
        return len(self._reference.value)
