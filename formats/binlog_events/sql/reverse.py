"""Reversed row events: the event that undoes what another one did (flashback).

Row images are described in docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    EventType,
)
from binlogtool.formats.binlog_events.rows.images import ImageField, ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.rows import RowsHead, list_present_columns, parse_rows_head
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.fields import MalformedError
from binlogtool.limits import Limits

_T = EventType
_OPPOSITE = {
    _T.WRITE_ROWS_V1: _T.DELETE_ROWS_V1,
    _T.DELETE_ROWS_V1: _T.WRITE_ROWS_V1,
    _T.UPDATE_ROWS_V1: _T.UPDATE_ROWS_V1,
    _T.WRITE_ROWS_V2: _T.DELETE_ROWS_V2,
    _T.DELETE_ROWS_V2: _T.WRITE_ROWS_V2,
    _T.UPDATE_ROWS_V2: _T.UPDATE_ROWS_V2,
    _T.WRITE_ROWS_COMPRESSED_V1: _T.DELETE_ROWS_V1,
    _T.DELETE_ROWS_COMPRESSED_V1: _T.WRITE_ROWS_V1,
    _T.UPDATE_ROWS_COMPRESSED_V1: _T.UPDATE_ROWS_V1,
    _T.WRITE_ROWS_COMPRESSED_V2: _T.DELETE_ROWS_V2,
    _T.DELETE_ROWS_COMPRESSED_V2: _T.WRITE_ROWS_V2,
    _T.UPDATE_ROWS_COMPRESSED_V2: _T.UPDATE_ROWS_V2,
    _T.PARTIAL_UPDATE_ROWS: _T.UPDATE_ROWS_V2,
}
_TYPES_WITH_EXTRA = frozenset({_T.WRITE_ROWS_V2, _T.DELETE_ROWS_V2, _T.UPDATE_ROWS_V2})
_EMPTY_EXTRA_DATA = (2).to_bytes(2, "little")
"""The length of the extra data counts its own two bytes. Partitions are left out: a server finds them itself."""

ReversedEvent = tuple[EventType, bytes]
"""Type and body of an event, unpacked."""


class Irreversible(Exception):
    """An event cannot be reversed from what the log contains; the message says why."""


def opposite_type(code: int) -> EventType:
    """Return the uncompressed event type with the opposite effect."""
    return _OPPOSITE[EventType(code)]


def reverse_rows(code: int, body: memoryview, table: TableMap, limits: Limits) -> ReversedEvent:
    """Return the event with the opposite effect: INSERT for DELETE, before for after, the last row first.

    Raises:
        Irreversible: images lack columns, or after images hold only differences and nothing else identifies the
            row.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    if code == _T.PARTIAL_UPDATE_ROWS:
        return _T.UPDATE_ROWS_V2, _reverse_partial_update(body, table)
    opposite = opposite_type(code)
    head = parse_rows_head(code, body, table.table_id_size)
    if head.n_cols != len(table.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table.columns)}")
    data, at = (
        (unpack_block(body[head.images_at :], limits), 0) if code in COMPRESSED_ROW_EVENTS else (body, head.images_at)
    )
    if code in UPDATE_ROW_EVENTS and _find_missing_columns(head.before, head, table) == [] != _find_missing_columns(
        head.after, head, table
    ):
        whole, rows = _reverse_minimal_update(bytes(data), at, table, head)
        return opposite, _build_header(opposite, body, whole, table) + rows
    _require_full_images(head, table)
    images = list(_iter_reversed_rows(code, bytes(data), at, head, table))
    return opposite, _build_header(opposite, body, head, table) + b"".join(reversed(images))


def _reverse_partial_update(body: memoryview, table: TableMap) -> bytes:
    """Return the body of the UPDATE_ROWS that reverses a PARTIAL_UPDATE_ROWS.

    The before image is whole. The after image finds the row by its primary key and leaves out all JSON; no key
    contains any.
    """
    head = parse_rows_head(_T.PARTIAL_UPDATE_ROWS, body, table.table_id_size)
    if head.n_cols != len(table.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table.columns)}")
    _require_full_images(head, table)
    if not table.primary_key:
        raise Irreversible("its images hold only what changed inside of JSON values, and no primary key is known")
    before, after = (list_present_columns(bitmap or b"", head.n_cols) for bitmap in (head.before, head.after))
    columns_kept = [place for place, column in enumerate(after) if table.columns[column].type != ColumnType.JSON]
    old, new = ImageReader(table, before), PartialImageReader(table, after)
    data, at, rows = bytes(body), head.images_at, list[bytes]()
    while at < len(data):
        middle = old.skip(data, at)
        fields, _ = new.list_fields(data, middle)
        if not fields:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the image has no columns")
        rows.append(_build_image(data, [fields[place] for place in columns_kept]) + data[at:middle])
        at = fields[-1].end
    bits = sum(1 << after[place] for place in columns_kept).to_bytes((head.n_cols + 7) // 8, "little")
    return _build_header(_T.UPDATE_ROWS_V2, body, replace(head, after=bits), table) + b"".join(reversed(rows))


def _reverse_minimal_update(data: bytes, at: int, table: TableMap, head: RowsHead) -> tuple[RowsHead, bytes]:
    """Return header and rows that reverse an UPDATE_ROWS with whole before images and minimal after images.

    Such images come from binlog_row_image FULL_NODUP, or MINIMAL without a key; the other values are those from
    before.

    Raises:
        MalformedError: the images do not fit.
    """
    before, after = (list_present_columns(bitmap or b"", head.n_cols) for bitmap in (head.before, head.after))
    old, new = ImageReader(table, before), ImageReader(table, after)
    all_columns, rows = sorted({*before, *after}), list[bytes]()
    while at < len(data):
        fields = list(old.iter_fields(data, at))
        middle = fields[-1].end if fields else old.skip(data, at)
        changed = list(new.iter_fields(data, middle))
        end = changed[-1].end if changed else new.skip(data, middle)
        if end == at:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")
        values = {before[field.position]: field for field in fields}
        values |= {after[field.position]: field for field in changed}
        rows.append(_build_image(data, [values[column] for column in all_columns]) + data[at:middle])
        at = end
    bits = sum(1 << column for column in all_columns).to_bytes((head.n_cols + 7) // 8, "little")
    return replace(head, after=bits), b"".join(reversed(rows))


def _build_image(data: bytes, fields: Sequence[ImageField]) -> bytes:
    """Return the row image with these values."""
    nulls = sum(1 << place for place, field in enumerate(fields) if field.start < 0)
    values = b"".join(data[field.start - field.column.prefix : field.end] for field in fields if field.start >= 0)
    return nulls.to_bytes((len(fields) + 7) // 8, "little") + values


def _find_missing_columns(bitmap: bytes | None, head: RowsHead, table: TableMap) -> list[int]:
    """Return the columns that an image should have and does not."""
    present = set(list_present_columns(bitmap or b"", head.n_cols))
    return [i for i, column in enumerate(table.columns) if i not in present and not column.generated]


def _require_full_images(head: RowsHead, table: TableMap) -> None:
    """Check that all images of a row event have all columns.

    Raises:
        Irreversible: they do not.
    """
    for image, bitmap in (("before", head.before), ("after", head.after)):
        missing = [] if bitmap is None else _find_missing_columns(bitmap, head, table)
        if missing:
            raise Irreversible(
                f"{len(missing)} of {head.n_cols} columns are not in the image {image}: binlog_row_image is not FULL, "
                "or they are virtual columns, which MariaDB 11 does not log: --schema tells which are"
            )


def _iter_reversed_rows(code: int, data: bytes, at: int, head: RowsHead, table: TableMap) -> Iterator[bytes]:
    """Yield the images of each row, those of an update exchanged."""
    bitmaps = [bitmap for bitmap in (head.before, head.after) if bitmap is not None]
    readers = [ImageReader(table, list_present_columns(bitmap, head.n_cols)) for bitmap in bitmaps]
    while at < len(data):
        offsets = [at]
        for reader in readers:
            offsets.append(reader.skip(data, offsets[-1]))
        if offsets[-1] == at:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")
        images = [data[start:end] for start, end in pairwise(offsets)]
        yield b"".join(reversed(images))
        at = offsets[-1]


def _build_header(opposite: EventType, body: memoryview, head: RowsHead, table: TableMap) -> bytes:
    """Return what precedes the images, with the bitmaps of an update exchanged."""
    prefix = bytes(body[: table.table_id_size + 2])
    bitmaps = [bitmap for bitmap in (head.after, head.before) if bitmap is not None]
    count_at = len(prefix) + (0 if head.extra is None else 2 + len(head.extra))
    count = bytes(body[count_at : head.images_at - sum(map(len, bitmaps))])
    return prefix + (_EMPTY_EXTRA_DATA if opposite in _TYPES_WITH_EXTRA else b"") + count + b"".join(bitmaps)


def effect_name(code: int) -> str:
    """Return what a row event did: INSERT, UPDATE or DELETE."""
    return "DELETE" if code in DELETE_ROW_EVENTS else "UPDATE" if code in UPDATE_ROW_EVENTS else "INSERT"
