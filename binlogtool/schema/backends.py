"""Choose the backend that runs the scanners."""

from __future__ import annotations

import os

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.schema.python_backend import PythonBackend
from binlogtool.schema.scanner import Backend

BACKEND_VARIABLE = "BINLOGTOOL_BACKEND"
BACKEND_NAMES = ("auto", "native", "python")


def choose_backend(name: str) -> Backend:
    """Return the backend called `name` (auto, native, python); the environment variable BINLOGTOOL_BACKEND takes
    precedence.

    auto is native code where the package has some for this machine; what its library lacks runs as Python.

    Raises:
        UsageError: no such name.
        InputOutputError: native code is demanded, and there is none for this machine.
    """
    name = os.environ.get(BACKEND_VARIABLE) or name
    if name not in BACKEND_NAMES:
        raise UsageError(f"there is no backend {name!r}: use {', '.join(BACKEND_NAMES)}")
    if name == "python":
        return PythonBackend()
    from binlogtool.schema.native_backend import get_native_backend

    native = get_native_backend()
    if native is not None:
        return native
    if name == "native":
        raise InputOutputError("there is no native code for this machine: build it (python -m binlogtool.schema.build)")
    return PythonBackend()
