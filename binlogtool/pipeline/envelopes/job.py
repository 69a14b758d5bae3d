"""Write change messages as tables: one pass over the log, a directory of files, all counted again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool import memory
from binlogtool.errors import UsageError
from binlogtool.formats.changes import TRUNCATE, Table
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import OnStep, Step
from binlogtool.pipeline.atomic_output import TABLES
from binlogtool.pipeline.envelopes.message_rows import PLANS
from binlogtool.pipeline.envelopes.target import MessageTarget
from binlogtool.pipeline.envelopes.values import Line
from binlogtool.pipeline.envelopes.wishes import Options
from binlogtool.pipeline.log_shaped import StreamJob
from binlogtool.pipeline.manifest import Input, Manifest
from binlogtool.pipeline.object_columns import two_tables
from binlogtool.pipeline.typed.directories import Directories
from binlogtool.pipeline.typed.job import SCHEMA, checks
from binlogtool.pipeline.typed.target import demand_texts
from binlogtool.pipeline.typed.wishes import Wishes
from binlogtool.pipeline.writers.table_form import Shape

_MEMORY_PART = 4
"""Pending messages of all tables use at most this fraction of the memory limit."""


class MessagesJob(msgspec.Struct, frozen=True):
    """One conversion of messages to tables.

    wishes: options of tables with typed images; None = all messages in one table, images as texts.
    """

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: Shape
    options: Options
    wishes: Wishes | None = None
    on_step: OnStep | None = None

    def write(self, format: str, inputs: list[Input], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no row changes, or no table matches the selection.
            InputOutputError, LimitError.
        """
        memory.keep_resident()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return _Work(self, stage, pool).written(format, inputs)


class _Work:
    """State of a job."""

    def __init__(self, job: MessagesJob, stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.stage, self.pool = job, stage, pool
        self._targets: dict[str, MessageTarget] = {}
        self._directories = Directories()
        self._only: Table | None = None
        self._per_table = job.wishes is not None and job.wishes.per_table
        if job.shape.partition_by:
            raise UsageError("--partition-by is for rows; messages can have a directory for each table: --per-table")

    def written(self, format: str, inputs: list[Input]) -> Manifest:
        """Read the log, and write the output."""
        job = self.job
        options = replace(job.options, tombstones=job.options.envelope != "debezium")
        stream = StreamJob(
            "jsonl", job.limits, job.backend, job.selection, job.hints, None, on_step=job.on_step, envelope=options,
            take=self._take,
        )  # fmt: skip
        files = [i.path for i in inputs]
        with binlogtool.open(files, format=format, limits=job.limits, backend=job.backend, hints=job.hints) as log:
            for _ in stream.told(stream.parts(log), inputs):
                self._bound()
        if job.selection.on_damage == "stop" and stream.account.errors:
            return stream.manifest(inputs, (), (), complete=False)
        if not self._targets:
            self._demand_none()
        self._finish()
        return self._manifest(stream, inputs)

    def _take(self, line: Line) -> None:
        wishes, change = self.job.wishes, line[1]
        if wishes is None:
            return self._target("").add(line)
        table = None if change is None else change.table
        if change is None or table is None:
            return None
        name = table.full_name
        if table.columns or (change.kind == TRUNCATE and (name if self._per_table else "") in self._targets):
            if not self._per_table:
                self._demand_one(table)
            self._target(name).add(line)
        return None  # a message about a statement, not about a row

    def _demand_one(self, table: Table) -> None:
        """Raise UsageError if messages about different tables would be mixed."""
        self._only = self._only or table
        if self._only is not table and self._only.full_name != table.full_name:
            raise two_tables(table.shown, self._only.full_name, table.full_name)

    def _target(self, name: str) -> MessageTarget:
        key = name if self._per_table else ""
        if key not in self._targets:
            job, folder = self.job, self.stage / self._directories.of(name) if self._per_table else self.stage
            self._targets[key] = MessageTarget(
                name, folder, job.shape, job.wishes or Wishes(), self.pool, job.limits.max_memory,
                plan=PLANS[job.options.envelope], typed=job.wishes is not None and job.shape.to != "csv",
            )  # fmt: skip
        return self._targets[key]

    def _bound(self) -> None:
        """Spool pending messages if all tables together exceed the memory of one."""
        if sum(one.held_bytes for one in self._targets.values()) > self.job.limits.max_memory // _MEMORY_PART:
            for one in self._targets.values():
                one.flush()
                one.put_aside()
                one.rest()

    def _demand_none(self) -> None:
        """Raise UsageError if a table was named; otherwise create an empty output."""
        wishes = self.job.wishes
        if wishes is not None and wishes.objects:
            raise UsageError(f"--object {wishes.objects[0]}: the log tells of no change of such a table")
        if wishes is None:
            self._target("")

    def _finish(self) -> None:
        for number, target in enumerate(self._targets.values()):
            if self.job.on_step is not None:
                self.job.on_step(Step("writing", number, len(self._targets)))
            target.finish()
        demand_texts(self._targets.values())
        if self._per_table:
            text = json.dumps({"schema": SCHEMA, "tables": list(self._described())}, indent=2)
            (self.stage / TABLES).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _described(self) -> Iterator[dict[str, Any]]:
        for target in self._targets.values():
            yield target.described(self._directories.of(target.name) if self._per_table else ".")

    def _manifest(self, stream: StreamJob, inputs: list[Input]) -> Manifest:
        outputs = tuple(
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self._targets.values()
            for one in target.outputs
        )
        made = sum(target.rows for target in self._targets.values())
        done = stream.manifest(inputs, outputs, tuple(checks(made, outputs)), complete=True)
        typed = {} if self.job.wishes is None else {"tables": list(self._described())}
        return replace(done, rows=made, details={**done.details, **typed})
