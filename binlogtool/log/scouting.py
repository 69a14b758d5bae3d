"""Look-ahead of a comparison, for a log that lacks thousands of records and shares no bytes with the other one.

Such are logs of two servers that ran the same statements: each record has another number and time. The content of
records is searched for far ahead, and only a run of records that occurs once counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

from binlogtool.log.units import Unit, Units

_RUN = 8
"""Units in a row that must say the same."""
_FAR = 200_000
"""Units that are looked at in one search."""
_MISSES = 2
"""Searches of a comparison that may find nothing; then it is one of logs that have nothing in common."""


class Scout:
    """Look ahead in one log, from its beginning each time. begin: creates its units again."""

    def __init__(self, begin: Callable[[], Units]) -> None:
        self._begin = begin
        self._misses = 0

    def find(self, known: Sequence[Unit], behind: int) -> int:
        """Return the offset, at or after `offset`, of units with the content of some of `reference`; 0 = not found."""
        wanted = _once([hash(unit.says) for unit in known])
        if not wanted or self._misses >= _MISSES:
            return 0
        units = self._begin()
        units.known = behind
        last: deque[tuple[int, int]] = deque(maxlen=_RUN)
        for unit in islice(units, _FAR):
            last.append((hash(unit.says), unit.start))
            if tuple(said for said, _ in last) in wanted:
                return last[0][1]
        self._misses += 1
        return 0


def _once(said: Sequence[int]) -> set[tuple[int, ...]]:
    """Return the runs that occur once: the begin and end of transactions have the same content each time."""
    runs = Counter(tuple(said[i : i + _RUN]) for i in range(len(said) - _RUN + 1))
    return {run for run, times in runs.items() if times == 1}
