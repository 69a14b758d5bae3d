"""Reversed row events: the event that undoes what another one did (flashback).

Row images are described in docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from binlogtool.formats.binlog_events.codes import DELETES, ROWS_COMPRESSED, UPDATES, EventType
from binlogtool.formats.binlog_events.rows.images import Field, ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.rows import RowsHead, parse_rows_head, present_columns
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
_WITH_EXTRA = frozenset({_T.WRITE_ROWS_V2, _T.DELETE_ROWS_V2, _T.UPDATE_ROWS_V2})
_NO_EXTRA = (2).to_bytes(2, "little")
"""The length of the extra data counts its own two bytes. Partitions are left out: a server finds them itself."""

Turned = tuple[EventType, bytes]
"""Type and body of an event, unpacked."""


class Irreversible(Exception):
    """An event cannot be reversed from what the log contains; the message says why."""


def reversed_code(code: int) -> EventType:
    """Return the uncompressed event type with the opposite effect."""
    return _OPPOSITE[EventType(code)]


def reversed_rows(code: int, body: memoryview, table: TableMap, limits: Limits) -> Turned:
    """Return the event with the opposite effect: INSERT for DELETE, before for after, the last row first.

    Raises:
        Irreversible: images lack columns, or after images hold only differences and nothing else identifies the
            row.
        MalformedError, DecompressionError: the event does not fit its TABLE_MAP.
    """
    if code == _T.PARTIAL_UPDATE_ROWS:
        return _T.UPDATE_ROWS_V2, _of_differences(body, table)
    opposite = reversed_code(code)
    head = parse_rows_head(code, body, table.table_id_size)
    if head.n_cols != len(table.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table.columns)}")
    data, at = (unpack_block(body[head.images_at :], limits), 0) if code in ROWS_COMPRESSED else (body, head.images_at)
    if code in UPDATES and _lacking(head.before, head, table) == [] != _lacking(head.after, head, table):
        whole, rows = _of_shortened(bytes(data), at, table, head)
        return opposite, _head(opposite, body, whole, table) + rows
    _demand_full(head, table)
    images = list(_rows(code, bytes(data), at, head, table))
    return opposite, _head(opposite, body, head, table) + b"".join(reversed(images))


def _of_differences(body: memoryview, table: TableMap) -> bytes:
    """Return the body of the UPDATE_ROWS that reverses a PARTIAL_UPDATE_ROWS.

    The before image is whole. The after image finds the row by its primary key and leaves out all JSON; no key
    contains any.
    """
    head = parse_rows_head(_T.PARTIAL_UPDATE_ROWS, body, table.table_id_size)
    if head.n_cols != len(table.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table.columns)}")
    _demand_full(head, table)
    if not table.primary_key:
        raise Irreversible("its images hold only what changed inside of JSON values, and no primary key is known")
    before, after = (present_columns(bitmap or b"", head.n_cols) for bitmap in (head.before, head.after))
    kept = [place for place, column in enumerate(after) if table.columns[column].type != ColumnType.JSON]
    old, new = ImageReader(table, before), PartialImageReader(table, after)
    data, at, rows = bytes(body), head.images_at, list[bytes]()
    while at < len(data):
        middle = old.skip(data, at)
        fields, _ = new.fields(data, middle)
        if not fields:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the image has no columns")
        rows.append(_image(data, [fields[place] for place in kept]) + data[at:middle])
        at = fields[-1].end
    bits = sum(1 << after[place] for place in kept).to_bytes((head.n_cols + 7) // 8, "little")
    return _head(_T.UPDATE_ROWS_V2, body, replace(head, after=bits), table) + b"".join(reversed(rows))


def _of_shortened(data: bytes, at: int, table: TableMap, head: RowsHead) -> tuple[RowsHead, bytes]:
    """Return header and rows that reverse an UPDATE_ROWS with whole before images and minimal after images.

    Such images come from binlog_row_image FULL_NODUP, or MINIMAL without a key; the other values are those from
    before.

    Raises:
        MalformedError: the images do not fit.
    """
    before, after = (present_columns(bitmap or b"", head.n_cols) for bitmap in (head.before, head.after))
    old, new = ImageReader(table, before), ImageReader(table, after)
    whole, rows = sorted({*before, *after}), list[bytes]()
    while at < len(data):
        fields = list(old.fields(data, at))
        middle = fields[-1].end if fields else old.skip(data, at)
        changed = list(new.fields(data, middle))
        end = changed[-1].end if changed else new.skip(data, middle)
        if end == at:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")
        values = {before[field.place]: field for field in fields}
        values |= {after[field.place]: field for field in changed}
        rows.append(_image(data, [values[column] for column in whole]) + data[at:middle])
        at = end
    bits = sum(1 << column for column in whole).to_bytes((head.n_cols + 7) // 8, "little")
    return replace(head, after=bits), b"".join(reversed(rows))


def _image(data: bytes, fields: Sequence[Field]) -> bytes:
    """Return the row image with these values."""
    nulls = sum(1 << place for place, field in enumerate(fields) if field.start < 0)
    values = b"".join(data[field.start - field.cell.prefix : field.end] for field in fields if field.start >= 0)
    return nulls.to_bytes((len(fields) + 7) // 8, "little") + values


def _lacking(bitmap: bytes | None, head: RowsHead, table: TableMap) -> list[int]:
    """Return the columns that an image should have and does not."""
    there = set(present_columns(bitmap or b"", head.n_cols))
    return [i for i, column in enumerate(table.columns) if i not in there and not column.generated]


def _demand_full(head: RowsHead, table: TableMap) -> None:
    """Check that all images of a row event have all columns.

    Raises:
        Irreversible: they do not.
    """
    for image, bitmap in (("before", head.before), ("after", head.after)):
        lacking = [] if bitmap is None else _lacking(bitmap, head, table)
        if lacking:
            raise Irreversible(
                f"{len(lacking)} of {head.n_cols} columns are not in the image {image}: binlog_row_image is not FULL, "
                "or they are virtual columns, which MariaDB 11 does not log: --schema tells which are"
            )


def _rows(code: int, data: bytes, at: int, head: RowsHead, table: TableMap) -> Iterator[bytes]:
    """Yield the images of each row, those of an update exchanged."""
    bitmaps = [bitmap for bitmap in (head.before, head.after) if bitmap is not None]
    readers = [ImageReader(table, present_columns(bitmap, head.n_cols)) for bitmap in bitmaps]
    while at < len(data):
        places = [at]
        for reader in readers:
            places.append(reader.skip(data, places[-1]))
        if places[-1] == at:
            raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")
        images = [data[start:end] for start, end in pairwise(places)]
        yield b"".join(reversed(images))
        at = places[-1]


def _head(opposite: EventType, body: memoryview, head: RowsHead, table: TableMap) -> bytes:
    """Return what precedes the images, with the bitmaps of an update exchanged."""
    fixed = bytes(body[: table.table_id_size + 2])
    bitmaps = [bitmap for bitmap in (head.after, head.before) if bitmap is not None]
    count_at = len(fixed) + (0 if head.extra is None else 2 + len(head.extra))
    count = bytes(body[count_at : head.images_at - sum(map(len, bitmaps))])
    return fixed + (_NO_EXTRA if opposite in _WITH_EXTRA else b"") + count + b"".join(bitmaps)


def effect_of(code: int) -> str:
    """Return what a row event did: INSERT, UPDATE or DELETE."""
    return "DELETE" if code in DELETES else "UPDATE" if code in UPDATES else "INSERT"
