"""Write change messages as tables: one pass over the log, a directory of files, all counted again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.errors import UsageError
from binlogtool.formats.changes import TRUNCATE, SqlTable
from binlogtool.formats.detecting import Hints
from binlogtool.limits import Limits
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import ProgressCallback, ProgressStep
from binlogtool.pipeline.atomic_output import TABLES_FILE
from binlogtool.pipeline.envelopes.message_rows import MESSAGE_LAYOUTS
from binlogtool.pipeline.envelopes.target import MessageTableOutput
from binlogtool.pipeline.envelopes.values import MessageLine
from binlogtool.pipeline.envelopes.wishes import EnvelopeOptions
from binlogtool.pipeline.log_shaped import StreamJob
from binlogtool.pipeline.manifest import Manifest, ManifestInput
from binlogtool.pipeline.object_columns import ambiguous_table_error
from binlogtool.pipeline.typed.directories import TableDirectories
from binlogtool.pipeline.typed.job import SCHEMA, build_checks
from binlogtool.pipeline.typed.target import check_text_bytes
from binlogtool.pipeline.typed.wishes import TypedRowOptions
from binlogtool.pipeline.writers.table_form import TableFileOptions

_MEMORY_DIVISOR = 4
"""Pending messages of all tables use at most this fraction of the memory limit."""


class MessagesJob(msgspec.Struct, frozen=True):
    """One conversion of messages to tables.

    typed_options: options of tables with typed images; None = all messages in one table, images as texts.
    """

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: TableFileOptions
    options: EnvelopeOptions
    typed_options: TypedRowOptions | None = None
    on_step: ProgressCallback | None = None

    def write(self, format: str, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no row changes, or no table matches the selection.
            InputOutputError, LimitError.
        """
        memory.set_resident_ceiling()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return _MessagesJobState(self, stage, pool).run(format, inputs)


class _MessagesJobState:
    """State of a job."""

    def __init__(self, job: MessagesJob, stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.stage, self.pool = job, stage, pool
        self._targets: dict[str, MessageTableOutput] = {}
        self._directories = TableDirectories()
        self._first_table: SqlTable | None = None
        self._per_table = job.typed_options is not None and job.typed_options.per_table
        if job.shape.partition_by:
            raise UsageError("--partition-by is for rows; messages can have a directory for each table: --per-table")

    def run(self, format: str, inputs: list[ManifestInput]) -> Manifest:
        """Read the log, and write the output."""
        job = self.job
        options = replace(job.options, tombstones=job.options.envelope != "debezium")
        stream = StreamJob(
            "jsonl", job.limits, job.backend, job.selection, job.hints, None, on_step=job.on_step, envelope=options,
            message_sink=self._add_message,
        )  # fmt: skip
        files = [i.path for i in inputs]
        with open_log(
            files, ReadOptions(format=format, limits=job.limits, backend=job.backend, hints=job.hints), LogReader
        ) as log:
            for _ in stream.account_parts(stream.read_parts(log), inputs):
                self._limit_memory()
        if job.selection.on_damage == "stop" and stream.finding_tally.errors:
            return stream.build_manifest(inputs, (), (), complete=False)
        if not self._targets:
            self._handle_no_messages()
        self._write_outputs()
        return self._build_manifest(stream, inputs)

    def _add_message(self, line: MessageLine) -> None:
        typed_options, change = self.job.typed_options, line[1]
        if typed_options is None:
            return self._get_target("").add_message(line)
        table = None if change is None else change.table
        if change is None or table is None:
            return None
        name = table.full_name
        if table.columns or (change.kind == TRUNCATE and (name if self._per_table else "") in self._targets):
            if not self._per_table:
                self._check_single_table(table)
            self._get_target(name).add_message(line)
        return None  # a message about a statement, not about a row

    def _check_single_table(self, table: SqlTable) -> None:
        """Raise UsageError if messages about different tables would be mixed."""
        self._first_table = self._first_table or table
        if self._first_table is not table and self._first_table.full_name != table.full_name:
            raise ambiguous_table_error(table.display_name, self._first_table.full_name, table.full_name)

    def _get_target(self, name: str) -> MessageTableOutput:
        key = name if self._per_table else ""
        if key not in self._targets:
            job, folder = self.job, self.stage / self._directories.directory_of(name) if self._per_table else self.stage
            self._targets[key] = MessageTableOutput(
                name, folder, job.shape, job.typed_options or TypedRowOptions(), self.pool, job.limits.max_memory,
                row_layout=MESSAGE_LAYOUTS[job.options.envelope],
                typed=job.typed_options is not None and job.shape.to != "csv",
            )  # fmt: skip
        return self._targets[key]

    def _limit_memory(self) -> None:
        """Spool pending messages if all tables together exceed the memory of one."""
        if sum(one.pending_bytes for one in self._targets.values()) > self.job.limits.max_memory // _MEMORY_DIVISOR:
            for target in self._targets.values():
                target.flush()
                target.spool_pending()
                target.close_spool()

    def _handle_no_messages(self) -> None:
        """Raise UsageError if a table was named; otherwise create an empty output."""
        typed_options = self.job.typed_options
        if typed_options is not None and typed_options.objects:
            raise UsageError(f"--object {typed_options.objects[0]}: the log tells of no change of such a table")
        if typed_options is None:
            self._get_target("")

    def _write_outputs(self) -> None:
        for number, target in enumerate(self._targets.values()):
            if self.job.on_step is not None:
                self.job.on_step(ProgressStep("writing", number, len(self._targets)))
            target.finish()
        check_text_bytes(self._targets.values())
        if self._per_table:
            text = json.dumps({"schema": SCHEMA, "tables": list(self._describe_tables())}, indent=2)
            (self.stage / TABLES_FILE).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _describe_tables(self) -> Iterator[dict[str, Any]]:
        for target in self._targets.values():
            yield target.to_dict(self._directories.directory_of(target.name) if self._per_table else ".")

    def _build_manifest(self, stream: StreamJob, inputs: list[ManifestInput]) -> Manifest:
        outputs = tuple(
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self._targets.values()
            for one in target.outputs
        )
        row_count = sum(target.rows for target in self._targets.values())
        manifest = stream.build_manifest(inputs, outputs, tuple(build_checks(row_count, outputs)), complete=True)
        table_details = {} if self.job.typed_options is None else {"tables": list(self._describe_tables())}
        return replace(manifest, rows=row_count, details={**manifest.details, **table_details})
