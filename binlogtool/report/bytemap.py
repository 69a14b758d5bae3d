"""Map of a file's bytes: ranges of byte classes in file order, and a bounded number of cells.

The ranges come from a scan: from the byte account after each segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import DamagedRange

MAX_CELLS = 1000
"""A map has so many at most."""

_CLASS_ORDER = ("header", "record", "damaged", "torn_tail", "unknown", "padding", "preallocated")
"""Of classes of one stretch: what a writer left comes behind what it wrote."""

_CLASSES_BY_RANK = ("record", "padding", "preallocated", "header", "unknown", "torn_tail", "damaged")


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of one byte class."""

    start: int
    end: int
    name: str


def iter_byte_ranges(scan: Scan, file: LogFile) -> Iterator[ByteRange]:
    """Yield the ranges of a file; one class can occur twice in a row."""
    position, accounted = 0, dict.fromkeys(_CLASS_ORDER, 0)

    def take_new_ranges() -> Iterator[ByteRange]:
        nonlocal position
        totals = scan.account.as_dict()
        for name in _CLASS_ORDER:
            start, position = position, position + max(0, totals[name] - accounted[name])
            accounted[name] = totals[name]
            if start < position:
                yield ByteRange(start, position, name)

    for segment in scan.segments():
        if not isinstance(segment, DamagedRange) or not segment.hollow:  # the scan may still classify those differently
            yield from take_new_ranges()
    yield from take_new_ranges()


class ByteMap:
    """The cells of a file of `size` bytes; ranges smaller than a cell share one, which shows the worst class."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cell_count = max(1, min(MAX_CELLS, size))
        self._ranks = [0] * self.cell_count
        self.bytes = dict.fromkeys(_CLASSES_BY_RANK, 0)

    def add_range(self, byte_range: ByteRange) -> None:
        """Add a range of the file."""
        rank = _CLASSES_BY_RANK.index(byte_range.name)
        self.bytes[byte_range.name] += byte_range.end - byte_range.start
        first, last = self._find_cell(byte_range.start), self._find_cell(byte_range.end - 1)
        for cell in range(first, last + 1):
            self._ranks[cell] = max(self._ranks[cell], rank)

    def _find_cell(self, offset: int) -> int:
        return min(offset * self.cell_count // self.size, self.cell_count - 1)

    def merge_cells(self) -> Sequence[ByteRange]:
        """Return neighbouring cells of one class as byte ranges."""
        merged, cell = list[ByteRange](), 0
        for rank, cells in groupby(self._ranks):
            start, cell = cell, cell + len(list(cells))
            merged.append(ByteRange(self._find_cell_start(start), self._find_cell_start(cell), _CLASSES_BY_RANK[rank]))
        return merged

    def _find_cell_start(self, cell: int) -> int:
        """Return the first byte of a cell."""
        return -(-cell * self.size // self.cell_count)


def make_byte_map(scan: Scan, file: LogFile, size: int) -> ByteMap:
    """Scan a file and return its map; the scan must not have begun."""
    byte_map = ByteMap(size)
    for byte_range in iter_byte_ranges(scan, file):
        if byte_range.end <= size:
            byte_map.add_range(byte_range)
    return byte_map
