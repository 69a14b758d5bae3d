"""Output of the messages of one table, or of all tables; see `typed.target`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from binlogtool.formats.changes import ChangeEvent
from binlogtool.pipeline.cells import to_arrow_type, to_sql_type
from binlogtool.pipeline.envelopes.message_rows import ColumnTypes, MessageRowLayout, to_table
from binlogtool.pipeline.envelopes.values import MessageLine
from binlogtool.pipeline.object_columns import TypedColumn
from binlogtool.pipeline.typed.batches import TableBatch
from binlogtool.pipeline.typed.target import TableOutput, conform_table

_MAX_BATCH_ROWS = 8192
_MAX_PENDING_BYTES, _HELD_MEMORY_DIVISOR = 8 << 20, 32
"""Limits of pending messages: bytes, and fraction of the memory limit."""


class MessageTableLayout:
    """Columns of the messages of a table. fields: the table's columns so far; None = images are texts."""

    def __init__(self, row_layout: MessageRowLayout, fields: Sequence[TypedColumn] | None) -> None:
        self.row_layout, self.fields = row_layout, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageTableLayout) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""
        kinds = self.row_layout.columns if self.fields is None else {**self.row_layout.columns, **self.row_layout.rest}
        images = () if self.fields is None else self.row_layout.images
        return pa.schema(
            [pa.field(n, self._image_type() if n in images else _arrow_type(kind)) for n, kind in kinds.items()]
        )

    def _image_type(self) -> pa.DataType:
        lists, fields = self.row_layout.lists, self.fields or ()
        row_type = pa.struct([pa.field(name, pa.string() if lists else to_arrow_type(kind)) for name, kind in fields])
        return pa.list_(row_type) if lists else row_type

    def to_table(self, table_batch: TableBatch) -> pa.Table:
        """Convert a batch to this layout."""
        return conform_table(pa.Table.from_batches([table_batch.batch]), self.schema)

    def column_types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return [{"name": name, "type": to_sql_type(kind)} for name, kind in self.fields or ()]


class MessageTableOutput(TableOutput):
    """Output of messages. typed: the images have the columns of one table."""

    def __init__(self, *arguments: Any, row_layout: MessageRowLayout, typed: bool) -> None:
        super().__init__(*arguments, operations=False)
        self._max_pending_size = min(_MAX_PENDING_BYTES, arguments[-1] // _HELD_MEMORY_DIVISOR)
        self._row_layout, self._typed = row_layout, typed
        self._pending_messages, self._pending_size = list[dict[str, Any]](), 0
        self._last: Any = None
        self._table: Any = None

    @property
    def layout(self) -> MessageTableLayout:
        """Layout of the messages, as far as the columns are known now."""
        return MessageTableLayout(self._row_layout, self.evolution.fields if self._typed else None)

    def add_message(self, line: MessageLine) -> None:
        """Add the next message."""
        data, change = line
        row = self._row_layout.row(data)
        if self._typed:
            assert change is not None
            self._update_table(change)
            images = None
            if self._table is not None:
                images = self._row_layout.typed(row, change, self._table, self.evolution.fields)
            row.update(images or dict.fromkeys(self._row_layout.images))
        self._pending_messages.append(row)
        self._pending_size += len(data)
        if len(self._pending_messages) >= _MAX_BATCH_ROWS or self._pending_size >= self._max_pending_size:
            self.flush()

    def _update_table(self, change: ChangeEvent) -> None:
        if change.table is self._last or (change.table is not None and not change.table.columns):
            return
        self._last, table = change.table, to_table(change)
        if table is not None:
            if self._table is None or table.columns != self._table.columns:
                self.flush()
            self._table = table
            self.set_table(table, f"{change.place.file} at {change.place.offset:,}")

    def flush(self) -> None:
        """Build a batch of the pending messages."""
        if self._pending_messages:
            batch = pa.RecordBatch.from_pylist(self._pending_messages, schema=self.layout.schema)
            self._pending_messages, self._pending_size = [], 0
            self.add_batch(TableBatch((), batch))

    def finish(self) -> None:
        """Write the output files; see `TableOutput`."""
        self.flush()
        super().finish()


def _arrow_type(kind: str | ColumnTypes) -> pa.DataType:
    if isinstance(kind, str):
        return to_arrow_type(kind)
    return pa.struct([pa.field(name, _arrow_type(one)) for name, one in kind.items()])
