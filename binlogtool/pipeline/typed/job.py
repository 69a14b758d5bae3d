"""Write typed tables of a log in one pass: each row goes to its table in the log's order; then the files are
counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.findings import Finding
from binlogtool.formats.detecting import Hints
from binlogtool.formats.tables import TableSchema
from binlogtool.limits import Limits
from binlogtool.log import detect
from binlogtool.log.body_json import finding_to_value
from binlogtool.log.how import ReadOptions
from binlogtool.log.open import LogReader, open_log
from binlogtool.log.records import FileFinding, RowBatch
from binlogtool.log.select import Selection, add_selection_hints
from binlogtool.pipeline.account import FindingTally, ProgressCallback, ProgressStep
from binlogtool.pipeline.atomic_output import TABLES_FILE
from binlogtool.pipeline.closing import is_closed, is_damage
from binlogtool.pipeline.inputs import absolute_path
from binlogtool.pipeline.manifest import Manifest, ManifestCheck, ManifestInput, ManifestOutput
from binlogtool.pipeline.object_columns import read_older_tables, table_rules
from binlogtool.pipeline.tasks import TaskFile
from binlogtool.pipeline.typed.batches import TableBatch
from binlogtool.pipeline.typed.directories import TableDirectories
from binlogtool.pipeline.typed.gather import TableRouter
from binlogtool.pipeline.typed.target import TableOutput, check_text_bytes
from binlogtool.pipeline.typed.wishes import TypedRowOptions, typed_selection
from binlogtool.pipeline.writers.table_form import TableFileOptions

_MEMORY_DIVISOR = 4
"""Pending rows of all tables use at most this fraction of the memory limit."""
SCHEMA = "binlogtool/tables/1"


class TypedJob(msgspec.Struct, frozen=True):
    """One conversion into typed tables (`options`: their options)."""

    limits: Limits
    backend: str
    selection: Selection
    hints: Hints | None
    shape: TableFileOptions
    options: TypedRowOptions
    on_step: ProgressCallback | None = None

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory at `stage`.

        Raises:
            UsageError: a format has no tables, or no table matches the selection.
            InputOutputError, LimitError.
        """
        memory.set_resident_ceiling()
        stage.mkdir()
        with ThreadPoolExecutor(1) as pool:
            return self._run(_TypedJobState(self, inputs, stage, pool), inputs)

    def _run(self, state: _TypedJobState, inputs: list[ManifestInput]) -> Manifest:
        with self._open_log(inputs) as log:
            state.read_rows(log)
        if state.finding_tally.errors and self.selection.on_damage == "stop":
            return state.build_manifest(complete=False)
        state.router.check_tables_exist()
        if not state.finding_tally.counts:
            state.router.check_columns_exist()
        state.finish()
        return state.build_manifest(complete=True)

    def _open_log(self, inputs: list[ManifestInput]) -> LogReader:
        hints = add_selection_hints(self.selection, self.hints, script=True)
        log = LogReader(
            [(i.path, i.path, detect.find_format(i.format)) for i in inputs],
            self.limits,
            self.backend,
            hints or Hints(),
        )
        log.open_first()
        return log


class _TypedJobState:
    """State of a job; receives its rows (`gather.TableRowSink`)."""

    def __init__(self, job: TypedJob, inputs: list[ManifestInput], stage: Path, pool: ThreadPoolExecutor) -> None:
        self.job, self.inputs, self.stage, self.pool = job, inputs, stage, pool
        self.finding_tally = FindingTally()
        self._targets: dict[str, TableOutput] = {}
        self._directories = TableDirectories()
        rules = [table_rules(i.path, i.format) for i in inputs]
        self._operations = any(one is not None and one.operations for one in rules)
        self.router = TableRouter(job.options, self, job.limits)
        self._members = [TaskFile(absolute_path(i.path), i.path, i.format, i.size) for i in inputs]
        self._preceding_bytes = dict(zip((i.path for i in inputs), _preceding_sizes(inputs), strict=True))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_rows(self, log: LogReader) -> None:
        """Read all rows."""
        job = self.job
        known_tables = read_older_tables([(i.path, i.format) for i in self.inputs], job.limits, job.backend, job.hints)
        router = self.router
        for part in router.read_log(log, typed_selection(job.selection), known_tables):
            if isinstance(part, FileFinding):
                router.note_damage(part)
                self._record_trouble(part)
            elif isinstance(part, RowBatch):
                router.add_row_batch(part)
                self._report_progress(part.file, part.end)
            else:
                router.add_block(part)
                if len(part):
                    self._report_progress(part.file, int(part.offset[-1]) + int(part.size[-1]))
            if router.is_full:
                break
        self.router.flush()

    def _report_progress(self, file: str, end: int) -> None:
        if self.job.on_step is not None:
            total = sum(one.size for one in self.inputs)
            self.job.on_step(
                ProgressStep("converting", self._preceding_bytes[file] + end, total, self.router.rows_by_file.total())
            )

    def _record_trouble(self, trouble: FileFinding) -> None:
        member = next(m for m in self._members if m.name == trouble.file)
        is_damaged = is_damage(trouble.finding, partial(is_closed, member, self._members, self._open_member))
        self.finding_tally.add(trouble.file, finding_to_value(trouble.finding), damage=is_damaged)
        if is_damaged:
            self.router.add_damage_row(trouble)

    def _open_member(self, member: TaskFile) -> LogReader:
        job = self.job
        return open_log(
            member.path,
            ReadOptions(format=member.format, limits=job.limits, backend=job.backend, hints=job.hints),
            LogReader,
        )

    def set_table(self, name: str, table: TableSchema, place: str) -> None:
        """Set the definition of a table; see `TableRowSink`."""
        self._get_target(name).set_table(table, place)

    def add_batch(self, name: str, table_batch: TableBatch) -> None:
        """Add rows of a table; see `TableRowSink`. Many tables together use no more memory than one."""
        self._get_target(name).add_batch(table_batch)
        if sum(one.pending_bytes for one in self.targets) > self.job.limits.max_memory // _MEMORY_DIVISOR:
            for target in self.targets:
                target.spool_pending()
                target.close_spool()

    def report_finding(self, file: str, finding: Finding) -> None:
        """Record a finding; see `TableRowSink`."""
        self.finding_tally.add(file, finding_to_value(finding), damage=False)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _get_target(self, name: str) -> TableOutput:
        if name not in self._targets:
            job = self.job
            folder = self.stage / self._directories.directory_of(name) if job.options.per_table else self.stage
            self._targets[name] = TableOutput(
                name, folder, job.shape, job.options, self.pool, job.limits.max_memory, operations=self._operations
            )
        return self._targets[name]

    @property
    def targets(self) -> list[TableOutput]:
        """All tables, in the order in which they appeared."""
        return list(self._targets.values())

    def finish(self) -> None:
        """Write the output files.

        Raises:
            InputOutputError: they do not hold what was read.
        """
        for number, target in enumerate(self.targets):
            if self.job.on_step is not None:
                self.job.on_step(ProgressStep("writing", number, len(self.targets)))
            target.finish()
        check_text_bytes(self.targets)
        if self.job.options.per_table:
            text = json.dumps({"schema": SCHEMA, "tables": list(self._describe_tables())}, indent=2)
            (self.stage / TABLES_FILE).write_text(text + "\n")
        (self.stage / "_SUCCESS").touch()

    def _describe_tables(self) -> Iterator[dict[str, Any]]:
        for target in self.targets:
            directory = self._directories.directory_of(target.name) if self.job.options.per_table else "."
            yield target.to_dict(directory)

    def build_manifest(self, *, complete: bool) -> Manifest:
        """Build the manifest. complete: the output is published."""
        outputs = [
            replace(one, path=str(target.folder.relative_to(self.stage) / one.path))
            for target in self.targets
            for one in target.outputs
        ]
        row_count = sum(target.rows for target in self.targets)
        details: dict[str, Any] = {"tables": list(self._describe_tables())} if complete else {}
        if self.router.remarks:
            details["remarks"] = self.router.remarks
        if self.router.unlogged_records:
            details["untold"] = self.router.unlogged_records
        return Manifest(
            to="",
            output="",
            complete=complete,
            on_damage=self.job.selection.on_damage,
            inputs=tuple(replace(i, records=self.router.rows_by_file[i.path]) for i in self.inputs),
            outputs=tuple(outputs),
            rows=row_count,
            damage=self.finding_tally.damage_rows,
            findings=tuple(self.finding_tally.listed),
            finding_counts=dict(self.finding_tally.counts),
            checks=tuple(build_checks(row_count, outputs)) if complete else (),
            details=details,
        )


def build_checks(row_count: int, outputs: Sequence[ManifestOutput]) -> Iterator[ManifestCheck]:
    """Yield the checks of an output. row_count: number of rows."""
    counted_rows = sum(one.rows for one in outputs)
    yield ManifestCheck("rows-in-equal-rows-out", f"{row_count:,} rows made, {counted_rows:,} counted in the output")
    yield ManifestCheck("texts-in-equal-texts-out", "the bytes of all texts that were made, counted in the output")


def _preceding_sizes(inputs: list[ManifestInput]) -> Iterator[int]:
    before = 0
    for input_ in inputs:
        yield before
        before += input_.size
