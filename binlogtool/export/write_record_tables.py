"""Write the records of logs as tables: plan the tasks, run them, verify the output, publish it.

A task (`task_planning`) writes its own files and reads them back.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import asdict, replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError, UsageError, name_os_errors
from binlogtool.export import records_to_arrow
from binlogtool.export.incremental_positions import is_closed
from binlogtool.export.manifest import (
    FindingTally,
    Manifest,
    ManifestCheck,
    ManifestInput,
    ManifestOutput,
    ReadRequest,
    piece_size,
)
from binlogtool.export.output_options import DEFAULT_FILE_SIZE, NO_TEXT, NULL_PARTITION, TableFileOptions
from binlogtool.export.read_rows_of_one_file import read_member
from binlogtool.export.spool_to_table_files import FinishedFile, publish_files
from binlogtool.export.table_files import TableFileSink, count_file, to_stored_text
from binlogtool.export.task_planning import (
    TASKS_FOLDER,
    TableJob,
    TaskLimits,
    WriteTask,
    new_task_folder,
    require_task_file,
)
from binlogtool.findings import Finding, finding_to_value

# --- What was read, and what was read back ---


class RowTotals(msgspec.Struct, frozen=True):
    """Totals of rows that were read.

    text_bytes: bytes of the texts as written. damage: number of DAMAGE rows. bytes: bytes of the logs, in records and
    damage.
    """

    rows: int = 0
    text_bytes: int = 0
    records: int = 0
    bytes: int = 0
    damage: int = 0

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


def total_rows(batch: pa.RecordBatch) -> RowTotals:
    """Return the totals of rows of records, without `text_bytes`."""
    damage, size = batch["record"].null_count, compute.sum(batch["size"]).as_py() or 0
    return RowTotals(batch.num_rows, 0, batch.num_rows - damage, size, damage)


_REQUIRED_COLUMNS = ("file", "record", "type", "findings")
_EVENT_RANGE_COLUMNS = ("inner_offset", "inner_size")
"""Columns with the range of an event within the record that contains it."""


class EventRanges(msgspec.Struct):
    """Check that the events of each group are contiguous from the group's first byte on, in row order.

    broken: log file -> number of the first group with a gap.
    """

    groups: int = 0
    events: int = 0
    broken: dict[str, int] = msgspec.field(default_factory=dict)
    _last: tuple[str, int, int] | None = None

    def add_rows(self, table: pa.Table) -> None:
        """Check the next rows of one part file."""
        columns = (table[name].to_pylist() for name in ("file", "record", *_EVENT_RANGE_COLUMNS))
        for file, record, offset, size in zip(*columns, strict=True):
            if record is None or offset is None:
                continue
            self.events += 1
            self.groups += offset == 0
            if offset and (file, record, offset) != self._last:
                self.broken.setdefault(file, record)
            self._last = (file, record, offset + size)

    def merge(self, other: EventRanges) -> None:
        """Add the results of another task, whose rows begin with a new group."""
        self.groups += other.groups
        self.events += other.events
        self.broken = other.broken | self.broken

    def to_check(self) -> ManifestCheck:
        """Return the result as a check of the manifest.

        Raises:
            InputOutputError: events are missing or duplicated.
        """
        for file, record in self.broken.items():
            raise InputOutputError(f"{file}: the events of record {record:,} do not follow each other in the output")
        text = f"{self.events:,} events of {self.groups:,} groups, contiguous from each group's first byte"
        return ManifestCheck("events-without-holes", text)


class OutputCounts(msgspec.Struct):
    """Content of files of records as read back.

    last_records: log file -> highest record number. event_ranges: check of event ranges; None unless events share
    record numbers.
    """

    outputs: list[ManifestOutput] = msgspec.field(default_factory=list)
    records: Counter[str] = msgspec.field(default_factory=Counter)
    last_records: dict[str, int] = msgspec.field(default_factory=dict)
    text_bytes: int = 0
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    event_ranges: EventRanges | None = None

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(output.rows for output in self.outputs)

    def add_file(self, folder: Path, path: Path, file_options: TableFileOptions, schema: pa.Schema) -> None:
        """Read a file back.

        Raises:
            InputOutputError: the reader does not understand the file.
        """
        partition_values = parse_partition_values(path.relative_to(folder))
        extra = (*_REQUIRED_COLUMNS, *(_EVENT_RANGE_COLUMNS if self.event_ranges is not None else ()))
        counts = count_file(file_options, folder, path, schema, partial(self._add_rows, partition_values), extra)
        self.outputs.append(counts.output)
        self.text_bytes += counts.text_bytes

    def _add_rows(self, partition_values: Mapping[str, str | None], table: pa.Table) -> None:
        for name in _REQUIRED_COLUMNS:
            if name in partition_values:
                table = table.append_column(name, pa.array([partition_values[name]] * table.num_rows, pa.string()))
        if self.event_ranges is not None:
            self.event_ranges.add_rows(table)
        for row in table.group_by("file").aggregate([("record", "count"), ("record", "max")]).to_pylist():
            self.records[row["file"]] += row["record_count"]
            if row["record_max"] is not None:
                self.last_records[row["file"]] = max(self.last_records.get(row["file"], -1), row["record_max"])
        for row in table.filter(table["findings"].is_valid()).to_pylist():
            for finding in msgspec.json.decode(row["findings"]):
                self.finding_tally.add(row["file"], finding, damage=row["type"] == records_to_arrow.DAMAGE)

    def merge(self, other: OutputCounts) -> None:
        """Add the counts of more files."""
        self.outputs += other.outputs
        self.records += other.records
        for file, record in other.last_records.items():
            self.last_records[file] = max(self.last_records.get(file, -1), record)
        self.text_bytes += other.text_bytes
        self.finding_tally.merge(other.finding_tally)
        if self.event_ranges is not None and other.event_ranges is not None:
            self.event_ranges.merge(other.event_ranges)

    def check_contiguous(self, *, partitioned: bool) -> Iterator[ManifestCheck]:
        """Yield the check that no record is missing. partitioned: the rows are not in log order.

        Raises:
            InputOutputError: a record is missing.
        """
        if self.event_ranges is None:
            self._check_no_gaps()
            yield ManifestCheck("record-numbers-without-holes", f"{self.records.total():,} records")
        elif not partitioned:
            yield self.event_ranges.to_check()

    def _check_no_gaps(self) -> None:
        """Raise InputOutputError unless every record number from 0 to the last exists exactly once."""
        for file, last in self.last_records.items():
            if self.records[file] != last + 1:
                raise InputOutputError(
                    f"{file}: {self.records[file]:,} records are in the output, but the last one is number {last:,}"
                )


def parse_partition_values(relative: Path) -> dict[str, str | None]:
    """Return the values that the names of directories (`type=INSERT`) give to all rows of a file."""
    pairs = (part.partition("=") for part in relative.parts[:-1])
    return {name: None if value in (NULL_PARTITION, NO_TEXT) else unquote(value) for name, _, value in pairs}


# --- Tasks that write files ---


class WriteResult(msgspec.Struct):
    """Result of a write task. folder: directory of its files. notes: findings without a row."""

    folder: str
    totals: RowTotals
    counts: OutputCounts
    notes: FindingTally


class RecordTableWriter(msgspec.Struct, frozen=True):
    """Executor of write tasks.

    stage: absolute path of the output. events: several rows share the number of a record.
    """

    request: ReadRequest
    file_options: TableFileOptions
    stage: str
    events: bool
    limits: TaskLimits = TaskLimits()

    def execute(self, task: WriteTask) -> WriteResult:
        """Write the rows of a task, and read them back.

        Raises:
            InputOutputError: the rows cannot be written.
            LimitError: the deadline passed.
        """
        folder = new_task_folder(self.stage, task.number)
        with name_os_errors(self.stage, "cannot be written", by_file=True):
            return self._write(task, folder)

    def _write(self, task: WriteTask, folder: Path) -> WriteResult:
        options, max_memory = self.file_options, self.request.limits.max_memory
        counts = OutputCounts(event_ranges=EventRanges() if self.events else None)
        result = WriteResult(str(folder), RowTotals(), counts, FindingTally())
        sink = TableFileSink(
            folder, options, records_to_arrow.SCHEMA, max_memory, options.file_size or DEFAULT_FILE_SIZE
        )  # fmt: skip
        try:
            for batch in self._read_batches(task, result.notes):
                result.totals += total_rows(batch)
                sink.add(batch)
            sink.close(keep_empty=task.number == 0)
        except BaseException:
            sink.abandon()
            raise
        result.totals = replace(result.totals, text_bytes=sink.text_bytes)
        for path in sink.paths:
            counts.add_file(folder, path, options, records_to_arrow.SCHEMA)
        return result

    def _read_batches(self, task: WriteTask, notes: FindingTally) -> Iterator[pa.RecordBatch]:
        done = rows = 0
        for piece in task.pieces:
            member, begin = piece.member, 0 if piece.part.start is None else piece.part.start.offset

            def add_note(finding: Finding, name: str = records_to_arrow.printable_path(member.name)) -> None:
                notes.add(name, finding_to_value(finding), damage=False)

            is_member_closed = partial(is_closed, member, self.request.members, self.request.open_member)
            for batch in read_member(
                member, self.request, piece.part, is_file_closed=is_member_closed, on_note=add_note
            ):
                yield batch
                rows += batch.num_rows
                offset = batch["offset"][batch.num_rows - 1].as_py() if batch.num_rows else 0
                self.limits.check(done + max((offset or 0) - begin, 0), rows)
            done += piece_size(piece)


# --- The job ---


class RecordTableJob(TableJob, frozen=True):
    """One conversion of records to a table format."""

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write a directory of files at `stage`.

        Raises:
            UsageError: --skip, --limit or --tail with several files.
            MissingExtraError, InputOutputError, LimitError, KeyboardInterrupt.
        """
        _check_no_counting(inputs, self.request.selection)
        with self.open(inputs) as (runner, limits):
            parallel, size = runner.parallel, sum(i.size for i in inputs)
            count = 1 if parallel == 1 else self.shape.estimate_file_count(size, parallel)
            request, inputs, tasks = self.plan_tasks(runner, inputs, count)
            stage.mkdir()
            has_event_rows = self._has_event_rows(inputs)
            writer = RecordTableWriter(request, self.shape, str(stage.absolute()), has_event_rows, limits)
            results = runner.run_tasks("converting", tasks, writer.execute)
            details = runner.describe()
        totals, counts = sum((one.totals for one in results), RowTotals()), _publish_files(results, stage)
        manifest = _build_manifest(inputs, counts, totals, self.request.selection, self.shape)
        if details:
            manifest = replace(manifest, details={"spark": {**details, "observed": asdict(totals)}})
        return manifest

    def _has_event_rows(self, inputs: list[ManifestInput]) -> bool:
        """Return True if the rows are events that share the number of the record that contains them."""
        hints = self.request.hints
        level = None if hints is None else hints.level
        return level is not None and level in {
            open_file_module.find_format(i.format).reading.event_level for i in inputs if i.format
        }


def _check_no_counting(inputs: list[ManifestInput], selection: Selection) -> None:
    """Raise UsageError for selections that count records of several files, which are read in parallel."""
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    if len(inputs) > 1 and counted:
        raise UsageError("--skip, --limit and --tail need ordered records; convert one file, or use --to jsonl")


def _publish_files(results: Sequence[WriteResult], stage: Path) -> OutputCounts:
    """Move the files of all tasks into the output, in row order, and return the counts that were read back.

    Raises:
        InputOutputError: a file does not exist: the tasks ran on another machine without a shared file system.
    """
    counts = OutputCounts(event_ranges=None if results and results[0].counts.event_ranges is None else EventRanges())
    for result in results:
        counts.merge(result.counts)
    files = [
        FinishedFile(str(Path(one.folder, output.path)), output) for one in results for output in one.counts.outputs
    ]
    for file in files:
        require_task_file(file.source)
    counts.outputs = list(publish_files(files, stage))
    shutil.rmtree(stage / TASKS_FOLDER, ignore_errors=True)
    (stage / "_SUCCESS").touch()
    for result in results:
        counts.finding_tally.merge(result.notes)
    return counts


def _build_manifest(
    inputs: list[ManifestInput],
    counts: OutputCounts,
    totals: RowTotals,
    selection: Selection,
    file_options: TableFileOptions,
) -> Manifest:
    """Compare the rows that were read back with those that were read from the logs, and build the manifest.

    Raises:
        InputOutputError: rows or texts are missing or duplicated.
    """
    rows_in, text_in = totals.rows, totals.text_bytes
    if counts.rows != rows_in:
        raise InputOutputError(f"{rows_in:,} rows were read and {counts.rows:,} were written; the output is not usable")
    if counts.text_bytes != text_in:
        text = f"rows with {text_in:,} bytes of text were read and {counts.text_bytes:,} written"
        raise InputOutputError(f"{text}: the output is not usable")
    checks = [
        ManifestCheck("rows-in-equal-rows-out", f"{rows_in:,} rows read, {counts.rows:,} counted in the output"),
        ManifestCheck(
            "texts-in-equal-texts-out", f"{text_in:,} bytes read, {counts.text_bytes:,} counted in the output"
        ),
    ]
    if selection == Selection(on_damage=selection.on_damage, live=selection.live):
        checks += counts.check_contiguous(partitioned=bool(file_options.partition_by))
    finding_tally = counts.finding_tally
    return finding_tally.build_manifest(
        selection,
        inputs=tuple(
            replace(i, records=counts.records[to_stored_text(file_options, records_to_arrow.printable_path(i.path))])
            for i in inputs
        ),
        outputs=tuple(counts.outputs),
        rows=counts.rows,
        damage=finding_tally.damage_rows,
        checks=tuple(checks),
    )
