"""Which backend runs the scanners."""

from __future__ import annotations

import os
from importlib.util import find_spec

from binlogtool.errors import MissingExtraError, UsageError
from binlogtool.limits import MIB
from binlogtool.schema.python_backend import PythonBackend
from binlogtool.schema.scanner import Backend

ENVIRONMENT = "BINLOGTOOL_BACKEND"
NAMES = ("auto", "python", "numba")

WORTH_IT = {"checksum": 128 * MIB, "rows": 8 * MIB, "json": 32 * MIB}
"""From how many bytes on numba's start-up (half a second) pays: Python checks a frame in one microsecond and needs five
or more for the columns of a row. What writes JSON takes some seconds to compile, once."""


def choose(name: str, size: int | None, work: str) -> Backend:
    """The backend called `name` (auto, python, numba); the environment's BINLOGTOOL_BACKEND goes before it.

    size: bytes to be read in this process, None = unknown. work: "checksum" (frames only), "rows" or "json" (lines).

    Raises:
        UsageError: no such name.
        MissingExtraError: numba is asked for and not installed.
    """
    name = os.environ.get(ENVIRONMENT) or name
    if name not in NAMES:
        raise UsageError(f"there is no backend {name!r}: use {', '.join(NAMES)}")
    if name == "numba" and not numba_installed():
        raise MissingExtraError("the numba backend is not installed: pip install 'binlogtool[fast]'")
    if name == "auto":
        name = "numba" if size is not None and size >= WORTH_IT[work] and numba_installed() else "python"
    return _numba() if name == "numba" else PythonBackend()


def among(name: str, volume: int, work: str) -> str:
    """The name to give for each of many files that one process reads one after the other, `volume` bytes in all."""
    return "numba" if choose(name, volume, work).name == "numba" else name


def numba_installed() -> bool:
    """Can numba be imported? (It is not imported here.)"""
    return find_spec("numba") is not None and find_spec("numpy") is not None


def _numba() -> Backend:
    from binlogtool.schema.numba_backend import NumbaBackend

    return NumbaBackend()
