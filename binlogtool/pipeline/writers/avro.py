"""Avro files from Spark, which has no writer for them: a data source that receives Arrow batches and uses fastavro."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from binlogtool.errors import InputOutputError
from binlogtool.pipeline import rows
from binlogtool.pipeline.writers.partitions import NULL_PARTITION

CODECS = {"deflate": "deflate", "bzip2": "bzip2", "xz": "xz", "none": "null"}
_TEMPORARY_FOLDER = "_temporary"
_RECORD_AVRO_TYPES: dict[str, Any] = {
    "string": "string",
    "bigint": "long",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "boolean": "boolean",
}


def build_avro_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Return the Avro schema of a file with these columns, all nullable."""
    types = {**dict(rows.COLUMNS), "generation": "bigint"}
    fields = [{"name": name, "type": ["null", _RECORD_AVRO_TYPES[types[name]]], "default": None} for name in columns]
    return {"type": "record", "name": "row", "namespace": "binlogtool", "fields": fields}


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
        self._columns = tuple(name for name, _ in rows.COLUMNS if name not in partitions)
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
