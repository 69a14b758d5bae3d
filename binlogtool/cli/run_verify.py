"""Verify paths in this process, in other processes or on Spark, with a time limit and a state file of earlier runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import limits as limits_module
from binlogtool.cli.command import CommandRun
from binlogtool.limits import Limits
from binlogtool.verification.verify_report import PathFailure, Report, merge_reports

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from binlogtool.cli.verify_state import VerifyState


class VerifyOptions(msgspec.Struct, frozen=True):
    """Options for verifying each path.

    state: results of earlier runs. max_duration: seconds. master: the Spark to use; None = no Spark.
    """

    depth: str
    expect_closed: bool
    live: bool
    state: VerifyState | None = None
    max_duration: float | None = None
    hints: binlogtool.Hints | None = None
    master: str | binlogtool.SparkMaster | None = None
    times: bool = False


class VerifyJob(msgspec.Struct, frozen=True):
    """Arguments of one library call, to be sent to a process. more_paths: files to check together with `path`."""

    path: str
    format: str
    depth: str
    limits: Limits
    backend: str
    live: bool
    expect_closed: bool
    hints: binlogtool.Hints | None = None
    times: bool = False
    more_paths: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the call."""
        return (self.path, *self.more_paths)

    def run_verify(self) -> Report:
        """Return the library's report."""
        return binlogtool.verify(self.paths, times=self.times, **self.to_options())

    def to_options(self) -> dict[str, Any]:
        """Return the arguments that local and Spark calls have in common."""
        other = ("path", "more_paths", "times")
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in other}


def collect_reports(run: CommandRun, paths: Sequence[str], options: VerifyOptions) -> Report:
    """Verify all paths, and return one report about them."""
    deadline = _compute_deadline(run, options)
    if options.state is not None:
        reports = _verify_with_state(run, paths, options, deadline, options.state)
    else:
        reports = _verify_units(run, _split_paths(paths, options), options, deadline)
    return merge_reports(reports)


def _verify_units(
    run: CommandRun, units: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    """Yield a report for each unit of `_split_paths`, in order, until the deadline."""
    if options.master is not None:
        return _verify_on_spark(run, [path for unit in units for path in unit], options, deadline, options.master)
    if run.settings.jobs > 1 and sum(map(len, units)) > 1:
        return _verify_in_processes(run, units, options, deadline)
    return _verify_sequentially(run, units, options, deadline)


def _compute_deadline(run: CommandRun, options: VerifyOptions) -> float | None:
    durations = [seconds for seconds in (run.settings.timeout, options.max_duration) if seconds is not None]
    return time.monotonic() + min(durations) if durations else None


def _build_call(run: CommandRun, paths: Sequence[str], options: VerifyOptions, deadline: float | None) -> VerifyJob:
    settings = run.settings
    remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
    limits = replace(settings.limits, timeout=remaining)
    return VerifyJob(
        paths[0],
        settings.format,
        options.depth,
        limits,
        settings.backend,
        options.live,
        options.expect_closed,
        options.hints,
        options.times,
        tuple(paths[1:]),
    )


def _verify_sequentially(
    run: CommandRun, units: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    number, count = 0, sum(map(len, units))
    for unit in units:
        if deadline is not None and time.monotonic() >= deadline:
            yield _report_unverified(unit[0], count - number, count)
            return
        number += len(unit)
        run.progress.part = f" ({number} of {count})" if count > 1 else ""
        yield _build_call(run, unit, options, deadline).run_verify()


def _split_paths(paths: Sequence[str], options: VerifyOptions) -> list[list[str]]:
    """Return consecutive paths of files in the same directory as one unit, other paths as one each, as Spark needs."""
    if options.master is not None:
        return [[path] for path in paths]
    by_directory = groupby(enumerate(paths), key=lambda one: os.path.dirname(one[1]) if os.path.isfile(one[1]) else one)
    return [[path for _, path in unit] for _, unit in by_directory]


def _report_unverified(path: str, remaining: int, count: int) -> Report:
    """Report the paths that were not verified in time. path: the first of them."""
    why = "because the time limit was reached (--timeout, --max-duration)"
    text = f"{remaining:,} of {count:,} paths were not verified {why}"
    return Report((), (), (PathFailure(path, text, 6),), True)


def _verify_with_state(
    run: CommandRun, paths: Sequence[str], options: VerifyOptions, deadline: float | None, state: VerifyState
) -> Iterator[Report]:
    calls = [_build_call(run, unit, options, deadline) for unit in _split_paths(paths, options)]
    reports = [state.find_unchanged(call) for call in calls]
    if unchanged_count := sum(len(c.paths) for c, report in zip(calls, reports, strict=True) if report is not None):
        run.say(f"--state: {unchanged_count:,} of {len(paths):,} paths not read: unchanged since the last run")
    changed_units = [call.paths for call, report in zip(calls, reports, strict=True) if report is None]
    new_reports = _verify_units(run, changed_units, options, deadline)
    for call, report in zip(calls, reports, strict=True):
        if report is not None:
            for path in call.paths:
                run.say(f"{path}: unchanged since it was verified", level=1)
            yield report
        elif (report := next(new_reports, None)) is not None:
            yield state.add_result(call, report)


def _verify_on_spark(
    run: CommandRun,
    paths: Sequence[str],
    options: VerifyOptions,
    deadline: float | None,
    master: str | binlogtool.SparkMaster,
) -> Iterator[Report]:
    call = _build_call(run, [""], options, deadline)
    parts = binlogtool.verify_fleet(
        paths,
        master=master,
        on_step=lambda step: run.progress.update_stage(*step[:2], total=step[2]),
        **call.to_options(),
    )
    run.say_work_messages()
    if late_count := sum(part is None for part in parts):
        reason = "the time limit was reached (--timeout, --max-duration)"
        run.say(f"{late_count:,} of {len(paths):,} paths were not completely verified: {reason}")
    yield from (Report((), (), (), True) if part is None else part for part in parts)


def _verify_in_processes(
    run: CommandRun, units: Sequence[Sequence[str]], options: VerifyOptions, deadline: float | None
) -> Iterator[Report]:
    paths = [path for unit in units for path in unit]
    pool = _create_process_pool(run, min(run.settings.jobs, len(paths)))
    if pool is None:
        yield from _verify_sequentially(run, units, options, deadline)
        return
    calls = [_build_call(run, unit, options, deadline) for unit in units]
    done_bytes, total = 0, sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    with pool:
        for number, value in enumerate(pool.map(_verify_in_child, calls), start=1):
            report = report_from_dict(value)
            done_bytes += sum(file.size for file in report.files)
            run.progress.update_stage(f"verify: {number} of {len(calls)} logs", done_bytes, total=total or None)
            yield report


def _create_process_pool(run: CommandRun, number: int) -> ProcessPoolExecutor | None:
    """Create worker processes; None if the system lacks what they need to communicate (/dev/shm)."""
    try:
        return limits_module.create_worker_pool(number)
    except (OSError, ImportError) as error:
        run.say(f"--jobs: cannot start worker processes ({error}; check /dev/shm); continuing in one process")
        return None


def _verify_in_child(call: VerifyJob) -> dict[str, Any]:
    return report_to_dict(call.run_verify())


def report_to_dict(report: Report) -> dict[str, Any]:
    """Convert a report to plain values: findings hold read-only mappings, which cannot be pickled."""
    from binlogtool.report.verify_and_plan_text import failure_to_json, file_report_to_json, set_report_to_json
    from binlogtool.report.wording import skipped_files_to_json

    return {
        "files": [{**file_report_to_json(f), "seconds": f.seconds} for f in report.files],
        "sets": [set_report_to_json(s) for s in report.sets],
        "failures": [failure_to_json(f) for f in report.failures],
        "incomplete": report.incomplete,
        "left": [skipped_files_to_json(one) for one in report.skipped],
    }


def report_from_dict(value: dict[str, Any]) -> Report:
    """Restore a report from `report_to_dict`."""
    from binlogtool.report.verify_and_plan_text import (
        file_report_from_json,
        set_report_from_json,
        skipped_files_from_json,
    )

    return Report(
        tuple(file_report_from_json(f) for f in value["files"]),
        tuple(set_report_from_json(s) for s in value["sets"]),
        tuple(PathFailure(**f) for f in value["failures"]),
        bool(value["incomplete"]),
        tuple(skipped_files_from_json(one) for one in value.get("left", ())),
    )
