"""Zeroed integer buffers for scan columns; large ones use memory only where they are written."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

_MIN_MMAP_BYTES = 1 << 17
"""Bytes: a bytearray writes all of its zeros at once, which a file of a few records does not need."""


def zeroed_int64(count: int) -> memoryview[int]:
    """Return a buffer of `count` 64-bit integers, all 0; a large one is mapped, so that pages are allocated when
    used.

    Raises:
        MemoryError: the system has no more memory.
    """
    size = 8 * count
    if size < _MIN_MMAP_BYTES:
        return memoryview(bytearray(size)).cast("q")
    try:
        return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)).cast("q")
    except OSError as error:
        raise MemoryError(f"no room for {size:,} bytes") from error
