"""Row events as INSERT, UPDATE and DELETE, where the columns of the table are known well enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.codes import DELETE_ROW_EVENTS, UPDATE_ROW_EVENTS, EventType
from binlogtool.formats.binlog_events.rows.image_source import ColumnReader
from binlogtool.formats.binlog_events.rows.images import ImageField, ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.rows import RowsHead, list_present_columns, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql.client import has_lossy_backslashes
from binlogtool.formats.binlog_events.sql.json_changes import format_changed_json
from binlogtool.formats.binlog_events.sql.kernels.rows import MAX_INSERT_BYTES
from binlogtool.formats.binlog_events.sql.literals import format_condition, format_literal, quote_identifier
from binlogtool.formats.binlog_events.sql.reverse import opposite_type
from binlogtool.formats.binlog_events.values.columns import ColumnType, TableMapColumn
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.limits import Limits

HAS_TRIGGERS = 0x4000
"""Flag of MariaDB's TABLE_MAP: statements would fire triggers that the row events have already the changes of."""


AUTO_UPDATED_TYPES = frozenset((ColumnType.TIMESTAMP, ColumnType.DATETIME, ColumnType.TIMESTAMP2, ColumnType.DATETIME2))
"""Types of columns that an UPDATE which does not name them may set to the current time (ON UPDATE)."""


class Inexact(Exception):
    """No statements have exactly the effect of a row event; the message says why."""


class ImageValue(NamedTuple):
    """A value of a row image: its column and its bytes, None for NULL.

    `is_difference`: the bytes are only what changed inside of a JSON value.
    """

    column_index: int
    cell: ColumnReader
    raw: bytes | None
    is_difference: bool = False


Image = list[ImageValue]


def format_row_statements(code: int, body: memoryview, table: TableMap, limits: Limits) -> list[bytes]:
    """Return the statements of a row event.

    Raises:
        Inexact: no statements have exactly the same effect.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    return _create_writer(code, table, limits).write_all(iter_row_images(code, body, table, limits))


def format_flashback_statements(code: int, body: memoryview, table: TableMap, limits: Limits) -> list[bytes]:
    """Return the statements that reverse a row event, the last row first.

    Raises:
        Inexact: no statements reverse it exactly.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    event = _create_writer(opposite_type(code), table, limits)
    rows = [(merge_images(before, after), before) for before, after in iter_row_images(code, body, table, limits)]
    return event.write_all(reversed(rows))


def merge_images(before: Image, after: Image) -> Image:
    """Return the row after a change as far as its images contain it.

    Columns that the after image lacks keep their value from before; those known only by a difference are left
    out.
    """
    values = {value.column_index: value for value in before} if after else {}
    for value in after:
        if not value.is_difference:
            values[value.column_index] = value
        elif value.raw:
            values.pop(value.column_index, None)
    return [values[place] for place in sorted(values)]


def reason_without_statements(table: TableMap) -> str | None:
    """Return why no row of a table can be written as statements; None if it depends on the row."""
    if table.column_keys != tuple(column.name for column in table.columns):
        return "the names of its columns are not known"
    if any(map(has_lossy_backslashes, map(quote_identifier, (table.database, table.table, *table.column_keys)))):
        return "some clients leave out a part of its name or of the name of a column"
    return "statements would fire its triggers once more" if table.flags & HAS_TRIGGERS else None


def iter_row_images(code: int, body: memoryview, table: TableMap, limits: Limits) -> Iterator[tuple[Image, Image]]:
    """Yield (before, after) of each row; an image that the event does not have is empty."""
    head: RowsHead = parse_rows_head(code, body, table.table_id_size)
    data, at = bytes(body), head.images_at
    if head.compressed:
        data, at = unpack_block(body[at:], limits), 0
    bitmaps = [bitmap for bitmap in (head.before, head.after) if bitmap is not None]
    indexes = [list_present_columns(bitmap, head.n_cols) for bitmap in bitmaps]
    readers: list[ImageReader | PartialImageReader] = [ImageReader(table, present) for present in indexes]
    if code == EventType.PARTIAL_UPDATE_ROWS:
        readers[1] = PartialImageReader(table, indexes[1])
    while at < len(data):
        start, images = at, list[Image]()
        for reader, present in zip(readers, indexes, strict=True):
            fields, differences = _read_fields(reader, data, at)
            images.append([_make_value(present, field, data, differences) for field in fields])
            at = fields[-1].end if fields else reader.skip(data, at)
        if at == start:
            return
        yield (
            (images[0], images[-1])
            if len(images) == 2
            else ((images[0], []) if code in DELETE_ROW_EVENTS else ([], images[0]))
        )


def find_changed_values(before: Image, after: Image) -> Image:
    """Return the values after an update that differ from those before it or were not in the before image."""
    raw_before = {value.column_index: value.raw for value in before}
    return [
        value
        for value in after
        if (
            bool(value.raw)
            if value.is_difference
            else value.column_index not in raw_before or raw_before[value.column_index] != value.raw
        )
    ]


def _read_fields(
    reader: ImageReader | PartialImageReader, data: bytes, at: int
) -> tuple[list[ImageField], frozenset[int]]:
    """Return the fields of an image, and which of them hold only a difference."""
    if isinstance(reader, PartialImageReader):
        return reader.list_fields(data, at)
    return list(reader.iter_fields(data, at)), frozenset()


def _make_value(present: tuple[int, ...], field: ImageField, data: bytes, differences: frozenset[int]) -> ImageValue:
    """Return a field of an image as a value."""
    raw = data[field.start : field.end] if field.start >= 0 else None
    return ImageValue(present[field.position], field.column, raw, raw is not None and field.position in differences)


def _create_writer(code: int, table: TableMap, limits: Limits) -> _RowStatementWriter:
    """Return the writer of a row event's statements.

    Raises:
        Inexact: no row of the table can be written as statements.
    """
    reason = reason_without_statements(table)
    if reason is not None:
        raise Inexact(reason)
    return _RowStatementWriter(code, table, DecodeBudget(limits))


class _RowStatementWriter(msgspec.Struct):
    """Writer of the statements of one row event."""

    code: int
    table: TableMap
    budget: DecodeBudget

    def write_all(self, rows: Iterable[tuple[Image, Image]]) -> list[bytes]:
        """Return the statements of these rows."""
        if self.code in DELETE_ROW_EVENTS or self.code in UPDATE_ROW_EVENTS:
            return [text for before, after in rows for text in self._write_change(before, after)]
        return self._write_inserts([after for _, after in rows])

    @property
    def _table_name(self) -> bytes:
        """The quoted name of the table."""
        return quote_identifier(self.table.database) + b"." + quote_identifier(self.table.table)

    def _get_column(self, value: ImageValue) -> TableMapColumn:
        """Return the column of a value."""
        return self.table.columns[value.column_index]

    def _list_assignments(self, image: Image) -> list[tuple[bytes, bytes]]:
        """Return (name, literal) of each value that a statement may set."""
        pairs = []
        for value in image:
            column = self._get_column(value)
            if not column.generated:
                pairs.append((quote_identifier(value.cell.key), self._require_literal(value, column)))
        return pairs

    def _require_literal(self, value: ImageValue, column: TableMapColumn) -> bytes:
        """Return a value as a literal.

        Raises:
            Inexact: there is none.
        """
        text = self._format_value(value, column)
        if text is None:
            raise self._inexact_error(value)
        return text

    def _iter_changes(self, before: Image, after: Image) -> Iterator[tuple[bytes, bytes]]:
        """Yield (name, literal) of each column that an update changes.

        Columns that a server could set by itself are assigned their own value.
        """
        changed = {value.column_index: value for value in find_changed_values(before, after)}
        for place, column in enumerate(self.table.columns):
            value, column_name = changed.get(place), quote_identifier(column.name or "")
            if column.generated:
                continue
            if value is not None:
                yield column_name, self._require_literal(value, column)
            elif column.type in AUTO_UPDATED_TYPES:
                yield column_name, column_name

    def _format_value(self, value: ImageValue, column: TableMapColumn) -> bytes | None:
        """Return a value, or the expression of its changes; None if there is no exact one."""
        if value.raw is None:
            return b"NULL"
        if value.is_difference:
            return format_changed_json(quote_identifier(value.cell.key), value.raw, self.budget)
        return format_literal(value.cell, column, value.raw, self.budget)

    @staticmethod
    def _inexact_error(value: ImageValue) -> Inexact:
        """Return the error for a value without an exact literal."""
        return Inexact(f"its column {value.cell.key} has values without an exact literal, or is not known well enough")

    def _write_inserts(self, images: list[Image]) -> list[bytes]:
        """Return rows as INSERT statements, several rows in each."""
        statements: list[bytes] = []
        rows: list[bytes] = []
        length = 0
        for image in images:
            pairs = self._list_assignments(image)
            columns = b",".join(column for column, _ in pairs)
            rows.append(b"(" + b",".join(text for _, text in pairs) + b")")
            length += len(rows[-1])
            if length >= MAX_INSERT_BYTES or image is images[-1]:
                statements.append(b"INSERT INTO %b (%b) VALUES\n%b" % (self._table_name, columns, b",\n".join(rows)))
                rows, length = [], 0
        return statements

    def _write_change(self, before: Image, after: Image) -> list[bytes]:
        """Return the DELETE or UPDATE of a row; nothing for an update that changes nothing."""
        condition = self._write_condition(before)
        if self.code in DELETE_ROW_EVENTS:
            return [b"DELETE FROM %b WHERE %b LIMIT 1" % (self._table_name, condition)]
        changed = find_changed_values(before, after)
        if not changed:
            return []
        if all(self._get_column(value).generated for value in changed):
            raise Inexact("an update changes no column that a statement can set")
        values = b", ".join(column + b"=" + text for column, text in self._iter_changes(before, after))
        return [b"UPDATE %b SET %b WHERE %b LIMIT 1" % (self._table_name, values, condition)]

    def _write_condition(self, image: Image) -> bytes:
        """Return the condition that selects the row: by its primary key where known, else by all its values."""
        key_columns = {index for index, _ in self.table.primary_key or ()}
        has_key = bool(key_columns) and key_columns <= {value.column_index for value in image}
        values = [v for v in image if (v.column_index in key_columns if has_key else not self._get_column(v).generated)]
        if not values:
            raise Inexact("nothing in the log says which row it is")
        conditions = []
        for value in values:
            term = format_condition(value.cell, self._get_column(value), value.raw, self.budget, is_key=has_key)
            if term is None:
                raise self._inexact_error(value)
            conditions.append(term)
        return b" AND ".join(conditions)
