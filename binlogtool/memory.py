"""The ceiling of this process's memory, kept by the system: what would go beyond it is refused (`MemoryError`).

Every reader bounds what it keeps (`Limits`). This is what holds where a single value is larger than that: a statement
of 200 MiB, and each copy of it on the way to the output. Linux counts here what a process may write to in private
(`RLIMIT_DATA`): not the code, not files that are mapped to be read.
"""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

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

RESERVE = 8 * MIB
"""Bytes between the ceiling and what the system refuses. Libraries that do not check whether they got memory use less
than that between two looks, and what cleans up after a refusal needs some."""

_INTERVAL = 0.01
"""Seconds of CPU time between two looks at the memory of this process."""

_PAUSE = 25
"""Looks after a refusal until the next one: meanwhile the work is being ended."""

_JSON_BYTE, _JSON_VALUE, _JSON_MAP = 48, 112, 3
"""Bytes of memory for each byte of JSON at most (`{"":[` nested), for each value, and how many values a map counts."""

_PAUSE_RELEASED = 5
"""Looks after freed memory was given back to the system until the next one."""

_PAGE = resource.getpagesize()


class Ceiling:
    """What this process may take, and how much of it is in use.

    limit: bytes that may be in use; 0 = there is no ceiling. base: bytes that do not count (of libraries). resident:
    are the pages in use counted, in place of all that may be written to? Libraries that map much and use little of it
    (Arrow, Java) need this. deferred: see `look_later`. wanted: what `keep` was given; 0 = nothing.
    """

    def __init__(self) -> None:
        self.limit = self.base = self.wanted = self._patience = 0
        self.resident = self.deferred = False
        self._statm: int | None = None

    def used(self) -> int:
        """Bytes in use that count; 0 where the system does not say."""
        try:
            if self._statm is None:
                self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            fields = os.pread(self._statm, 256, 0).split()
            return int(fields[1 if self.resident else 5]) * _PAGE - self.base
        except (OSError, IndexError, ValueError):
            return 0

    def look(self, _number: int, _frame: FrameType | None) -> None:
        """Ends the work while there is still memory to end it in (a handler of signals)."""
        if self._patience or self.deferred:
            self._patience = max(self._patience - 1, 0)
        elif self.limit and (used := self.used()) > self.limit:
            if self.resident and _after_release(self.used) <= self.limit:
                self._patience = _PAUSE_RELEASED
                return
            self._patience = _PAUSE
            raise MemoryError(f"{used:,} of {self.limit:,} bytes are in use")

    def forget(self) -> None:
        """Closes what `used` reads: another process must not read it."""
        if self._statm is not None:
            os.close(self._statm)
            self._statm = None


_ceiling = Ceiling()


def keep(max_memory: int) -> None:
    """From now on no more than `max_memory` bytes beside the program itself; never more than was allowed before.

    The work ends there (`MemoryError`), and the system refuses memory a little above: not every library survives that.
    """
    _ceiling.wanted = max_memory
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    _before.append(soft)
    bounds = [bound for bound in (_before[0], hard) if bound != resource.RLIM_INFINITY]
    bound = min([max_memory + PROGRAM + RESERVE, *bounds])
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    _watch(bound - RESERVE, resident=False)


def keep_resident() -> None:
    """After `lift`: the same ceiling again, but for what libraries have taken so far. Pages in use are counted. Nothing
    without a ceiling before."""
    if _ceiling.wanted and not _before:
        _ceiling.resident, _ceiling.base = True, 0
        _watch(_ceiling.wanted + PROGRAM, resident=True, base=_ceiling.used())


def _after_release(used: Callable[[], int]) -> int:
    """Gives freed memory of the allocators back to the system; returns what is in use then."""
    import ctypes

    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return used()


def _watch(limit: int, *, resident: bool, base: int = 0) -> None:
    """Looks at the memory of this process every few milliseconds of its work."""
    _ceiling.limit, _ceiling.resident, _ceiling.base = max(limit, 1), resident, base
    sys.unraisablehook = _unraisable
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPROF, _ceiling.look)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
        atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)  # a signal would end what is left of the interpreter


def _unraisable(what: Any) -> None:
    """What ends without memory where nobody can be told is ended by the next look."""
    if not isinstance(what.exc_value, MemoryError):
        sys.__unraisablehook__(what)


def available() -> int:
    """Bytes that may still be used; without a ceiling as many as there are numbers."""
    return _ceiling.limit - _ceiling.used() if _ceiling.limit else sys.maxsize


def demand(size: int) -> None:
    """There are so many bytes for what is built next; to be asked before a library that does not check builds it.

    Raises:
        MemoryError: there are not.
    """
    if size > available() and not (_ceiling.resident and size <= _ceiling.limit - _after_release(_ceiling.used)):
        raise MemoryError(f"{size:,} bytes are needed at once")


@contextmanager
def look_later() -> Iterator[None]:
    """For calls of libraries that end the process at an exception in what they call: the look comes after them.

    Raises:
        MemoryError: more is in use than may be.
    """
    _ceiling.deferred = True
    try:
        yield
    finally:
        _ceiling.deferred = False
    demand(0)


def demand_json(text: bytes) -> None:
    """There is memory for what msgspec makes of a JSON text: it does not check whether it got any.

    Raises:
        MemoryError: there is not.
    """
    free = available()
    if _JSON_BYTE * len(text) > free:
        values = text.count(b",") + text.count(b"[") + _JSON_MAP * text.count(b"{")
        if len(text) + _JSON_VALUE * values > free:
            raise MemoryError(f"{len(text):,} bytes of JSON are decoded at once")


def lift() -> None:
    """As before `keep`: programs that have ceilings of their own start in this process, or from it."""
    if _ceiling.limit and threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_PROF, 0)
    _ceiling.limit = 0
    while _before:
        soft = _before.pop()
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def before() -> list[int]:
    """What held before `keep`, for `inherit` in a process that this one starts; empty = no ceiling is kept."""
    return list(_before)


def inherit(limits: list[int]) -> None:
    """This process was started by one that keeps a ceiling, and has the same: it may be lifted here too."""
    _before[:] = limits
    if limits:
        _watch(resource.getrlimit(resource.RLIMIT_DATA)[0] - RESERVE, resident=False)


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
