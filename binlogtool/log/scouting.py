"""Look-ahead of a comparison, for a log that lacks thousands of records and shares no bytes with the other one.

Such are logs of two servers that ran the same statements: each record has another number and time. The content of
records is searched for far ahead, and only a run of records that occurs once counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

from binlogtool.log.units import DiffUnit, DiffUnits

_RUN_LENGTH = 8
"""Units in a row that must say the same."""
_MAX_UNITS = 200_000
"""Units that are looked at in one search."""
_MAX_MISSES = 2
"""Searches of a comparison that may find nothing; then it is one of logs that have nothing in common."""


class DiffLookahead:
    """Look ahead in one log, from its beginning each time. begin: creates its units again."""

    def __init__(self, begin: Callable[[], DiffUnits]) -> None:
        self._begin = begin
        self._misses = 0

    def find(self, reference: Sequence[DiffUnit], offset: int) -> int:
        """Return the offset, at or after `offset`, of units with the content of some of `reference`; 0 = not found."""
        unique_runs = _find_unique_runs([hash(unit.content) for unit in reference])
        if not unique_runs or self._misses >= _MAX_MISSES:
            return 0
        units = self._begin()
        units.known_end = offset
        recent: deque[tuple[int, int]] = deque(maxlen=_RUN_LENGTH)
        for unit in islice(units, _MAX_UNITS):
            recent.append((hash(unit.content), unit.start))
            if tuple(said for said, _ in recent) in unique_runs:
                return recent[0][1]
        self._misses += 1
        return 0


def _find_unique_runs(content_hashes: Sequence[int]) -> set[tuple[int, ...]]:
    """Return the runs that occur once: the begin and end of transactions have the same content each time."""
    runs = Counter(tuple(content_hashes[i : i + _RUN_LENGTH]) for i in range(len(content_hashes) - _RUN_LENGTH + 1))
    return {run for run, times in runs.items() if times == 1}
