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
from binlogtool.core.record_selection import Selection
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
    can_split,
    find_parts,
    hash_file,
    pack_tasks,
    piece_size,
)
from binlogtool.export.output_options import TableFileOptions
from binlogtool.export.read_members import add_histories
from binlogtool.export.run_tasks import JobOptions, LocalRunner, OpenRunner, TaskRunner
from binlogtool.export.spark_settings import describe_paths, describe_work
from binlogtool.format_api.format import Hints
from binlogtool.limits import MIB, Limits

# --- Tasks that look at the inputs ---


class FileHash(msgspec.Struct, frozen=True):
    """SHA-256 of a file as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class HashTask(msgspec.Struct, frozen=True):
    """Hashes a file. lenient: do not raise for a file that cannot be read."""

    member: TaskFile
    lenient: bool = False

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return self.member.size

    def execute(self) -> FileHash:
        """Return the hash.

        Raises:
            InputOutputError: the file cannot be read.
        """
        if self.member.trouble:
            return FileHash("", self.member.trouble)
        try:
            return FileHash(hash_file(self.member.path))
        except InputOutputError as error:
            if not self.lenient:
                raise
            return FileHash("", str(error))


class SplitTask(msgspec.Struct, frozen=True):
    """Finds the parts of a file. max_part_bytes: approximate size of a part."""

    member: TaskFile
    max_part_bytes: int
    request: ReadRequest
    hints: Hints | None

    @property
    def size(self) -> int:
        """Number of bytes to scan."""
        return self.member.size

    def execute(self) -> Parts:
        """Return the parts."""
        request = self.request
        return find_parts(
            self.member, self.max_part_bytes, request.backend, request.limits,
            request.member_hints(self.member, self.hints),
        )  # fmt: skip


class InputScan(msgspec.Struct, frozen=True):
    """Per file, in the order of the request: its hash, and its parts (None = it is not split)."""

    hashes: tuple[FileHash, ...]
    cuts: tuple[Parts | None, ...]


def scan_inputs(
    runner: TaskRunner, request: ReadRequest, hints: Hints | None, max_part_bytes: int | None, *, lenient: bool = False
) -> InputScan:
    """Hash all files, and find the parts of those above `max_part_bytes` (None = split no file).

    lenient: see `HashTask`.

    Raises:
        InputOutputError: a file cannot be read.
    """
    members = request.members
    split_indexes = [i for i, one in enumerate(members) if max_part_bytes is not None and one.size > max_part_bytes]
    tasks: list[HashTask | SplitTask] = [HashTask(one, lenient) for one in members]
    bare_request = replace(request, members=())
    tasks += [SplitTask(members[i], max_part_bytes or 0, bare_request, hints) for i in split_indexes]
    results = runner.run_tasks("reading headers", tasks, _execute)
    parts_by_index = dict(zip(split_indexes, results[len(members) :], strict=True))
    return InputScan(tuple(results[: len(members)]), tuple(parts_by_index.get(i) for i in range(len(members))))


def _execute(task: HashTask | SplitTask) -> Any:
    return task.execute()


# --- Tasks that write files ---

TASKS_FOLDER = "_tasks"
"""Directory in the output for files of tasks, until all have ended."""


class WriteTask(msgspec.Struct, frozen=True):
    """Pieces that one task reads, in order. number: its place among the tasks."""

    number: int
    pieces: tuple[TaskPiece, ...]

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(map(piece_size, self.pieces))


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

    def check(self, done: int, rows: int) -> None:
        """Report what was read so far.

        Raises:
            LimitError: the deadline passed.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise LimitError("the time limit was reached")
        if self.on_rows is not None:
            self.on_rows(done, rows)


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
    """Input of a job: the request, its inputs with their hashes, and the pieces of each task."""

    request: ReadRequest
    inputs: list[ManifestInput]
    tasks: list[WriteTask]


class TableJob(msgspec.Struct, frozen=True):
    """One conversion to tables. open_runner: opens what runs its tasks."""

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: TableFileOptions
    open_runner: OpenRunner
    on_step: ProgressCallback | None = None

    @contextmanager
    def open(self, inputs: list[ManifestInput]) -> Iterator[OpenedJob]:
        """Open the runner of the job's tasks.

        Raises:
            MissingExtraError, InputOutputError.
        """
        deadline = None if self.limits.timeout is None else time.monotonic() + self.limits.timeout
        on_step, size = self.on_step, sum(i.size for i in inputs)
        if on_step is not None:
            on_step = WeightedProgress(on_step, _STAGE_WEIGHTS, size)
        name = describe_work(f"convert --to {self.shape.to}", [describe_paths([i.path for i in inputs])])
        with self.open_runner(JobOptions(name, on_step, deadline)) as runner:
            if not isinstance(runner, LocalRunner):
                yield OpenedJob(runner, TaskLimits())
                return
            limits_module.set_resident_ceiling()
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
        limits = replace(self.limits, timeout=None)  # enforced here: a reader that stops early would look complete
        request = add_histories(ReadRequest(members, 1, self.backend, limits, self.selection), self.hints)
        can_be_split = count > 1 and can_split(self.selection)
        scan = scan_inputs(
            runner, request, self.hints, part_size if can_be_split else None, lenient=self.selection.on_damage != "stop"
        )
        inputs = [replace(i, sha256=h.sha256, trouble=h.trouble) for i, h in zip(inputs, scan.hashes, strict=True)]
        members = tuple(replace(m, trouble=i.trouble) for m, i in zip(request.members, inputs, strict=True))
        tasks = [WriteTask(number, pieces) for number, pieces in enumerate(pack_tasks(members, scan.cuts, count))]
        return JobPlan(replace(request, members=members), inputs, tasks)

    def build_members(self, inputs: list[ManifestInput]) -> tuple[TaskFile, ...]:
        """Return the inputs with the part of the selection that applies to each.

        Files after the stop position get none.
        """
        readable = [i for i in inputs if not i.trouble]
        log = LogReader(
            [(i.path, i.path, open_file_module.find_format(i.format)) for i in readable], self.limits, self.backend
        )
        selections = [
            *log.limit_selection_to_files(self.selection),
            *[replace(self.selection, start=None, stop="0")] * len(readable),
        ]
        log.close()
        selection_by_path = {
            i.path: None if one == self.selection else one for i, one in zip(readable, selections, strict=False)
        }
        return tuple(
            TaskFile(absolute_path(i.path), i.path, i.format, i.size, selection_by_path.get(i.path), i.trouble)
            for i in inputs
        )


def _report_rows(report: ProgressCallback, size: int, done: int, rows: int) -> None:
    report(ProgressStep("converting", done, size, rows))
