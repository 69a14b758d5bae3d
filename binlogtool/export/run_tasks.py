"""Run the tasks of a conversion, one after another or in worker processes; Spark's runner has the same interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from binlogtool import limits as limits_module
from binlogtool.errors import InputOutputError
from binlogtool.export.manifest import ProgressCallback, ProgressStep

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


class SizedTask(Protocol):
    """Task of a known size."""

    @property
    def size(self) -> int:
        """Number of bytes that it reads."""


Task = TypeVar("Task", bound=SizedTask)
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Runner of tasks."""

    @property
    def parallel_task_count(self) -> int:
        """Number of tasks that run at the same time."""

    def run_tasks(self, stage: str, tasks: Sequence[Task], work: Callable[[Task], Result]) -> list[Result]:
        """Return the result of `work` for each task, in order; raise the first error. stage: for the progress."""

    def describe(self) -> dict[str, Any]:
        """Return details about the run for the manifest; {} = none."""


class JobOptions(msgspec.Struct, frozen=True):
    """Options of a job for a runner. name: name in Spark's UI. deadline: `time.monotonic` value; None = no limit."""

    name: str
    on_step: ProgressCallback | None
    deadline: float | None


OpenRunner = Callable[[JobOptions], AbstractContextManager[TaskRunner]]


class LocalRunner(msgspec.Struct, frozen=True):
    """Runner of tasks in this process, or in `parallel` worker processes."""

    parallel_task_count: int
    on_step: ProgressCallback | None = None
    pool: ProcessPoolExecutor | None = None

    def run_tasks(self, stage: str, tasks: Sequence[Task], work: Callable[[Task], Result]) -> list[Result]:
        """Return the results; see `TaskRunner`."""
        total, done, results = sum(task.size for task in tasks), 0, list[Result]()
        self._report(stage, 0, total)
        for task, result in zip(tasks, (map if self.pool is None else self.pool.map)(work, tasks), strict=True):
            results.append(result)
            done += task.size
            self._report(stage, done, total)
        return results

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.on_step is not None:
            self.on_step(ProgressStep(stage, done, total))

    def describe(self) -> dict[str, Any]:
        """Return {}: a local run has no details."""
        return {}


@contextmanager
def open_local_runner(options: JobOptions, jobs: int = 1) -> Iterator[LocalRunner]:
    """Open a runner for tasks in this process (`jobs` = 1), or in worker processes.

    Raises:
        InputOutputError: the system lacks what worker processes need to communicate (/dev/shm).
    """
    if jobs < 2:
        yield LocalRunner(1, options.on_step)
        return
    try:
        pool = limits_module.create_worker_pool(jobs, ("numpy", "pyarrow.parquet", "pyarrow.compute"))
    except (OSError, ImportError) as error:
        raise InputOutputError(f"--jobs: cannot start worker processes: {error}; check /dev/shm") from error
    try:
        yield LocalRunner(jobs, options.on_step, pool)
    finally:
        pool.shutdown(cancel_futures=True)
