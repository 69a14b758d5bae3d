"""Limits on memory, time and nesting, and the memory ceiling of this process.

Every reader bounds what it keeps (`Limits`). The ceiling covers the case where a single value is larger than that: a
statement of 200 MiB, and each copy of it on the way to the output. Linux counts the private writable memory of a
process (`RLIMIT_DATA`): not code, and not files mapped for reading.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.errors import UsageError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

# --- Limits of memory, time and nesting ---

KIB = 1024
MIB = 1024 * KIB
LONG_VALUE_BYTES = MIB
"""Values longer than this are written in pieces, where the output supports it."""

_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": KIB * MIB, "tib": MIB * MIB}
_UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": KIB, "m": MIB, "g": KIB * MIB}


_MAX_SIZE = (1 << 63) - 1
_MAX_DIGITS = 64


def parse_size(text: str | int) -> int:
    """Parse a size in bytes: `4096`, `0x1000`, `4KiB` or `4kB`.

    Raises:
        UsageError: the text is not a size.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(0x[0-9a-fA-F]+|\d+)\s*([a-zA-Z]*)\s*", text)
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(f"{shorten(text)!r} is not a size; write 4096, 0x1000, 4KiB or 4kB")
    size = _MAX_SIZE + 1 if len(match[1]) > _MAX_DIGITS else int(match[1], 0) * _UNITS[match[2].lower()]
    if size > _MAX_SIZE:
        raise UsageError(f"{shorten(text)!r} is too large for a size; the maximum is 2^63 - 1 bytes")
    return size


def shorten(text: str) -> str:
    """Return the text for a message; the middle of a text longer than 80 characters is left out."""
    return text if len(text) <= 80 else f"{text[:40]}…{text[-20:]} ({len(text):,} characters)"


class Limits(msgspec.Struct, frozen=True):
    """Limits of a call. Sizes are in bytes, times in seconds; None = no limit (`max_record`: the format's default).

    Args:
        max_whole: values longer than this are returned in pieces (`LongValue`) to readers whose output supports that;
            None = all values are returned whole.
    """

    max_memory: int = 256 * MIB
    max_record: int | None = None
    max_inflate: int = 256 * MIB
    max_depth: int = 64
    max_findings_per_id: int = 1000
    timeout: float | None = None
    max_whole: int | None = None


# --- Memory ceiling of this process, enforced by the system ---

PROGRAM_BYTES = 40 * MIB
"""Memory of the interpreter and the modules, counted by RLIMIT_DATA. A run may use 64 MiB beside `--max-memory`; the
rest of the 64 MiB is code and tables of program files, which are not counted."""

_MAX_FREED_BYTES = 32 * MIB
"""Largest total of freed memory, and largest single block, that stays with the process; the maximum of glibc."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD`, `M_MMAP_THRESHOLD` (mallopt(3))."""

_soft_limits_before: list[int] = []
"""The soft limits from before each `set_memory_ceiling`, the oldest first."""

RESERVE_BYTES = 8 * MIB
"""Bytes between the ceiling and the limit of the system. Libraries that do not check their allocations use less than
this between two checks, and the cleanup after a refused allocation needs some of it."""

_CHECK_INTERVAL_S = 0.01
"""Seconds of CPU time between two checks of the memory of this process."""

_CHECKS_SKIPPED_AFTER_REFUSAL = 25
"""Checks that are skipped after a refused allocation, while the work is being ended."""

_JSON_BYTES_PER_BYTE, _JSON_BYTES_PER_VALUE, _JSON_VALUES_PER_MAP = 48, 112, 3
"""Upper bounds: bytes of memory per byte of JSON (nested `{"":[`), bytes per value, and the number of values that a map
counts as."""

_CHECKS_SKIPPED_AFTER_RELEASE = 5
"""Checks that are skipped after freed memory was returned to the system."""

_PAGE_BYTES = resource.getpagesize()


class MemoryCeiling:
    """The memory ceiling of this process and its current use.

    Attributes:
        limit: bytes that may be in use; 0 = no ceiling.
        base: bytes that are not counted (memory of libraries).
        resident: count resident pages instead of all private writable memory; libraries that map much memory and use
            little of it (Arrow, Java) need this.
        deferred: checks are postponed, see `defer_memory_checks`.
        requested: the argument of `set_memory_ceiling`; 0 = it was not called.
    """

    def __init__(self) -> None:
        self.limit = self.base = self.requested = self._checks_to_skip = 0
        self.resident = self.deferred = False
        self._statm_descriptor: int | None = None

    def used_bytes(self) -> int:
        """Return the counted bytes in use; 0 where the system does not report them."""
        try:
            if self._statm_descriptor is None:
                self._statm_descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            fields = os.pread(self._statm_descriptor, 256, 0).split()
            return int(fields[1 if self.resident else 5]) * _PAGE_BYTES - self.base
        except (OSError, IndexError, ValueError):
            return 0

    def raise_if_ceiling_exceeded(self, _signal_number: int, _frame: FrameType | None) -> None:
        """Raise `MemoryError` while there is still memory to unwind the stack (a signal handler)."""
        if self._checks_to_skip or self.deferred:
            self._checks_to_skip = max(self._checks_to_skip - 1, 0)
        elif self.limit and (used := self.used_bytes()) > self.limit:
            if self.resident and _release_freed_memory_and_measure(self.used_bytes) <= self.limit:
                self._checks_to_skip = _CHECKS_SKIPPED_AFTER_RELEASE
                return
            self._checks_to_skip = _CHECKS_SKIPPED_AFTER_REFUSAL
            raise MemoryError(f"{used:,} of {self.limit:,} bytes of memory are in use")

    def close(self) -> None:
        """Close the file that `used_bytes` reads: another process must not read it."""
        if self._statm_descriptor is not None:
            os.close(self._statm_descriptor)
            self._statm_descriptor = None


_ceiling = MemoryCeiling()


def set_memory_ceiling(max_memory: int) -> None:
    """Limit this process to `max_memory` bytes beside the program itself; an existing lower limit stays.

    Beyond it the work ends with `MemoryError`. A little above, the system itself refuses memory, which not every
    library survives.
    """
    _ceiling.requested = max_memory
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    _soft_limits_before.append(soft)
    limits = [bound for bound in (_soft_limits_before[0], hard) if bound != resource.RLIM_INFINITY]
    limit = min([max_memory + PROGRAM_BYTES + RESERVE_BYTES, *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    _start_memory_checks(limit - RESERVE_BYTES, resident=False)


def restore_ceiling_of_resident_memory() -> None:
    """Restore the ceiling after `lift_memory_ceiling`, now counting resident pages beyond what libraries had taken at
    first.

    Does nothing if there was no ceiling.
    """
    if _ceiling.requested and not _soft_limits_before:
        if not _ceiling.resident:
            _ceiling.resident, _ceiling.base = True, 0
            _ceiling.base = _ceiling.used_bytes()
        _start_memory_checks(_ceiling.requested + PROGRAM_BYTES, resident=True, base=_ceiling.base)


def _release_freed_memory_and_measure(used_bytes: Callable[[], int]) -> int:
    """Return freed memory of the allocators to the system; return the bytes in use afterwards."""
    import ctypes

    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return used_bytes()


def _start_memory_checks(max_bytes: int, *, resident: bool, base: int = 0) -> None:
    """Check the memory of this process every few milliseconds of CPU time."""
    _ceiling.limit, _ceiling.resident, _ceiling.base = max(max_bytes, 1), resident, base
    sys.unraisablehook = _ignore_memory_error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPROF, _ceiling.raise_if_ceiling_exceeded)
        signal.setitimer(signal.ITIMER_PROF, _CHECK_INTERVAL_S, _CHECK_INTERVAL_S)
        atexit.register(
            signal.setitimer, signal.ITIMER_PROF, 0
        )  # a signal would kill the interpreter while it shuts down


def _ignore_memory_error(unraisable: Any) -> None:
    """Ignore a MemoryError that cannot be raised (in a destructor): the next check ends the work."""
    if not isinstance(unraisable.exc_value, MemoryError):
        sys.__unraisablehook__(unraisable)


def available_bytes() -> int:
    """Return how many bytes may still be used; `sys.maxsize` without a ceiling."""
    return _ceiling.limit - _ceiling.used_bytes() if _ceiling.limit else sys.maxsize


def require_free_memory(size: int) -> None:
    """Check that `size` bytes are available, before a library that does not check allocates them.

    Raises:
        MemoryError: they are not available.
    """
    if size > available_bytes() and not (
        _ceiling.resident and size <= _ceiling.limit - _release_freed_memory_and_measure(_ceiling.used_bytes)
    ):
        raise MemoryError(f"{size:,} bytes of memory are needed at once")


def require_value_bytes(size: int) -> None:
    """Check that a copy of a value fits into memory, if it is long; memory is otherwise checked by time.

    Raises:
        MemoryError: it does not fit.
    """
    if size > LONG_VALUE_BYTES:
        require_free_memory(size)


@contextmanager
def defer_memory_checks() -> Iterator[None]:
    """Postpone memory checks for library calls that abort the process when an exception is raised inside them.

    Raises:
        MemoryError: after the block, if more memory is in use than allowed.
    """
    _ceiling.deferred = True
    try:
        yield
    finally:
        _ceiling.deferred = False
    require_free_memory(0)


def require_json_memory(text: bytes) -> None:
    """Check that there is memory for the values of a JSON text; msgspec does not check its allocations.

    Raises:
        MemoryError: there is not enough memory.
    """
    free_bytes = available_bytes()
    if _JSON_BYTES_PER_BYTE * len(text) > free_bytes:
        values = text.count(b",") + text.count(b"[") + _JSON_VALUES_PER_MAP * text.count(b"{")
        if len(text) + _JSON_BYTES_PER_VALUE * values > free_bytes:
            raise MemoryError(f"{len(text):,} bytes of JSON do not fit into memory when decoded")


def lift_memory_ceiling() -> None:
    """Restore the limits from before `set_memory_ceiling`, for programs with their own limits, such as Java."""
    if _ceiling.limit and threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_PROF, 0)
    _ceiling.limit = 0
    while _soft_limits_before:
        soft = _soft_limits_before.pop()
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def create_worker_pool(count: int, libraries: Sequence[str] = ()) -> ProcessPoolExecutor:
    """Create worker processes with the memory ceiling of this process.

    Args:
        libraries: modules whose memory is not counted; workers import them first.

    Raises:
        OSError, ImportError: the system lacks what worker processes need to communicate (/dev/shm).
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    arguments = list(_soft_limits_before), _ceiling.requested, libraries
    return ProcessPoolExecutor(count, get_context("spawn"), _inherit_memory_ceiling, arguments)


def _inherit_memory_ceiling(soft_limits: list[int], requested_bytes: int = 0, libraries: Sequence[str] = ()) -> None:
    """Adopt the ceiling of the parent process, so that it can be lifted here too.

    Args:
        soft_limits: soft limits from before the ceiling; empty if the parent has lifted it.
        requested_bytes: the argument of the parent's `set_memory_ceiling`.
        libraries: modules whose memory is not counted.
    """
    for name in libraries:
        importlib.import_module(name)
    _soft_limits_before[:], _ceiling.requested = soft_limits, requested_bytes
    restore_ceiling_of_resident_memory()
    if soft_limits:
        _start_memory_checks(resource.getrlimit(resource.RLIMIT_DATA)[0] - RESERVE_BYTES, resident=False)


def relax_gc() -> None:
    """Run the garbage collector only after 50,000 new objects: for work that makes many objects without cycles."""
    gc.set_threshold(50_000)


@contextmanager
def relax_gc_temporarily() -> Iterator[None]:
    """Inside this block, run the garbage collector only after 1,000,000 new objects: for work that makes millions."""
    old_thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000, *old_thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*old_thresholds)


class PerFileGarbageCollector:
    """Run the garbage collector every 256 files, for work on very many files that leaves reference cycles."""

    _FILES_PER_COLLECTION = 256
    _YOUNG_GENERATION = 0

    def __init__(self) -> None:
        self._file, self._count = "", 0

    def start_file(self, file: str) -> None:
        """Note that the work is now on this file."""
        if file != self._file:
            self._file, self._count = file, self._count + 1
            if self._count % self._FILES_PER_COLLECTION == 0:
                gc.collect(self._YOUNG_GENERATION)


def keep_freed_memory() -> None:
    """Keep freed memory in the process and reuse it: for work that allocates pieces of some MiB all the time.

    The system clears each page that it hands out, which can take as long as the work. Has no effect with C libraries
    without `mallopt`.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _MAX_FREED_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAX_FREED_BYTES)
