"""Keep the records of a replay that cannot be decided yet, in little memory."""

from __future__ import annotations

import io
import pickle
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from binlogtool.log.records import RecordBlock

_BYTES_PER_RECORD = 1000
"""What an undecided record costs in memory beside its bytes, about."""


class _WaitingBlock(msgspec.Struct):
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
    block: RecordBlock | None
    packed: bytes | None = None


class UndecidedRecords(msgspec.Struct):
    """Records that are not decided yet, by number.

    Blocks of long transactions that would take more than `max_unpacked` bytes are compressed until they are decided.

    Attributes:
        bytes: Approximate memory of the records and of the blocks that hold them.
        count: Number of records.
    """

    max_unpacked: int
    bytes: int = 0
    count: int = 0
    _blocks: list[_WaitingBlock] = msgspec.field(default_factory=list)
    _firsts: list[int] = msgspec.field(default_factory=list)
    _unpacked: int = 0

    def add(self, first: int, block: RecordBlock, decided: bytearray) -> None:
        """Add the records of a block that have no 1 in `decided`; `first` is the number of its first record. Blocks
        come in order.
        """
        pending = bytearray(0 if done else 1 for done in decided)
        cost = _BYTES_PER_RECORD * len(block) + _estimate_content_cost(block)
        self._blocks.append(_WaitingBlock(first, pending, sum(pending), cost, block))
        self._firsts.append(first)
        self.count += self._blocks[-1].count
        self._add_cost(cost)
        if self._unpacked > self.max_unpacked:
            for waiting_block in self._blocks:
                self._pack(waiting_block)

    def pop(self, number: int) -> tuple[RecordBlock, int]:
        """Remove a record; return its block and its index there."""
        position = bisect_right(self._firsts, number) - 1
        waiting_block = self._blocks[position]
        index = number - waiting_block.first
        block = waiting_block.block or self._unpack(waiting_block)
        waiting_block.pending[index] = 0
        waiting_block.count -= 1
        self.count -= 1
        if not waiting_block.count:
            self._add_cost(-waiting_block.cost)
            self.bytes -= len(waiting_block.packed or b"")
            del self._blocks[position], self._firsts[position]
        return block, index

    def iter_numbers(self) -> Iterator[int]:
        """Yield the numbers of the waiting records, in order; none may be removed meanwhile."""
        for waiting_block in self._blocks:
            yield from (waiting_block.first + i for i, waits in enumerate(waiting_block.pending) if waits)

    def _add_cost(self, cost: int) -> None:
        self._unpacked += cost
        self.bytes += cost

    def _pack(self, waiting_block: _WaitingBlock) -> None:
        if waiting_block.block is None:
            return
        if waiting_block.packed is None:
            waiting_block.packed = _pack_block(waiting_block.block)
            self.bytes += len(waiting_block.packed)
        waiting_block.block = None
        self._add_cost(-waiting_block.cost)

    def _unpack(self, waiting_block: _WaitingBlock) -> RecordBlock:
        if self._unpacked + waiting_block.cost > self.max_unpacked:
            for other in self._blocks:
                self._pack(other)
        assert waiting_block.packed is not None
        block: RecordBlock = pickle.loads(zlib.decompress(waiting_block.packed))
        waiting_block.block = block
        self._add_cost(waiting_block.cost)
        return block


def _estimate_content_cost(block: RecordBlock) -> int:
    """Estimate the memory of a block's content in bytes; records of a packed frame count with their own size."""
    sizes = zip(block.size, block.inner, strict=True)
    return 4 * sum(size if inner is None else inner.size for size, inner in sizes)


class _Pickler(pickle.Pickler):
    dispatch_table = {MappingProxyType: lambda mapping: (MappingProxyType, (dict(mapping),))}


def _pack_block(block: RecordBlock) -> bytes:
    plain = io.BytesIO()
    _Pickler(plain, pickle.HIGHEST_PROTOCOL).dump(block)
    return zlib.compress(plain.getbuffer(), 1)
