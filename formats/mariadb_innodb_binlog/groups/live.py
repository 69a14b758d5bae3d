"""Out-of-band records that no COMMIT record has reached yet: garbage of rollbacks, or data of open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.records.records import Place

MOST = 1 << 17
"""Records that are remembered; the oldest are forgotten first."""


class Live(msgspec.Struct):
    """Follows the OOB_DATA records of a log. first_file: of the files that were followed without a hole.

    records, bytes: all that were seen. forgotten: how many fell out of the memory.
    """

    first_file: int | None = None
    records: int = 0
    bytes: int = 0
    reached: int = 0
    reached_bytes: int = 0
    forgotten: int = 0
    _sizes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)

    def add(self, places: Sequence[tuple[int, int]], sizes: Sequence[int]) -> None:
        """Records were met, in order."""
        self.records += len(sizes)
        self.bytes += sum(sizes)
        self._sizes.update(zip(places, sizes, strict=True))
        too_many = len(self._sizes) - MOST
        if too_many > 0:
            for place in list(islice(self._sizes, too_many)):
                del self._sizes[place]
            self.forgotten += too_many

    def knows(self, place: Place) -> bool:
        """Would a record at this place be known, if nothing had reached it?"""
        return self.first_file is not None and place.file_no >= self.first_file and not self.forgotten

    def holds(self, place: Place) -> bool:
        """Is there a record that nothing has reached?"""
        return place in self._sizes

    def reach(self, places: Iterable[Place]) -> Place | None:
        """A COMMIT record refers to these; returns one that another one has reached before."""
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
        """Records may have been missed."""
        self.first_file = next_file

    def unreached(self) -> tuple[int, int]:
        """How many remembered records nothing has reached, and their bytes."""
        return len(self._sizes), sum(self._sizes.values())
