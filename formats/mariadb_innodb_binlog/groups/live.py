"""Track out-of-band records that no COMMIT record refers to: garbage of rollbacks, or data of open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import Place

MOST = 1 << 17
"""Records that are remembered; the oldest are forgotten first."""


class Live(msgspec.Struct):
    """Tracks the OOB_DATA records of a log.

    Attributes:
        first_file: first of the files that were followed without a gap.
        records, bytes: of all records.
        reached, reached_bytes: of records that a COMMIT record refers to.
        forgotten: number of records that are no longer tracked.
    """

    first_file: int | None = None
    records: int = 0
    bytes: int = 0
    reached: int = 0
    reached_bytes: int = 0
    forgotten: int = 0
    _sizes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)

    def add(self, places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        """Add records, in order."""
        self.records += len(sizes)
        self.bytes += sum(sizes)
        self._sizes.update(zip(places, sizes, strict=True))
        too_many = len(self._sizes) - MOST
        if too_many > 0:
            for place in list(islice(self._sizes, too_many)):
                del self._sizes[place]
            self.forgotten += too_many

    def knows(self, place: Place) -> bool:
        """Check if a record at this position would be tracked, unless a COMMIT record referred to it."""
        return self.first_file is not None and place.file_no >= self.first_file and not self.forgotten

    def holds(self, place: Place) -> bool:
        """Check if there is a record at this position that no COMMIT record refers to."""
        return place in self._sizes

    def reach(self, places: Iterable[Place]) -> Place | None:
        """Mark the records that a COMMIT record refers to; returns one that was referred to before."""
        shared = None
        for place in places:
            size = self._sizes.pop(place, None)
            if size is None:
                shared = shared or (place if self.knows(place) else None)
            else:
                self.reached += 1
                self.reached_bytes += size
        return shared

    def lose(self, next_file: int) -> None:
        """Record that records before a file may have been missed."""
        self.first_file = next_file

    def unreached(self) -> tuple[int, int]:
        """Return the number of tracked records that no COMMIT record refers to, and their bytes."""
        return len(self._sizes), sum(self._sizes.values())
