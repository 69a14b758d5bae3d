"""Output of one table: rows are spooled as they arrive; when all are there, files with one schema are written.

The spool is Parquet, with the columns known at that time. If these are the final ones, the format is Parquet, and there
are no partitions, the spool file becomes the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as compute

from binlogtool import memory
from binlogtool.errors import InputOutputError
from binlogtool.formats.tables import TableSchema
from binlogtool.pipeline.account import MAX_LISTED_FINDINGS
from binlogtool.pipeline.inputs import hash_file
from binlogtool.pipeline.manifest import ManifestOutput
from binlogtool.pipeline.typed import table_files
from binlogtool.pipeline.typed.batches import TableBatch
from binlogtool.pipeline.typed.evolution import TableEvolution, TableLayout
from binlogtool.pipeline.typed.table_files import ParquetTableFile, TableFile
from binlogtool.pipeline.typed.wishes import TypedRowOptions
from binlogtool.pipeline.writers.partitions import NO_TEXT, NULL_PARTITION
from binlogtool.pipeline.writers.table_form import TableFileOptions

_MAX_GROUP_ROWS, _MAX_GROUP_BYTES, _GROUP_MEMORY_DIVISOR = 1 << 16, 32 << 20, 16
"""Limits of a group of rows that is written at once: rows, bytes, fraction of the memory limit."""
_WRITE_MEMORY_FACTOR, _COPY_MEMORY_FACTORS = 2, {"orc": 16}
_DEFAULT_COPY_FACTOR = 4
"""Memory for writing a group, as a multiple of its size: to Parquet, and from there to another format. ORC keeps the
longest
values of each level of its statistics."""
_MAX_QUEUED_GROUPS = 1
"""Maximum number of groups that wait to be written; none if they are large."""
_SPOOL_FOLDER = ".aside"


class FileLayout(Protocol):
    """Columns of the files of a table (`evolution.TableLayout`)."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""


class TableOutput:
    """Output of one table.

    folder: where its files go. pool: writes in the background, one group after the other. max_memory: bytes that
    the job
      may use.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        file_options: TableFileOptions,
        options: TypedRowOptions,
        pool: ThreadPoolExecutor,
        max_memory: int,
        *,
        operations: bool,
    ) -> None:
        self.name, self.folder, self.rows, self.text_bytes = name, folder, 0, 0
        self.changes: list[str] = []
        self.evolution = TableEvolution()
        self._file_options, self._options, self._operations = file_options, options, operations
        self._pending, self._pending_rows, self._pending_bytes = list[TableBatch](), 0, 0
        self._pool, self._queued_writes = pool, list[Future[None]]()
        self._max_group_bytes = min(_MAX_GROUP_BYTES, max_memory // _GROUP_MEMORY_DIVISOR)
        self._spool_paths: list[Path] = []
        self._open_spool: tuple[FileLayout, bool, ParquetTableFile] | None = None
        self._outputs: list[ManifestOutput] = []

    @property
    def layout(self) -> FileLayout:
        """Layout of the rows, as far as the columns are known now."""
        return TableLayout(self.evolution.fields, self.evolution.key, self._options.image, operations=self._operations)

    def set_table(self, table: TableSchema, place: str) -> None:
        """Set the definition that is valid from here on; the first MAX_LISTED_FINDINGS changes are recorded."""
        self.changes += [f"{place}: {one}" for one in self.evolution.add_definition(table)][
            : MAX_LISTED_FINDINGS - len(self.changes)
        ]

    def to_dict(self, directory: str) -> dict[str, Any]:
        """Return the description of the table for the manifest. directory: its directory."""
        return {
            "name": self.name,
            "directory": directory,
            "rows": self.rows,
            "columns": self.layout.column_types(),
            "key": list(self.evolution.key),
            "changes": self.changes,
        }

    def add_batch(self, table_batch: TableBatch) -> None:
        """Add rows."""
        self._pending.append(table_batch)
        self._pending_rows += table_batch.batch.num_rows
        self._pending_bytes += table_batch.batch.nbytes
        self.rows += table_batch.batch.num_rows
        if self._pending_rows >= _MAX_GROUP_ROWS or self._pending_bytes >= self._max_group_bytes:
            self.spool_pending()

    @property
    def pending_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return self._pending_bytes

    def spool_pending(self) -> None:
        """Write the pending rows to the spool in the background."""
        if not self._pending:
            return
        is_large = self._pending_bytes >= 2 * self._max_group_bytes
        self._wait_for_writes(0 if is_large else _MAX_QUEUED_GROUPS)
        self._queued_writes.append(self._pool.submit(self._write_spool, self._pending, self.layout))
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if is_large:
            self._wait_for_writes()

    def _wait_for_writes(self, max_queued: int = 0) -> None:
        """Wait until at most `max_queued` groups are still to be written."""
        while len(self._queued_writes) > max_queued:
            self._queued_writes.pop(0).result()

    def _write_spool(self, pieces: list[TableBatch], layout: FileLayout) -> None:
        size = sum(piece.batch.nbytes for piece in pieces)
        memory.require_bytes(_WRITE_MEMORY_FACTOR * size)
        table, is_large = pa.concat_tables([layout.to_table(piece) for piece in pieces]), size >= 2 * _MAX_GROUP_BYTES
        if self._open_spool is None or self._open_spool[:2] != (layout, is_large):
            self._close_spool_file()
            (self.folder / _SPOOL_FOLDER).mkdir(parents=True, exist_ok=True)
            path = self.folder / _SPOOL_FOLDER / f"{len(self._spool_paths)}.parquet"
            self._spool_paths.append(path)
            codec = self._file_options.codec if self._file_options.to == "parquet" else "zstd"
            self._open_spool = layout, is_large, ParquetTableFile(path, layout.schema, codec, is_large=is_large)
        self._open_spool[2].write(table)

    def close_spool(self) -> None:
        """Close the open spool file; further rows go to another one."""
        self._wait_for_writes()
        self._close_spool_file()

    def _close_spool_file(self) -> None:
        if self._open_spool is not None:
            self._open_spool[2].close()
            self._open_spool = None

    # -- the output ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the output files from the spool.

        Raises:
            InputOutputError: they do not hold what was spooled.
        """
        self.spool_pending()
        self.close_spool()
        layout, writers = self.layout, _PartitionWriters(self.folder, self._file_options)
        for path in self._spool_paths:
            self._publish_spool_file(path, layout, writers)
        writers.close()
        if self._spool_paths:
            (self.folder / _SPOOL_FOLDER).rmdir()
        self._outputs = [self._count_output(path, layout) for path in writers.paths]
        written_rows = sum(one.rows for one in self._outputs)
        if written_rows != self.rows:
            text = f"{self.rows:,} rows were made and {written_rows:,} written"
            raise InputOutputError(f"{self.name}: {text}: the output is not usable")

    def _publish_spool_file(self, path: Path, layout: FileLayout, writers: _PartitionWriters) -> None:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path) as file:
            can_rename = self._file_options.to == "parquet" and not self._file_options.partition_by
            if can_rename and file.schema_arrow.equals(layout.schema):
                for i in range(file.num_row_groups):
                    self._add_text_bytes(file.read_row_group(i, columns=self._text_columns(layout)), layout)
                path.rename(writers.new_path(""))
                return
            for batch in table_files.read_row_groups(file):
                memory.require_bytes(
                    _COPY_MEMORY_FACTORS.get(self._file_options.to, _DEFAULT_COPY_FACTOR) * batch.nbytes
                )
                table = conform_table(pa.Table.from_batches([batch]), layout.schema)
                self._add_text_bytes(table, layout)
                writers.write(table)
        path.unlink()

    def _text_columns(self, layout: FileLayout) -> list[str]:
        return [
            field.name
            for field in layout.schema
            if pa.types.is_string(field.type) and field.name not in self._file_options.partition_by
        ]

    def _add_text_bytes(self, table: pa.Table, layout: FileLayout) -> None:
        if not self._file_options.csv_safe:
            self.text_bytes += table_files.count_text_bytes(table, self._text_columns(layout))

    def _count_output(self, path: Path, layout: FileLayout) -> ManifestOutput:
        """Read a file back, and return its manifest entry."""
        counts = table_files.count_file(
            self._file_options, path, [] if self._file_options.csv_safe else self._text_columns(layout)
        )
        self.text_bytes -= counts.text_bytes
        return ManifestOutput(
            str(path.relative_to(self.folder)), counts.rows, path.stat().st_size, hash_file(str(path))
        )

    @property
    def outputs(self) -> Sequence[ManifestOutput]:
        """Output files, relative to the directory."""
        return self._outputs


def check_text_bytes(targets: Iterable[TableOutput]) -> None:
    """Raise InputOutputError if the texts in the files of all tables are not those that were written."""
    if any(target.text_bytes for target in targets):
        raise InputOutputError("the texts of the output are not those that were read: it is not usable")


class _PartitionWriters:
    """Files of a table, one for each combination of partition values."""

    def __init__(self, folder: Path, file_options: TableFileOptions) -> None:
        self._folder, self._file_options = folder, file_options
        self._open: dict[str, TableFile] = {}
        self.paths: list[Path] = []

    def new_path(self, partition: str) -> Path:
        """Return the path of the next file."""
        partition_folder = self._folder / partition
        partition_folder.mkdir(parents=True, exist_ok=True)
        self.paths.append(partition_folder / f"part-{len(self.paths):05}{table_files.file_suffix(self._file_options)}")
        return self.paths[-1]

    def write(self, table: pa.Table) -> None:
        """Write rows into the files of their partitions."""
        for partition, part in _split_by_partition(table, self._file_options.partition_by):
            if partition not in self._open:
                if len(self._open) >= 64:
                    self._open.pop(next(iter(self._open))).close()
                self._open[partition] = table_files.create_table_file(
                    self._file_options, self.new_path(partition), part.schema
                )
            self._open[partition].write(part)

    def close(self) -> None:
        """Complete all files."""
        for file in self._open.values():
            file.close()


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an older schema in the final one."""
    columns = [
        _widen_column(table[field.name], field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _widen_column(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return compute.cast(column, kind)
    structs = column.combine_chunks()
    structs = structs.chunk(0) if isinstance(structs, pa.ChunkedArray) else structs
    members = {field.name: inside for field, inside in zip(structs.type, structs.flatten(), strict=True)}
    inside = [
        _widen_column(members[f.name], f.type) if f.name in members else pa.nulls(len(structs), f.type) for f in kind
    ]
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=structs.is_null() if structs.null_count else None)


def _split_by_partition(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition, without the columns that are in directory names."""
    if not names:
        yield "", table
        return
    values = pa.table([_partition_column(table, name) for name in names], names=list(names))
    stored = table.drop_columns([name for name in names if name in table.schema.names])
    for row in values.group_by(list(names), use_threads=False).aggregate([]).to_pylist():
        mask = pa.array([True] * len(table))
        for name in names:
            column = values[name]
            mask = compute.and_(mask, column.is_null() if row[name] is None else compute.fill_null(
                compute.equal(column, row[name]), False))  # fmt: skip
        yield "/".join(f"{name}={_partition_folder_name(name, row)}" for name in names), stored.filter(mask)


def _partition_column(table: pa.Table, name: str) -> Any:
    if name == "date":
        return compute.strftime(table["time"].cast(pa.timestamp("s"), safe=False), format="%Y-%m-%d")
    if name == "hour":
        return compute.hour(table["time"].cast(pa.timestamp("us")))
    return table[name]


def _partition_folder_name(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None or value == "":
        return NO_TEXT if name in ("op", "file") else NULL_PARTITION
    return quote(str(value), safe=" ")
