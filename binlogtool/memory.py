"""The ceiling of this process's memory, kept by the system: what would go beyond it is refused (`MemoryError`).

Every reader bounds what it keeps (`Limits`). This is what holds where a single value is larger than that: a statement
of 200 MiB, and each copy of it on the way to the output. Linux counts here what a process may write to in private
(`RLIMIT_DATA`): not the code, not files that are mapped to be read.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from binlogtool.limits import MIB

PROGRAM = 40 * MIB
"""What the interpreter and the modules themselves take of it; the rest of the 64 MiB that a run may have beside
`--max-memory` are the code and the tables of the program files, which are not counted."""

_KEPT = 32 * MIB
"""Bytes of freed memory that stay at most, and of a piece that stays; glibc takes no more."""

_TRIM, _MMAP = -1, -3
"""`M_TRIM_THRESHOLD`, `M_MMAP_THRESHOLD` (mallopt(3))."""

_before: list[int] = []
"""The soft limit that held before `keep`."""


def keep(max_memory: int) -> None:
    """From now on no more than `max_memory` bytes beside the program itself; never more than was allowed before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    _before.append(soft)
    bounds = [max_memory + PROGRAM, *(bound for bound in (_before[0], hard) if bound != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))


def lift() -> None:
    """As before `keep`: programs that have ceilings of their own start in this process, or from it."""
    while _before:
        soft = _before.pop()
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def before() -> list[int]:
    """What held before `keep`, for `inherit` in a process that this one starts; empty = no ceiling is kept."""
    return list(_before)


def inherit(limits: list[int]) -> None:
    """This process was started by one that keeps a ceiling, and has the same: it may be lifted here too."""
    _before[:] = limits


def collect_rarely() -> None:
    """For work that makes many objects, none of them in cycles: the garbage collector looks after 50,000 of them."""
    gc.set_threshold(50_000)


@contextmanager
def few_collections() -> Iterator[None]:
    """For a part of the work that makes millions of such objects: it looks after 1,000,000 of them, then as before."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class FileByFile:
    """For such work on very many files: what reading each of them left in cycles is collected every 256 files."""

    _FILES = 256
    _YOUNG = 0

    def __init__(self) -> None:
        self._file, self._count = "", 0

    def at(self, file: str) -> None:
        """The work is at this file."""
        if file != self._file:
            self._file, self._count = file, self._count + 1
            if self._count % self._FILES == 0:
                gc.collect(self._YOUNG)


def reuse_freed() -> None:
    """For work that makes pieces of some MiB all the time: what was freed stays with the process and is used again.
    The system clears each page that it gives, which can take as long as the work. C libraries without `mallopt` do as
    they please."""
    import ctypes

    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        tell(_TRIM, _KEPT)
        tell(_MMAP, _KEPT)
