"""CPU time of processes that are not ours to wait for: Spark's Java process and its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from binlogtool.spark import find_java
from binlogtool.spark.session import SparkJobSession


@dataclass(frozen=True)
class Use:
    """Seconds of CPU (of this process and of all of Spark's) and of the clock."""

    cpu: float
    wall: float

    def __sub__(self, other: Use) -> Use:
        return Use(self.cpu - other.cpu, self.wall - other.wall)


def now(session: SparkJobSession | None = None) -> Use:
    """What was used so far, with ended children of ours; without a session none of Spark's."""
    spark = 0.0 if session is None else tree_seconds(jvm(session))
    return Use(time.process_time() + cpu_of_children() + spark, time.monotonic())


def used(session: SparkJobSession, work: Callable[[], object]) -> Use:
    """What one call uses."""
    before = now(session)
    work()
    return now(session) - before


def jvm(session: SparkJobSession) -> int:
    """The number of Spark's Java process."""
    return int(find_java.pid_file_path(session.folder).read_text())


def cpu_of_children() -> float:
    """CPU seconds of children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def tree_seconds(pid: int) -> float:
    """CPU seconds of a process and of all its descendants, also of those that have ended."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        total += spent.get(one, 0.0)
        waiting += parents.get(one, [])
    return total
