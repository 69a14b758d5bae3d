"""Write Arrow batches to table files (Parquet, ORC, CSV, JSON, Avro), and count their rows with other readers.

All tables of records, typed rows and change messages are written here, whether in this process, in worker processes or
in Spark tasks. ORC's writer closes its file in a destructor, where an exception (such as a full disk) aborts the
process.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool import limits
from binlogtool.errors import InputOutputError
from binlogtool.export.manifest import ManifestOutput, hash_file
from binlogtool.export.output_options import NO_TEXT, NULL_PARTITION, TableFileOptions

# --- File for a writer that aborts the process on a write error ---


class DeferredErrorFile(io.RawIOBase):
    """New file that accepts all data; nothing is written after the first error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._error: OSError | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; store an error instead of raising it."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return size

    def close(self) -> None:
        """Close the file; store an error instead of raising it."""
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        super().close()

    def raise_deferred_error(self) -> None:
        """Raise the first stored error, if there was one.

        Raises:
            OSError: the file could not be written.
        """
        if self._error is not None:
            raise self._error


# --- Avro files ---

_CODECS = {"deflate": "deflate", "bzip2": "bzip2", "xz": "xz", "none": "null"}
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_]")


class AvroTableFile:
    """Writer of an Avro file. A field's `doc` is the original name of the column."""

    def __init__(self, path: Path, schema: pa.Schema, codec: str) -> None:
        from fastavro.write import Writer

        self._schema, self._names = schema, _to_avro_names(schema.names)
        self._file = path.open("xb")
        avro_schema = _record_schema(schema, "row", count())
        self._writer = Writer(self._file, avro_schema, codec=_CODECS[codec], sync_interval=1 << 18)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        for batch in table.to_batches(max_chunksize=8192):
            columns = [_to_avro_values(column) for column in batch.columns]
            for values in zip(*columns, strict=True):
                self._writer.write(dict(zip(self._names, values, strict=True)))

    def close(self) -> None:
        """Complete the file."""
        self._writer.flush()
        self._file.close()


def _to_avro_values(column: pa.Array) -> list[Any]:
    """Return the values of a column for fastavro: times and dates as numbers, structs as dictionaries."""
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_struct(column.type):
        names = _to_avro_names([field.name for field in column.type])
        inside = [_to_avro_values(column.field(i)) for i in range(column.type.num_fields)]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*inside, strict=True))
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    return list(column.to_pylist())


def _to_avro_names(names: Sequence[str]) -> list[str]:
    avro_names = list[str]()
    for name in names:
        plain = _INVALID_CHARACTER.sub("_", name)
        plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
        while plain in avro_names:
            plain += "_"
        avro_names.append(plain)
    return avro_names


def _record_schema(fields: Any, name: str, numbers: count[int]) -> dict[str, Any]:
    named_types = [(field.name, field.type) for field in fields]
    columns = [
        {"name": plain, "type": ["null", _avro_type(kind, numbers)], "default": None, "doc": real}
        for plain, (real, kind) in zip(_to_avro_names([real for real, _ in named_types]), named_types, strict=True)
    ]
    return {"type": "record", "name": name, "namespace": "binlogtool", "fields": columns}


def _avro_type(kind: pa.DataType, numbers: count[int]) -> Any:
    """Return the Avro schema of an Arrow type; `numbers` gives nested structs their names."""
    if pa.types.is_struct(kind):
        return _record_schema(kind, f"struct_{next(numbers)}", numbers)
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, numbers)]}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "local-timestamp-micros" if kind.tz is None else "timestamp-micros"}
    return _AVRO_TYPES[str(kind)]


_AVRO_TYPES: Mapping[str, Any] = {
    "string": "string", "binary": "bytes", "bool": "boolean", "int32": "int", "int64": "long", "float": "float",
    "double": "double", "date32[day]": {"type": "int", "logicalType": "date"},
}  # fmt: skip


# --- Files of each form ---

_PARQUET_CODECS = {"lz4_raw": "lz4"}
_COMPRESSION_SUFFIX = {"gzip": ".gz", "bzip2": ".bz2"}
_OPENERS: Mapping[str, Callable[..., Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "none": open}
_FORMULA_START = r"^([=+\-@\t\r])"
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


class ParquetTableFile:
    """Writer of a Parquet file. is_large: for values of many MiB; no statistics, which repeat long values."""

    def __init__(self, path: Path, schema: pa.Schema, codec: str, *, is_large: bool = False) -> None:
        import pyarrow.parquet as parquet

        codec = _PARQUET_CODECS.get(codec, codec)
        self._file = parquet.ParquetWriter(path, schema, compression=codec, write_statistics=not is_large)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        self._file.write_table(table)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class OrcTableFile:
    """Writer of an ORC file."""

    def __init__(self, path: Path, codec: str) -> None:
        import pyarrow.orc as orc

        self._out = DeferredErrorFile(path)
        self._file = orc.ORCWriter(self._out, compression="uncompressed" if codec == "none" else codec)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        with limits.defer_memory_checks():
            self._file.write(table)
        self._out.raise_deferred_error()

    def close(self) -> None:
        """Complete the file."""
        with limits.defer_memory_checks():
            self._file.close()
        self._out.close()
        self._out.raise_deferred_error()


class JsonTableFile:
    """Writer of a JSON file: one object per line, times as texts, bytes as base64."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder(decimal_format="number").encode_lines

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        for batch in convert_to_texts(table, converts_nested=False).to_batches(max_chunksize=8192):
            self._file.write(self._encode(batch.to_pylist()))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class CsvTableFile:
    """Writer of a CSV file as in RFC 4180: an empty text is "", null has no quotation marks. Lists are JSON."""

    def __init__(self, out: Any, schema: pa.Schema, *, safe: bool = False) -> None:
        import pyarrow.csv as arrow_csv

        self._safe, self._out = safe, out
        flat = convert_to_texts(schema.empty_table(), converts_nested=True).schema
        options = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._file = arrow_csv.CSVWriter(self._out, flat, write_options=options)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        table = convert_to_texts(table, converts_nested=True)
        if self._safe:
            columns = [
                compute.replace_substring_regex(one, _FORMULA_START, r"'\1") if pa.types.is_string(one.type) else one
                for one in table.columns
            ]
            table = pa.Table.from_arrays(columns, schema=table.schema)
        self._file.write_table(table)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
        self._out.close()


TableFile = ParquetTableFile | OrcTableFile | AvroTableFile | CsvTableFile | JsonTableFile


def create_table_file(
    file_options: TableFileOptions, path: Path, schema: pa.Schema, *, is_large: bool = False
) -> TableFile:
    """Create a file of the output's format. is_large: see `ParquetTableFile`."""
    if file_options.to == "parquet":
        return ParquetTableFile(path, schema, file_options.codec, is_large=is_large)
    if file_options.to == "orc":
        return OrcTableFile(path, file_options.codec)
    if file_options.to == "avro":
        return AvroTableFile(path, schema, file_options.codec)
    out = _OPENERS[file_options.codec](path, "wb")
    return CsvTableFile(out, schema, safe=file_options.csv_safe) if file_options.to == "csv" else JsonTableFile(out)


def file_suffix(file_options: TableFileOptions) -> str:
    """Return the suffix of file names."""
    suffix = _COMPRESSION_SUFFIX.get(file_options.codec, "") if file_options.to in ("csv", "json") else ""
    return f".{file_options.to}{suffix}"


def convert_to_texts(table: pa.Table, *, converts_nested: bool) -> pa.Table:
    """Convert times to RFC 3339 with microseconds. converts_nested: also convert lists and structs to JSON, bytes to
    base64.

    Not converts_nested: 32-bit floats become 64-bit ones with the same shortest text.
    """
    return pa.table(
        [_convert_column_to_texts(column, converts_nested=converts_nested) for column in table.columns],
        names=list(table.schema.names)
    )  # fmt: skip


def _convert_column_to_texts(column: pa.ChunkedArray, *, converts_nested: bool) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = compute.strftime(column.cast(pa.timestamp("us")), _TIME_FORMAT)
        return texts if kind.tz is None else compute.binary_join_element_wise(texts, "Z", "")
    if (
        pa.types.is_float32(kind) and not converts_nested
    ):  # a Python float would show digits that the value does not have
        return column.cast(pa.string()).cast(pa.float64())
    if converts_nested and (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
        import base64

        def to_text(value: Any) -> str | None:
            if value is None:
                return None
            return base64.b64encode(value).decode() if isinstance(value, bytes) else msgspec.json.encode(value).decode()

        return pa.array([to_text(value) for value in column.to_pylist()], pa.string())
    return column


# --- Sink: files of one table ---

MAX_GROUP_ROWS, MAX_GROUP_BYTES, _GROUP_MEMORY_DIVISOR = 1 << 16, 32 << 20, 16
"""Limits of a group of rows that is written at once: rows, bytes, fraction of the memory limit."""
_TOTAL_MEMORY_DIVISOR = 8
"""The pending rows of all partitions use at most this fraction of the memory limit."""
_MAX_OPEN_FILES = 64
_WRITE_MEMORY_FACTORS, _DEFAULT_MEMORY_FACTOR = {"parquet": 2, "orc": 16}, 4
"""Memory for writing a group, as a multiple of its size. ORC keeps the longest values of each level of statistics."""


def limit_group_bytes(file_options: TableFileOptions, max_memory: int) -> int:
    """Return the bytes of a group of rows that need at most half of the memory when they are written."""
    factor = _WRITE_MEMORY_FACTORS.get(file_options.to, _DEFAULT_MEMORY_FACTOR)
    return min(MAX_GROUP_BYTES, max_memory // max(_GROUP_MEMORY_DIVISOR, 2 * factor))


class _Group(msgspec.Struct):
    """Pending rows of one partition."""

    tables: list[pa.Table] = msgspec.field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class WrittenFile(msgspec.Struct):
    """A file of a sink. name: its path relative to `folder`. text_bytes: number of bytes in its texts as stored."""

    folder: Path
    name: str
    schema: pa.Schema | None = None
    rows: int = 0
    text_bytes: int = 0

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.folder / self.name


class TableFileSink:
    """Sink that writes batches of one schema as files in a directory; partitions become subdirectories.

    folder: the directory. schema: schema of the batches. max_memory: bytes that the job may use. file_size: approximate
    bytes after which a new file is started; None = unlimited.

    Attributes:
        schema: schema of the batches.
        files: the files, in the order in which they were started.
    """

    def __init__(
        self, folder: Path, file_options: TableFileOptions, schema: pa.Schema, max_memory: int,
        file_size: int | None = None,
    ) -> None:  # fmt: skip
        self.schema, self.files = schema, list[WrittenFile]()
        self._folder, self._file_options, self._file_size = folder, file_options, file_size
        self._text_columns = stored_text_columns(file_options, schema)
        self._groups, self._open = dict[str, _Group](), dict[str, tuple[WrittenFile, TableFile, bool]]()
        self._max_group_bytes = limit_group_bytes(file_options, max_memory)
        self._max_pending_bytes, self._pending_bytes = max_memory // _TOTAL_MEMORY_DIVISOR, 0

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            OSError: the rows cannot be written.
        """
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        for partition, part in split_by_partition(table, self._file_options.partition_by):
            group = self._groups.setdefault(partition, _Group())
            group.tables.append(part)
            group.rows += part.num_rows
            group.bytes += part.nbytes
            self._pending_bytes += part.nbytes
            if group.rows >= MAX_GROUP_ROWS or group.bytes >= self._max_group_bytes:
                self._write_pending_rows(partition)
        while self._pending_bytes > self._max_pending_bytes:
            self._write_pending_rows(max(self._groups, key=lambda name: self._groups[name].bytes))

    @property
    def has_open_files(self) -> bool:
        """True if a file is open."""
        return bool(self._open)

    def write_pending(self) -> None:
        """Write the pending rows of all partitions."""
        for partition in list(self._groups):
            self._write_pending_rows(partition)

    def _write_pending_rows(self, partition: str) -> None:
        group = self._groups.pop(partition)
        self._pending_bytes -= group.bytes
        limits.require_free_memory(
            _WRITE_MEMORY_FACTORS.get(self._file_options.to, _DEFAULT_MEMORY_FACTOR) * group.bytes
        )  # fmt: skip
        is_large = group.bytes >= 2 * MAX_GROUP_BYTES
        if partition in self._open and self._open[partition][2] != is_large:
            self._close_file(partition)
        if partition not in self._open:
            self._open_file(partition, group.tables[0].schema, is_large=is_large)
        (written, file, _), table = self._open[partition], pa.concat_tables(group.tables)
        written.rows += group.rows
        written.text_bytes += count_text_bytes(table, self._text_columns, self._file_options)
        file.write(table)
        if self._file_size is not None and written.path.stat().st_size >= self._file_size:
            self._close_file(partition)

    def _open_file(self, partition: str, schema: pa.Schema, *, is_large: bool = False) -> None:
        if len(self._open) >= _MAX_OPEN_FILES:
            self._close_file(next(iter(self._open)))
        name = f"part-{len(self.files):05}{file_suffix(self._file_options)}"
        self.files.append(WrittenFile(self._folder, f"{partition}/{name}" if partition else name, self.schema))
        path = self.files[-1].path
        path.parent.mkdir(parents=True, exist_ok=True)
        file = create_table_file(self._file_options, path, schema, is_large=is_large)
        self._open[partition] = self.files[-1], file, is_large

    def _close_file(self, partition: str) -> None:
        self._open.pop(partition)[1].close()

    def close(self, *, keep_empty: bool = False) -> None:
        """Complete all files. keep_empty: if there were no rows, write a file without rows, to show the columns."""
        self.write_pending()
        if keep_empty and not self.files and not self._file_options.partition_by:
            self._open_file("", self.schema)
            self._open[""][1].write(self.schema.empty_table())
        for partition in list(self._open):
            self._close_file(partition)

    def abandon(self) -> None:
        """Close all files after an error; errors of closing are ignored."""
        while self._open:
            with contextlib.suppress(Exception):
                self._open.popitem()[1][1].close()


def split_by_partition(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition with its directory, without the columns that are in directory names."""
    if not names:
        yield "", table
        return
    columns = [_partition_column(table, name) for name in names]
    is_text = [pa.types.is_string(column.type) and name != "date" for name, column in zip(names, columns, strict=True)]
    values = pa.table([*columns, pa.array(range(len(table)))], names=[str(i) for i in range(len(names) + 1)])
    groups = values.group_by(values.column_names[:-1], use_threads=False).aggregate([(str(len(names)), "list")])
    stored = table.drop_columns([name for name in names if name in table.schema.names])
    for *row, indexes in zip(*(column.to_pylist() for column in groups.columns), strict=True):
        folders = (
            f"{name}={_partition_folder_name(value, is_text=text)}"
            for name, value, text in zip(names, row, is_text, strict=True)
        )
        yield "/".join(folders), stored if len(indexes) == len(table) else stored.take(indexes)


def _partition_column(table: pa.Table, name: str) -> Any:
    if name == "date":
        return compute.strftime(table["time"].cast(pa.timestamp("s"), safe=False), format="%Y-%m-%d")
    if name == "hour":
        return compute.hour(table["time"].cast(pa.timestamp("us")))
    return table[name]


def _partition_folder_name(value: Any, *, is_text: bool) -> str:
    if value is None or value == "":
        return NO_TEXT if is_text else NULL_PARTITION
    text = quote(str(value).lower() if isinstance(value, bool) else str(value), safe=" ")
    return f"%5F{text[1:]}" if text in (NO_TEXT, NULL_PARTITION) else text


def stored_text_columns(file_options: TableFileOptions, schema: pa.Schema) -> list[str]:
    """Return the names of the text columns in the files; partition columns are only in directory names."""
    return [one.name for one in schema if pa.types.is_string(one.type) and one.name not in file_options.partition_by]


def count_text_bytes(table: pa.Table, columns: Sequence[str], file_options: TableFileOptions) -> int:
    """Return the number of bytes in some columns of text, as they are stored."""
    size = sum(compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in columns)
    if file_options.csv_safe:
        matches = (compute.match_substring_regex(table[name], _FORMULA_START) for name in columns)
        size += sum(compute.sum(one).as_py() or 0 for one in matches)
    return int(size)


def to_stored_text(file_options: TableFileOptions, text: str) -> str:
    """Return a text as it is stored in the output."""
    return f"'{text}" if file_options.csv_safe and re.match(_FORMULA_START, text) else text


# --- Read-back ---

_READ_BATCH_ROWS = 1 << 16
_MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS = 8192, 8 << 20
"""Limits of one chunk of a text table."""


class TableFileCounts(msgspec.Struct):
    """Content of one file as read back. text_bytes: number of bytes in its text columns."""

    output: ManifestOutput
    text_bytes: int = 0


def read_back_and_count_file(
    file_options: TableFileOptions, folder: Path, path: Path, schema: pa.Schema,
    on_table: Callable[[pa.Table], None] | None = None, extra_columns: Sequence[str] = (),
) -> TableFileCounts:  # fmt: skip
    """Read a file back, with a reader independent of its writer.

    Args:
        folder: the directory of the output, to which the path in the result is relative.
        schema: schema of the rows that were written.
        on_table: receives the texts and the `extra_columns` columns.

    Raises:
        InputOutputError: the reader does not understand the file.
    """
    texts = stored_text_columns(file_options, schema)
    columns = [
        one for one in schema if one.name not in file_options.partition_by and one.name in (*texts, *extra_columns)
    ]
    rows = text_bytes = 0
    for table in read_tables(file_options.to, path, pa.schema(columns)):
        rows += table.num_rows
        text_bytes += sum(compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in texts)
        if on_table is not None:
            on_table(table)
    relative = str(path.relative_to(folder))
    return TableFileCounts(ManifestOutput(relative, rows, path.stat().st_size, hash_file(str(path))), text_bytes)


def read_tables(to: str, path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the columns of a schema (texts and integers) from one file, in chunks.

    Raises:
        InputOutputError: the reader does not understand the file.
    """
    try:
        yield from _READERS[to](path, schema)
    except (pa.ArrowException, ValueError, csv.Error, EOFError) as error:
        raise InputOutputError(f"{path.name}: read back: {error}") from error


def _read_parquet(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for batch in read_row_groups(file, schema.names):
            yield pa.Table.from_batches([batch])


def read_row_groups(file: Any, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file row group by row group; ordinary batches contain many groups, even if their rows are long."""
    for i in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=_READ_BATCH_ROWS, row_groups=[i], columns=columns)


def _read_orc(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    import pyarrow.orc as orc

    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        yield pa.Table.from_batches([file.read_stripe(stripe, columns=schema.names)]).select(schema.names)


def _read_csv(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    csv.field_size_limit(sys.maxsize)
    with _open_decompressed(path) as data, io.TextIOWrapper(data, "utf-8", newline="") as text:
        lines = csv.reader(text, strict=True)
        names = next(lines, [])
        converters = [(names.index(one.name), int if pa.types.is_integer(one.type) else str) for one in schema]
        yield from _build_tables_from_rows(
            (
                [None if not line[i] else convert(line[i]) for i, convert in converters]
                for line in _check_cell_counts(lines, names)
            ),
            schema,
        )


def _check_cell_counts(lines: Iterable[list[str]], names: list[str]) -> Iterator[list[str]]:
    for line in lines:
        if len(line) != len(names):
            raise ValueError(f"a row has {len(line)} of {len(names)} cells")
        yield line


def _read_json(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    decode, names = msgspec.json.Decoder(dict[str, Any]).decode, schema.names
    with _open_decompressed(path) as data:
        yield from _build_tables_from_rows(([row[name] for name in names] for row in map(decode, data)), schema)


def _read_avro(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    import fastavro

    with path.open("rb") as data:
        reader: Any = fastavro.reader(data)
        stored_names = {field.get("doc", field["name"]): field["name"] for field in reader.writer_schema["fields"]}
        names = [stored_names[name] for name in schema.names]
        yield from _build_tables_from_rows(([row[name] for name in names] for row in reader), schema)


def _build_tables_from_rows(text_rows: Iterable[list[Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    pending, size = list[list[Any]](), 0
    for line in text_rows:
        pending.append(line)
        size += sum(len(value) for value in line if isinstance(value, str))
        if len(pending) >= _MAX_CHUNK_ROWS or size >= _MAX_CHUNK_CHARACTERS:
            yield _build_table(pending, schema)
            pending, size = [], 0
    if pending:
        yield _build_table(pending, schema)


def _build_table(lines: list[list[Any]], schema: pa.Schema) -> pa.Table:
    return pa.table([list(column) for column in zip(*lines, strict=True)], schema=schema)


def _open_decompressed(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return bz2.open(path, "rb") if path.suffix == ".bz2" else path.open("rb")


_READERS = {"parquet": _read_parquet, "orc": _read_orc, "csv": _read_csv, "json": _read_json, "avro": _read_avro}
