"""Decode row events: the head, then the images of the rows.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.binlog_events.codes import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    UPDATE_ROW_EVENTS,
    EventType,
)
from binlogtool.formats.binlog_events.rows.images import ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.reader import Row, RowReader
from binlogtool.formats.binlog_events.rows.table_map import MAX_COLUMNS, TableMap
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Kernel
from binlogtool.limits import Limits

DUMMY_TABLE_ID = 0xFFFFFF
"""The table id of a row event that only closes its statement and has no TABLE_MAP."""


class RowsHead(msgspec.Struct, frozen=True):
    """The fields before the images of a row event.

    Attributes:
        extra: extra data of version 2, without its length; None in version 1.
        before, after: bitmap of the columns present in that image (bit i of byte i/8, lowest first, is column i);
        None
            if the event has no such image.
        images_at: offset of the first image (of the compressed block, if `compressed`) in the body.
    """

    table_id: int
    flags: int
    extra: bytes | None
    n_cols: int
    before: bytes | None
    after: bytes | None
    images_at: int
    compressed: bool = False


def parse_rows_head(type_code: int, body: bytes | memoryview, table_id_size: int = 6) -> RowsHead:
    """Parse the head of a row event's body.

    Raises:
        MalformedError: a part does not fit.
    """
    event_name = EventType(type_code).name
    reader = BoundedReader(bytes(body) if len(body) < _MAX_HEAD_BYTES else _copy_head_bytes(body), event_name)
    table_id = reader.read_uint(table_id_size, "the table id")
    flags = reader.read_uint(2, "flags")
    extra = _read_extra_data(reader) if type_code in ROW_EVENTS_WITH_EXTRA_DATA else None
    n_cols = reader.read_lenenc("the number of columns")
    if n_cols > MAX_COLUMNS:
        text = f"{event_name} declares {n_cols:,} columns, no table has more than {MAX_COLUMNS:,}"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    first = reader.read_bytes((n_cols + 7) // 8, "the bitmap of columns")
    before, after = (None, first) if type_code not in DELETE_ROW_EVENTS else (first, None)
    if type_code in UPDATE_ROW_EVENTS:
        before, after = first, reader.read_bytes((n_cols + 7) // 8, "the second bitmap of columns")
    return RowsHead(table_id, flags, extra, n_cols, before, after, reader.offset, type_code in COMPRESSED_ROW_EVENTS)


_MAX_HEAD_BYTES = 1 << 17
"""No head is longer: extra data of at most 64 KiB and two bitmaps of 512 bytes."""


def _copy_head_bytes(body: bytes | memoryview) -> bytes:
    return bytes(body[:_MAX_HEAD_BYTES])


def _read_extra_data(reader: BoundedReader) -> bytes:
    size = reader.read_uint(2, "the length of the extra data")
    if size < 2:
        raise MalformedError(f"{reader.label}: the length of the extra data is {size}, it counts its own 2 bytes")
    return reader.read_bytes(size - 2, "extra data")


def list_present_columns(bitmap: bytes, n_cols: int) -> tuple[int, ...]:
    """List the indexes of the columns whose bit is set."""
    return tuple(index for index in range(n_cols) if bitmap[index >> 3] >> (index & 7) & 1)


_MAX_CACHED_HEADS = 64
"""Different heads that are kept per table map."""

_ImagesReader = tuple[RowReader, int, bool]
"""The reader of the images, the place of the first one in the body, and: are they compressed?"""


def _images_reader(type_code: int, body: bytes | memoryview, table_map: TableMap) -> _ImagesReader:
    """Return (row reader, offset of the images in the body, are they compressed) of a row event.

    Readers are cached in the table map by the bytes of the head without its flags: tables have many row events.
    """
    memo = table_map.memo
    start = table_map.table_id_size + 2
    size = memo.get(type_code)
    if size is not None:
        cached: _ImagesReader | None = memo.get((type_code, bytes(body[start:size])))
        if cached is not None:
            return cached
    head = parse_rows_head(type_code, body, table_map.table_id_size)
    if head.n_cols != len(table_map.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}")
    if len(memo) > _MAX_CACHED_HEADS:
        memo.clear()
    cached = (_make_row_reader(type_code, head, table_map), head.images_at, head.compressed)
    memo[type_code] = head.images_at
    memo[type_code, bytes(body[start : head.images_at])] = cached
    return cached


def _make_row_reader(type_code: int, head: RowsHead, table_map: TableMap) -> RowReader:
    before = after = None
    if head.before is not None:
        before = ImageReader(table_map, list_present_columns(head.before, head.n_cols))
    if head.after is not None:
        kind = PartialImageReader if type_code == EventType.PARTIAL_UPDATE_ROWS else ImageReader
        after = kind(table_map, list_present_columns(head.after, head.n_cols))
    return RowReader(before, after)


def _unpack_images(body: bytes | memoryview, images_reader: _ImagesReader, limits: Limits) -> tuple[bytes, int]:
    """Return (bytes that hold the images, where the images start in them)."""
    _, offset, compressed = images_reader
    return (unpack_block(body[offset:], limits), 0) if compressed else (bytes(body), offset)


def decode_rows(type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits = Limits()) -> list[Row]:
    """Decode the rows of a row event.

    Positions in errors count from the start of the body, or of the unpacked images if they are compressed.

    Args:
        body: the body of the event, without header and checksum.
        table_map: the map of its table.

    Raises:
        MalformedError: the event does not fit its map, or a value is not valid for its type.
        CodecError: the images or a compressed value cannot be unpacked.
        LimitError: the rows need more memory than is allowed.
    """
    images_reader = _images_reader(type_code, body, table_map)
    data, offset = _unpack_images(body, images_reader, limits)
    if len(data) > _LARGE_EVENT_BYTES:
        _check_row_memory(images_reader[0].count_rows(data, offset), len(table_map.columns), limits)
    return images_reader[0].decode(data, offset, DecodeBudget(limits))


_LARGE_EVENT_BYTES = 1 << 17
_VALUE_BYTES = 150
"""Memory of one decoded value, or of a row's own part; a row has two such parts."""


def _check_row_memory(row_count: int, column_count: int, limits: Limits) -> None:
    """Refuse events whose decoded rows would fill the memory: rows of NULLs take few bytes each in a sound log.

    Raises:
        LimitError: the rows need more than `limits.max_memory`.
    """
    if row_count * (column_count + 2) * _VALUE_BYTES > limits.max_memory:
        text = (
            f"{row_count:,} rows of {column_count:,} columns in one event need more memory than "
            f"--max-memory allows; raise it"
        )
        raise LimitError(text)


def count_rows(
    type_code: int,
    body: bytes | memoryview,
    table_map: TableMap,
    limits: Limits = Limits(),
    compiled: Kernel | None = None,
) -> int:
    """Count the rows of a row event: check all lengths, but decode no value.

    Args:
        compiled: see `RowReader.count_rows`.

    Raises:
        MalformedError: the event does not fit its map.
        CodecError: the images cannot be unpacked.
    """
    images_reader = _images_reader(type_code, body, table_map)
    data, offset = _unpack_images(body, images_reader, limits)
    return images_reader[0].count_rows(data, offset, compiled)


def select_rows(type_code: int, body: bytes, table_map: TableMap, selected: Sequence[bool]) -> bytes:
    """Return the body of an uncompressed row event with only the selected rows.

    Args:
        selected: for each row, whether it stays.

    Raises:
        MalformedError: the event does not fit its map, or has another number of rows.
    """
    reader, offset, _ = _images_reader(type_code, body, table_map)
    row_bounds = [offset, *reader.iter_row_ends(body, offset)]
    if len(row_bounds) != len(selected) + 1:
        raise MalformedError(f"{len(row_bounds) - 1:,} rows can be told apart, {len(selected):,} were decoded")
    rows = (body[low:high] for (low, high), keep in zip(pairwise(row_bounds), selected, strict=True) if keep)
    return body[:offset] + b"".join(rows)
