"""Progress of the replay, per file and per table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.schema import Op
from binlogtool.formats.replay_rules import ExaminedFile

MAX_GAPS = 1000
_MAX_REPORTED_TABLES = 20


class ReplayedTable(msgspec.Struct):
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

    def has_gap_at(self, tid: int) -> bool:
        """Check that this TID, lower than the last applied one, was never applied."""
        return len(self.gaps) >= MAX_GAPS or any(low <= tid <= high for low, high in self.gaps)


class LostTransactions(msgspec.Struct):
    """Transactions of one file that the server loses without an error."""

    offset: int
    record: int
    count: int = 0
    tids: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, name: str, tid: int) -> None:
        """Add one transaction."""
        self.count += 1
        if name in self.tids or len(self.tids) < _MAX_REPORTED_TABLES:
            low, high = self.tids.get(name, (tid, tid))
            self.tids[name] = min(low, tid), max(high, tid)


class ReplayedFile(msgspec.Struct):
    """The file that is replayed.

    Attributes:
        damage_start: offset of its first damaged range, or None.
        cache_defects: offsets of ADD_CACHEs with the checksum 0, after which the server reads no further.
        contradictions: offsets of commits whose numbers contradict each other.
        end_reason: why nothing more is applied (`dropped`, `deleted`), or None.
        ruled_count: transactions that were ruled on.
    """

    file: ExaminedFile
    damage_start: int | None
    cache_defects: frozenset[int | None]
    contradictions: frozenset[int | None] = frozenset()
    names: list[str] = msgspec.field(default_factory=list)
    tables: dict[str, ReplayedTable] = msgspec.field(default_factory=dict)
    op_counts: Counter[str] = msgspec.field(default_factory=Counter)
    unexpected: int = 0
    ruled_count: int = 0
    end_reason: str | None = None
    lost: LostTransactions | None = None

    @property
    def is_cut_short(self) -> bool:
        """True if anything is after the place where the replay of the file ended."""
        return self.damage_start is not None or self.ruled_count < self.file.records

    def create_report(self) -> dict[str, Any]:
        """Return what the server would log about the file."""
        commit_count = self.op_counts.total() - self.op_counts[Op.ADD_INDEX.name] - self.op_counts[Op.ADD_CACHE.name]
        tables = {name: [table.since, table.last] for name, table in self.tables.items()}
        is_empty = self.file.size in (0, schema.HEADER_SIZE)
        action = self.end_reason if self.end_reason and self.is_cut_short else "empty" if is_empty else "replayed"
        return {
            "file": self.file.name, "action": action, "commits": commit_count, "tables": len(self.names),
            "unexpected_tids": self.unexpected, "recovered": tables,
        }  # fmt: skip
