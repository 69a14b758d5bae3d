"""Typed tables as Avro files. Characters that Avro does not allow in names become `_`; `doc` holds the column's
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

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
