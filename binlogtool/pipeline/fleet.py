"""Many logs in one Spark job: each is processed on an executor by the same code as locally.

A log (a file, or the files of a set) is never divided here. A task costs Spark far more than a log does, so each task
gets many logs, with similar totals of bytes. Files must have the same paths on all executors.
"""

from __future__ import annotations

import contextlib
import copyreg
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, UsageError
from binlogtool.limits import MIB
from binlogtool.log import detect, watch
from binlogtool.log.named import Group
from binlogtool.pipeline.account import OnStep, Step
from binlogtool.pipeline.balance import GROUPS_PER_CORE, balanced
from binlogtool.pipeline.inputs import stamp
from binlogtool.pipeline.master import Master
from binlogtool.pipeline.package import anchor
from binlogtool.pipeline.record import Record, told
from binlogtool.pipeline.session import Session, running
from binlogtool.recovery.report import Report, joined
from binlogtool.recovery.verify import Options, verify_group
from binlogtool.recovery.verify_paths import logs_at

T = TypeVar("T")
U = TypeVar("U")

_TASK_BYTES = 8192 * MIB
"""Approximate limit of a task: if it fails, it is repeated as a whole."""

_RESERVE_S = 2.0
"""Part of a time limit that is reserved for stopping Spark."""

copyreg.pickle(MappingProxyType, lambda mapping: (MappingProxyType, (dict(mapping),)))  # facts of findings


class Sized(Protocol):
    """Work for an executor."""

    @property
    def size(self) -> int:
        """Number of bytes that the work has to read."""


class Unit(msgspec.Struct, frozen=True):
    """A log for an executor.

    path: index of the path that named it. home: its file or directory. format: None = detected by content. size:
      bytes.
    """

    path: int
    home: str
    format: str | None
    names: tuple[str, ...]
    is_set: bool
    size: int
    strays: tuple[str, ...] = ()

    def group(self) -> Group:
        """Return the log itself."""
        format_ = None if self.format is None else detect.by_name(self.format)
        return Group(self.home, format_, self.names, self.is_set, self.strays)


class Fleet(msgspec.Struct, frozen=True):
    """Run work on many logs, on Spark or in this process, and report progress.

    master: Spark's master. session: a running session to use instead of starting one. timeout: seconds after which
      the job
    is cancelled; None = no limit. here: `results` are computed in this process. work: name of the jobs in Spark's UI.
    record: receives statistics of the jobs.
    """

    master: str | Master = "local[*]"
    session: Session | None = None
    on_step: OnStep | None = None
    timeout: float | None = None
    here: bool = False
    work: str = "binlogtool"
    record: Record = msgspec.field(default_factory=Record)

    def run(self, stage: str, units: Sequence[Sized], job: Callable[[Any, int], Any]) -> list[Any]:
        """Return the rows that `job` makes of the distributed (number, unit) pairs. job: (RDD, number of tasks) ->
        RDD.

        Raises:
            LimitError, MissingExtraError, KeyboardInterrupt.
            InputOutputError: Spark failed.
        """
        total = sum(unit.size for unit in units)
        if self.session is None:
            self._tell("starting Spark", 0, total)
        with running(self.session, Master.of(self.master).doing(self.work)) as session:
            context = session.spark.sparkContext

            def work() -> list[Any]:
                from binlogtool.pipeline.engines import noticed, tally

                tasks = max(GROUPS_PER_CORE * session.cores(), total // _TASK_BYTES)
                shares = balanced([unit.size for unit in units], tasks)
                numbered = [[(i, units[i]) for i in share] for share in shares]
                engines = tally(context)
                spread = context.parallelize(numbered, max(1, len(numbered)))
                spread = spread.mapPartitions(partial(noticed, names=engines))
                rows: list[Any] = job(spread, max(1, len(numbered))).collect()
                self.record.engines |= engines.value
                return rows

            def progress(p: Any) -> None:
                self._tell(p.waiting or stage, total * p.done // max(p.total, 1), total)

            self._tell(stage, 0, total)
            name = f"{self.work}: {stage}, {len(units):,} logs"
            asked = None if self.on_step is None else progress
            return session.run(work, asked, self.timeout, name=name, record=self.record)

    def results(self, stage: str, units: Sequence[Sized], job: Callable[[Iterable[tuple[int, Any]]], Any]) -> list[Any]:
        """Return what `job` makes of each unit, in their order. job: `run_each` with its other arguments bound.

        Raises:
            As `run`; and the first error among the results.
        """
        if self.here:
            self._tell(stage, 0, sum(unit.size for unit in units))
            found = dict(job(enumerate(units)))
        else:
            found = dict(self.run(stage, units, lambda spread, _: spread.mapPartitions(job)))
        return [demanded(found[number]) for number in range(len(units))]

    def tell_record(self) -> None:
        """Report retried tasks, lost executors and slow backends to the progress listener."""
        for text in told(self.record.as_value()):
            watch.noted(text)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(Step(stage, done, total))


def units_of(number: int, path: str, found: Sequence[Group]) -> Iterator[Unit]:
    """Yield the logs of a path as tasks that can be sent to executors."""
    if path == "-":
        raise UsageError("--master needs files: standard input cannot be read on other machines")
    for group in found:
        size = sum(_size(group.member_path(name)) for name in group.names)
        format_ = None if group.format is None else group.format.spec
        yield Unit(number, group.path, format_, group.names, group.is_set, size, group.strays)


def _size(path: str) -> int:
    """Return the size of a file in bytes; 0 if it cannot be read, which the executor reports."""
    try:
        return stamp(path)[0]
    except (BinlogtoolError, ValueError):
        return 0


def verify_fleet(
    paths: Iterable[str],
    format: str,
    options: Options,
    fleet: Fleet,
) -> list[Report | None]:
    """Verify logs on Spark; return one report per path, as `recovery.verify` makes it.

    A report is None if `limits.timeout` passed before the path was done.

    Raises:
        UsageError, MissingExtraError, InputOutputError, KeyboardInterrupt.
    """
    timeout = options.limits.timeout
    end = None if timeout is None else time.time() + max(timeout - _RESERVE_S, 0.1)
    units: list[Unit] = []
    parts: list[list[Report | None]] = []
    of_units: list[tuple[int, int]] = []
    for number, path in enumerate(paths):
        parts.append([])
        for found in logs_at(path, format):
            if isinstance(found, Report):
                parts[number].append(found)
                continue
            units += units_of(number, found.path, [found.group])
            of_units.append((number, len(parts[number])))
            parts[number].append(None)
    job = partial(_verified, options=options, end=end, home=os.getcwd())
    for (number, place), report in zip(of_units, fleet.results("verify", units, job), strict=True):
        parts[number][place] = report
    fleet.tell_record()
    return [None if None in part else joined(report for report in part if report) for part in parts]


def _verified(
    units: Iterable[tuple[int, Unit]], *, options: Options, end: float | None, home: str
) -> Iterator[tuple[int, Report | Exception | None]]:
    """Verify all logs of a task, on an executor."""
    return each(units, work=partial(_verify, options=options, end=end), home=home)


def _verify(unit: Unit, *, options: Options, end: float | None) -> Report | None:
    """Verify one log, on an executor. end: deadline in seconds since 1970; None is returned after it."""
    if end is None:
        return verify_group(unit.group(), options)
    left = end - time.time()
    if left <= 0:
        return None
    return verify_group(unit.group(), replace(options, limits=replace(options.limits, timeout=left)))


def each(units: Iterable[tuple[int, U]], *, work: Callable[[U], T], home: str) -> Iterator[tuple[int, T | Exception]]:
    """Yield, on an executor, the result of each log, or the exception that ended its work; other logs are unaffected.

    home: the directory that relative paths refer to.
    """
    with _inside(home):
        for number, unit in units:
            try:
                yield number, work(unit)
            except Exception as error:
                yield number, portable(error)


@contextlib.contextmanager
def _inside(home: str) -> Iterator[None]:
    """Work in the driver's directory, if this machine has it."""
    anchor()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(contextlib.chdir(home))
        yield


def portable(error: Exception) -> Exception:
    """Return an error that can be pickled and sent to the driver."""
    if isinstance(error, BinlogtoolError | MemoryError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))


def demanded(result: T | Exception) -> T:
    """Return the result; raise it if it is an exception."""
    if isinstance(result, Exception):
        raise result
    return result
