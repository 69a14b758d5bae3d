"""Names of compiled functions: each holds the hash of all that its meaning depends on, so stale code is never found.

Of a kernel that is: the files in which it and the kernels that it calls are written, the line where each begins, and
the integers that they name. No text is parsed for this, which a start could not afford.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any

from binlogtool.formats.blake2 import blake2b
from binlogtool.formats.layouts import Kernel

_MAKERS = ("c_emitter.py", "kernel_source.py", "runtime.c")
_BYTES = 10


def symbol_of(kind: str, text: str) -> str:
    """The name of a generated function with this text."""
    return f"{kind}_{_hash(maker_identity(), text)}"


@lru_cache(maxsize=1024)
def kernel_name(function: Kernel, writes_bytes: bool) -> str:
    """The name of a kernel's compiled form. writes_bytes: `out` is an array of bytes, not of integers.

    Raises:
        OSError: its source cannot be read.
    """
    parts = [str(writes_bytes)]
    for one in closure(function):
        code = one.__code__
        numbers = sorted((n, int(v)) for n in code.co_names if isinstance(v := one.__globals__.get(n), int))
        parts += [one.__qualname__, str(code.co_firstlineno), _source_identity(one.__module__), repr(numbers)]
    return f"{function.__name__}_{_hash(maker_identity(), *parts)}"


def closure(function: Kernel) -> list[FunctionType]:
    """A kernel and all that it calls, each once, in an order that depends on nothing else."""
    found: dict[Any, None] = {}
    pending: list[Any] = [function]
    while pending:
        one = pending.pop()
        if one not in found:
            found[one] = None
            pending += one.__dict__.get("kernel_uses", ())
    return list(found)


def arrays_of(function: Kernel) -> set[str]:
    """Names of the parameters of a kernel, and of those that it calls, that are arrays."""
    return {name for one in closure(function) for name in _own_arrays(one)}


def writes_bytes(function: Kernel) -> bool:
    """Kernels that are given `texts` write text: their `out` is bytes. In the others it is integers."""
    return "texts" in arrays_of(function)


class KernelNames:
    """Gives the names of kernels to a generated text, and keeps what it was asked for."""

    def __init__(self, writes_bytes: bool) -> None:
        self.writes_bytes = writes_bytes
        self.functions: dict[str, Kernel] = {}

    def add(self, function: Kernel) -> str:
        """The name of the compiled form."""
        name = kernel_name(function, self.writes_bytes)
        self.functions[name] = function
        return name


def _own_arrays(function: FunctionType) -> Iterator[str]:
    return (name for name, kind in function.__annotations__.items() if kind in ("Any", Any) and name != "return")


@lru_cache
def maker_identity() -> str:
    """Of the code that turns text into C."""
    loader, file = _loader(__name__)
    folder = os.path.dirname(file)
    return _hash(*(blake2b(loader.get_data(os.path.join(folder, name))).hexdigest() for name in _MAKERS))


@lru_cache(maxsize=512)
def _source_identity(module: str) -> str:
    loader, file = _loader(module)
    return blake2b(loader.get_data(file)).hexdigest()


def _loader(module: str) -> tuple[Any, str]:
    """What reads files of the place where a module is, a zip included; and the module's own file."""
    found = sys.modules[module]
    if found.__spec__ is None or found.__spec__.loader is None or found.__file__ is None:
        raise OSError(f"{module} has no source file")
    return found.__spec__.loader, found.__file__


def _hash(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_BYTES).hexdigest()
