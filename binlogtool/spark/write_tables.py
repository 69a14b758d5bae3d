"""Hand Arrow rows to Spark's writers, write Avro files, run small jobs in this process.

Rows of a data source would be copied once more before they are written. PySpark's own mapInArrow requires pandas, which
is not needed here.

So their rows are built in this process, by the reader that executors use, and handed to Spark as one Arrow table.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
from msgspec.structs import replace
from pyspark.accumulators import AccumulatorParam
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from binlogtool import limits
from binlogtool.errors import InputOutputError, LimitError
from binlogtool.export import manifest, output_options, record_rows
from binlogtool.export.manifest import FindingTally, ReadRequest
from binlogtool.export.output_options import NULL_PARTITION, TableFileOptions
from binlogtool.export.parquet_files import EventRanges, OutputCounts, _list_part_files, build_avro_schema, count_part
from binlogtool.format_api.format import Hints
from binlogtool.limits import MIB
from binlogtool.spark.data_source import BinlogReader
from binlogtool.spark.fleet import SparkJobRunner, run_each

# --- Avro files from Spark, which has no writer for them ---

CODECS = {"deflate": "deflate", "bzip2": "bzip2", "xz": "xz", "none": "null"}
_TEMPORARY_FOLDER = "_temporary"


@dataclass(frozen=True)
class AvroCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """Files that one task wrote, relative to the temporary directory."""

    files: tuple[str, ...] = ()


class AvroDataSource(DataSource):  # type: ignore[misc]
    """`df.write.format("binlogtool-avro")`; options `place` (a file URI), `codec`, `partitions` (names with commas)."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "binlogtool-avro"

    def writer(self, schema: Any, overwrite: bool) -> AvroWriter:
        """Return the writer of one job."""
        partitions = tuple(name for name in self.options["partitions"].split(",") if name)
        place = unquote(urlsplit(self.options["place"]).path)
        return AvroWriter(place, self.options["codec"], partitions)


class AvroWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of a job: each task writes its own files, which are moved into place when all tasks are done."""

    def __init__(self, place: str, codec: str, partitions: tuple[str, ...]) -> None:
        self.place = place
        self.codec = codec
        self.partitions = partitions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> AvroCommitMessage:
        """Write the rows of one task, which are sorted by partition.

        Raises:
            InputOutputError: a file cannot be written.
        """
        task = _AvroTaskWriter(Path(self.place) / _TEMPORARY_FOLDER, self.codec, self.partitions)
        try:
            for batch in iterator:
                task.write_batch(batch)
            task.close()
        except OSError as error:
            raise InputOutputError(f"{error.filename or self.place}: {error.strerror or error}") from None
        finally:
            with suppress(OSError):  # a second error while closing was already reported
                task.abandon()
        return AvroCommitMessage(tuple(task.files))

    def commit(self, messages: list[AvroCommitMessage | None]) -> None:
        """Move the written files into place."""
        place = Path(self.place)
        place.mkdir(exist_ok=True)
        for name in (name for message in messages if message for name in message.files):
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (place / _TEMPORARY_FOLDER / name).rename(target)
        shutil.rmtree(place / _TEMPORARY_FOLDER, ignore_errors=True)
        (place / "_SUCCESS").touch()

    def abort(self, messages: list[AvroCommitMessage | None]) -> None:
        """Remove the written files."""
        shutil.rmtree(Path(self.place) / _TEMPORARY_FOLDER, ignore_errors=True)


class _AvroTaskWriter:
    """Writes the files of one task; only the file of the current partition is open."""

    def __init__(self, folder: Path, codec: str, partitions: tuple[str, ...]) -> None:
        self._folder, self._codec, self._partitions = folder, CODECS[codec], partitions
        self._columns = tuple(name for name, _ in record_rows.COLUMNS if name not in partitions)
        self._file: Any = None
        self._writer: Any = None
        self._key: tuple[Any, ...] | None = None
        self.files: list[str] = []

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write rows, each run of one partition into its file."""
        keys: Any = zip(*(batch.column(name).to_pylist() for name in self._partitions), strict=True)
        row_keys: Iterator[tuple[Any, ...]] = keys if self._partitions else iter([()] * batch.num_rows)
        start = 0
        for key, group in groupby(row_keys):
            stop = start + sum(1 for _ in group)
            if key != self._key:
                self._open_file(key)
            self._write_rows(batch.slice(start, stop - start))
            start = stop

    def _open_file(self, key: tuple[Any, ...]) -> None:
        from fastavro.write import Writer

        self.close()
        folder = "".join(f"{name}={_partition_folder(v)}/" for name, v in zip(self._partitions, key, strict=True))
        name = f"{folder}part-{uuid.uuid4().hex}.avro"
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._key, self._file = key, path.open("xb")
        self.files.append(name)
        self._writer = Writer(self._file, build_avro_schema(self._columns), codec=self._codec, sync_interval=1 << 18)

    def _write_rows(self, batch: pa.RecordBatch) -> None:
        columns = []
        for name in self._columns:
            column = batch.column(name)
            columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
        for values in zip(*columns, strict=True):
            self._writer.write(dict(zip(self._columns, values, strict=True)))

    def close(self) -> None:
        """Complete the open file."""
        if self._file is not None:
            self._writer.flush()
        self.abandon()

    def abandon(self) -> None:
        """Close the open file without completing it."""
        if self._file is not None:
            self._file.close()
        self._file = self._key = None


def _partition_folder(value: Any) -> str:
    if value is None or value == "":
        return NULL_PARTITION
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe=" ")


# --- Rows for Spark's writer (`mapInArrow`) ---


class RowTotals(msgspec.Struct, frozen=True):
    """Totals of rows that were passed to Spark.

    text_bytes: bytes of the texts as written. damage: rows that are not records. bytes: bytes of the logs, in records
    and damage.
    """

    rows: int = 0
    text_bytes: int = 0
    records: int = 0
    bytes: int = 0
    damage: int = 0

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


def total_rows(batch: pa.RecordBatch | pa.Table, file_options: TableFileOptions) -> RowTotals:
    """Return the totals of rows of `export.record_rows.SCHEMA` as they are written with these options."""
    damage = batch["record"].null_count
    text_size = sum(
        output_options.count_text_bytes(batch[name], file_options)
        for name in output_options.stored_text_columns(file_options)
    )
    size = compute.sum(batch["size"]).as_py() or 0
    return RowTotals(batch.num_rows, text_size, batch.num_rows - damage, size, damage)


class RowTotalsParam(AccumulatorParam[RowTotals]):  # type: ignore[misc]
    """Add up the totals of tasks; Spark counts each task once, when it has succeeded."""

    def zero(self, value: RowTotals) -> RowTotals:
        """Return the neutral value (PySpark interface)."""
        return RowTotals()

    def addInPlace(self, value1: RowTotals, value2: RowTotals) -> RowTotals:
        """Add two values (PySpark interface)."""
        return value1 + value2


class ArrowRowMapper:
    """Function that Spark calls in each task with numbers of groups.

    It yields their rows. totals: accumulator of `RowTotals`.
    """

    def __init__(self, reader: BinlogReader, file_options: TableFileOptions, totals: Any) -> None:
        self._groups = [pickle.dumps(group) for group in reader.partitions()]  # a task needs one of them only
        self._reader, self._file_options, self._totals = reader.for_tasks(), file_options, totals

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the groups with these numbers."""
        for number in (one for batch in numbers for one in batch.column(0).to_pylist()):
            for batch in self._reader.read(pickle.loads(self._groups[number])):
                self._totals.add(total_rows(batch, self._file_options))
                yield batch

    def to_dataframe(self, spark: Any) -> Any:
        """Return all rows as a DataFrame: one task per group, in their order."""
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        tasks = len(self._groups)
        numbers = spark.range(0, tasks, 1, max(tasks, 1))
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        function = UserDefinedFunction(self, record_rows.DDL, evalType=kind, name="binlogtool")
        return DataFrame(numbers._jdf.mapInArrow(function(numbers["id"])._jc, False, None), spark)


# --- Small jobs ---

MAX_INPUT_BYTES = 4 * MIB
"""Maximum total size of the files of a small job."""

MAX_OUTPUT_BYTES = 64 * MIB
"""Maximum size of its rows in memory; a compressed log may exceed it."""

MAX_INPUT_FILES = 256


class SmallJobRows(msgspec.Struct, frozen=True):
    """Rows of all files, in order, and the notes that no row represents."""

    rows: pa.Table
    note_tally: FindingTally

    def row_totals(self, file_options: TableFileOptions) -> RowTotals:
        """Return the totals of the rows that Spark gets."""
        return total_rows(self.rows, file_options)


def is_small_job(sizes: Sequence[int]) -> bool:
    """Return True if files of these sizes (bytes) are a small job."""
    return len(sizes) <= MAX_INPUT_FILES and sum(sizes) <= MAX_INPUT_BYTES


def build_small_job_rows(request: ReadRequest, hints: Hints | None, deadline: float | None) -> SmallJobRows | None:
    """Build the rows of a request; None if they are too large for this path. deadline: deadline (`time.monotonic`).

    Raises:
        LimitError: the deadline passed.
    """
    note_tally, batches, size = FindingTally(), list[pa.RecordBatch](), 0
    limits.set_resident_ceiling()
    with tempfile.TemporaryDirectory(prefix="binlogtool-") as folder:
        notes_folder = Path(folder) / manifest.FOLDER
        reader = BinlogReader(replace(request, groups=1, notes=str(notes_folder)), hints)
        for group in reader.partitions():
            for batch in reader.read(group):
                batches.append(batch)
                size += batch.nbytes
                if size > MAX_OUTPUT_BYTES:
                    return None
                if deadline is not None and time.monotonic() > deadline:
                    raise LimitError("the time limit was reached")
        manifest.collect_notes(notes_folder, note_tally)
    return SmallJobRows(pa.Table.from_batches(batches, record_rows.SCHEMA), note_tally)


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
