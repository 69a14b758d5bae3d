"""Track out-of-band records that no COMMIT record refers to: garbage of rollbacks, or data of open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbPosition

MAX_TRACKED_RECORDS = 1 << 17
"""Records that are remembered; the oldest are forgotten first."""


class UnreferencedOobTracker(msgspec.Struct):
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

    def add_records(self, places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        """Add records, in order."""
        self.records += len(sizes)
        self.bytes += sum(sizes)
        self._sizes.update(zip(places, sizes, strict=True))
        too_many = len(self._sizes) - MAX_TRACKED_RECORDS
        if too_many > 0:
            for place in list(islice(self._sizes, too_many)):
                del self._sizes[place]
            self.forgotten += too_many

    def would_know(self, position: IbbPosition) -> bool:
        """Check if a record at this position would be tracked, unless a COMMIT record referred to it."""
        return self.first_file is not None and position.file_no >= self.first_file and not self.forgotten

    def has_unreferenced(self, position: IbbPosition) -> bool:
        """Check if there is a record at this position that no COMMIT record refers to."""
        return position in self._sizes

    def mark_referenced(self, places: Iterable[IbbPosition]) -> IbbPosition | None:
        """Mark the records that a COMMIT record refers to; returns one that was referred to before."""
        shared = None
        for place in places:
            size = self._sizes.pop(place, None)
            if size is None:
                shared = shared or (place if self.would_know(place) else None)
            else:
                self.reached += 1
                self.reached_bytes += size
        return shared

    def restart_at(self, next_file: int) -> None:
        """Record that records before a file may have been missed."""
        self.first_file = next_file

    def count_unreferenced(self) -> tuple[int, int]:
        """Return the number of tracked records that no COMMIT record refers to, and their bytes."""
        return len(self._sizes), sum(self._sizes.values())
