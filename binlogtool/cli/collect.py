"""Verifies one path after the other, here or in several processes, within a time, with a memory of earlier runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import binlogtool
from binlogtool.cli.run import Run
from binlogtool.limits import Limits
from binlogtool.recovery.report import Failure, Report


@dataclass(frozen=True, slots=True)
class Work:
    """What to do with each path. max_duration in seconds."""

    depth: str
    expect_closed: bool
    live: bool
    state: str | None = None
    max_duration: float | None = None
    hints: binlogtool.Hints | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one library call; crosses to another process."""

    path: str
    format: str
    depth: str
    limits: Limits
    backend: str
    live: bool
    expect_closed: bool
    hints: binlogtool.Hints | None = None

    def report(self) -> Report:
        """The library's answer."""
        arguments = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "path"}
        return binlogtool.verify([self.path], **arguments)


def collect(run: Run, paths: Sequence[str], work: Work) -> Report:
    """One report about all paths."""
    deadline = _deadline(run, work)
    if work.state is not None:
        from binlogtool.cli.state import State

        parts = _remembered(run, paths, work, deadline, State.load(work.state))
    elif run.settings.jobs > 1 and len(paths) > 1:
        parts = _parallel(run, paths, work, deadline)
    else:
        parts = (_call(run, path, work, deadline).report() for path in _in_time(run, paths, deadline))
    return _joined(parts, deadline)


def _deadline(run: Run, work: Work) -> float | None:
    given = [seconds for seconds in (run.settings.timeout, work.max_duration) if seconds is not None]
    return time.monotonic() + min(given) if given else None


def _call(run: Run, path: str, work: Work, deadline: float | None) -> Call:
    s = run.settings
    left = None if deadline is None else max(0.001, deadline - time.monotonic())
    limits = replace(s.limits, timeout=left)
    return Call(path, s.format, work.depth, limits, s.backend, work.live, work.expect_closed, work.hints)


def _in_time(run: Run, paths: Sequence[str], deadline: float | None) -> Iterator[str]:
    """The paths, until the time is over."""
    for number, path in enumerate(paths):
        if deadline is not None and time.monotonic() >= deadline:
            run.say(f"the time is over; {len(paths) - number} of {len(paths)} paths are not verified")
            return
        run.progress.update(f"verify {path} ({number + 1} of {len(paths)})", 0)
        yield path


def _joined(parts: Iterable[Report], deadline: float | None) -> Report:
    all_ = list(parts)
    late = deadline is not None and time.monotonic() >= deadline
    return Report(
        tuple(f for part in all_ for f in part.files),
        tuple(s for part in all_ for s in part.sets),
        tuple(f for part in all_ for f in part.failures),
        late or any(part.incomplete for part in all_),
    )


def _remembered(run: Run, paths: Sequence[str], work: Work, deadline: float | None, state: Any) -> Iterator[Report]:
    for path in _in_time(run, paths, deadline):
        call = _call(run, path, work, deadline)
        known = state.unchanged(call)
        if known is not None:
            run.say(f"{path}: unchanged since it was verified", level=1)
        yield known if known is not None else state.judged(call, call.report())


def _parallel(run: Run, paths: Sequence[str], work: Work, deadline: float | None) -> Iterator[Report]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    calls = [_call(run, path, work, deadline) for path in paths]
    with ProcessPoolExecutor(min(run.settings.jobs, len(paths)), get_context("spawn")) as pool:
        for path, value in zip(paths, pool.map(_in_child, calls), strict=True):
            run.progress.update(f"verified {path}", 0)
            yield report_from(value)


def _in_child(call: Call) -> dict[str, Any]:
    return report_value(call.report())


def report_value(report: Report) -> dict[str, Any]:
    """A report as plain values (findings hold read-only mappings, which do not cross a process border)."""
    from binlogtool.report.json import failure_json, file_json, set_json

    return {
        "files": [{**file_json(f), "seconds": f.seconds} for f in report.files],
        "sets": [set_json(s) for s in report.sets],
        "failures": [failure_json(f) for f in report.failures],
        "incomplete": report.incomplete,
    }


def report_from(value: dict[str, Any]) -> Report:
    """The reverse of `report_value`."""
    from binlogtool.report.json import file_from, set_from

    return Report(
        tuple(file_from(f) for f in value["files"]),
        tuple(set_from(s) for s in value["sets"]),
        tuple(Failure(**f) for f in value["failures"]),
        bool(value["incomplete"]),
    )
