"""What a replay has read and cannot decide yet, with the memory that it costs."""

from __future__ import annotations

from collections import Counter

import msgspec

from binlogtool.log.records import Block

_RECORD_BYTES = 1000
"""What an undecided record costs in memory beside its bytes, about."""


class Waiting(msgspec.Struct):
    """Records that are not decided yet, by number. bytes: what they and the blocks that they keep alive cost, about."""

    records: dict[int, tuple[Block, int]] = msgspec.field(default_factory=dict)
    bytes: int = 0
    _blocks: Counter[int] = msgspec.field(default_factory=Counter)

    def add(self, first: int, block: Block, decided: bytearray) -> None:
        """The records of a block, from number `first` on, that have no 1 in `decided`."""
        self.records.update((first + i, (block, i)) for i, done in enumerate(decided) if not done)
        self._blocks[id(block)] = decided.count(0)
        self.bytes += self._cost(block) + _RECORD_BYTES * decided.count(0)

    def pop(self, number: int) -> tuple[Block, int]:
        """Takes one out."""
        block, i = self.records.pop(number)
        self._blocks[id(block)] -= 1
        self.bytes -= _RECORD_BYTES
        if not self._blocks[id(block)]:
            del self._blocks[id(block)]
            self.bytes -= self._cost(block)
        return block, i

    @staticmethod
    def _cost(block: Block) -> int:
        """Estimate the memory of a block in bytes; records of a packed frame count with their own unpacked size."""
        sizes = zip(block.size, block.inner, strict=True)
        return 4 * sum(size if inner is None else inner.size for size, inner in sizes)
