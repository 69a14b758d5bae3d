"""Start-up of a process that runs one command line: lazy standard modules, garbage collector; not for library use."""

from __future__ import annotations

import gc
import os
import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

_GC_THRESHOLD = 100_000
"""Number of new objects between two garbage collections; high, because objects of the start-up live to the end."""

_LAZY_MODULES = ("hashlib", "inspect", "pdb", "pickle", "platform", "textwrap", "traceback")
"""Standard modules that click, construct and msgspec import, but few runs use."""

_PRESET_ATTRIBUTES = {"platform": {"system": lambda: os.uname().sysname}} if hasattr(os, "uname") else {}
"""Module attributes that other modules use during import, set in advance so that `platform` is not loaded."""

_OPTIONAL_MODULE = "typing_extensions"
"""Backport of `typing`. msgspec imports it first, and if it is not installed, uses `typing` for the same names."""

_loading = RLock()


class LazyModule(ModuleType):
    """Module whose code runs when one of its attributes is first used."""

    def __getattr__(self, name: str) -> Any:
        with _loading:
            spec = self.__spec__
            if not self.__dict__.get("__ran__") and not name.startswith("__") and spec is not None and spec.loader:
                self.__dict__["__ran__"] = True  # modules that it imports may import it again
                spec.loader.exec_module(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


class WithoutPandas:
    """Import hook that does not find pandas. pyarrow would import it for its first conversion, which takes a second."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
        """Raise ModuleNotFoundError for pandas, which no command uses."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def prepare_process() -> None:
    """Make rarely used standard modules lazy, hide pandas, and raise the garbage collector's threshold."""
    gc.set_threshold(_GC_THRESHOLD)
    sys.meta_path.insert(0, WithoutPandas)
    for name in _LAZY_MODULES:
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            sys.modules[name] = lazy_module = module_from_spec(spec)
            lazy_module.__class__ = LazyModule
            lazy_module.__dict__.update(_PRESET_ATTRIBUTES.get(name, {}))
    if _OPTIONAL_MODULE not in sys.modules and "msgspec" not in sys.modules:
        sys.modules[_OPTIONAL_MODULE] = None  # type: ignore[assignment]  # an import of it fails, as without its package
        try:
            import msgspec  # noqa: F401
        finally:
            del sys.modules[_OPTIONAL_MODULE]


def finish_process() -> None:
    """Exclude remaining objects from garbage collection at exit."""
    gc.freeze()
