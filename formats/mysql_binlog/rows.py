"""Row events: head, images, rows (specification section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.mysql_binlog.codes import DELETES, ROWS_COMPRESSED, ROWS_WITH_EXTRA, UPDATES, EventType
from binlogtool.formats.mysql_binlog.compression import unpack_block
from binlogtool.formats.mysql_binlog.images import ImageReader
from binlogtool.formats.mysql_binlog.partial_rows import PartialImageReader
from binlogtool.formats.mysql_binlog.reading import Reader
from binlogtool.formats.mysql_binlog.table_map import MAX_COLUMNS, TableMap
from binlogtool.formats.mysql_binlog.values import Budget
from binlogtool.limits import Limits

DUMMY_TABLE_ID = 0xFFFFFF
"""The table id of a row event that only closes its statement and has no TABLE_MAP."""

Row = dict[str, dict[str, Any]]
"""{"before": {column: value}, "after": {column: value}}; only the images that the event has."""


@dataclass(frozen=True, slots=True)
class RowsHead:
    """What stands before the images of a row event.

    extra: the extra data of v2, without its length; None in v1. before, after: the bitmap of the columns present in
    that image (bit i of byte i/8, lowest first, is column i); None where the event has no such image. images_at: place
    of the first image in the body (of the compressed block, where `compressed`).
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
    """Reads the head of a row event's body.

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


class _RowReader:
    """Reads the rows of one kind of event: these columns before, those after."""

    __slots__ = ("_after", "_before", "_single", "partial")

    def __init__(self, table_map: TableMap, head: RowsHead, partial: bool) -> None:
        self.partial = partial
        self._before = None
        if head.before is not None:
            self._before = ImageReader(table_map, present_columns(head.before, head.n_cols))
        self._after: ImageReader | PartialImageReader | None = None
        if head.after is not None:
            present = present_columns(head.after, head.n_cols)
            self._after = PartialImageReader(table_map, present) if partial else ImageReader(table_map, present)

    def decode(self, data: bytes, at: int, budget: Budget) -> list[Row]:
        if self._before is not None and self._after is not None:
            return self._decode_pairs(data, at, budget)
        name = "after" if self._before is None else "before"
        decode = self._only.decode
        rows: list[Row] = []
        end = len(data)
        while at < end:
            values, behind = decode(data, at, budget)
            _check_progress(at, behind)
            rows.append({name: values})
            at = behind
        return rows

    def _decode_pairs(self, data: bytes, at: int, budget: Budget) -> list[Row]:
        assert self._before is not None and self._after is not None
        decode_before, decode_after = self._before.decode, self._after.decode
        rows: list[Row] = []
        while at < len(data):
            before, middle = decode_before(data, at, budget)
            after, behind = decode_after(data, middle, budget)
            _check_progress(at, behind)
            rows.append({"before": before, "after": after})
            at = behind
        return rows

    @property
    def _only(self) -> ImageReader | PartialImageReader:
        only = self._before or self._after
        assert only is not None
        return only

    def count(self, data: bytes, at: int) -> int:
        skips = [image.skip for image in (self._before, self._after) if image is not None]
        rows, end = 0, len(data)
        while at < end:
            behind = at
            for skip in skips:
                behind = skip(data, behind)
            _check_progress(at, behind)
            rows += 1
            at = behind
        return rows


def _check_progress(at: int, behind: int) -> None:
    if behind == at:
        raise MalformedError(f"bytes from {at:,} on belong to no row: the images have no columns")


def present_columns(bitmap: bytes, n_cols: int) -> tuple[int, ...]:
    """Indexes of the columns whose bit is set."""
    return tuple(index for index in range(n_cols) if bitmap[index >> 3] >> (index & 7) & 1)


def _reader_for(type_code: int, head: RowsHead, table_map: TableMap) -> _RowReader:
    partial = type_code == EventType.PARTIAL_UPDATE_ROWS
    key = (partial, head.before, head.after)
    kept = table_map.memo.get(key)
    if kept is None:
        if head.n_cols != len(table_map.columns):
            text = f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}"
            raise MalformedError(text)
        if len(table_map.memo) > _MAX_READERS:
            table_map.memo.clear()
        kept = table_map.memo[key] = _RowReader(table_map, head, partial)
    reader: _RowReader = kept
    return reader


_MAX_READERS = 64
"""Different combinations of present columns that are kept per table map."""


def _images(
    type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits
) -> tuple[RowsHead, bytes, int]:
    """(head, bytes that hold the images, where they start)."""
    head = parse_rows_head(type_code, body, table_map.table_id_size)
    if head.compressed:
        return head, unpack_block(body[head.images_at :], limits), 0
    return head, bytes(body), head.images_at


def decode_rows(type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits = Limits()) -> list[Row]:
    """The rows of a row event, given its body (without header and checksum) and the map of its table.

    Places in errors count from the start of the body, or of the unpacked images where they are compressed.

    Raises:
        MalformedError: the event does not fit its map, or a value is none of its type.
        CodecError: the images or a compressed value cannot be unpacked.
    """
    head, data, at = _images(type_code, body, table_map, limits)
    return _reader_for(type_code, head, table_map).decode(data, at, Budget(limits))


def count_rows(type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits = Limits()) -> int:
    """The number of rows of a row event; checks all lengths, but looks at no value.

    Raises:
        MalformedError: the event does not fit its map. CodecError: the images cannot be unpacked.
    """
    head, data, at = _images(type_code, body, table_map, limits)
    return _reader_for(type_code, head, table_map).count(data, at)
