"""Process many logs in one Spark job: verify them, or replay them and fold their states.

A log (a file, or the files of a set) is never divided here. A task costs Spark far more than a log does, so each task
gets many logs, with similar totals of bytes. Files must have the same paths on all executors.

Decisions about a log need its order, so one task makes them, with bounded memory. The changes of its records become
entries per key: the last row image, or operations on a row that this task does not know. Spark groups the entries by
log, object and key; each group is folded in log order, and each live row is hashed to a number. The sum of the numbers
modulo 2^256 is the digest, which is the same as that of a replay in one process.
"""

from __future__ import annotations

import contextlib
import copyreg
import os
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.core import notify_progress_listener as progress_module
from binlogtool.core import open_file as open_file_module
from binlogtool.core.resolve_paths import LogGroup
from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.export.manifest import (
    GROUPS_PER_CORE,
    ProgressCallback,
    ProgressStep,
    SparkJobStats,
    balance_indexes_by_size,
    describe_job_stats,
    read_stamp,
)
from binlogtool.export.run_tasks import JobOptions, Result, SizedTask, Task
from binlogtool.export.spark_settings import SparkMaster
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.limits import MIB
from binlogtool.prediction.predict_replay import (
    ReplayResult,
    add_final_object_states,
    find_logs_to_replay,
    max_objects,
    replay_log_with_unpacked_files,
)
from binlogtool.prediction.replay_options import ReplayOptions, assign_end_position_to_logs
from binlogtool.prediction.row_store import KeyEntry, ObjectState, Patch, ReplayState, hash_final_row, merge_entries
from binlogtool.spark.session import SparkJobSession, make_module_paths_absolute, use_session
from binlogtool.verification.verify_logs import LogVerifyOptions, find_logs_to_verify, verify_log
from binlogtool.verification.verify_report import Report, merge_reports

# --- Many logs in one Spark job ---

T = TypeVar("T")
_MAX_TASK_BYTES = 8192 * MIB
"""Approximate maximum size of a task in bytes, because a task that fails is repeated as a whole."""

_SHUTDOWN_RESERVE_S = 2.0
"""Part of a time limit that is reserved for stopping Spark."""

copyreg.pickle(MappingProxyType, lambda mapping: (MappingProxyType, (dict(mapping),)))  # facts of findings


class LogTask(msgspec.Struct, frozen=True):
    """Description of a log that is sent to an executor.

    path: index of the path that named the log. home: its file or directory. format: None = detect by content. size:
    bytes.
    """

    path: int
    home: str
    format: str | None
    names: tuple[str, ...]
    is_set: bool
    size: int
    strays: tuple[str, ...] = ()
    compressed: Mapping[str, str] = {}

    def to_group(self) -> LogGroup:
        """Return the log as a `LogGroup`."""
        format_ = None if self.format is None else open_file_module.find_format(self.format)
        return LogGroup(self.home, format_, self.names, self.is_set, self.strays, self.compressed)


class SparkJobRunner(msgspec.Struct, frozen=True):
    """Runner of tasks on Spark that reports progress (`export.run_tasks.TaskRunner`).

    master: Spark's master. session: a running session to use instead of starting one. deadline: of `time.monotonic`,
    after which the job is cancelled; None = no limit. work: name of the jobs in Spark's UI. record: receives statistics
    of the jobs.
    """

    master: str | SparkMaster = "local[*]"
    session: SparkJobSession | None = None
    on_step: ProgressCallback | None = None
    deadline: float | None = None
    work: str = "binlogtool"
    record: SparkJobStats = msgspec.field(default_factory=SparkJobStats)

    def run_rdd_job(self, stage: str, units: Sequence[SizedTask], job: Callable[[Any, int], Any]) -> list[Any]:
        """Distribute (number, unit) pairs, and return the rows of the RDD that `job(RDD, number of tasks)` makes of
        them.

        Raises:
            LimitError, MissingExtraError, KeyboardInterrupt.
            InputOutputError: Spark failed.
        """
        total = sum(unit.size for unit in units)
        if self.session is None:
            self._report_step("starting Spark", 0, total)
        with use_session(self.session, SparkMaster.coerce(self.master).named_for(self.work)) as session:
            context = session.spark.sparkContext

            def run_job() -> list[Any]:
                from binlogtool.spark.executor_kernel_report import (
                    create_backend_accumulator,
                    yield_items_and_record_backend,
                )

                tasks = max(GROUPS_PER_CORE * session.count_parallel_tasks(), total // _MAX_TASK_BYTES)
                shares = balance_indexes_by_size([unit.size for unit in units], tasks)
                numbered = [[(i, units[i]) for i in share] for share in shares]
                backends = create_backend_accumulator(context)
                distributed = context.parallelize(numbered, max(1, len(numbered)))
                distributed = distributed.mapPartitions(
                    partial(yield_items_and_record_backend, backend_accumulator=backends)
                )
                rows: list[Any] = job(distributed, max(1, len(numbered))).collect()
                self.record.backends |= backends.value
                return rows

            def report_progress(progress: Any) -> None:
                self._report_step(progress.waiting or stage, total * progress.done // max(progress.total, 1), total)

            self._report_step(stage, 0, total)
            name = f"{self.work}: {stage}, {len(units):,} logs"
            on_progress = None if self.on_step is None else report_progress
            timeout = None if self.deadline is None else max(self.deadline - time.monotonic(), 0.1)
            return session.run_spark_action(run_job, on_progress, timeout, job_name=name, job_stats=self.record)

    @property
    def parallel_task_count(self) -> int:
        """Number of tasks that run at the same time; see `TaskRunner`."""
        assert self.session is not None
        return self.session.count_parallel_tasks()

    def run_tasks(self, stage: str, tasks: Sequence[Task], work: Callable[[Task], Result]) -> list[Result]:
        """Return the result of `work` for each task, in the order of the tasks.

        Raises:
            The exceptions of `run`, and the first error among the results.
        """
        job = partial(run_each, work=work, home=os.getcwd())
        results = dict(self.run_rdd_job(stage, tasks, lambda spread, _: spread.mapPartitions(job)))
        return [result_or_raise(results[number]) for number in range(len(tasks))]

    def describe(self) -> dict[str, Any]:
        """Return the statistics of a cluster's jobs; see `TaskRunner`."""
        return {} if self.session is None or self.session.executors is None else self.record.to_dict()

    def report_job_stats(self) -> None:
        """Report retried tasks, lost executors and slow backends to the progress listener."""
        for text in describe_job_stats(self.record.to_dict()):
            progress_module.report_note(text)

    def _report_step(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(ProgressStep(stage, done, total))


@contextlib.contextmanager
def open_spark_runner(
    options: JobOptions, master: str | SparkMaster | None, session: SparkJobSession | None
) -> Iterator[SparkJobRunner]:
    """Open a runner for the tasks of a conversion. session: a running Spark session; None = start one at `master`."""
    if options.on_step is not None and session is None:
        options.on_step(ProgressStep("starting Spark", 0, 1))
    with use_session(session, SparkMaster.coerce(master).named_for(options.name)) as running:
        yield SparkJobRunner(
            session=running, on_step=options.on_step, deadline=options.deadline, work=options.name
        )  # fmt: skip


def make_log_tasks(number: int, path: str, groups: Sequence[LogGroup]) -> Iterator[LogTask]:
    """Yield the logs of a path as tasks that can be sent to executors."""
    if path == "-":
        raise UsageError("--master needs files: standard input cannot be read on other machines")
    for group in groups:
        size = sum(_file_size(group.member_path(name)) for name in group.names)
        format_ = None if group.format is None else group.format.spec
        yield LogTask(number, group.path, format_, group.names, group.is_set, size, group.strays, group.compressed)


def _file_size(path: str) -> int:
    """Return the size of a file in bytes; 0 if it cannot be read (the executor reports that)."""
    try:
        return read_stamp(path)[0]
    except (BinlogtoolError, ValueError):
        return 0


def verify_on_spark(
    paths: Iterable[str],
    format: str,
    options: LogVerifyOptions,
    runner: SparkJobRunner,
) -> list[Report | None]:
    """Verify logs on Spark; return one report per path, as `verification.verify_logs` does.

    A report is None if `limits.timeout` passed before the path was finished.

    Raises:
        UsageError, MissingExtraError, InputOutputError, KeyboardInterrupt.
    """
    timeout = options.limits.timeout
    deadline = None if timeout is None else time.time() + max(timeout - _SHUTDOWN_RESERVE_S, 0.1)
    units: list[LogTask] = []
    reports_by_path: list[list[Report | None]] = []
    unit_positions: list[tuple[int, int]] = []
    for number, path in enumerate(paths):
        reports_by_path.append([])
        for log in find_logs_to_verify(path, format):
            if isinstance(log, Report):
                reports_by_path[number].append(log)
                continue
            units += make_log_tasks(number, log.path, [log.group])
            unit_positions.append((number, len(reports_by_path[number])))
            reports_by_path[number].append(None)
    work = partial(_verify_log, options=options, deadline=deadline)
    for (number, place), report in zip(unit_positions, runner.run_tasks("verify", units, work), strict=True):
        reports_by_path[number][place] = report
    runner.report_job_stats()
    return [None if None in part else merge_reports(report for report in part if report) for part in reports_by_path]


def _verify_log(unit: LogTask, *, options: LogVerifyOptions, deadline: float | None) -> Report | None:
    """Verify one log, on an executor. deadline: seconds since 1970; after it, None is returned."""
    if deadline is None:
        return verify_log(unit.to_group(), options)
    remaining = deadline - time.time()
    if remaining <= 0:
        return None
    return verify_log(unit.to_group(), replace(options, limits=replace(options.limits, timeout=remaining)))


def run_each(
    units: Iterable[tuple[int, Task]], *, work: Callable[[Task], T], home: str
) -> Iterator[tuple[int, T | Exception]]:
    """Yield, on an executor, the result of each log, or the exception that ended it; other logs are not affected.

    home: the directory that relative paths refer to.
    """
    with _change_to_driver_directory(home):
        for number, unit in units:
            try:
                yield number, work(unit)
            except Exception as error:
                yield number, make_picklable_error(error)


@contextlib.contextmanager
def _change_to_driver_directory(driver_directory: str) -> Iterator[None]:
    """Change to the driver's directory for the `with` block, if this machine has it."""
    make_module_paths_absolute()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(contextlib.chdir(driver_directory))
        yield


def make_picklable_error(error: Exception) -> Exception:
    """Return an error that can be pickled and sent to the driver."""
    if isinstance(error, BinlogtoolError | MemoryError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))


def result_or_raise(result: T | Exception) -> T:
    """Return the result; raise it if it is an exception."""
    if isinstance(result, Exception):
        raise result
    return result


# --- Replays on Spark ---

RowKey = tuple[int, str, str, bytes]
"""Number of the log, its format, object, and key."""

ObjectBases = dict[str, tuple[int, ObjectState]]


class LogDecision(NamedTuple):
    """Decisions on a log. bases: see `ReplayState.get_emptied_or_keyless_objects`; None = no state.

    spilled: see `add_final_object_states`.
    """

    replayed: ReplayResult
    bases: ObjectBases | None = None
    spilled: int = 0


class KeySums(NamedTuple):
    """Sum of the rows of one task for an object and its epoch (how often the object was emptied)."""

    log: int
    name: str
    epoch: int
    state: ObjectState


def replay_on_spark(
    paths: Iterable[str], format: str, options: ReplayOptions, runner: SparkJobRunner
) -> list[ReplayResult]:
    """Replay logs on Spark; return one result per log, as `prediction.predict_replay` does.

    Raises:
        UnknownFormatError, InputOutputError, UsageError, LimitError, MissingExtraError, KeyboardInterrupt.
    """
    logs = [(number, path, group) for number, path in enumerate(paths) for group in find_logs_to_replay(path, format)]
    units = [unit for number, path, group in logs for unit in make_log_tasks(number, path, [group])]
    ends = assign_end_position_to_logs(options.until, [replace(group, compressed={}) for _, _, group in logs])
    decide = partial(_decide_logs, options=options, ends=ends, home=os.getcwd())

    def distribute(spread: Any, tasks: int) -> Any:
        return spread.mapPartitions(decide).groupByKey(tasks).mapPartitions(_fold_entries_and_sum_rows)

    rows = runner.run_rdd_job("replay", units, distribute)
    runner.report_job_stats()
    decided = {row[0]: row[1] for row in rows if not isinstance(row, KeySums)}
    sums = defaultdict[int, list[KeySums]](list)
    for row in rows:
        if isinstance(row, KeySums):
            sums[row.log].append(row)
    return [
        _add_summed_state_to_result(result_or_raise(decided[number]), sums[number], options)
        for number in range(len(units))
    ]


# -- on executors --------------------------------------------------------------------------------------------------


def _decide_logs(
    units: Iterable[tuple[int, LogTask]], *, options: ReplayOptions, ends: Sequence[str | None], home: str
) -> Iterator[tuple[RowKey, tuple[int, Any]]]:
    """Replay each log; yield its entries with their order, then its decision. ends: where each log's replay ends."""
    for number, unit in units:
        states: list[ReplayState] = []
        own_options = replace(options, until=ends[number])
        ((_, decision),) = run_each(
            [(number, unit)], work=partial(_replay_log, options=own_options, states=states), home=home
        )
        try:
            if isinstance(decision, Exception) or decision.bases is None:
                yield (number, "", "", b""), (-1, decision)
                continue
            for order, ((name, key), entry) in enumerate(states[0].iter_entries()):
                yield (number, decision.replayed.format, name, key), (order, entry)
            yield (number, "", "", b""), (-1, decision._replace(spilled=states[0].spilled))
        finally:
            for state in states:
                state.close()


def _replay_log(unit: LogTask, *, options: ReplayOptions, states: list[ReplayState]) -> LogDecision:
    """Replay one log; its row changes go to a state that is appended to `states`."""

    def create_state(patch: Patch | None) -> Any:
        states.append(ReplayState(options.limits.max_memory, patch))
        return states[0].apply_changes

    replayed = replay_log_with_unpacked_files(unit.to_group(), options, make_change_sink=create_state)
    stateless = _replay_rules(replayed.format).effects is None or not options.digest
    return LogDecision(replayed, None if stateless else states[0].get_emptied_or_keyless_objects())


@lru_cache
def _replay_rules(format: str) -> ReplayRules:
    rules = open_file_module.find_format(format).replay
    assert rules is not None
    return rules


def _fold_entries_and_sum_rows(entries_by_key: Iterable[tuple[RowKey, Iterable[tuple[int, Any]]]]) -> Iterator[Any]:
    """Fold the entries of every key, and yield sums of the rows by object; values without a key pass unchanged."""
    sums: dict[tuple[int, str, int], ObjectState] = {}
    for (log, format, name, key), values in entries_by_key:
        if not format:
            yield from ((log, value) for _, value in values)
            continue
        patch = _replay_rules(format).patch
        row = hash_final_row(name, key, _join_entries(values, patch), patch)
        total = sums.setdefault((log, name, 0 if row is None else row[0]), ObjectState())
        if row is not None:
            total.add_row_hash(row[1])
    yield from (KeySums(*place, state) for place, state in sums.items())


def _join_entries(values: Iterable[tuple[int, KeyEntry]], patch: Patch | None) -> KeyEntry:
    """Join the entries of one key in log order."""
    (_, first), *later = sorted(values, key=lambda value: value[0])
    for _, entry in later:
        first = merge_entries(first, entry, patch)
    return first


# -- on the driver -------------------------------------------------------------------------------------------------


def _add_summed_state_to_result(
    log_decision: LogDecision, key_sums: list[KeySums], options: ReplayOptions
) -> ReplayResult:
    """Return the result with its state; rows of an object that was emptied later are not counted."""
    if log_decision.bases is None:
        return log_decision.replayed
    state = {name: rows for name, (_, rows) in log_decision.bases.items()}
    for _, name, epoch, task_state in key_sums:
        total = state.setdefault(name, ObjectState())
        if epoch == log_decision.bases.get(name, (0, None))[0]:
            total.add_row_hash(task_state.total, 1, task_state.keys)
    return add_final_object_states(
        log_decision.replayed, dict(sorted(state.items())), log_decision.spilled, max_objects(options.limits)
    )
