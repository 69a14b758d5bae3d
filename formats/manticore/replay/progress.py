"""How far the replay of a file and of each table is."""

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
    """A table of the server. tid: the last applied; None = not served, -1 = without binlog. saved: before the start.

    gaps: TIDs `[first, last]` that were passed by. since: tid when the file at hand declared the table; last: the
    highest TID in that file; time: the same of times.
    """

    tid: int | None
    saved: int
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    since: int = 0
    last: int = 0
    time: int = 0

    def passed_by(self, tid: int) -> bool:
        """Was this TID, lower than the last applied one, never applied?"""
        return len(self.gaps) >= MAX_GAPS or any(low <= tid <= high for low, high in self.gaps)


class Lost(msgspec.Struct):
    """Transactions of one file that the server loses without an error."""

    offset: int
    record: int
    count: int = 0
    tids: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, name: str, tid: int) -> None:
        """One more."""
        self.count += 1
        if name in self.tids or len(self.tids) < _MAX_TOLD:
            low, high = self.tids.get(name, (tid, tid))
            self.tids[name] = min(low, tid), max(high, tid)


class Reading(msgspec.Struct):
    """The file at hand. bad: where its damage starts. defects: places of an ADD_CACHE with the checksum 0, behind which
    the server reads no further (section 2.3). contradictions: commits whose numbers contradict each other. ended: why
    nothing more is applied (`dropped`, `deleted`), or None.
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
        """Is anything behind the place where the replay of the file ended?"""
        return self.bad is not None or self.taken < self.file.records

    def report(self) -> dict[str, Any]:
        """What the server would log about it."""
        plain = self.kinds.total() - self.kinds[Op.ADD_INDEX.name] - self.kinds[Op.ADD_CACHE.name]
        tables = {name: [table.since, table.last] for name, table in self.known.items()}
        empty = self.file.size in (0, schema.HEADER_SIZE)
        action = self.ended if self.ended and self.cut_short else "empty" if empty else "replayed"
        return {
            "file": self.file.name, "action": action, "commits": plain, "tables": len(self.names),
            "unexpected_tids": self.unexpected, "recovered": tables,
        }  # fmt: skip
