"""Encode typed rows of one table as JSON lines, CSV or an Arrow stream while the log is read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from binlogtool.errors import unknown_name_error
from binlogtool.export.table_files import convert_to_texts
from binlogtool.export.typed_columns import METADATA_COLUMNS, TRAILING_COLUMNS
from binlogtool.format_api.json_values import PARTIAL_UPDATE, describe_json_changes

Write = Callable[[bytes], object]
_SHOWN_METADATA = ("op", "time")
"""Columns about a change that are shown in addition to those of the table."""
_PARTIAL_UPDATE_START = f'{{"{PARTIAL_UPDATE}":['
NOT_LOGGED = "(not logged)"
"""Text shown for a column that the row image lacks."""
ROW_FORMS = ("jsonl", "csv", "arrow")
"""Output forms of `encode_batches`."""


class RowStream(Protocol):
    """Writer of the rows of one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> None:
        """Write the end of the stream, after the last row."""


class _Sink(io.RawIOBase):
    """File object that passes its bytes to a function."""

    def __init__(self, write: Write) -> None:
        self._write, self._size = write, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def write(self, data: Any) -> int:
        """Pass bytes on."""
        size = memoryview(data).nbytes
        self._write(bytes(data))
        self._size += size
        return size


class JsonRowStream:
    """JSON lines: one object per row, with the name of its table; times are texts, bytes are base64."""

    def __init__(self, table: str, write: Write) -> None:
        self._table, self._write = table, write
        self._encode = msgspec.json.Encoder(decimal_format="number").encode_lines

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        rows = convert_to_texts(pa.Table.from_batches([batch]), nested=False).to_pylist()
        self._write(self._encode([{"table": self._table, **row} for row in rows]))

    def close(self) -> None:
        """Finish the output: JSON lines have no end mark."""


class CsvRowStream:
    """CSV as in RFC 4180, with a heading: an empty text is "", null has no quotation marks, lists are JSON."""

    def __init__(self, schema: pa.Schema, write: Write) -> None:
        import pyarrow.csv as arrow_csv

        texts = convert_to_texts(schema.empty_table(), nested=True).schema
        options = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")
        self._writer = arrow_csv.CSVWriter(_Sink(write), texts, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write(convert_to_texts(pa.Table.from_batches([batch]), nested=True))

    def close(self) -> None:
        """Complete the stream."""
        self._writer.close()


class ArrowRowStream:
    """Arrow IPC stream, as `pyarrow.ipc.open_stream`, DuckDB and polars read it."""

    def __init__(self, schema: pa.Schema, write: Write) -> None:
        self._writer = pa.ipc.new_stream(_Sink(write), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the end mark of the stream."""
        self._writer.close()


def encode_batches(form: str, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of an output form (`ROW_FORMS`) while the batches are read.

    Raises:
        UsageError: the form is unknown.
    """
    pieces = list[bytes]()
    if form not in ROW_FORMS:
        raise unknown_name_error("form of rows", form, ROW_FORMS)
    stream: RowStream = JsonRowStream(table, pieces.append)
    if form != "jsonl":
        stream = (CsvRowStream if form == "csv" else ArrowRowStream)(schema, pieces.append)
    for batch in batches:
        stream.write(batch)
        yield b"".join(pieces)
        pieces.clear()
    stream.close()
    yield b"".join(pieces)


def select_shown_columns(schema: pa.Schema) -> list[str]:
    """Return the columns to show: the operation, its time, and the columns of the table."""
    hidden = {name for name, _ in (*METADATA_COLUMNS, *TRAILING_COLUMNS)} - set(_SHOWN_METADATA)
    return [name for name in schema.names if name not in hidden]


def select_used_details(batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Return the names of those columns that have values in the batch."""
    return [name for name in names if name in batch.schema.names and batch[name].null_count < len(batch)]


def _to_cell(column: str, text: str) -> str:
    """Return the text of a value for people: the partial update of a JSON column as MySQL's functions."""
    if not text.startswith(_PARTIAL_UPDATE_START):
        return text
    try:
        return describe_json_changes(column, msgspec.json.decode(text)) or text
    except (msgspec.DecodeError, RecursionError):  # a text that only begins like one
        return text


def _to_cells(name: str, column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts for people; None = NULL."""
    if pa.types.is_binary(column.type):
        return [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
    if pa.types.is_float32(column.type):  # a Python float would show digits that the value does not have
        column = column.cast(pa.string())
    return [None if value is None else _to_cell(name, str(value)) for value in column.to_pylist()]


def _decode_unfit(text: str | None) -> dict[str, Any]:
    """Return the values that columns of a row cannot hold, by path."""
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def to_text_rows(batch: pa.RecordBatch, columns: Sequence[str], image: str) -> list[list[str | None]]:
    """Return the cells of some columns as texts; None = NULL, `NOT_LOGGED` = the row's image lacks the column.

    A value that its column cannot hold, such as 0000-00-00, is shown as the log has it.
    """
    chosen = pa.Table.from_batches([batch]).select(list(columns))
    texts = convert_to_texts(chosen, nested=True)
    cells = [
        _to_cells(name, raw if pa.types.is_binary(raw.type) else text)
        for name, raw, text in zip(columns, chosen.columns, texts.columns, strict=True)
    ]
    rows = [list(row) for row in zip(*cells, strict=True)]
    if not {"op", "absent", "unfit"} <= set(batch.schema.names):
        return rows
    details = (batch[name].to_pylist() for name in ("op", "absent", "unfit"))
    for row, op, absent, unfit in zip(rows, *details, strict=True):
        side = "before" if image == "before" or op == "DELETE" else "after"
        values = _decode_unfit(unfit)
        for i, name in enumerate(columns if absent or values else ()):
            path = f"{side}.{name}"
            if path in values:
                value = values[path]
                row[i] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            elif row[i] is None and absent and path in absent:
                row[i] = NOT_LOGGED
    return rows
