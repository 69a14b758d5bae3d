"""Room for columns that a scan writes: much of it costs only what is used."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

_MUCH = 1 << 17
"""Bytes: a bytearray writes all of its zeros at once, which a file of a few records does not need."""


def words(count: int) -> memoryview[int]:
    """Room for so many integers, all 0. Much of it is asked of the system, which gives each page when it is used.

    Raises:
        MemoryError: the system has no more.
    """
    size = 8 * count
    if size < _MUCH:
        return memoryview(bytearray(size)).cast("q")
    try:
        return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)).cast("q")
    except OSError as error:
        raise MemoryError(f"no room for {size:,} bytes") from error
