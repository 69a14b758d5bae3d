"""Names of compiled functions: each has a hash of everything that its code depends on, so stale code is never used.

For a kernel that is: its module and name, the texts of the modules of the kernel and of the kernels that it calls,
and
the integers that they name. No text is parsed for this, which would slow down every start.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import FunctionType
from typing import Any

from binlogtool.formats.blake2 import blake2b
from binlogtool.formats.layouts import Kernel

_MAKERS = (
    "binlogtool.formats.kernel_types", "binlogtool.schema.c_emitter", "binlogtool.schema.kernel_source",
    "binlogtool.schema.signatures",
)  # fmt: skip
"""The modules that turn kernels into C; `runtime.c` beside this one belongs to them. They are read, not imported."""
_BYTES = 10


def symbol_of(kind: str, text: str) -> str:
    """Return the name of a generated function with this text."""
    return f"{kind}_{_hash(maker_identity(), text)}"


@lru_cache(maxsize=1024)
def kernel_name(function: Kernel) -> str:
    """Return the name of a kernel's compiled form.

    Raises:
        OSError: its source cannot be read.
    """
    parts = []
    for one in closure(function):
        code = one.__code__
        numbers = sorted((n, int(v)) for n in code.co_names if isinstance(v := one.__globals__.get(n), int))
        parts += [one.__module__, one.__qualname__, _source_identity(one.__module__), repr(numbers)]
        parts += [_source_identity(module) for module in _modules_of_structs(one)]
    module = function.__module__.rpartition(".")[2]
    return f"{module}_{function.__name__}_{_hash(maker_identity(), *parts)}"


def closure(function: Kernel) -> list[FunctionType]:
    """Return a kernel and all kernels that it calls, each once, in a deterministic order."""
    found: dict[Any, None] = {}
    pending: list[Any] = [function]
    while pending:
        one = pending.pop()
        if one not in found:
            found[one] = None
            pending += one.__dict__.get("kernel_uses", ())
    return list(found)


def _modules_of_structs(function: FunctionType) -> list[str]:
    """The modules in which the structs are that a kernel declares."""
    declared = [function.__globals__.get(one, one) for one in function.__annotations__.values()]
    return [one.__module__ for one in declared if isinstance(one, type) and hasattr(one, "_fields")]


class KernelNames:
    """Gives generated texts the names of kernels, and collects the kernels that were asked for."""

    def __init__(self) -> None:
        self.functions: dict[str, Kernel] = {}

    def add(self, function: Kernel) -> str:
        """Return the name of the compiled form."""
        name = kernel_name(function)
        self.functions[name] = function
        return name


@lru_cache
def maker_identity() -> str:
    """Return the hash of the code that turns text into C."""
    loader, file = _loader(__name__)
    folder = os.path.dirname(file)
    root = folder[: -len(__name__.rpartition(".")[0])]
    files = [f"{os.path.join(root, *name.split('.'))}.py" for name in _MAKERS]
    return _hash(*(blake2b(loader.get_data(one)).hexdigest() for one in (*files, os.path.join(folder, "runtime.c"))))


@lru_cache(maxsize=512)
def _source_identity(module: str) -> str:
    loader, file = _loader(module)
    return blake2b(loader.get_data(file)).hexdigest()


def _loader(module: str) -> tuple[Any, str]:
    """Return the loader that reads files beside a module, also in a zip, and the module's own file."""
    found = sys.modules[module]
    if found.__spec__ is None or found.__spec__.loader is None or found.__file__ is None:
        raise OSError(f"{module} has no source file")
    return found.__spec__.loader, found.__file__


def _hash(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_BYTES).hexdigest()
