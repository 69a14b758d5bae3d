"""Encode typed rows of one table as JSON lines, CSV or an Arrow stream while the log is read."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from binlogtool.errors import unknown_name_error
from binlogtool.export.table_files import CsvTableFile, JsonTableFile, convert_to_texts
from binlogtool.export.typed_columns import METADATA_COLUMNS, TRAILING_COLUMNS
from binlogtool.format_api.encode_json import PARTIAL_UPDATE, format_partial_json_update

_SHOWN_METADATA = ("op", "time")
"""Columns about a change that are shown in addition to those of the table."""
_PARTIAL_UPDATE_START = f'{{"{PARTIAL_UPDATE}":['
NOT_LOGGED = "(not logged)"
"""Text shown for a column that the row image lacks."""
ROW_FORMS = ("jsonl", "csv", "arrow")
"""Output forms of `encode_batches`."""


def encode_batches(form: str, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of an output form (`ROW_FORMS`) while the batches are read.

    Raises:
        UsageError: the form is unknown.
    """
    if form not in ROW_FORMS:
        raise unknown_name_error("form of rows", form, ROW_FORMS)
    out = io.BytesIO()
    file: Any = JsonTableFile(out)
    if form != "jsonl":
        file = CsvTableFile(out, schema) if form == "csv" else pa.ipc.new_stream(out, schema)
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        file.write(rows.add_column(0, "table", pa.repeat(table, len(rows))) if form == "jsonl" else rows)
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    if form == "arrow":
        file.close()  # the end mark; other forms have none
    yield out.getvalue()


def select_shown_columns(schema: pa.Schema) -> list[str]:
    """Return the columns to show: the operation, its time, and the columns of the table."""
    hidden = {name for name, _ in (*METADATA_COLUMNS, *TRAILING_COLUMNS)} - set(_SHOWN_METADATA)
    return [name for name in schema.names if name not in hidden]


def select_used_details(batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Return the names of those columns that have values in the batch."""
    return [name for name in names if name in batch.schema.names and batch[name].null_count < len(batch)]


def _render_partial_json_update(column_name: str, text: str) -> str:
    """Return the text of a value for people: the partial update of a JSON column as MySQL's functions."""
    if not text.startswith(_PARTIAL_UPDATE_START):
        return text
    try:
        return format_partial_json_update(column_name, msgspec.json.decode(text)) or text
    except (msgspec.DecodeError, RecursionError):  # a text that only begins like one
        return text


def _column_to_display_texts(column_name: str, column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts for people; None = NULL."""
    if pa.types.is_binary(column.type):
        return [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
    if pa.types.is_float32(column.type):  # a Python float would show digits that the value does not have
        column = column.cast(pa.string())
    return [
        None if value is None else _render_partial_json_update(column_name, str(value)) for value in column.to_pylist()
    ]


def _decode_unfit(text: str | None) -> dict[str, Any]:
    """Return the values that columns of a row cannot hold, by path."""
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def to_text_rows(batch: pa.RecordBatch, columns: Sequence[str], image: str) -> list[list[str | None]]:
    """Return the cells of some columns as texts; None = NULL, `NOT_LOGGED` = the row's image lacks the column.

    A value that its column cannot hold, such as 0000-00-00, is shown as the log has it.
    """
    chosen = pa.Table.from_batches([batch]).select(list(columns))
    texts = convert_to_texts(chosen, converts_nested=True)
    cells = [
        _column_to_display_texts(name, raw if pa.types.is_binary(raw.type) else text)
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
