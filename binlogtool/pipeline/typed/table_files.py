"""Files of typed tables: written with Arrow, Python's own writers or fastavro, and counted by reading them back."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as compute

from binlogtool import memory
from binlogtool.errors import InputOutputError
from binlogtool.pipeline.typed.avro_tables import AvroTableFile, read_avro_rows
from binlogtool.pipeline.typed.patient import DeferredErrorFile
from binlogtool.pipeline.writers.table_form import TableFileOptions

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
    """Parquet file. is_large: for values of many MiB; without statistics, which hold four copies of the longest
    value.
    """

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
    """ORC file."""

    def __init__(self, path: Path, codec: str) -> None:
        import pyarrow.orc as orc

        self._out = DeferredErrorFile(path)
        self._file = orc.ORCWriter(self._out, compression="uncompressed" if codec == "none" else codec)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        with memory.defer_checks():
            self._file.write(table)
        self._out.raise_deferred_error()

    def close(self) -> None:
        """Complete the file."""
        with memory.defer_checks():
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
        for batch in _convert_to_texts(table, nested=False).to_batches(max_chunksize=8192):
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
        flat = _convert_to_texts(schema.empty_table(), nested=True).schema
        options = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._file = arrow_csv.CSVWriter(self._out, flat, write_options=options)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        table = _convert_to_texts(table, nested=True)
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


def _convert_to_texts(table: pa.Table, *, nested: bool) -> pa.Table:
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
