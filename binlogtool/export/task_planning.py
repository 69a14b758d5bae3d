"""Plan a conversion to tables: hash the inputs, split large ones, and form tasks of similar size.

A task reads pieces of files and writes its own files in a directory of its own, `TASKS_FOLDER` in the output. It does
not know whether it runs in this process, in a worker process or on Spark. Files of a task that was repeated or failed
are never part of the output, which consists of the files that the tasks returned.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import limits as limits_module
from binlogtool.core import open_file as open_file_module
from binlogtool.core.open_log import LogReader
from binlogtool.errors import InputOutputError, LimitError
from binlogtool.export.manifest import (
    ManifestInput,
    Parts,
    ProgressCallback,
    ProgressStep,
    ReadRequest,
    TaskFile,
    TaskPiece,
    WeightedProgress,
    absolute_path,
    can_select_records_independently,
    find_parts,
    hash_file,
    pack_tasks,
)
from binlogtool.export.output_options import TableFileOptions
from binlogtool.export.read_rows_of_one_file import add_carried_states
from binlogtool.export.run_tasks import JobOptions, LocalRunner, OpenRunner, TaskRunner
from binlogtool.export.spark_settings import format_spark_job_name, summarize_input_paths
from binlogtool.limits import MIB

# --- Tasks that look at the inputs ---


class FileHash(msgspec.Struct, frozen=True):
    """SHA-256 of a file as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class ScanTask(msgspec.Struct, frozen=True):
    """Looks at a file, see `InputScanner`. splits: find its parts, not its hash."""

    member: TaskFile
    splits: bool = False

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return self.member.size


class InputScanner(msgspec.Struct, frozen=True):
    """Carries out scan tasks. max_part_bytes: approximate size of a part. lenient: see `hash_and_split_inputs`."""

    request: ReadRequest
    max_part_bytes: int
    lenient: bool

    def split_or_hash_file(self, task: ScanTask) -> Any:
        """Return the parts of the file, or its `FileHash`.

        Raises:
            InputOutputError: the file cannot be read.
        """
        member = task.member
        if task.splits:
            return find_parts(member, self.max_part_bytes, self.request)
        if member.trouble:
            return FileHash("", member.trouble)
        try:
            return FileHash(hash_file(member.path))
        except InputOutputError as error:
            if not self.lenient:
                raise
            return FileHash("", str(error))


class InputScan(msgspec.Struct, frozen=True):
    """Per file, in the order of the request: its hash, and its parts (None = it is not split)."""

    hashes: tuple[FileHash, ...]
    cuts: tuple[Parts | None, ...]


def hash_and_split_inputs(
    runner: TaskRunner, request: ReadRequest, max_part_bytes: int | None, *, lenient: bool = False
) -> InputScan:
    """Hash all files, and find the parts of those above `max_part_bytes` (None = split no file).

    lenient: do not raise for a file that cannot be read.

    Raises:
        InputOutputError: a file cannot be read.
    """
    members = request.members
    split_indexes = [i for i, one in enumerate(members) if max_part_bytes is not None and one.size > max_part_bytes]
    tasks = [*map(ScanTask, members), *(ScanTask(members[i], splits=True) for i in split_indexes)]
    scanner = InputScanner(replace(request, members=()), max_part_bytes or 0, lenient)
    results = runner.run_tasks("reading headers", tasks, scanner.split_or_hash_file)
    parts_by_index = dict(zip(split_indexes, results[len(members) :], strict=True))
    return InputScan(tuple(results[: len(members)]), tuple(parts_by_index.get(i) for i in range(len(members))))


# --- Files of tasks ---

TASKS_FOLDER = "_tasks"
"""Directory in the output for files of tasks, until all have ended."""


def new_task_folder(stage: str, number: int) -> Path:
    """Return a directory for the files of one attempt of a task; it does not exist yet."""
    return Path(stage, TASKS_FOLDER, f"{number:05}-{uuid.uuid4().hex[:8]}")


def require_task_file(path: str | Path) -> None:
    """Raise InputOutputError if a file of a task is not there: other machines need a shared file system."""
    if not os.path.lexists(path):
        raise InputOutputError(
            f"{path}: a task wrote this file, but it no longer exists; the output is incomplete, delete it"
        )


class TaskLimits(NamedTuple):
    """Deadline and progress callback of a local task.

    deadline: of `time.monotonic` on this machine; None = no limit. on_rows: receives the bytes and rows that were read
    so far.
    """

    deadline: float | None = None
    on_rows: Callable[[int, int], None] | None = None

    def check_deadline_and_report(self, done_bytes: int, row_count: int) -> None:
        """Report what was read so far.

        Raises:
            LimitError: the deadline passed.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise LimitError("the time limit was reached")
        if self.on_rows is not None:
            self.on_rows(done_bytes, row_count)


# --- The job ---

_STAGE_WEIGHTS = {"reading headers": 0.1, "converting": 0.9}
"""Stages of a job, and the share of its time that each takes."""
_PARTS_PER_FILE = 4
"""Pieces of a log for one task, so that tasks have similar sizes."""
MAX_SPLIT_SIZE = 1024 * MIB
"""Maximum part of a log in a big job."""
MIN_SPLIT_SIZE = 16 * MIB
"""Shorter logs are not split: parts must be small compared with an output file, so that the files have similar sizes.
"""


class OpenedJob(NamedTuple):
    """A job whose runner is open. limits: of its local tasks; none on Spark, whose runner has the deadline."""

    runner: TaskRunner
    limits: TaskLimits


class JobPlan(NamedTuple):
    """Input of a job: the request, its inputs with their hashes, and the pieces of each task, in order."""

    request: ReadRequest
    inputs: list[ManifestInput]
    pieces: list[tuple[TaskPiece, ...]]


class TableJob(msgspec.Struct, frozen=True):
    """One conversion to tables. request: without members. open_runner: opens what runs its tasks."""

    request: ReadRequest
    shape: TableFileOptions
    open_runner: OpenRunner
    on_step: ProgressCallback | None = None

    @contextmanager
    def open_job_runner(self, inputs: list[ManifestInput]) -> Iterator[OpenedJob]:
        """Open the runner of the job's tasks.

        Raises:
            MissingExtraError, InputOutputError.
        """
        timeout = self.request.limits.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        on_step, size = self.on_step, sum(i.size for i in inputs)
        if on_step is not None:
            on_step = WeightedProgress(on_step, _STAGE_WEIGHTS, size)
        name = format_spark_job_name(f"convert --to {self.shape.to}", [summarize_input_paths([i.path for i in inputs])])
        with self.open_runner(JobOptions(name, on_step, deadline)) as runner:
            if not isinstance(runner, LocalRunner):
                yield OpenedJob(runner, TaskLimits())
                return
            limits_module.restore_ceiling_of_resident_memory()
            report = None if runner.pool is not None else on_step
            on_rows = None if report is None else partial(_report_rows, report, size)
            yield OpenedJob(runner, TaskLimits(deadline, on_rows))

    def plan_tasks(self, runner: TaskRunner, inputs: list[ManifestInput], count: int) -> JobPlan:
        """Hash the inputs, and split them into at most `count` tasks.

        Raises:
            InputOutputError: a file cannot be read.
        """
        members, size = self.build_members(inputs), sum(i.size for i in inputs)
        part_size = min(max(MIN_SPLIT_SIZE, size // (_PARTS_PER_FILE * count)), MAX_SPLIT_SIZE)
        request, selection = add_carried_states(self.build_request(members)), self.request.selection
        can_be_split = count > 1 and can_select_records_independently(selection)
        scan = hash_and_split_inputs(
            runner, request, part_size if can_be_split else None, lenient=selection.on_damage != "stop"
        )
        inputs = [replace(i, sha256=h.sha256, trouble=h.trouble) for i, h in zip(inputs, scan.hashes, strict=True)]
        members = tuple(replace(m, trouble=i.trouble) for m, i in zip(request.members, inputs, strict=True))
        return JobPlan(replace(request, members=members), inputs, pack_tasks(members, scan.cuts, count))

    def build_request(self, members: tuple[TaskFile, ...]) -> ReadRequest:
        """Return the request for these files; the job enforces its time limit, so that no reader stops early."""
        return replace(self.request, members=members, limits=replace(self.request.limits, timeout=None))

    def build_members(self, inputs: list[ManifestInput]) -> tuple[TaskFile, ...]:
        """Return the inputs with the part of the selection that applies to each.

        Files after the stop position get none.
        """
        readable, selection = [i for i in inputs if not i.trouble], self.request.selection
        files = [(i.path, i.path, open_file_module.find_format(i.format)) for i in readable]
        log = LogReader([*files], self.request.limits, self.request.backend)
        selections = [
            *log.limit_selection_to_files(selection),
            *[replace(selection, start=None, stop="0")] * len(readable),
        ]
        log.close()
        selection_by_path = {
            i.path: None if one == selection else one for i, one in zip(readable, selections, strict=False)
        }
        return tuple(
            TaskFile(absolute_path(i.path), i.path, i.format, i.size, selection_by_path.get(i.path), i.trouble)
            for i in inputs
        )


def _report_rows(report: ProgressCallback, size: int, done: int, rows: int) -> None:
    report(ProgressStep("converting", done, size, rows))
