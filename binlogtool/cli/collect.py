"""Verify paths: in this process, in several processes or on Spark, with a time limit and a state file of earlier
runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import memory
from binlogtool.cli.run import Run
from binlogtool.limits import Limits
from binlogtool.recovery.report import Failure, Report, joined

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from binlogtool.cli.state_file import State


class Work(msgspec.Struct, frozen=True):
    """Options of verifying each path.

    state: results of earlier runs. max_duration: seconds. master: of the Spark to use; None = this process.
    """

    depth: str
    expect_closed: bool
    live: bool
    state: State | None = None
    max_duration: float | None = None
    hints: binlogtool.Hints | None = None
    master: str | binlogtool.Master | None = None


class Call(msgspec.Struct, frozen=True):
    """Arguments of one library call; can be sent to another process."""

    path: str
    format: str
    depth: str
    limits: Limits
    backend: str
    live: bool
    expect_closed: bool
    hints: binlogtool.Hints | None = None

    def report(self) -> Report:
        """Return the library's report."""
        return binlogtool.verify([self.path], **self.options())

    def options(self) -> dict[str, Any]:
        """Return all arguments except the path."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "path"}


def collect(run: Run, paths: Sequence[str], work: Work) -> Report:
    """Verify all paths, and return one report about them."""
    deadline = _deadline(run, work)
    if work.state is not None:
        parts = _remembered(run, paths, work, deadline, work.state)
    else:
        parts = _fresh(run, paths, work, deadline)
    return joined(parts)


def _fresh(run: Run, paths: Sequence[str], work: Work, deadline: float | None) -> Iterator[Report]:
    """Yield a report for each path, in order, until the deadline."""
    if work.master is not None:
        return _on_spark(run, paths, work, deadline, work.master)
    if run.settings.jobs > 1 and len(paths) > 1:
        return _parallel(run, paths, work, deadline)
    return _one_by_one(run, paths, work, deadline)


def _deadline(run: Run, work: Work) -> float | None:
    given = [seconds for seconds in (run.settings.timeout, work.max_duration) if seconds is not None]
    return time.monotonic() + min(given) if given else None


def _call(run: Run, path: str, work: Work, deadline: float | None) -> Call:
    s = run.settings
    left = None if deadline is None else max(0.001, deadline - time.monotonic())
    limits = replace(s.limits, timeout=left)
    return Call(path, s.format, work.depth, limits, s.backend, work.live, work.expect_closed, work.hints)


def _one_by_one(run: Run, paths: Sequence[str], work: Work, deadline: float | None) -> Iterator[Report]:
    """Yield a report for each path until the deadline."""
    for number, path in enumerate(paths):
        if deadline is not None and time.monotonic() >= deadline:
            yield _late(path, len(paths) - number, len(paths))
            return
        run.progress.part = f" ({number + 1} of {len(paths)})" if len(paths) > 1 else ""
        yield _call(run, path, work, deadline).report()


def _late(path: str, left: int, count: int) -> Report:
    """Return the report about the paths that were not verified in time. path: the first of them."""
    text = f"{left:,} of {count:,} paths are not verified: the time limit ended the work (--timeout, --max-duration)"
    return Report((), (), (Failure(path, text, 6),), True)


def _remembered(run: Run, paths: Sequence[str], work: Work, deadline: float | None, state: State) -> Iterator[Report]:
    calls = [_call(run, path, work, deadline) for path in paths]
    known = {call.path: state.unchanged(call) for call in calls}
    fresh = _fresh(run, [path for path in paths if known[path] is None], work, deadline)
    for call in calls:
        report: Report | None = known[call.path]
        if report is not None:
            run.say(f"{call.path}: unchanged since it was verified", level=1)
            yield report
        elif (report := next(fresh, None)) is not None:
            yield state.judged(call, report)


def _on_spark(
    run: Run, paths: Sequence[str], work: Work, deadline: float | None, master: str | binlogtool.Master
) -> Iterator[Report]:
    call = _call(run, "", work, deadline)
    parts = binlogtool.verify_fleet(
        paths, master=master, on_step=lambda step: run.progress.update(*step[:2], total=step[2]), **call.options()
    )
    run.say_noted()
    if late := sum(part is None for part in parts):
        ended = "the time limit ended the work (--timeout, --max-duration)"
        run.say(f"{late:,} of {len(paths):,} paths are not wholly verified: {ended}")
    yield from (Report((), (), (), True) if part is None else part for part in parts)


def _parallel(run: Run, paths: Sequence[str], work: Work, deadline: float | None) -> Iterator[Report]:
    pool = _processes(run, min(run.settings.jobs, len(paths)))
    if pool is None:
        yield from _one_by_one(run, paths, work, deadline)
        return
    calls = [_call(run, path, work, deadline) for path in paths]
    done, total = 0, sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    with pool:
        for number, value in enumerate(pool.map(_in_child, calls), start=1):
            report = report_from(value)
            done += sum(file.size for file in report.files)
            run.progress.update(f"verify: {number} of {len(paths)} paths", done, total=total or None)
            yield report


def _processes(run: Run, number: int) -> ProcessPoolExecutor | None:
    """Create worker processes; None if the system lacks what they need to communicate (/dev/shm)."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    try:
        return ProcessPoolExecutor(number, get_context("spawn"), memory.inherit, (memory.before(),))
    except (OSError, ImportError) as error:
        run.say(f"--jobs: no processes can share the work here ({error}; is /dev/shm there?): this one does it all")
        return None


def _in_child(call: Call) -> dict[str, Any]:
    return report_value(call.report())


def report_value(report: Report) -> dict[str, Any]:
    """Convert a report to plain values: findings hold read-only mappings, which cannot be pickled."""
    from binlogtool.report.json import failure_json, file_json, set_json
    from binlogtool.report.left import left_json

    return {
        "files": [{**file_json(f), "seconds": f.seconds} for f in report.files],
        "sets": [set_json(s) for s in report.sets],
        "failures": [failure_json(f) for f in report.failures],
        "incomplete": report.incomplete,
        "left": [left_json(one) for one in report.left],
    }


def report_from(value: dict[str, Any]) -> Report:
    """Restore a report from `report_to_dict`."""
    from binlogtool.report.json import file_from, left_from, set_from

    return Report(
        tuple(file_from(f) for f in value["files"]),
        tuple(set_from(s) for s in value["sets"]),
        tuple(Failure(**f) for f in value["failures"]),
        bool(value["incomplete"]),
        tuple(left_from(one) for one in value.get("left", ())),
    )
