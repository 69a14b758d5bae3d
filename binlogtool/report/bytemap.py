"""Map of a file's bytes: ranges of byte classes in file order, and a bounded number of cells.

The ranges come from a scan: from the byte account after each segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from binlogtool.log.opened_file import LogFile
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage

CELLS = 1000
"""A map has so many at most."""

_IN_ORDER = ("header", "record", "damaged", "torn_tail", "unknown", "padding", "preallocated")
"""Of classes of one stretch: what a writer left comes behind what it wrote."""

_WORST = ("record", "padding", "preallocated", "header", "unknown", "torn_tail", "damaged")


class Range(NamedTuple):
    """Bytes `[start, end)` of one byte class."""

    start: int
    end: int
    name: str


def byte_ranges(scan: Scan, file: LogFile) -> Iterator[Range]:
    """Yield the ranges of a file; one class can occur twice in a row."""
    at, booked = 0, dict.fromkeys(_IN_ORDER, 0)

    def news() -> Iterator[Range]:
        nonlocal at
        now = scan.account.as_dict()
        for name in _IN_ORDER:
            start, at = at, at + max(0, now[name] - booked[name])
            booked[name] = now[name]
            if start < at:
                yield Range(start, at, name)

    for segment in scan.segments():
        if not isinstance(segment, Damage) or not segment.hollow:  # the scan may still classify those differently
            yield from news()
    yield from news()


class ByteMap:
    """The cells of a file of `size` bytes; ranges smaller than a cell share one, which shows the worst class."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = max(1, min(CELLS, size))
        self._ranks = [0] * self.count
        self.bytes = dict.fromkeys(_WORST, 0)

    def add(self, one: Range) -> None:
        """Add a range of the file."""
        rank = _WORST.index(one.name)
        self.bytes[one.name] += one.end - one.start
        first, last = self._cell(one.start), self._cell(one.end - 1)
        for cell in range(first, last + 1):
            self._ranks[cell] = max(self._ranks[cell], rank)

    def _cell(self, offset: int) -> int:
        return min(offset * self.count // self.size, self.count - 1)

    def bars(self) -> Sequence[Range]:
        """Return neighbouring cells of one class as byte ranges."""
        found, at = list[Range](), 0
        for rank, cells in groupby(self._ranks):
            start, at = at, at + len(list(cells))
            found.append(Range(self._edge(start), self._edge(at), _WORST[rank]))
        return found

    def _edge(self, cell: int) -> int:
        """Return the first byte of a cell."""
        return -(-cell * self.size // self.count)


def byte_map(scan: Scan, file: LogFile, size: int) -> ByteMap:
    """Scan a file and return its map; the scan must not have begun."""
    made = ByteMap(size)
    for one in byte_ranges(scan, file):
        if one.end <= size:
            made.add(one)
    return made
