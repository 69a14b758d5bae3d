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
from binlogtool.pipeline.typed.avro_tables import AvroFile, avro_rows
from binlogtool.pipeline.typed.patient import Patient
from binlogtool.pipeline.writers.table_form import Shape

_CODECS = {"lz4_raw": "lz4"}
_SUFFIX = {"gzip": ".gz", "bzip2": ".bz2"}
_OPENERS: Mapping[str, Callable[..., Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "none": open}
_FORMULA = r"^([=+\-@\t\r])"
_TIME = "%Y-%m-%dT%H:%M:%S"


class File(Protocol):
    """A table file that is being written."""

    def write(self, table: pa.Table) -> None:
        """Write rows."""

    def close(self) -> None:
        """Complete the file."""


class Parquet:
    """Parquet file. large: for values of many MiB; without statistics, which hold four copies of the longest value."""

    def __init__(self, path: Path, schema: pa.Schema, codec: str, *, large: bool = False) -> None:
        import pyarrow.parquet as parquet

        codec = _CODECS.get(codec, codec)
        self._file = parquet.ParquetWriter(path, schema, compression=codec, write_statistics=not large)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        self._file.write_table(table)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class Orc:
    """ORC file."""

    def __init__(self, path: Path, codec: str) -> None:
        import pyarrow.orc as orc

        self._out = Patient(path)
        self._file = orc.ORCWriter(self._out, compression="uncompressed" if codec == "none" else codec)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        with memory.look_later():
            self._file.write(table)
        self._out.demand_all()

    def close(self) -> None:
        """Complete the file."""
        with memory.look_later():
            self._file.close()
        self._out.close()
        self._out.demand_all()


class Json:
    """JSON file: one object a line, times as texts, bytes as base64."""

    def __init__(self, path: Path, codec: str) -> None:
        self._file = _OPENERS[codec](path, "wb")
        self._encode = msgspec.json.Encoder(decimal_format="number").encode_lines

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        for batch in _as_texts(table, nested=False).to_batches(max_chunksize=8192):
            self._file.write(self._encode(batch.to_pylist()))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class Csv:
    """CSV file as in RFC 4180: an empty text is "", null has no quotation marks. Lists are JSON."""

    def __init__(self, path: Path, schema: pa.Schema, codec: str, *, safe: bool) -> None:
        import pyarrow.csv as arrow_csv

        self._safe = safe
        self._out = _OPENERS[codec](path, "wb")
        flat = _as_texts(schema.empty_table(), nested=True).schema
        options = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._file = arrow_csv.CSVWriter(self._out, flat, write_options=options)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        table = _as_texts(table, nested=True)
        if self._safe:
            columns = [
                compute.replace_substring_regex(one, _FORMULA, r"'\1") if pa.types.is_string(one.type) else one
                for one in table.columns
            ]
            table = pa.Table.from_arrays(columns, schema=table.schema)
        self._file.write_table(table)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
        self._out.close()


def opened(shape: Shape, path: Path, schema: pa.Schema) -> File:
    """Create a file of the output's format."""
    if shape.to == "parquet":
        return Parquet(path, schema, shape.codec)
    if shape.to == "orc":
        return Orc(path, shape.codec)
    if shape.to == "avro":
        return AvroFile(path, schema, shape.codec)
    if shape.to == "csv":
        return Csv(path, schema, shape.codec, safe=shape.csv_safe)
    return Json(path, shape.codec)


def suffix(shape: Shape) -> str:
    """Return the suffix of file names."""
    return f".{shape.to}{_SUFFIX.get(shape.codec, '') if shape.to in ('csv', 'json') else ''}"


def _as_texts(table: pa.Table, *, nested: bool) -> pa.Table:
    """Convert times to RFC 3339 with microseconds; nested: also lists and structs to JSON, bytes to base64."""
    return pa.table(
        [_as_text(column, nested=nested) for column in table.columns], names=list(table.schema.names)
    )  # fmt: skip


def _as_text(column: pa.ChunkedArray, *, nested: bool) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = compute.strftime(column.cast(pa.timestamp("us")), _TIME)
        return texts if kind.tz is None else compute.binary_join_element_wise(texts, "Z", "")
    if nested and (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
        import base64

        def text(value: Any) -> str | None:
            if value is None:
                return None
            return base64.b64encode(value).decode() if isinstance(value, bytes) else json.dumps(value, default=str)

        return pa.array([text(value) for value in column.to_pylist()], pa.string())
    return column


# -- read-back --------------------------------------------------------------------------------------------------------


_READ_ROWS = 1 << 16


class Count(msgspec.Struct):
    """Counts of a file. text_bytes: bytes in its columns of text."""

    rows: int = 0
    text_bytes: int = 0


def text_bytes(table: pa.Table, columns: Sequence[str]) -> int:
    """Return the number of bytes in some columns of text."""
    return sum(compute.sum(compute.binary_length(table[name])).as_py() or 0 for name in columns)


def counted(shape: Shape, path: Path, columns: Sequence[str]) -> Count:
    """Read a file back. columns: those whose texts are counted.

    Raises:
        InputOutputError: the reader does not understand it.
    """
    found = Count()
    try:
        for rows, size in _READERS[shape.to](path, list(columns), shape.codec):
            found.rows += rows
            found.text_bytes += size
    except (pa.ArrowException, ValueError, csv.Error, EOFError) as error:
        raise InputOutputError(f"{path.name}: read back: {error}") from error
    return found


def _parquet(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for batch in group_batches(file, columns):
            yield batch.num_rows, text_bytes(pa.Table.from_batches([batch]), columns)


def group_batches(file: Any, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file row group by row group; ordinary batches hold rows of many groups, however long they are."""
    for i in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=_READ_ROWS, row_groups=[i], columns=columns)


def _orc(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    import pyarrow.orc as orc

    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        table = pa.Table.from_batches([file.read_stripe(stripe, columns=columns)])
        yield table.num_rows, text_bytes(table, columns)


def _csv(path: Path, columns: list[str], codec: str) -> Iterator[tuple[int, int]]:
    csv.field_size_limit(sys.maxsize)
    with _OPENERS[codec](path, "rt", encoding="utf-8", newline="") as text:
        lines = csv.reader(text, strict=True)
        names = next(lines)
        wanted = [names.index(name) for name in columns]
        for line in lines:
            if len(line) != len(names):
                raise ValueError(f"a row has {len(line)} of {len(names)} cells")
            yield 1, sum(len(line[i].encode()) for i in wanted)


def _json(path: Path, columns: list[str], codec: str) -> Iterator[tuple[int, int]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _OPENERS[codec](path, "rb") as data:
        yield from _of_rows(map(decode, data), columns)


def _avro(path: Path, columns: list[str], _codec: str) -> Iterator[tuple[int, int]]:
    yield from _of_rows(avro_rows(path), columns)


def _of_rows(rows: Iterator[Mapping[str, Any]], columns: list[str]) -> Iterator[tuple[int, int]]:
    for row in rows:
        yield 1, sum(len(value.encode()) for name in columns if (value := row[name]) is not None)


_READERS = {"parquet": _parquet, "orc": _orc, "csv": _csv, "json": _json, "avro": _avro}
