"""Sets of integers as intervals: the GTID numbers of one source in little memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

MAX_INTERVALS = 100_000
"""Intervals of one set; numbers that would need more are not kept."""


class IntervalSet:
    """Set of integers; `is_full`: numbers were left out because there were too many intervals."""

    __slots__ = ("_starts", "_stops", "is_full")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.is_full = False
        for start, stop in intervals:
            self.add(start, stop)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The half-open intervals in order; they neither touch nor overlap."""
        return iter(zip(self._starts, self._stops, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def highest(self) -> int:
        """The highest number; 0 for an empty set."""
        return self._stops[-1] - 1 if self._stops else 0

    def count(self) -> int:
        """Return how many numbers are in the set."""
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        """Add the numbers `[start, stop)`."""
        if start >= stop:
            return
        if self._stops and start == self._stops[-1]:
            self._stops[-1] = stop
            return
        low = bisect_right(self._starts, start)
        if low and self._stops[low - 1] >= start:
            low -= 1
        high = bisect_right(self._starts, stop)
        if low == high and len(self._starts) >= MAX_INTERVALS:
            self.is_full = True
            return
        if low < high:
            start, stop = min(start, self._starts[low]), max(stop, self._stops[high - 1])
        self._starts[low:high] = [start]
        self._stops[low:high] = [stop]

    def iter_gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the half-open intervals between those of the set."""
        return zip(self._stops[:-1], self._starts[1:], strict=True)

    def format_text(self, limit: int = 100) -> str:
        """Return the set as MySQL writes it, `1-5:7`, with at most `limit` intervals."""
        parts = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in list(self)[:limit]]
        return ":".join(parts) + (":…" if len(self) > limit else "")
