"""Read finished tables back, with other readers than the writer: pyarrow, Python's csv, fastavro."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from binlogtool.errors import InputOutputError
from binlogtool.pipeline import rows
from binlogtool.pipeline.writers.partitions import NO_TEXT, NULL_PARTITION

_MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS = 8192, 8 << 20
"""Limits of one chunk of a text table."""


_FIELDS: Mapping[str, pa.Field] = {
    **{field.name: field for field in rows.SCHEMA}, "generation": pa.field("generation", pa.int64())
}  # fmt: skip
"""Including those of an `--append` output."""


def read_tables(to: str, path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of one file, in chunks, with the types of `rows.SCHEMA`.

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

    from binlogtool.pipeline.writers.avro import build_avro_schema

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
