"""Progress of the replay, per file and per table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.schema import Op
from binlogtool.formats.replay_rules import Examined

MAX_GAPS = 1000
_MAX_TOLD = 20


class Table(msgspec.Struct):
    """A table of the server.

    Attributes:
        tid: last applied; None = not served, -1 = without binlog.
        saved: TID before the start.
        gaps: TIDs `[first, last]` that were skipped.
        since: tid when the current file declared the table.
        last: highest TID in that file.
        time: latest time in that file.
    """

    tid: int | None
    saved: int
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    since: int = 0
    last: int = 0
    time: int = 0

    def passed_by(self, tid: int) -> bool:
        """Check that this TID, lower than the last applied one, was never applied."""
        return len(self.gaps) >= MAX_GAPS or any(low <= tid <= high for low, high in self.gaps)


class Lost(msgspec.Struct):
    """Transactions of one file that the server loses without an error."""

    offset: int
    record: int
    count: int = 0
    tids: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, name: str, tid: int) -> None:
        """Add one transaction."""
        self.count += 1
        if name in self.tids or len(self.tids) < _MAX_TOLD:
            low, high = self.tids.get(name, (tid, tid))
            self.tids[name] = min(low, tid), max(high, tid)


class Reading(msgspec.Struct):
    """The file that is replayed.

    Attributes:
        damage_start: offset of its first damaged range, or None.
        cache_defects: offsets of ADD_CACHEs with the checksum 0, after which the server reads no further.
        contradictions: offsets of commits whose numbers contradict each other.
        end_reason: why nothing more is applied (`dropped`, `deleted`), or None.
        ruled_count: transactions that were ruled on.
    """

    file: Examined
    bad: int | None
    defects: frozenset[int | None]
    contradictions: frozenset[int | None] = frozenset()
    names: list[str] = msgspec.field(default_factory=list)
    known: dict[str, Table] = msgspec.field(default_factory=dict)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    unexpected: int = 0
    taken: int = 0
    ended: str | None = None
    lost: Lost | None = None

    @property
    def cut_short(self) -> bool:
        """True if anything is after the place where the replay of the file ended."""
        return self.bad is not None or self.taken < self.file.records

    def report(self) -> dict[str, Any]:
        """Return what the server would log about the file."""
        plain = self.kinds.total() - self.kinds[Op.ADD_INDEX.name] - self.kinds[Op.ADD_CACHE.name]
        tables = {name: [table.since, table.last] for name, table in self.known.items()}
        empty = self.file.size in (0, schema.HEADER_SIZE)
        action = self.ended if self.ended and self.cut_short else "empty" if empty else "replayed"
        return {
            "file": self.file.name, "action": action, "commits": plain, "tables": len(self.names),
            "unexpected_tids": self.unexpected, "recovered": tables,
        }  # fmt: skip
