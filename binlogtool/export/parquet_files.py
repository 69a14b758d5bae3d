"""Write table files (Parquet, ORC, CSV, JSON, Avro), and count their rows again with independent readers.

ORC's writer closes its file in a destructor, where an exception (such as a full disk) aborts the process.

Rows, records, findings, bytes of text, and the hash of the file: the manifest's facts about an output come from here.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool import limits
from binlogtool.errors import InputOutputError
from binlogtool.export import output_options, record_rows
from binlogtool.export.manifest import FindingTally, ManifestCheck, ManifestOutput, hash_file
from binlogtool.export.output_options import NO_TEXT, NULL_PARTITION, TableFileOptions
from binlogtool.export.record_rows import DAMAGE

_RECORD_AVRO_TYPES: dict[str, Any] = {
    "string": "string",
    "bigint": "long",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "boolean": "boolean",
}


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
        """Write bytes, or keep the error."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return size

    def close(self) -> None:
        """Close the file, keeping an error."""
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        super().close()

    def raise_deferred_error(self) -> None:
        """Raise the first error, if there was one.

        Raises:
            OSError: it happened.
        """
        if self._error is not None:
            raise self._error


# --- Typed tables as Avro files ---

_CODECS = {"deflate": "deflate", "bzip2": "bzip2", "xz": "xz", "none": "null"}
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_]")


def read_avro_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file, with the original column names."""
    import fastavro

    with path.open("rb") as data:
        reader: Any = fastavro.reader(data)
        names = {field["name"]: field.get("doc", field["name"]) for field in reader.writer_schema["fields"]}
        for row in reader:
            yield {names[name]: value for name, value in row.items()}


class AvroTableFile:
    """Avro file of a typed table; see `table_files.TableFile`."""

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


# --- Files of typed tables ---

_PARQUET_CODECS = {"lz4_raw": "lz4"}
_COMPRESSION_SUFFIX = {"gzip": ".gz", "bzip2": ".bz2"}
_OPENERS: Mapping[str, Callable[..., Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "none": open}
_FORMULA_START = r"^([=+\-@\t\r])"
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


class TableFile(Protocol):
    """A table file that is being written."""

    def write(self, table: pa.Table) -> None:
        """Write rows."""

    def close(self) -> None:
        """Complete the file."""


class ParquetTableFile:
    """Parquet file. is_large: for values of many MiB; no statistics, which hold four copies of the longest value."""

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
        with limits.defer_checks():
            self._file.write(table)
        self._out.raise_deferred_error()

    def close(self) -> None:
        """Complete the file."""
        with limits.defer_checks():
            self._file.close()
        self._out.close()
        self._out.raise_deferred_error()


class JsonTableFile:
    """JSON file: one object a line, times as texts, bytes as base64."""

    def __init__(self, path: Path, codec: str) -> None:
        self._file = _OPENERS[codec](path, "wb")
        self._encode = msgspec.json.Encoder(decimal_format="number").encode_lines

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        for batch in convert_to_texts(table, nested=False).to_batches(max_chunksize=8192):
            self._file.write(self._encode(batch.to_pylist()))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class CsvTableFile:
    """CSV file as in RFC 4180: an empty text is "", null has no quotation marks. Lists are JSON."""

    def __init__(self, path: Path, schema: pa.Schema, codec: str, *, safe: bool) -> None:
        import pyarrow.csv as arrow_csv

        self._safe = safe
        self._out = _OPENERS[codec](path, "wb")
        flat = convert_to_texts(schema.empty_table(), nested=True).schema
        options = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._file = arrow_csv.CSVWriter(self._out, flat, write_options=options)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        table = convert_to_texts(table, nested=True)
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


def create_table_file(file_options: TableFileOptions, path: Path, schema: pa.Schema) -> TableFile:
    """Create a file of the output's format."""
    if file_options.to == "parquet":
        return ParquetTableFile(path, schema, file_options.codec)
    if file_options.to == "orc":
        return OrcTableFile(path, file_options.codec)
    if file_options.to == "avro":
        return AvroTableFile(path, schema, file_options.codec)
    if file_options.to == "csv":
        return CsvTableFile(path, schema, file_options.codec, safe=file_options.csv_safe)
    return JsonTableFile(path, file_options.codec)


def file_suffix(file_options: TableFileOptions) -> str:
    """Return the suffix of file names."""
    suffix = _COMPRESSION_SUFFIX.get(file_options.codec, "") if file_options.to in ("csv", "json") else ""
    return f".{file_options.to}{suffix}"


def convert_to_texts(table: pa.Table, *, nested: bool) -> pa.Table:
    """Convert times to RFC 3339 with microseconds; nested: also lists and structs to JSON, bytes to base64."""
    return pa.table(
        [_convert_column(column, nested=nested) for column in table.columns], names=list(table.schema.names)
    )  # fmt: skip


def _convert_column(column: pa.ChunkedArray, *, nested: bool) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = compute.strftime(column.cast(pa.timestamp("us")), _TIME_FORMAT)
        return texts if kind.tz is None else compute.binary_join_element_wise(texts, "Z", "")
    if nested and (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
        import base64

        def to_text(value: Any) -> str | None:
            if value is None:
                return None
            return base64.b64encode(value).decode() if isinstance(value, bytes) else json.dumps(value, default=str)

        return pa.array([to_text(value) for value in column.to_pylist()], pa.string())
    return column


# -- read-back --------------------------------------------------------------------------------------------------------


_READ_BATCH_ROWS = 1 << 16


class TableFileCounts(msgspec.Struct):
    """Counts of a file. text_bytes: bytes in its columns of text."""

    rows: int = 0
    text_bytes: int = 0


def count_text_bytes(table: pa.Table, columns: Sequence[str]) -> int:
    """Return the number of bytes in some columns of text."""
    return sum(compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in columns)


def count_file(file_options: TableFileOptions, path: Path, columns: Sequence[str]) -> TableFileCounts:
    """Read a file back. columns: those whose texts are counted.

    Raises:
        InputOutputError: the reader does not understand it.
    """
    counts = TableFileCounts()
    try:
        for rows, size in _READERS[file_options.to](path, list(columns), file_options.codec):
            counts.rows += rows
            counts.text_bytes += size
    except (pa.ArrowException, ValueError, csv.Error, EOFError) as error:
        raise InputOutputError(f"{path.name}: read back: {error}") from error
    return counts


def _count_parquet(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for batch in read_row_groups(file, columns):
            yield batch.num_rows, count_text_bytes(pa.Table.from_batches([batch]), columns)


def read_row_groups(file: Any, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file row group by row group; ordinary batches hold rows of many groups, however long they are."""
    for i in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=_READ_BATCH_ROWS, row_groups=[i], columns=columns)


def _count_orc(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    import pyarrow.orc as orc

    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        table = pa.Table.from_batches([file.read_stripe(stripe, columns=columns)])
        yield table.num_rows, count_text_bytes(table, columns)


def _count_csv(path: Path, columns: list[str], codec: str) -> Iterator[tuple[int, int]]:
    csv.field_size_limit(sys.maxsize)
    with _OPENERS[codec](path, "rt", encoding="utf-8", newline="") as text:
        lines = csv.reader(text, strict=True)
        names = next(lines)
        column_indexes = [names.index(name) for name in columns]
        for line in lines:
            if len(line) != len(names):
                raise ValueError(f"a row has {len(line)} of {len(names)} cells")
            yield 1, sum(len(line[i].encode()) for i in column_indexes)


def _count_json(path: Path, columns: list[str], codec: str) -> Iterator[tuple[int, int]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _OPENERS[codec](path, "rb") as data:
        yield from _count_rows(map(decode, data), columns)


def _count_avro(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    yield from _count_rows(read_avro_rows(path), columns)


def _count_rows(rows: Iterator[Mapping[str, Any]], columns: list[str]) -> Iterator[tuple[int, int]]:
    for row in rows:
        yield 1, sum(len(value.encode()) for name in columns if (value := row[name]) is not None)


_READERS = {"parquet": _count_parquet, "orc": _count_orc, "csv": _count_csv, "json": _count_json, "avro": _count_avro}


# --- Readers of finished tables ---

_MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS = 8192, 8 << 20
"""Limits of one chunk of a text table."""


_FIELDS: Mapping[str, pa.Field] = {
    **{field.name: field for field in record_rows.SCHEMA}, "generation": pa.field("generation", pa.int64())
}  # fmt: skip
"""Including those of an `--append` output."""


def read_tables(to: str, path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of one file, in chunks, with the types of `export.record_rows.SCHEMA`.

    Raises:
        InputOutputError: the reader does not understand the file.
    """
    try:
        yield from _READBACK_READERS[to](path, columns)
    except (pa.ArrowException, ValueError, csv.Error, EOFError) as error:
        raise InputOutputError(f"{path.name}: read back: {error}") from error


def parse_partition_values(relative: Path) -> dict[str, str | None]:
    """Return the values that directory names (`type=INSERT`) give to all rows of a file."""
    pairs = (part.partition("=") for part in relative.parts[:-1])
    return {name: None if value in (NULL_PARTITION, NO_TEXT) else unquote(value) for name, _, value in pairs}


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])


def _read_orc(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow.orc as orc

    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        yield pa.Table.from_batches([file.read_stripe(stripe, columns=list(columns))]).select(list(columns))


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    csv.field_size_limit(sys.maxsize)
    with _open_decompressed(path) as data, io.TextIOWrapper(data, "utf-8", newline="") as text:
        lines = csv.reader(text, strict=True)
        names = next(lines, None)
        if names is None:
            return
        converters = [(names.index(name), _cell_type(name)) for name in columns]
        converted = (
            [None if not line[i] else convert(line[i]) for i, convert in converters]
            for line in _check_cell_counts(lines, names)
        )
        yield from _build_chunks(converted, columns)


def _check_cell_counts(lines: Iterable[list[str]], names: list[str]) -> Iterator[list[str]]:
    for line in lines:
        if len(line) != len(names):
            raise ValueError(f"a row has {len(line)} of {len(names)} cells")
        yield line


def _cell_type(name: str) -> Any:
    return int if pa.types.is_integer(_FIELDS[name].type) else str


def _read_json(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _open_decompressed(path) as data:
        yield from _build_chunks(([row[name] for name in columns] for row in map(decode, data)), columns)


def _read_avro(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    import fastavro

    with path.open("rb") as data:
        records: Any = fastavro.reader(data, reader_schema=build_avro_schema(columns))
        yield from _build_chunks(([row[name] for name in columns] for row in records), columns)


def _build_chunks(lines: Iterable[list[Any]], columns: Sequence[str]) -> Iterator[pa.Table]:
    schema = pa.schema([_FIELDS[name] for name in columns])
    pending, size = list[list[Any]](), 0
    for line in lines:
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


_READBACK_READERS = {
    "parquet": _read_parquet,
    "orc": _read_orc,
    "csv": _read_csv,
    "json": _read_json,
    "avro": _read_avro,
}


# --- Read-back check of finished tables ---

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

    last_records: highest record number of each log file. event_ranges: check of event ranges, where events share a
    record number.
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
                    f"{file}: {self.records[file]:,} records are in the output, but the last one is number {last:,}"
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
        text = f"{self.events:,} events of {self.groups:,} groups, contiguous from each group's first byte"
        return ManifestCheck("events-without-holes", text)


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
        output_options.stored_text_columns(file_options),
        parse_partition_values(Path(part.name)),
    )
    columns = [
        name
        for name in file_options.stored_columns
        if name in (*text_columns, *REQUIRED_COLUMNS, *(EVENT_RANGE_COLUMNS if events else ()))
    ]
    rows = sum(
        _count_table(table, text_columns, partition_values, counts)
        for table in read_tables(file_options.to, path, columns)
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


def build_avro_schema(columns: Sequence[str]) -> dict[str, Any]:
    """Return the Avro schema of a file with these columns, all nullable."""
    types = {**dict(record_rows.COLUMNS), "generation": "bigint"}
    fields = [{"name": name, "type": ["null", _RECORD_AVRO_TYPES[types[name]]], "default": None} for name in columns]
    return {"type": "record", "name": "row", "namespace": "binlogtool", "fields": fields}
