"""The row store of a replay: the memory that compiled kernels keep rows in, and access to single rows from Python."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import NamedTuple

import msgspec

from binlogtool.formats import keeping
from binlogtool.formats.keeping import END, FREE, HEAD, LEFT, MASK, MIXED, NO_ROOM, OWNER, ROOM, SEED, STATE
from binlogtool.formats.layouts import Kernel

_LEAST, _MOST = 1 << 16, 8 << 20
"""Bytes that the memory has at first; by which it grows at most."""

_LEAST_SLOTS = 1 << 12
_SUMS = 5
_LOW = (1 << 31) - 1
_U64 = (1 << 64) - 1

Entry = tuple[int, int, bytes, tuple[bytes, ...]]
"""See `state.Entry`."""


class Names(NamedTuple):
    """How the replay state names objects: name -> the name that its rows are kept under; kept name -> its epoch."""

    kept: Callable[[str], str]
    epoch: Callable[[str], int]


class Rows:
    """Rows by object and key in a hash table that grows, shared with compiled kernels (`formats.keeping.Kept`).

    Args:
        compiled: Compiles a kernel.
        names: Maps objects to the names that they are kept under.
        full: Returns True if the table may take that many bytes more, else frees them.
    """

    def __init__(self, compiled: Callable[[Kernel], Kernel], names: Names, full: Callable[[int], bool]) -> None:
        self.compiled = compiled
        self.numbers: dict[str, int] = {}
        """Of objects, by the names that they are kept under."""
        self.version = 0
        self._names, self._full = names, full
        self._open()

    def _open(self) -> None:
        self._room = mmap(-1, _LEAST, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._head = array("q", bytes(8 * HEAD))
        self._head[SEED] = int.from_bytes(os.urandom(8), "little", signed=True)
        self._slots = array("q", bytes(8 * _LEAST_SLOTS))
        self._head[MASK] = _LEAST_SLOTS - 1
        self._view()

    def _view(self) -> None:
        self._bytes = memoryview(self._room)
        self._rows = self._bytes.cast("q")
        self._head[END] = len(self._rows)

    @property
    def memory(self) -> keeping.StoreMemory:
        """See `Kept`."""
        return keeping.StoreMemory(self._bytes, self._bytes, self._rows, self._slots, self._head)

    @property
    def size(self) -> int:
        """Bytes of memory that the table takes."""
        return len(self._bytes) + 8 * len(self._slots)

    def __len__(self) -> int:
        return int(self._head[keeping.COUNT])

    def object(self, name: str) -> tuple[int, int]:
        """See `Kept`."""
        kept = self._names.kept(name)
        return self.numbers.setdefault(kept, len(self.numbers)), self._names.epoch(kept)

    # -- one by one ------------------------------------------------------------------------------------------------

    def get(self, kept: str, key: bytes) -> Entry | None:
        """Return the entry of a key; None if the key is not in the table."""
        number = self.numbers.get(kept)
        if number is None:
            return None
        at = self._asked(keeping.get, key, len(key), number=number)
        return None if at < 0 else self._entry(at)[2]

    def put(self, kept: str, key: bytes, entry: Entry) -> None:
        """Store the entry of a key."""
        epoch, state, image, operations = entry
        if operations:
            state, image = state | MIXED, msgspec.msgpack.encode((image, operations))
        number = self.numbers[kept]
        self._asked(keeping.put, key + image, len(key), len(key) + len(image), number=number, state=epoch << 8 | state)

    def _asked(self, kernel: Kernel, data: bytes, *sizes: int, **last: int) -> int:
        """Call a kernel on the table; grow the table and repeat while it has no room."""
        while True:
            found: int = self.compiled(kernel)(data, *sizes, *self.memory, *last.values())
            if found != NO_ROOM:
                return found
            self.more(8 * 8 + len(data))

    # -- memory ----------------------------------------------------------------------------------------------------

    def more(self, size: int = 0) -> None:
        """Make room for at least `size` bytes more, by rebuilding or growing the table, or free all of it."""
        head = self._head
        if 3 * (len(self) + 1) > 2 * len(self._slots):
            self._rebuilt(2 * len(self._slots))
        elif 4 * head[LEFT] > head[FREE]:
            self._rebuilt(len(self._slots))
        else:
            step = max(min(len(self._bytes), _MOST), -(-size // _LEAST) * _LEAST)
            if self._full(step):
                self._grown(len(self._bytes) + step)

    def _rebuilt(self, slots: int) -> None:
        if slots == len(self._slots) or self._full(8 * (slots - len(self._slots))):
            self._slots = array("q", bytes(8))
            self._slots = array("q", bytes(8)) * slots
            self._head[MASK] = slots - 1
            self.compiled(keeping.rebuild)(self._rows, self._slots, self._head)

    def _grown(self, size: int) -> None:
        self._rows.release()
        self._bytes.release()
        try:
            self._room.resize(size)
        except (SystemError, OSError, ValueError):
            other = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            other[: len(self._room)] = self._room[:]
            self._room = other
        self._view()

    def clear(self) -> None:
        """Remove all rows; objects keep their numbers."""
        self._rows.release()
        self._bytes.release()
        self._room.close()
        self._open()

    # -- all of them -----------------------------------------------------------------------------------------------

    def items(self) -> Iterator[tuple[tuple[str, bytes], Entry]]:
        """Yield ((kept name, key), entry) of all rows."""
        names, at = list(self.numbers), 0
        while at < self._head[FREE]:
            after = self._behind(at)
            if self._rows[at + STATE] != -1:
                number, key, entry = self._entry(at)
                yield (names[number], key), entry
            at = after

    def add(
        self, called: Callable[[str], str], other: Callable[[str, bytes, Entry], None]
    ) -> dict[str, tuple[int, int]]:
        """Return, per object by kept name, the number of rows and the sum of their hashes.

        Args:
            digest_name: Kept name -> the name that the digest uses.
            on_other_entry: Called for entries that are not plain rows.
        """
        names = list(self.numbers)
        text, places = keeping.names_of([called(name) for name in names])
        objects = array("q")
        for name, (at, size) in zip(names, places, strict=True):
            objects.extend((self._names.epoch(name), at, size))
        sums = array("q", bytes(8 * _SUMS * len(names)))
        at = 0
        while at < self._head[FREE]:
            at = self.compiled(keeping.add_rows)(text or b"\0", self._bytes, self._rows, self._head, objects, sums, at)
            if at < self._head[FREE]:
                number, key, entry = self._entry(at)
                other(names[number], key, entry)
                at = self._behind(at)
        return {
            name: (sums[_SUMS * i], sum((sums[_SUMS * i + 1 + k] & _U64) << 64 * k for k in range(4)))
            for i, name in enumerate(names)
        }

    def _behind(self, at: int) -> int:
        key, room = self._rows[at + OWNER] & _LOW, self._rows[at + ROOM] >> 32
        return at + keeping.CONTENT + (key + 7 >> 3) + (room + 7 >> 3)

    def _entry(self, at: int) -> tuple[int, bytes, Entry]:
        """Return object number, key and entry of the row at an index of 64-bit words."""
        owner, state = self._rows[at + OWNER], self._rows[at + STATE]
        start = 8 * (at + keeping.CONTENT)
        key = bytes(self._bytes[start : start + (owner & _LOW)])
        start += (len(key) + 7) & ~7
        image = bytes(self._bytes[start : start + (self._rows[at + ROOM] & _LOW)])
        operations: tuple[bytes, ...] = ()
        if state & MIXED:
            image, operations = msgspec.msgpack.decode(image, type=tuple[bytes, tuple[bytes, ...]])
        return owner >> 32, key, (state >> 8, state & (MIXED - 1), image, operations)
