"""Is the log whole? Positions, transactions, GTIDs, table maps and rows of one file, in file order (section 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from binlogtool.findings import Finding
from binlogtool.formats.base import Batch, Kernel, Layout, Tail, Verdict
from binlogtool.formats.mysql_binlog.meaning import type_name
from binlogtool.formats.mysql_binlog.tracking import ints
from binlogtool.limits import Limits


@dataclass(slots=True)
class EventJudge:
    """`formats.base.Judge` for one file."""

    kinds: Counter[str] = field(default_factory=Counter)

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Judges the events of one batch."""
        self.kinds.update(map(type_name, ints(batch.frames["type_code"], 0, batch.frames.count)))
        return ()

    def damage(self, start: int, end: int) -> None:
        """A part of the file was skipped."""

    def finish(self, tail: Tail) -> Verdict:
        """The end of the file."""
        return Verdict(0, dict(self.kinds))


def judge(layout: Layout, compile: Callable[[Kernel], Kernel], limits: Limits) -> EventJudge:
    """A judge for one file."""
    return EventJudge()
