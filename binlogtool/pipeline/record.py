"""Spark job health: retried tasks, lost executors, the backend each executor used."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

_GROUP_NUMBERS = count(1)
_NORMAL_REMOVAL = "killed by driver"
"""Removal reason of an executor that is no longer needed."""
NATIVE_BACKEND = "native"


class SparkJobStats:
    """Statistics of the Spark jobs of one piece of work.

    tried_again: number of retried tasks. lost: messages about lost executors. engines: backends that the executors
      used.
    """

    def __init__(self) -> None:
        self._start_time = time.time()
        self._groups: list[str] = []
        self.retried_tasks = 0
        self.lost_executors: tuple[str, ...] = ()
        self.backends: set[str] = set()

    def start_group(self) -> str:
        """Return the name of a new Spark job group of this work."""
        self._groups.append(f"binlogtool-{next(_GROUP_NUMBERS)}")
        return self._groups[-1]

    def update(self, context: Any) -> None:
        """Update the statistics from Spark's status."""
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for group in self._groups for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job for stage in job.stageIds}
        self.retried_tasks = sum(info.numFailedTasks for info in map(tracker.getStageInfo, stages) if info)
        with contextlib.suppress(Exception):  # not all versions of Spark have this interface
            self.lost_executors = tuple(self._find_lost_executors(context))

    def _find_lost_executors(self, context: Any) -> Iterator[str]:
        executors = context._jsc.sc().statusStore().executorList(False)
        for executor in (executors.apply(i) for i in range(executors.size())):
            if not executor.isActive() and executor.removeTime().get().getTime() / 1000 >= self._start_time:
                reason = executor.removeReason().get() if executor.removeReason().isDefined() else "no reason is known"
                if _NORMAL_REMOVAL not in reason:
                    yield f"executor {executor.id()} on {executor.hostPort()}: {_to_single_line(reason)}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"tried_again": self.retried_tasks, "lost": list(self.lost_executors), "engines": sorted(self.backends)}


def describe_job_stats(value: dict[str, Any]) -> Iterator[str]:
    """Yield messages about retried tasks, lost executors and slow backends. value: from `SparkJobStats.to_dict`."""
    if value["tried_again"] or value["lost"]:
        tasks, lost = value["tried_again"], len(value["lost"])
        retried = "1 task was" if tasks == 1 else f"{tasks:,} tasks were" if tasks else "no task was"
        yield f"{retried} tried again; {lost or 'no'} executor{'s' * (lost != 1)} lost"
    yield from (f"lost {one}" for one in value["lost"])
    if slow_backends := [one for one in value["engines"] if one != NATIVE_BACKEND]:
        yield f"executors had no native code and read with {', '.join(slow_backends)}, which is slower"


def _to_single_line(text: str) -> str:
    return " ".join(text.split())
