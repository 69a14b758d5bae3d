"""Write the records of logs as tables: the kind of rows, and what is counted when its files are read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import asdict, replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.export import records_to_arrow
from binlogtool.export.incremental_positions import has_later_file_with_records
from binlogtool.export.manifest import FindingTally, Manifest, ManifestCheck, ManifestInput, ReadRequest, TaskPiece
from binlogtool.export.output_options import DEFAULT_FILE_SIZE, NO_TEXT, NULL_PARTITION, TableFileOptions
from binlogtool.export.read_rows_of_one_file import read_file_rows
from binlogtool.export.table_files import TableFileCounts, read_back_and_count_file, to_stored_text
from binlogtool.export.table_spool import TableSpool, TableSpools
from binlogtool.export.typed_columns import TableBatch, TableEvolution
from binlogtool.export.write_spooled_rows_to_table_files import FinishedFile, FinishTask, TableFinisher
from binlogtool.export.write_typed_tables import RowKind, SpoolResult, TaskReader
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


def sum_row_totals(batch: pa.RecordBatch) -> RowTotals:
    """Return the totals of rows of records, without `text_bytes`."""
    damage, size = batch["record"].null_count, compute.sum(batch["size"]).as_py() or 0
    return RowTotals(batch.num_rows, 0, batch.num_rows - damage, size, damage)


_REQUIRED_COLUMNS = ("file", "record", "type", "findings")
_EVENT_RANGE_COLUMNS = ("inner_offset", "inner_size")
"""Columns with the range of an event within the record that contains it."""


class EventContiguityCheck(msgspec.Struct):
    """Check that the events of each group are contiguous from the group's first byte on, in row order.

    broken: log file -> number of the first group with a gap.
    """

    groups: int = 0
    events: int = 0
    broken: dict[str, int] = msgspec.field(default_factory=dict)
    _last: tuple[str, int, int] | None = None

    def check_next_rows(self, table: pa.Table) -> None:
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

    def merge(self, other: EventContiguityCheck) -> None:
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


class ReadBackCounts(msgspec.Struct):
    """Result of one task: the records it read, and the content of its files as read back.

    last_records: log file -> highest record number. event_ranges: check of event ranges; None unless events share
    record numbers. notes: findings without a row.
    """

    totals: RowTotals = RowTotals()
    files: list[FinishedFile] = msgspec.field(default_factory=list)
    records: Counter[str] = msgspec.field(default_factory=Counter)
    last_records: dict[str, int] = msgspec.field(default_factory=dict)
    finding_tally: FindingTally = msgspec.field(default_factory=FindingTally)
    event_ranges: EventContiguityCheck | None = None
    notes: FindingTally = msgspec.field(default_factory=FindingTally)

    def count_file(
        self, file_options: TableFileOptions, folder: Path, path: Path, schema: pa.Schema
    ) -> TableFileCounts:  # fmt: skip
        """Read a file back; see `table_files.read_back_and_count_file`."""
        partition_values = parse_partition_values(path.relative_to(folder))
        extra = (*_REQUIRED_COLUMNS, *(_EVENT_RANGE_COLUMNS if self.event_ranges is not None else ()))
        return read_back_and_count_file(
            file_options, folder, path, schema, partial(self._add_rows, partition_values), extra
        )

    def _add_rows(self, partition_values: Mapping[str, str | None], table: pa.Table) -> None:
        for name in _REQUIRED_COLUMNS:
            if name in partition_values:
                table = table.append_column(name, pa.array([partition_values[name]] * table.num_rows, pa.string()))
        if self.event_ranges is not None:
            self.event_ranges.check_next_rows(table)
        for row in table.group_by("file").aggregate([("record", "count"), ("record", "max")]).to_pylist():
            self.records[row["file"]] += row["record_count"]
            if row["record_max"] is not None:
                self.last_records[row["file"]] = max(self.last_records.get(row["file"], -1), row["record_max"])
        for row in table.filter(table["findings"].is_valid()).to_pylist():
            for finding in msgspec.json.decode(row["findings"]):
                self.finding_tally.add(row["file"], finding, damage=row["type"] == records_to_arrow.DAMAGE)

    def merge(self, other: ReadBackCounts) -> None:
        """Add the counts of the next task."""
        self.totals += other.totals
        self.files += other.files
        self.notes.merge(other.notes)
        self.records += other.records
        for file, record in other.last_records.items():
            self.last_records[file] = max(self.last_records.get(file, -1), record)
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


# --- Records as a kind of rows ---


class RecordLayout(msgspec.Struct, frozen=True):
    """Layout of the files of records (`table_spool.FileLayout`)."""

    schema: pa.Schema = records_to_arrow.SCHEMA

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        return pa.Table.from_batches([table_batch.batch])

    def column_types(self) -> list[dict[str, str]]:
        """Return (): records have no columns of tables."""
        return []


class RecordRows(RowKind, frozen=True):
    """Rows of records.

    shape, layout: of the files. has_all: no record is left out. has_events: several rows share the number of a record.
    """

    shape: TableFileOptions
    layout: RecordLayout = RecordLayout()
    has_all: bool = False
    has_events: bool = False

    @property
    def needs_definitions(self) -> bool:
        """False: records have no columns of tables."""
        return False

    def make_layout(self, evolution: TableEvolution) -> RecordLayout:
        """Return the layout of the files."""
        return self.layout

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Write the rows of a task, and read them back."""
        counts, file_size = self.merge_outcomes(()), self.shape.file_size or DEFAULT_FILE_SIZE
        settings = self.make_settings(self.shape, reader.request, None, file_size)
        spools = TableSpools[TableSpool](reader.folder, settings)
        try:
            for batch in self._read_batches(reader, counts):
                spools.add_batch("", TableBatch((), batch))
            spooled = spools[""].finish(keep_empty=reader.task.number == 0)
        except BaseException:
            spools.abandon()
            raise
        finisher = TableFinisher(self.shape, "", reader.request.limits.max_memory, counts.count_file)
        counts.files = finisher.finish_files(FinishTask(0, spooled, self.layout.schema), reader.folder)
        counts.totals = replace(counts.totals, text_bytes=sum(one.text_bytes for one in counts.files))
        return SpoolResult([spooled], counts.finding_tally, counts)

    def _read_batches(self, reader: TaskReader, counts: ReadBackCounts) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, and count them."""
        report = reader.make_progress()
        for piece in reader.task.pieces:
            begin = 0 if piece.part.start is None else piece.part.start.offset
            for batch in _read_piece(piece, reader.request, counts.notes):
                yield batch
                counts.totals += sum_row_totals(batch)
                offset = batch["offset"][batch.num_rows - 1].as_py() if batch.num_rows else 0
                report(piece.member.name, max(offset or 0, begin), counts.totals.rows)

    def merge_outcomes(self, outcomes: Sequence[ReadBackCounts]) -> ReadBackCounts:
        """Return the outcome of all tasks."""
        merged = ReadBackCounts(event_ranges=EventContiguityCheck() if self.has_events else None)
        for one in outcomes:
            merged.merge(one)
        return merged

    def merge_results(self, results: Sequence[SpoolResult]) -> SpoolResult:
        """Return the findings and the outcome of all tasks; findings without a row are last."""
        merged = super().merge_results(results)
        merged.finding_tally.merge(merged.outcome.notes)
        return merged

    def get_finished_files(self, outcome: ReadBackCounts) -> list[FinishedFile]:
        """Return the files of the output."""
        return outcome.files

    def complete_manifest(self, manifest: Manifest, result: SpoolResult) -> Manifest:
        """Add the records of each input, the checks, and the totals of a job on a cluster.

        Raises:
            InputOutputError: records are missing or duplicated.
        """
        counts: ReadBackCounts = result.outcome
        totals, spark = counts.totals, manifest.details.get("spark")
        details = {"spark": {**spark, "observed": asdict(totals)}} if spark else {}
        names = [to_stored_text(self.shape, records_to_arrow.printable_path(one.path)) for one in manifest.inputs]
        inputs = [replace(i, records=counts.records[name]) for i, name in zip(manifest.inputs, names, strict=True)]
        checks = list[ManifestCheck]()
        if manifest.complete:
            for name, count, unit in (("rows", totals.rows, "rows"), ("texts", totals.text_bytes, "bytes")):
                text = f"{count:,} {unit} read, {count:,} counted in the output"
                checks.append(ManifestCheck(f"{name}-in-equal-{name}-out", text))
            if self.has_all:
                checks += counts.check_contiguous(partitioned=bool(self.shape.partition_by))
        return replace(manifest, inputs=tuple(inputs), checks=tuple(checks), details=details)


def _read_piece(piece: TaskPiece, request: ReadRequest, notes: FindingTally) -> Iterator[pa.RecordBatch]:
    member = piece.member

    def add_note(finding: Finding) -> None:
        notes.add(records_to_arrow.printable_path(member.name), finding_to_value(finding), damage=False)

    is_member_closed = partial(has_later_file_with_records, member, request.members, request.open_member)
    return read_file_rows(member, request, piece.part, is_file_closed=is_member_closed, on_finding_without_row=add_note)


def make_record_rows(request: ReadRequest, shape: TableFileOptions, inputs: Sequence[ManifestInput]) -> RecordRows:
    """Return the kind of rows for these inputs.

    Raises:
        UsageError: --skip, --limit or --tail with several files, which are read in parallel.
    """
    selection, hints = request.selection, request.hints
    counted = (selection.skip or None, selection.limit, selection.tail) != (None, None, None)
    if len(inputs) > 1 and counted:
        raise UsageError("--skip, --limit and --tail need ordered records; convert one file, or use --to jsonl")
    level = None if hints is None else hints.level
    levels = {open_file_module.find_format(i.format).reading.event_level for i in inputs if i.format}
    has_all = selection == Selection(on_damage=selection.on_damage, live=selection.live)
    return RecordRows(shape, has_all=has_all, has_events=level is not None and level in levels)
