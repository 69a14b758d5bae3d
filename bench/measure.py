"""How things are measured: CPU time, interleaved rounds, medians with their range."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent

_LAUNCHER = """
import json, os, sys
with open(os.devnull, "wb") as sink, open(sys.argv[1], "rb") as source:
    actions = [(os.POSIX_SPAWN_DUP2, source.fileno(), 0), (os.POSIX_SPAWN_DUP2, sink.fileno(), 1),
               (os.POSIX_SPAWN_DUP2, sink.fileno(), 2)]
    pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=actions)
_, status, used = os.wait4(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
"""
"""A process of its own between us and the child: a child's peak memory starts with that of the process it came from."""


@dataclass(frozen=True)
class Series:
    """The values of one candidate, one per round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def scaled(self, factor: float) -> Series:
        return Series(tuple(factor * value for value in self.values))

    def inverse(self, amount: float) -> Series:
        """Amount per second, from seconds."""
        return Series(tuple(amount / value for value in self.values))

    def over(self, other: Series) -> Series:
        """The ratio of each round: both values of one ratio were measured side by side."""
        return Series(tuple(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True)))


@dataclass(frozen=True)
class Child:
    """What a finished process used: seconds of CPU (user and system), bytes of memory at its peak."""

    code: int
    seconds: float
    peak: int


def run_child(command: Sequence[str], stdin: str = os.devnull) -> Child:
    """Runs a command with its output thrown away."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as an installed program: its modules are compiled once
    launched = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _LAUNCHER, stdin, *command], check=True, capture_output=True, env=environment
    )
    return Child(*json.loads(launched.stdout))


def cpu_of_child(command: Sequence[str], allowed: tuple[int, ...] = (0,)) -> Callable[[], float]:
    """A candidate: the CPU seconds of one run of a command."""

    def run() -> float:
        child = run_child(command)
        if child.code not in allowed:
            raise RuntimeError(f"{' '.join(command)} ended with {child.code}")
        return child.seconds

    return run


def cpu_of(function: Callable[[], object]) -> Callable[[], float]:
    """A candidate: the CPU seconds of this process during one call."""

    def run() -> float:
        start = time.process_time()
        function()
        return time.process_time() - start

    return run


def rounds(count: int, **candidates: Callable[[], float]) -> dict[str, Series]:
    """Runs all candidates `count` times, one after the other in each round, after one round that is not counted."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(count + 1):
        for name, candidate in candidates.items():
            value = candidate()
            if number:
                seen[name].append(value)
    return {name: Series(tuple(values)) for name, values in seen.items()}
