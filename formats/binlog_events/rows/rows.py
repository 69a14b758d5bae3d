"""Decode row events: the head, then the images of the rows.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.binlog_events.codes import DELETES, ROWS_COMPRESSED, ROWS_WITH_EXTRA, UPDATES, EventType
from binlogtool.formats.binlog_events.rows.images import ImageReader
from binlogtool.formats.binlog_events.rows.partial_rows import PartialImageReader
from binlogtool.formats.binlog_events.rows.reader import Row, RowReader
from binlogtool.formats.binlog_events.rows.table_map import MAX_COLUMNS, TableMap
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.reading import Reader
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
    what = EventType(type_code).name
    reader = Reader(bytes(body) if len(body) < _HEAD_ROOM else _head_bytes(body), what)
    table_id = reader.uint(table_id_size, "the table id")
    flags = reader.uint(2, "flags")
    extra = _extra(reader) if type_code in ROWS_WITH_EXTRA else None
    n_cols = reader.lenenc("the number of columns")
    if n_cols > MAX_COLUMNS:
        text = f"{what} declares {n_cols:,} columns, no table has more than {MAX_COLUMNS:,}"
        raise MalformedError(text, finding_id="count-out-of-bounds")
    first = reader.take((n_cols + 7) // 8, "the bitmap of columns")
    before, after = (None, first) if type_code not in DELETES else (first, None)
    if type_code in UPDATES:
        before, after = first, reader.take((n_cols + 7) // 8, "the second bitmap of columns")
    return RowsHead(table_id, flags, extra, n_cols, before, after, reader.at, type_code in ROWS_COMPRESSED)


_HEAD_ROOM = 1 << 17
"""No head is longer: extra data of at most 64 KiB and two bitmaps of 512 bytes."""


def _head_bytes(body: bytes | memoryview) -> bytes:
    return bytes(body[:_HEAD_ROOM])


def _extra(reader: Reader) -> bytes:
    size = reader.uint(2, "the length of the extra data")
    if size < 2:
        raise MalformedError(f"{reader.what}: the length of the extra data is {size}, it counts its own 2 bytes")
    return reader.take(size - 2, "extra data")


def present_columns(bitmap: bytes, n_cols: int) -> tuple[int, ...]:
    """List the indexes of the columns whose bit is set."""
    return tuple(index for index in range(n_cols) if bitmap[index >> 3] >> (index & 7) & 1)


_MAX_KNOWN = 64
"""Different heads that are kept per table map."""

_Known = tuple[RowReader, int, bool]
"""The reader of the images, the place of the first one in the body, and: are they compressed?"""


def _reader_for(type_code: int, body: bytes | memoryview, table_map: TableMap) -> _Known:
    """Return (row reader, offset of the images in the body, are they compressed) of a row event.

    Readers are cached in the table map by the bytes of the head without its flags: tables have many row events.
    """
    memo = table_map.memo
    start = table_map.table_id_size + 2
    size = memo.get(type_code)
    if size is not None:
        known: _Known | None = memo.get((type_code, bytes(body[start:size])))
        if known is not None:
            return known
    head = parse_rows_head(type_code, body, table_map.table_id_size)
    if head.n_cols != len(table_map.columns):
        raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}")
    if len(memo) > _MAX_KNOWN:
        memo.clear()
    known = (_row_reader(type_code, head, table_map), head.images_at, head.compressed)
    memo[type_code] = head.images_at
    memo[type_code, bytes(body[start : head.images_at])] = known
    return known


def _row_reader(type_code: int, head: RowsHead, table_map: TableMap) -> RowReader:
    before = after = None
    if head.before is not None:
        before = ImageReader(table_map, present_columns(head.before, head.n_cols))
    if head.after is not None:
        kind = PartialImageReader if type_code == EventType.PARTIAL_UPDATE_ROWS else ImageReader
        after = kind(table_map, present_columns(head.after, head.n_cols))
    return RowReader(before, after)


def _images(body: bytes | memoryview, known: _Known, limits: Limits) -> tuple[bytes, int]:
    """Return (bytes that hold the images, where the images start in them)."""
    _, at, compressed = known
    return (unpack_block(body[at:], limits), 0) if compressed else (bytes(body), at)


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
    known = _reader_for(type_code, body, table_map)
    data, at = _images(body, known, limits)
    if len(data) > _LARGE:
        _afford(known[0].count(data, at), len(table_map.columns), limits)
    return known[0].decode(data, at, Budget(limits))


_LARGE = 1 << 17
_VALUE_BYTES = 150
"""Memory of one decoded value, or of a row's own part; a row has two such parts."""


def _afford(rows: int, columns: int, limits: Limits) -> None:
    """Refuse events whose decoded rows would fill the memory: rows of NULLs take few bytes each in a sound log.

    Raises:
        LimitError: the rows need more than `limits.max_memory`.
    """
    if rows * (columns + 2) * _VALUE_BYTES > limits.max_memory:
        text = f"{rows:,} rows of {columns:,} columns in one event need more memory than --max-memory allows; raise it"
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
    known = _reader_for(type_code, body, table_map)
    data, at = _images(body, known, limits)
    return known[0].count(data, at, compiled)


def cut_rows(type_code: int, body: bytes, table_map: TableMap, wanted: Sequence[bool]) -> bytes:
    """Return the body of an uncompressed row event with only the selected rows.

    Args:
        selected: for each row, whether it stays.

    Raises:
        MalformedError: the event does not fit its map, or has another number of rows.
    """
    reader, at, _ = _reader_for(type_code, body, table_map)
    places = [at, *reader.ends(body, at)]
    if len(places) != len(wanted) + 1:
        raise MalformedError(f"{len(places) - 1:,} rows can be told apart, {len(wanted):,} were decoded")
    rows = (body[low:high] for (low, high), keep in zip(pairwise(places), wanted, strict=True) if keep)
    return body[:at] + b"".join(rows)
