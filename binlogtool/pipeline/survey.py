"""Scan of the inputs on the executors before their rows are read: hashes, and where to split them.

Each is one pass over the bytes, independent of the other; the driver alone would need hours for large inputs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from binlogtool.errors import InputOutputError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.pipeline.fleet import SparkJobRunner, run_each
from binlogtool.pipeline.inputs import hash_file
from binlogtool.pipeline.request import ReadRequest
from binlogtool.pipeline.tasks import Parts, TaskFile, find_parts


class FileHash(msgspec.Struct, frozen=True):
    """SHA-256 of a file as hexadecimal text. trouble: why there is none."""

    sha256: str
    trouble: str = ""


class HashTask(msgspec.Struct, frozen=True):
    """Task that hashes a file. lenient: do not raise for a file that cannot be read."""

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


class SplitOptions(msgspec.Struct, frozen=True):
    """How files are split. split_size: files above this many bytes are split; None = none. request: the members'
    request.
    """

    split_size: int | None
    request: ReadRequest
    hints: Hints | None

    def create_task(self, member: TaskFile) -> SplitTask:
        """Return the task that splits one member."""
        request = self.request
        size = self.split_size or member.size
        return SplitTask(member, size, request.backend, request.limits, request.member_hints(member, self.hints))


class SplitTask(msgspec.Struct, frozen=True):
    """Task that finds the parts of a file."""

    member: TaskFile
    split_size: int
    backend: str
    limits: Limits
    hints: Hints | None

    @property
    def size(self) -> int:
        """Number of bytes to scan."""
        return self.member.size

    def execute(self) -> Parts:
        """Return the parts."""
        return find_parts(self.member, self.split_size, self.backend, self.limits, self.hints)


class InputScan(msgspec.Struct, frozen=True):
    """Per file, in the order of the request: its hash, and its parts (None = it is not split)."""

    hashes: tuple[FileHash, ...]
    cuts: tuple[Parts | None, ...]


def scan_inputs(
    runner: SparkJobRunner, members: Sequence[TaskFile], split_options: SplitOptions, *, lenient: bool = False
) -> InputScan:
    """Hash all files, and find the parts of large ones. lenient: see `HashTask`.

    Raises:
        InputOutputError: a file cannot be read.
    """
    split_indexes = [
        i
        for i, one in enumerate(members)
        if split_options.split_size is not None and one.size > split_options.split_size
    ]
    tasks: list[HashTask | SplitTask] = [HashTask(one, lenient) for one in members]
    tasks += [split_options.create_task(members[i]) for i in split_indexes]
    job = partial(run_each, work=_execute_task, home=os.getcwd())
    results = runner.compute_results("reading headers", tasks, job)
    parts_by_index = dict(zip(split_indexes, results[len(members) :], strict=True))
    return InputScan(tuple(results[: len(members)]), tuple(parts_by_index.get(i) for i in range(len(members))))


def _execute_task(task: HashTask | SplitTask) -> Any:
    return task.execute()
