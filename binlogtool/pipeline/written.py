"""Read-back check of finished tables: each part file is counted on the executors by another reader than its writer.

Rows, records, findings, bytes of text, and the hash of the file: the manifest's facts about an output come from here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool.errors import InputOutputError
from binlogtool.pipeline.account import FindingTally
from binlogtool.pipeline.fleet import SparkJobRunner, run_each
from binlogtool.pipeline.inputs import hash_file
from binlogtool.pipeline.manifest import ManifestCheck, ManifestOutput
from binlogtool.pipeline.rows import DAMAGE
from binlogtool.pipeline.writers import readback, table_form
from binlogtool.pipeline.writers.table_form import TableFileOptions

REQUIRED_COLUMNS = ("file", "record", "type", "findings")
EVENT_RANGE_COLUMNS = ("inner_offset", "inner_size")
"""Range of an event within the record that contains it."""


class PartFile(msgspec.Struct, frozen=True):
    """One file of an output. name: relative to the output's directory. size: bytes."""

    folder: str
    name: str
    size: int


class OutputCounts(msgspec.Struct):
    """Counts of one part file, or of several.

    last_records: highest record number of each log file. event_ranges: check of event ranges, where events share
    a record number.
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

    def add(self, other: OutputCounts) -> None:
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
        """Yield the check that no record is missing. partitioned: the rows are not in their order.

        Raises:
            InputOutputError: a record is missing.
        """
        if self.event_ranges is None:
            self._check_no_gaps()
            yield ManifestCheck("record-numbers-without-holes", f"{self.records.total():,} records")
        elif not partitioned:
            yield self.event_ranges.to_check()

    def _check_no_gaps(self) -> None:
        """Raise InputOutputError unless every record number from 0 to the last one is there once."""
        for file, last in self.last_records.items():
            if self.records[file] != last + 1:
                raise InputOutputError(
                    f"{file}: {self.records[file]:,} records in the output, the last one is number {last:,}"
                )


class EventRanges(msgspec.Struct):
    """Check that the events of each group are contiguous from its first byte, in the order of the rows.

    broken: per log file, the number of the first group with a gap.
    """

    groups: int = 0
    events: int = 0
    broken: dict[str, int] = msgspec.field(default_factory=dict)
    _last: tuple[str, int, int] | None = None

    def add_rows(self, table: pa.Table) -> None:
        """Check the next rows of one part file."""
        columns = (table[name].to_pylist() for name in ("file", "record", *EVENT_RANGE_COLUMNS))
        for file, record, offset, size in zip(*columns, strict=True):
            if record is None or offset is None:
                continue
            self.events += 1
            self.groups += offset == 0
            if offset and (file, record, offset) != self._last:
                self.broken.setdefault(file, record)
            self._last = (file, record, offset + size)

    def merge(self, other: EventRanges) -> None:
        """Add the results of another part file, which begins with a group."""
        self.groups += other.groups
        self.events += other.events
        self.broken = other.broken | self.broken

    def to_check(self) -> ManifestCheck:
        """Return the result as a check of the manifest.

        Raises:
            InputOutputError: events are missing, or there twice.
        """
        for file, record in self.broken.items():
            raise InputOutputError(f"{file}: the events of record {record:,} do not follow each other in the output")
        text = f"{self.events:,} events of {self.groups:,} groups, one behind the other from each group's first byte on"
        return ManifestCheck("events-without-holes", text)


def count_output(
    runner: SparkJobRunner, folder: Path, file_options: TableFileOptions, *, events: bool = False
) -> OutputCounts:
    """Read all part files below `folder`, and return their counts. events: several rows share the number of a record.

    Raises:
        InputOutputError: one of them cannot be read.
    """
    parts = list(_list_part_files(folder))
    job = partial(run_each, work=partial(count_part, file_options=file_options, events=events), home=os.getcwd())
    total = OutputCounts(event_ranges=EventRanges() if events else None)
    for counts in runner.compute_results("reading back", parts, job):
        total.add(counts)
    return total


def _list_part_files(folder: Path) -> Iterator[PartFile]:
    for path in sorted(folder.rglob("part-*")):
        yield PartFile(str(folder.absolute()), str(path.relative_to(folder)), path.stat().st_size)


# -- on an executor ----------------------------------------------------------------------------------------------------


def count_part(part: PartFile, file_options: TableFileOptions, *, events: bool = False) -> OutputCounts:
    """Return the counts of one part file. events: see `count_output`.

    Raises:
        InputOutputError: it cannot be read.
    """
    path, counts = Path(part.folder) / part.name, OutputCounts(event_ranges=EventRanges() if events else None)
    text_columns, partition_values = (
        table_form.stored_text_columns(file_options),
        readback.parse_partition_values(Path(part.name)),
    )
    columns = [
        name
        for name in file_options.stored_columns
        if name in (*text_columns, *REQUIRED_COLUMNS, *(EVENT_RANGE_COLUMNS if events else ()))
    ]
    rows = sum(
        _count_table(table, text_columns, partition_values, counts)
        for table in readback.read_tables(file_options.to, path, columns)
    )
    counts.outputs.append(ManifestOutput(part.name, rows, part.size, hash_file(str(path))))
    return counts


def _count_table(
    table: pa.Table, text_columns: Iterable[str], partition_values: Mapping[str, str | None], counts: OutputCounts
) -> int:
    for name in text_columns:
        counts.text_bytes += compute.sum(compute.binary_length(table[name])).as_py() or 0
    for name in REQUIRED_COLUMNS:
        if name in partition_values:
            table = table.append_column(name, pa.array([partition_values[name]] * table.num_rows, pa.string()))
    if counts.event_ranges is not None:
        counts.event_ranges.add_rows(table)
    for row in table.group_by("file").aggregate([("record", "count"), ("record", "max")]).to_pylist():
        counts.records[row["file"]] += row["record_count"]
        if row["record_max"] is not None:
            counts.last_records[row["file"]] = max(counts.last_records.get(row["file"], -1), row["record_max"])
    for row in table.filter(table["findings"].is_valid()).to_pylist():
        for finding in msgspec.json.decode(row["findings"]):
            counts.finding_tally.add(row["file"], finding, damage=row["type"] == DAMAGE)
    return int(table.num_rows)
