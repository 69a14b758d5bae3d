"""Keep the records of a replay that cannot be decided yet, in little memory."""

from __future__ import annotations

import io
import pickle
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from binlogtool.log.records import Block

_RECORD_BYTES = 1000
"""What an undecided record costs in memory beside its bytes, about."""


class _Held(msgspec.Struct):
    """A block with records that wait.

    Attributes:
        first: Number of its first record.
        pending: 1 for each record that waits.
        count: Records that wait.
        cost: Approximate bytes of the block in memory.
        packed: The compressed block; None = not yet.
    """

    first: int
    pending: bytearray
    count: int
    cost: int
    block: Block | None
    packed: bytes | None = None


class Waiting(msgspec.Struct):
    """Records that are not decided yet, by number.

    Blocks of long transactions that would take more than `max_unpacked` bytes are compressed until they are decided.

    Attributes:
        bytes: Approximate memory of the records and of the blocks that hold them.
        count: Number of records.
    """

    most_unpacked: int
    bytes: int = 0
    count: int = 0
    _held: list[_Held] = msgspec.field(default_factory=list)
    _firsts: list[int] = msgspec.field(default_factory=list)
    _unpacked: int = 0

    def add(self, first: int, block: Block, decided: bytearray) -> None:
        """Add the records of a block that have no 1 in `decided`; `first` is the number of its first record. Blocks
        come in order.
        """
        pending = bytearray(0 if done else 1 for done in decided)
        cost = _RECORD_BYTES * len(block) + _content_cost(block)
        self._held.append(_Held(first, pending, sum(pending), cost, block))
        self._firsts.append(first)
        self.count += self._held[-1].count
        self._account(cost)
        if self._unpacked > self.most_unpacked:
            for held in self._held:
                self._pack(held)

    def pop(self, number: int) -> tuple[Block, int]:
        """Remove a record; return its block and its index there."""
        place = bisect_right(self._firsts, number) - 1
        held = self._held[place]
        i = number - held.first
        block = held.block or self._unpack(held)
        held.pending[i] = 0
        held.count -= 1
        self.count -= 1
        if not held.count:
            self._account(-held.cost)
            self.bytes -= len(held.packed or b"")
            del self._held[place], self._firsts[place]
        return block, i

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the waiting records, in order; none may be removed meanwhile."""
        for held in self._held:
            yield from (held.first + i for i, waits in enumerate(held.pending) if waits)

    def _account(self, cost: int) -> None:
        self._unpacked += cost
        self.bytes += cost

    def _pack(self, held: _Held) -> None:
        if held.block is None:
            return
        if held.packed is None:
            held.packed = _packed(held.block)
            self.bytes += len(held.packed)
        held.block = None
        self._account(-held.cost)

    def _unpack(self, held: _Held) -> Block:
        if self._unpacked + held.cost > self.most_unpacked:
            for other in self._held:
                self._pack(other)
        assert held.packed is not None
        block: Block = pickle.loads(zlib.decompress(held.packed))
        held.block = block
        self._account(held.cost)
        return block


def _content_cost(block: Block) -> int:
    """Estimate the memory of a block's content in bytes; records of a packed frame count with their own size."""
    sizes = zip(block.size, block.inner, strict=True)
    return 4 * sum(size if inner is None else inner.size for size, inner in sizes)


class _Pickler(pickle.Pickler):
    dispatch_table = {MappingProxyType: lambda mapping: (MappingProxyType, (dict(mapping),))}


def _packed(block: Block) -> bytes:
    plain = io.BytesIO()
    _Pickler(plain, pickle.HIGHEST_PROTOCOL).dump(block)
    return zlib.compress(plain.getbuffer(), 1)
