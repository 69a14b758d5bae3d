"""The row store of a replay: the memory that compiled kernels keep rows in, and access to single rows from Python."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import NamedTuple

import msgspec

from binlogtool.formats import keeping
from binlogtool.formats.keeping import (
    HEAD_ABANDONED,
    HEAD_END,
    HEAD_FREE,
    HEAD_HASH_SEED,
    HEAD_SIZE,
    HEAD_SLOT_MASK,
    NO_SPACE,
    ROW_IMAGE_SIZE,
    ROW_MIXED,
    ROW_OWNER,
    ROW_STATE,
)
from binlogtool.formats.layouts import Kernel

_MIN_MEMORY, _MAX_GROWTH = 1 << 16, 8 << 20
"""Bytes that the memory has at first; by which it grows at most."""

_MIN_SLOTS = 1 << 12
_SUM_WORDS = 5
_LOW_31_BITS = (1 << 31) - 1
_U64 = (1 << 64) - 1

KeyEntry = tuple[int, int, bytes, tuple[bytes, ...]]
"""See `state.Entry`."""


class ObjectNames(NamedTuple):
    """How the replay state names objects: name -> the name that its rows are kept under; kept name -> its epoch."""

    kept_name: Callable[[str], str]
    epoch: Callable[[str], int]


class CompiledRowStore:
    """Rows by object and key in a hash table that grows, shared with compiled kernels
    (`formats.keeping.RowStoreMemory`).

    Args:
        compiled: Compiles a kernel.
        names: Maps objects to the names that they are kept under.
        can_grow: Returns True if the table may take that many bytes more, else frees them.
    """

    def __init__(
        self, compiled: Callable[[Kernel], Kernel], names: ObjectNames, can_grow: Callable[[int], bool]
    ) -> None:
        self.compile_kernel = compiled
        self.numbers: dict[str, int] = {}
        """Of objects, by the names that they are kept under."""
        self.version = 0
        self._names, self._can_grow = names, can_grow
        self._allocate()

    def _allocate(self) -> None:
        self._memory_map = mmap(-1, _MIN_MEMORY, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._head = array("q", bytes(8 * HEAD_SIZE))
        self._head[HEAD_HASH_SEED] = int.from_bytes(os.urandom(8), "little", signed=True)
        self._slots = array("q", bytes(8 * _MIN_SLOTS))
        self._head[HEAD_SLOT_MASK] = _MIN_SLOTS - 1
        self._map_views()

    def _map_views(self) -> None:
        self._bytes = memoryview(self._memory_map)
        self._rows = self._bytes.cast("q")
        self._head[HEAD_END] = len(self._rows)

    @property
    def memory(self) -> keeping.StoreMemory:
        """See `Kept`."""
        return keeping.StoreMemory(self._bytes, self._bytes, self._rows, self._slots, self._head)

    @property
    def size(self) -> int:
        """Bytes of memory that the table takes."""
        return len(self._bytes) + 8 * len(self._slots)

    def __len__(self) -> int:
        return int(self._head[keeping.HEAD_ROW_COUNT])

    def object_number(self, name: str) -> tuple[int, int]:
        """See `Kept`."""
        kept = self._names.kept_name(name)
        return self.numbers.setdefault(kept, len(self.numbers)), self._names.epoch(kept)

    # -- one by one ------------------------------------------------------------------------------------------------

    def get(self, kept_name: str, key: bytes) -> KeyEntry | None:
        """Return the entry of a key; None if the key is not in the table."""
        number = self.numbers.get(kept_name)
        if number is None:
            return None
        row_index = self._call_kernel(keeping.get_row, key, len(key), number=number)
        return None if row_index < 0 else self._read_row(row_index)[2]

    def put(self, kept_name: str, key: bytes, entry: KeyEntry) -> None:
        """Store the entry of a key."""
        epoch, state, image, operations = entry
        if operations:
            state, image = state | ROW_MIXED, msgspec.msgpack.encode((image, operations))
        number = self.numbers[kept_name]
        self._call_kernel(
            keeping.put_key_and_row,
            key + image,
            len(key),
            len(key) + len(image),
            number=number,
            state=epoch << 8 | state,
        )

    def _call_kernel(self, kernel: Kernel, data: bytes, *sizes: int, **extra_arguments: int) -> int:
        """Call a kernel on the table; grow the table and repeat while it has no room."""
        while True:
            result: int = self.compile_kernel(kernel)(data, *sizes, *self.memory, *extra_arguments.values())
            if result != NO_SPACE:
                return result
            self.grow(8 * 8 + len(data))

    # -- memory ----------------------------------------------------------------------------------------------------

    def grow(self, size: int = 0) -> None:
        """Make room for at least `size` bytes more, by rebuilding or growing the table, or free all of it."""
        head = self._head
        if 3 * (len(self) + 1) > 2 * len(self._slots):
            self._rebuild(2 * len(self._slots))
        elif 4 * head[HEAD_ABANDONED] > head[HEAD_FREE]:
            self._rebuild(len(self._slots))
        else:
            step = max(min(len(self._bytes), _MAX_GROWTH), -(-size // _MIN_MEMORY) * _MIN_MEMORY)
            if self._can_grow(step):
                self._grow(len(self._bytes) + step)

    def _rebuild(self, slots: int) -> None:
        if slots == len(self._slots) or self._can_grow(8 * (slots - len(self._slots))):
            self._slots = array("q", bytes(8))
            self._slots = array("q", bytes(8)) * slots
            self._head[HEAD_SLOT_MASK] = slots - 1
            self.compile_kernel(keeping.compact_rows)(self._rows, self._slots, self._head)

    def _grow(self, size: int) -> None:
        self._rows.release()
        self._bytes.release()
        try:
            self._memory_map.resize(size)
        except (SystemError, OSError, ValueError):
            larger_map = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            larger_map[: len(self._memory_map)] = self._memory_map[:]
            self._memory_map = larger_map
        self._map_views()

    def clear(self) -> None:
        """Remove all rows; objects keep their numbers."""
        self._rows.release()
        self._bytes.release()
        self._memory_map.close()
        self._allocate()

    # -- all of them -----------------------------------------------------------------------------------------------

    def items(self) -> Iterator[tuple[tuple[str, bytes], KeyEntry]]:
        """Yield ((kept name, key), entry) of all rows."""
        names, row_index = list(self.numbers), 0
        while row_index < self._head[HEAD_FREE]:
            next_index = self._next_row(row_index)
            if self._rows[row_index + ROW_STATE] != -1:
                number, key, entry = self._read_row(row_index)
                yield (names[number], key), entry
            row_index = next_index

    def sum_rows(
        self, digest_name: Callable[[str], str], on_other_entry: Callable[[str, bytes, KeyEntry], None]
    ) -> dict[str, tuple[int, int]]:
        """Return, per object by kept name, the number of rows and the sum of their hashes.

        Args:
            digest_name: Kept name -> the name that the digest uses.
            on_other_entry: Called for entries that are not plain rows.
        """
        names = list(self.numbers)
        text, places = keeping.pack_names([digest_name(name) for name in names])
        objects = array("q")
        for name, (at, size) in zip(names, places, strict=True):
            objects.extend((self._names.epoch(name), at, size))
        sums = array("q", bytes(8 * _SUM_WORDS * len(names)))
        at = 0
        while at < self._head[HEAD_FREE]:
            at = self.compile_kernel(keeping.add_row_digests)(
                text or b"\0", self._bytes, self._rows, self._head, objects, sums, at
            )
            if at < self._head[HEAD_FREE]:
                number, key, entry = self._read_row(at)
                on_other_entry(names[number], key, entry)
                at = self._next_row(at)
        return {
            name: (sums[_SUM_WORDS * i], sum((sums[_SUM_WORDS * i + 1 + k] & _U64) << 64 * k for k in range(4)))
            for i, name in enumerate(names)
        }

    def _next_row(self, row_index: int) -> int:
        key, capacity = self._rows[row_index + ROW_OWNER] & _LOW_31_BITS, self._rows[row_index + ROW_IMAGE_SIZE] >> 32
        return row_index + keeping.ROW_CONTENT + (key + 7 >> 3) + (capacity + 7 >> 3)

    def _read_row(self, row_index: int) -> tuple[int, bytes, KeyEntry]:
        """Return object number, key and entry of the row at an index of 64-bit words."""
        owner, state = self._rows[row_index + ROW_OWNER], self._rows[row_index + ROW_STATE]
        start = 8 * (row_index + keeping.ROW_CONTENT)
        key = bytes(self._bytes[start : start + (owner & _LOW_31_BITS)])
        start += (len(key) + 7) & ~7
        image = bytes(self._bytes[start : start + (self._rows[row_index + ROW_IMAGE_SIZE] & _LOW_31_BITS)])
        operations: tuple[bytes, ...] = ()
        if state & ROW_MIXED:
            image, operations = msgspec.msgpack.decode(image, type=tuple[bytes, tuple[bytes, ...]])
        return owner >> 32, key, (state >> 8, state & (ROW_MIXED - 1), image, operations)
