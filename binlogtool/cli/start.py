"""What a process that is there for one command line does before all else; as a library nothing of it is done."""

from __future__ import annotations

import gc
import os
import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

_EVERY = 100_000
"""New objects between two looks of the garbage collector: what a start makes stays to its end."""

_LATE = ("hashlib", "inspect", "pdb", "pickle", "platform", "textwrap", "traceback")
"""Modules of the standard library that click, construct and msgspec import and that few runs use."""

_KNOWN = {"platform": {"system": lambda: os.uname().sysname}} if hasattr(os, "uname") else {}
"""What two of them ask `platform` for when they are imported; the rest of it stays late."""

_COPY = "typing_extensions"
"""Gives `typing` of newer Pythons to older ones. msgspec asks for it first, and where it is not installed, takes
`typing` for the same names."""

_loading = RLock()


class Late(ModuleType):
    """A module whose text runs when the first of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        with _loading:
            spec = self.__spec__
            if not self.__dict__.get("__ran__") and not name.startswith("__") and spec is not None and spec.loader:
                self.__dict__["__ran__"] = True  # what it imports may import it
                spec.loader.exec_module(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def begin() -> None:
    """Loads what other packages import and seldom use when it is used, and keeps the garbage collector quiet."""
    gc.set_threshold(_EVERY)
    for name in _LATE:
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None:
            sys.modules[name] = late = module_from_spec(spec)
            late.__class__ = Late
            late.__dict__.update(_KNOWN.get(name, {}))
    if _COPY not in sys.modules and "msgspec" not in sys.modules:
        sys.modules[_COPY] = None  # type: ignore[assignment]  # an import of it fails, as without its package
        try:
            import msgspec  # noqa: F401
        finally:
            del sys.modules[_COPY]


def finish() -> None:
    """What is left goes with the process: the garbage collector need not look at it on the way out."""
    gc.freeze()
