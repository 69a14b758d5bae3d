"""Spark job health: retried tasks, lost executors, the backend each executor used."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

_NUMBERS = count(1)
_WANTED = "killed by driver"
"""Removal reason of an executor that is no longer needed."""
NATIVE = "native"


class Record:
    """Statistics of the Spark jobs of one piece of work.

    tried_again: number of retried tasks. lost: messages about lost executors. engines: backends that the executors
      used.
    """

    def __init__(self) -> None:
        self._begun = time.time()
        self._groups: list[str] = []
        self.tried_again = 0
        self.lost: tuple[str, ...] = ()
        self.engines: set[str] = set()

    def group(self) -> str:
        """Return the name of a new Spark job group of this work."""
        self._groups.append(f"binlogtool-{next(_NUMBERS)}")
        return self._groups[-1]

    def look(self, context: Any) -> None:
        """Update the statistics from Spark's status."""
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for group in self._groups for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job for stage in job.stageIds}
        self.tried_again = sum(info.numFailedTasks for info in map(tracker.getStageInfo, stages) if info)
        with contextlib.suppress(Exception):  # not all versions of Spark have this interface
            self.lost = tuple(self._lost(context))

    def _lost(self, context: Any) -> Iterator[str]:
        found = context._jsc.sc().statusStore().executorList(False)
        for one in (found.apply(i) for i in range(found.size())):
            if not one.isActive() and one.removeTime().get().getTime() / 1000 >= self._begun:
                reason = one.removeReason().get() if one.removeReason().isDefined() else "no reason is known"
                if _WANTED not in reason:
                    yield f"executor {one.id()} on {one.hostPort()}: {_line(reason)}"

    def as_value(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"tried_again": self.tried_again, "lost": list(self.lost), "engines": sorted(self.engines)}


def told(value: dict[str, Any]) -> Iterator[str]:
    """Yield messages about retried tasks, lost executors and slow backends. value: from `SparkJobStats.to_dict`."""
    if value["tried_again"] or value["lost"]:
        tasks, lost = value["tried_again"], len(value["lost"])
        again = "1 task was" if tasks == 1 else f"{tasks:,} tasks were" if tasks else "no task was"
        yield f"{again} tried again; {lost or 'no'} executor{'s' * (lost != 1)} lost"
    yield from (f"lost {one}" for one in value["lost"])
    if slow := [one for one in value["engines"] if one != NATIVE]:
        yield f"executors had no native code and read with {', '.join(slow)}, which is slower"


def _line(text: str) -> str:
    return " ".join(text.split())
