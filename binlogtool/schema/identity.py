"""Names of compiled functions: each has a hash of everything that its code depends on, so stale code is never used.

For a kernel that is: its module and name, the texts of the modules of the kernel and of the kernels that it calls, and
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

_COMPILER_MODULES = (
    "binlogtool.formats.kernel_types", "binlogtool.schema.c_emitter", "binlogtool.schema.kernel_source",
    "binlogtool.schema.signatures",
)  # fmt: skip
"""The modules that turn kernels into C; `runtime.c` beside this one belongs to them. They are read, not imported."""
_DIGEST_SIZE = 10


def make_symbol(kind: str, text: str) -> str:
    """Return the name of a generated function with this text."""
    return f"{kind}_{_hash_texts(hash_compiler(), text)}"


@lru_cache(maxsize=1024)
def make_kernel_name(function: Kernel) -> str:
    """Return the name of a kernel's compiled form.

    Raises:
        OSError: its source cannot be read.
    """
    parts = []
    for one in collect_called_kernels(function):
        code = one.__code__
        numbers = sorted((n, int(v)) for n in code.co_names if isinstance(v := one.__globals__.get(n), int))
        parts += [one.__module__, one.__qualname__, _hash_module_source(one.__module__), repr(numbers)]
        parts += [_hash_module_source(module) for module in _modules_of_structs(one)]
    module = function.__module__.rpartition(".")[2]
    return f"{module}_{function.__name__}_{_hash_texts(hash_compiler(), *parts)}"


def collect_called_kernels(function: Kernel) -> list[FunctionType]:
    """Return a kernel and all kernels that it calls, each once, in a deterministic order."""
    collected: dict[Any, None] = {}
    pending: list[Any] = [function]
    while pending:
        current = pending.pop()
        if current not in collected:
            collected[current] = None
            pending += current.__dict__.get("kernel_uses", ())
    return list(collected)


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
        name = make_kernel_name(function)
        self.functions[name] = function
        return name


@lru_cache
def hash_compiler() -> str:
    """Return the hash of the code that turns text into C."""
    loader, file = _find_loader(__name__)
    folder = os.path.dirname(file)
    root = folder[: -len(__name__.rpartition(".")[0])]
    files = [f"{os.path.join(root, *name.split('.'))}.py" for name in _COMPILER_MODULES]
    return _hash_texts(
        *(blake2b(loader.get_data(one)).hexdigest() for one in (*files, os.path.join(folder, "runtime.c")))
    )


@lru_cache(maxsize=512)
def _hash_module_source(module: str) -> str:
    loader, file = _find_loader(module)
    return blake2b(loader.get_data(file)).hexdigest()


def _find_loader(module: str) -> tuple[Any, str]:
    """Return the loader that reads files beside a module, also in a zip, and the module's own file."""
    loaded_module = sys.modules[module]
    if loaded_module.__spec__ is None or loaded_module.__spec__.loader is None or loaded_module.__file__ is None:
        raise OSError(f"{module} has no source file")
    return loaded_module.__spec__.loader, loaded_module.__file__


def _hash_texts(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).hexdigest()
