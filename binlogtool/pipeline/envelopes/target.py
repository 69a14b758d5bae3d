"""Output of the messages of one table, or of all tables; see `typed.target`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from binlogtool.formats.changes import Change
from binlogtool.pipeline.cells import arrow_type, sql_type
from binlogtool.pipeline.envelopes.message_rows import Kinds, Plan, table_of
from binlogtool.pipeline.envelopes.values import Line
from binlogtool.pipeline.object_columns import Field
from binlogtool.pipeline.typed.batches import Piece
from binlogtool.pipeline.typed.target import Target, grown

_BATCH = 8192
_HELD, _HELD_PART = 8 << 20, 32
"""Limits of pending messages: bytes, and fraction of the memory limit."""


class MessageForm:
    """Columns of the messages of a table. fields: the table's columns so far; None = images are texts."""

    def __init__(self, plan: Plan, fields: Sequence[Field] | None) -> None:
        self.plan, self.fields = plan, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageForm) and self.schema.equals(other.schema)

    __hash__ = None  # type: ignore[assignment]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files."""
        kinds = self.plan.columns if self.fields is None else {**self.plan.columns, **self.plan.rest}
        images = () if self.fields is None else self.plan.images
        return pa.schema([pa.field(n, self._image() if n in images else _type(kind)) for n, kind in kinds.items()])

    def _image(self) -> pa.DataType:
        lists, fields = self.plan.lists, self.fields or ()
        one = pa.struct([pa.field(name, pa.string() if lists else arrow_type(kind)) for name, kind in fields])
        return pa.list_(one) if lists else one

    def table(self, piece: Piece) -> pa.Table:
        """Convert a batch to this layout."""
        return grown(pa.Table.from_batches([piece.batch]), self.schema)

    def types(self) -> list[dict[str, str]]:
        """Return the table's columns with their Spark SQL types."""
        return [{"name": name, "type": sql_type(kind)} for name, kind in self.fields or ()]


class MessageTarget(Target):
    """Output of messages. typed: the images have the columns of one table."""

    def __init__(self, *own: Any, plan: Plan, typed: bool) -> None:
        super().__init__(*own, operations=False)
        self._most_size = min(_HELD, own[-1] // _HELD_PART)
        self._plan, self._typed = plan, typed
        self._rows, self._size = list[dict[str, Any]](), 0
        self._last: Any = None
        self._table: Any = None

    @property
    def form(self) -> MessageForm:
        """Layout of the messages, as far as the columns are known now."""
        return MessageForm(self._plan, self.grown.fields if self._typed else None)

    def add(self, line: Line) -> None:
        """Add the next message."""
        data, change = line
        row = self._plan.row(data)
        if self._typed:
            assert change is not None
            self._described(change)
            images = None
            if self._table is not None:
                images = self._plan.typed(row, change, self._table, self.grown.fields)
            row.update(images or dict.fromkeys(self._plan.images))
        self._rows.append(row)
        self._size += len(data)
        if len(self._rows) >= _BATCH or self._size >= self._most_size:
            self.flush()

    def _described(self, change: Change) -> None:
        if change.table is self._last or (change.table is not None and not change.table.columns):
            return
        self._last, table = change.table, table_of(change)
        if table is not None:
            if self._table is None or table.columns != self._table.columns:
                self.flush()
            self._table = table
            self.describe(table, f"{change.place.file} at {change.place.offset:,}")

    def flush(self) -> None:
        """Build a batch of the pending messages."""
        if self._rows:
            batch = pa.RecordBatch.from_pylist(self._rows, schema=self.form.schema)
            self._rows, self._size = [], 0
            self.take(Piece((), batch))

    def finish(self) -> None:
        """Write the output files; see `TableOutput`."""
        self.flush()
        super().finish()


def _type(kind: str | Kinds) -> pa.DataType:
    if isinstance(kind, str):
        return arrow_type(kind)
    return pa.struct([pa.field(name, _type(one)) for name, one in kind.items()])
