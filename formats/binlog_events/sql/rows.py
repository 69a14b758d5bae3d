"""Row events as INSERT, UPDATE and DELETE, where the columns of the table are known well enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.codes import DELETES, UPDATES, EventType
from binlogtool.formats.binlog_events.rows.image_source import Cell
from binlogtool.formats.binlog_events.rows.images import Field, ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.rows import RowsHead, parse_rows_head, present_columns
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.client import loses_backslashes
from binlogtool.formats.binlog_events.sql.json_changes import changed_json
from binlogtool.formats.binlog_events.sql.kernels.rows import LONGEST
from binlogtool.formats.binlog_events.sql.literals import condition, literal, name
from binlogtool.formats.binlog_events.sql.reverse import reversed_code
from binlogtool.formats.binlog_events.values.columns import Column, ColumnType
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.limits import Limits

HAS_TRIGGERS = 0x4000
"""Flag of MariaDB's TABLE_MAP: statements would fire triggers that the row events have already the changes of."""


STAMPS = frozenset((ColumnType.TIMESTAMP, ColumnType.DATETIME, ColumnType.TIMESTAMP2, ColumnType.DATETIME2))
"""Types of columns that an UPDATE which does not name them may set to the current time (ON UPDATE)."""


class Inexact(Exception):
    """No statements have exactly the effect of a row event; the message says why."""


class Value(NamedTuple):
    """A value of a row image: its column and its bytes, None for NULL.

    `is_difference`: the bytes are only what changed inside of a JSON value.
    """

    place: int
    cell: Cell
    raw: bytes | None
    is_difference: bool = False


Image = list[Value]


def row_statements(code: int, body: memoryview, table: TableMap, limits: Limits) -> list[bytes]:
    """Return the statements of a row event.

    Raises:
        Inexact: no statements have exactly the same effect.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    return _event(code, table, limits).statements(row_images(code, body, table, limits))


def undo_statements(code: int, body: memoryview, table: TableMap, limits: Limits) -> list[bytes]:
    """Return the statements that reverse a row event, the last row first.

    Raises:
        Inexact: no statements reverse it exactly.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    event = _event(reversed_code(code), table, limits)
    rows = [(completed(before, after), before) for before, after in row_images(code, body, table, limits)]
    return event.statements(reversed(rows))


def completed(before: Image, after: Image) -> Image:
    """Return the row after a change as far as its images contain it.

    Columns that the after image lacks keep their value from before; those known only by a difference are left
    out.
    """
    values = {value.place: value for value in before} if after else {}
    for value in after:
        if not value.is_difference:
            values[value.place] = value
        elif value.raw:
            values.pop(value.place, None)
    return [values[place] for place in sorted(values)]


def refused(table: TableMap) -> str | None:
    """Return why no row of a table can be written as statements; None if it depends on the row."""
    if table.keys != tuple(column.name for column in table.columns):
        return "the names of its columns are not known"
    if any(map(loses_backslashes, map(name, (table.database, table.table, *table.keys)))):
        return "some clients leave out a part of its name or of the name of a column"
    return "statements would fire its triggers once more" if table.flags & HAS_TRIGGERS else None


def row_images(code: int, body: memoryview, table: TableMap, limits: Limits) -> Iterator[tuple[Image, Image]]:
    """Yield (before, after) of each row; an image that the event does not have is empty."""
    head: RowsHead = parse_rows_head(code, body, table.table_id_size)
    data, at = bytes(body), head.images_at
    if head.compressed:
        data, at = unpack_block(body[at:], limits), 0
    bitmaps = [bitmap for bitmap in (head.before, head.after) if bitmap is not None]
    indexes = [present_columns(bitmap, head.n_cols) for bitmap in bitmaps]
    readers: list[ImageReader | PartialImageReader] = [ImageReader(table, present) for present in indexes]
    if code == EventType.PARTIAL_UPDATE_ROWS:
        readers[1] = PartialImageReader(table, indexes[1])
    while at < len(data):
        start, images = at, list[Image]()
        for reader, present in zip(readers, indexes, strict=True):
            fields, differences = _fields(reader, data, at)
            images.append([_value(present, field, data, differences) for field in fields])
            at = fields[-1].end if fields else reader.skip(data, at)
        if at == start:
            return
        yield (images[0], images[-1]) if len(images) == 2 else ((images[0], []) if code in DELETES else ([], images[0]))


def changed_values(before: Image, after: Image) -> Image:
    """Return the values after an update that differ from those before it or were not in the before image."""
    old = {value.place: value.raw for value in before}
    return [
        value
        for value in after
        if (bool(value.raw) if value.is_difference else value.place not in old or old[value.place] != value.raw)
    ]


def _fields(reader: ImageReader | PartialImageReader, data: bytes, at: int) -> tuple[list[Field], frozenset[int]]:
    """Return the fields of an image, and which of them hold only a difference."""
    if isinstance(reader, PartialImageReader):
        return reader.fields(data, at)
    return list(reader.fields(data, at)), frozenset()


def _value(present: tuple[int, ...], field: Field, data: bytes, differences: frozenset[int]) -> Value:
    """Return a field of an image as a value."""
    raw = data[field.start : field.end] if field.start >= 0 else None
    return Value(present[field.place], field.cell, raw, raw is not None and field.place in differences)


def _event(code: int, table: TableMap, limits: Limits) -> _Event:
    """Return the writer of a row event's statements.

    Raises:
        Inexact: no row of the table can be written as statements.
    """
    why = refused(table)
    if why is not None:
        raise Inexact(why)
    return _Event(code, table, Budget(limits))


class _Event(msgspec.Struct):
    """Writer of the statements of one row event."""

    code: int
    table: TableMap
    budget: Budget

    def statements(self, rows: Iterable[tuple[Image, Image]]) -> list[bytes]:
        """Return the statements of these rows."""
        if self.code in DELETES or self.code in UPDATES:
            return [text for before, after in rows for text in self._changed(before, after)]
        return self._inserts([after for _, after in rows])

    @property
    def _target(self) -> bytes:
        """The quoted name of the table."""
        return name(self.table.database) + b"." + name(self.table.table)

    def _column(self, value: Value) -> Column:
        """Return the column of a value."""
        return self.table.columns[value.place]

    def _assigned(self, image: Image) -> list[tuple[bytes, bytes]]:
        """Return (name, literal) of each value that a statement may set."""
        pairs = []
        for value in image:
            column = self._column(value)
            if not column.generated:
                pairs.append((name(value.cell.key), self._literal(value, column)))
        return pairs

    def _literal(self, value: Value, column: Column) -> bytes:
        """Return a value as a literal.

        Raises:
            Inexact: there is none.
        """
        text = self._text(value, column)
        if text is None:
            raise self._inexact(value)
        return text

    def _changes(self, before: Image, after: Image) -> Iterator[tuple[bytes, bytes]]:
        """Yield (name, literal) of each column that an update changes.

        Columns that a server could set by itself are assigned their own value.
        """
        changed = {value.place: value for value in changed_values(before, after)}
        for place, column in enumerate(self.table.columns):
            value, title = changed.get(place), name(column.name or "")
            if column.generated:
                continue
            if value is not None:
                yield title, self._literal(value, column)
            elif column.type in STAMPS:
                yield title, title

    def _text(self, value: Value, column: Column) -> bytes | None:
        """Return a value, or the expression of its changes; None if there is no exact one."""
        if value.raw is None:
            return b"NULL"
        if value.is_difference:
            return changed_json(name(value.cell.key), value.raw, self.budget)
        return literal(value.cell, column, value.raw, self.budget)

    @staticmethod
    def _inexact(value: Value) -> Inexact:
        """Return the error for a value without an exact literal."""
        return Inexact(f"its column {value.cell.key} has values without an exact literal, or is not known well enough")

    def _inserts(self, images: list[Image]) -> list[bytes]:
        """Return rows as INSERT statements, several rows in each."""
        out: list[bytes] = []
        rows: list[bytes] = []
        length = 0
        for image in images:
            pairs = self._assigned(image)
            columns = b",".join(column for column, _ in pairs)
            rows.append(b"(" + b",".join(text for _, text in pairs) + b")")
            length += len(rows[-1])
            if length >= LONGEST or image is images[-1]:
                out.append(b"INSERT INTO %b (%b) VALUES\n%b" % (self._target, columns, b",\n".join(rows)))
                rows, length = [], 0
        return out

    def _changed(self, before: Image, after: Image) -> list[bytes]:
        """Return the DELETE or UPDATE of a row; nothing for an update that changes nothing."""
        where = self._where(before)
        if self.code in DELETES:
            return [b"DELETE FROM %b WHERE %b LIMIT 1" % (self._target, where)]
        changed = changed_values(before, after)
        if not changed:
            return []
        if all(self._column(value).generated for value in changed):
            raise Inexact("an update changes no column that a statement can set")
        values = b", ".join(column + b"=" + text for column, text in self._changes(before, after))
        return [b"UPDATE %b SET %b WHERE %b LIMIT 1" % (self._target, values, where)]

    def _where(self, image: Image) -> bytes:
        """Return the condition that selects the row: by its primary key where known, else by all its values."""
        places = {index for index, _ in self.table.primary_key or ()}
        keyed = bool(places) and places <= {value.place for value in image}
        chosen = [v for v in image if (v.place in places if keyed else not self._column(v).generated)]
        if not chosen:
            raise Inexact("nothing in the log says which row it is")
        made = []
        for value in chosen:
            one = condition(value.cell, self._column(value), value.raw, self.budget, key=keyed)
            if one is None:
                raise self._inexact(value)
            made.append(one)
        return b" AND ".join(made)
