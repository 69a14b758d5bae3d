"""Parse row events: post-header, row images, rows.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api.layout import Kernel
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.rows.table_map import (
    MAX_COLUMNS,
    TableMap,
    build_row_event_template,
    get_column_encodings,
)
from binlogtool.formats.binlog_events.values.column_types import ColumnEncoding, ColumnType, TableMapColumn
from binlogtool.formats.binlog_events.values.decode_values import (
    DecodeBudget,
    ValueConverter,
    decode_json_diffs,
    get_budgeted_value_decoder,
    get_value_decoder,
)
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    UNCOMPRESSED_ROW_EVENTS,
    UPDATE_ROW_EVENTS,
    BoundedReader,
    EventType,
    unpack_compressed_block,
)
from binlogtool.limits import Limits

# --- Readers of columns ---


class ColumnReader(msgspec.Struct, frozen=True):
    """Reader of one present column of a row image.

    Attributes:
        key: the column's key in a decoded row.
        kind: encoding of its values.
        read: decodes a value from its bytes alone; None if `convert` is needed.
        convert: decodes a value from its bytes and a `DecodeBudget`.
        label: the column's name in error messages.
    """

    key: str
    kind: ColumnEncoding
    read: Callable[[bytes], Any] | None
    convert: ValueConverter
    label: str

    @property
    def fixed_bytes(self) -> int:
        """Size in bytes of a value of fixed width."""
        return self.kind.fixed_bytes

    @property
    def length_prefix_bytes(self) -> int:
        """Size in bytes of the length before a value; 0 = fixed width."""
        return self.kind.length_prefix_bytes


# --- Decoded row images ---

Values = dict[str, Any]


class ImageValueRange(NamedTuple):
    """One value in an image.

    Attributes:
        position: position among the present columns.
        column: reader of the column.
        start: first byte of the value; -1 = NULL.
        end: end of the value.
    """

    position: int
    column: ColumnReader
    start: int
    end: int


class ImageValueRanges(NamedTuple):
    """Values of one image.

    Attributes:
        present: indexes of its columns.
        differences: positions of the values that are diffs of JSON values.
        start: first byte of the image, with what precedes its NULL bits.
        end: end of the image.
    """

    present: tuple[int, ...]
    fields: list[ImageValueRange]
    differences: frozenset[int]
    start: int
    end: int


_MAX_WALKS = 64
"""Maximum number of patterns of NULL bits whose steps are kept."""


class RowImageReader:
    """Reads row images of one table with one set of present columns.

    Args:
        table_map: the map of the table.
        present: indexes of the present columns, in order.
    """

    __slots__ = ("_columns", "_layout", "_walks", "null_bytes", "present")

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        cells = _get_column_readers(table_map)
        self.present = present
        self._columns = tuple(cells[index] for index in present)
        self._layout = [
            (cell.key, cell.read, cell.convert, 1 << place, cell.length_prefix_bytes, cell.fixed_bytes)
            for place, cell in enumerate(self._columns)
        ]
        self._walks: dict[bytes, list[tuple[int, int]]] = {}
        self.null_bytes = (len(present) + 7) // 8

    def decode_image(self, data: bytes, offset: int, budget: DecodeBudget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
            DecompressionError: a compressed value cannot be unpacked.
        """
        end, data_size = offset + self.null_bytes, len(data)
        nulls = int.from_bytes(data[offset:end], "little")
        values: Values = dict.fromkeys([cell.key for cell in self._columns]) if nulls else {}
        for key, read, convert, bit, prefix, size in self._layout:
            if nulls & bit:
                continue
            if prefix:
                start = end + prefix
                end = start + int.from_bytes(data[end:start], "little")
            else:
                start = end
                end += size
            if end > data_size:
                break
            try:
                values[key] = convert(data[start:end], budget) if read is None else read(data[start:end])
            except MalformedError as error:
                raise _name_column(self._columns[bit.bit_length() - 1], start, error) from None
        if end > data_size:
            self.locate_values(data, offset)  # raises an error that describes the problem
        return values, end

    def find_image_end(self, data: bytes, offset: int) -> int:
        """Find the end of the image at `offset`.

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        end = offset + self.null_bytes
        nulls = data[offset:end]
        for fixed, prefix in self._walks.get(nulls) or self._make_walk(nulls):
            start = end + fixed
            end = start + prefix
            end += int.from_bytes(data[start:end], "little")
        if end > len(data):
            self.locate_values(data, offset)  # raises an error that describes the problem
        return end

    def _make_walk(self, nulls: bytes) -> list[tuple[int, int]]:
        """Return the steps through an image with these NULL bits: a number of bytes, then the bytes of a length."""
        walk, fixed, bits = list[tuple[int, int]](), 0, int.from_bytes(nulls, "little")
        for place, cell in enumerate(self._columns):
            if bits >> place & 1:
                continue
            fixed += cell.fixed_bytes
            if cell.length_prefix_bytes:
                walk.append((fixed, cell.length_prefix_bytes))
                fixed = 0
        if len(self._walks) >= _MAX_WALKS:
            self._walks.clear()
        self._walks[nulls] = walk = [*walk, (fixed, 0)]
        return walk

    def locate_values(self, data: bytes, offset: int) -> ImageValueRanges:
        """Find the values of the image at `offset`. Raises MalformedError: it does not fit into `data`."""
        fields = list(self.iter_value_ranges(data, offset))
        return ImageValueRanges(self.present, fields, frozenset(), offset, fields[-1].end if fields else offset)

    def iter_value_ranges(
        self, data: bytes, offset: int, differences: frozenset[int] = frozenset()
    ) -> Iterator[ImageValueRange]:
        """Yield the values of the image at `offset`.

        Args:
            differences: positions of the values that have a length of 4 bytes before them (partial JSON updates).

        Raises:
            MalformedError: the image does not fit into `data`.
        """
        start = offset + self.null_bytes
        if start > len(data):
            left = len(data) - offset
            raise MalformedError(f"the row image at byte {offset:,} has {left} of {self.null_bytes} bytes of NULL bits")
        nulls = int.from_bytes(data[offset:start], "little")
        offset = start
        for place, cell in enumerate(self._columns):
            if nulls >> place & 1:
                yield ImageValueRange(place, cell, -1, offset)
            else:
                start, offset = _find_value_bounds(
                    data, offset, cell, 4 if place in differences else cell.length_prefix_bytes
                )
                yield ImageValueRange(place, cell, start, offset)


def decode_column_value(column: ColumnReader, raw: bytes, error_position: int, budget: DecodeBudget) -> Any:
    """Decode one value from its bytes; an error names the column and the position."""
    try:
        return column.convert(raw, budget)
    except MalformedError as error:
        raise _name_column(column, error_position, error) from None


def _name_column(column: ColumnReader, start: int, error: MalformedError) -> MalformedError:
    """Return the error of a value with its column and its position."""
    return MalformedError(f"{column.label} at byte {start:,}: {error}", finding_id=error.finding_id)


def _find_value_bounds(data: bytes, offset: int, column: ColumnReader, prefix: int) -> tuple[int, int]:
    """Return the start and end of the bytes of a value."""
    start = offset + prefix
    if start > len(data):
        raise _truncated_value_error(column, offset, prefix, len(data))
    end = start + (int.from_bytes(data[offset:start], "little") if prefix else column.fixed_bytes)
    if end > len(data):
        raise _truncated_value_error(column, start, end - start, len(data))
    return start, end


def _truncated_value_error(column: ColumnReader, offset: int, needed: int, size: int) -> MalformedError:
    return MalformedError(f"{column.label} at byte {offset:,} needs {needed:,} bytes, only {size - offset:,} are left")


def _get_column_readers(table_map: TableMap) -> tuple[ColumnReader, ...]:
    """Return readers of all columns of a table; created once per table map."""
    readers: tuple[ColumnReader, ...] | None = table_map.memo.get("cells")
    if readers is None:
        kinds = get_column_encodings(table_map)
        readers = tuple(map(_make_column_reader, table_map.columns, kinds, table_map.column_keys, range(len(kinds))))
        table_map.memo["cells"] = readers
    return readers


def _make_column_reader(column: TableMapColumn, kind: ColumnEncoding, key: str, index: int) -> ColumnReader:
    label = f"column {index + 1} ({column.type_name})"
    return ColumnReader(key, kind, get_value_decoder(column, kind), get_budgeted_value_decoder(column, kind), label)


# --- After images of PARTIAL_UPDATE_ROWS ---

PARTIAL_JSON_UPDATES = 1
"""Bit of value_options: the image may have partial JSON updates."""

_EMPTY_DIFF = {"$diff": list[Any]()}


def fill_unchanged_json(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Replace empty JSON diffs of an after image by the values of the before image, if it has them."""
    return {name: before.get(name, value) if value == _EMPTY_DIFF else value for name, value in after.items()}


class PartialRowImageReader(RowImageReader):
    """Reads `value_options`, the bitmap of the columns that are diffs, and the image itself."""

    __slots__ = ("_json_columns",)

    def __init__(self, table_map: TableMap, present: tuple[int, ...]) -> None:
        super().__init__(table_map, present)
        self._json_columns = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def decode_image(self, data: bytes, offset: int, budget: DecodeBudget) -> tuple[Values, int]:
        """Decode the image at `offset` to ({column key: value}, end of the image).

        A diff is {"$diff": [{"op", "path", "value"}, ...]}; it is empty for a column that did not change.

        Raises:
            MalformedError: the image does not fit into `data`, or a value is not valid for its type.
        """
        differences, offset = self._read_partial_image_head(data, offset)
        if not differences:
            return super().decode_image(data, offset, budget)
        values: Values = {}
        end = offset
        for place, cell, start, end in self.iter_value_ranges(data, offset, differences):
            if start < 0:
                values[cell.key] = None
            elif place in differences:
                values[cell.key] = {"$diff": decode_json_diffs(data[start:end], budget.max_depth)}
            else:
                values[cell.key] = decode_column_value(cell, data[start:end], start, budget)
        return values, end

    def locate_values(self, data: bytes, offset: int) -> ImageValueRanges:
        """Find the values of the image at `offset`. Raises MalformedError: it does not fit into `data`."""
        differences, nulls_at = self._read_partial_image_head(data, offset)
        fields = list(self.iter_value_ranges(data, nulls_at, differences))
        return ImageValueRanges(self.present, fields, differences, offset, fields[-1].end if fields else nulls_at)

    def find_image_end(self, data: bytes, offset: int) -> int:
        """Return the end of the image at `offset`."""
        differences, nulls_at = self._read_partial_image_head(data, offset)
        return self.locate_values(data, offset).end if differences else super().find_image_end(data, nulls_at)

    def _read_partial_image_head(self, data: bytes, offset: int) -> tuple[frozenset[int], int]:
        """Read the part before the image: (positions of the columns that are diffs, start of the image)."""
        reader = BoundedReader(data, "PARTIAL_UPDATE_ROWS", offset)
        options = reader.read_lenenc("value_options")
        if options & ~PARTIAL_JSON_UPDATES:
            raise MalformedError(f"value_options 0x{options:x} at byte {offset:,} are unknown")
        if not options:
            return frozenset(), reader.offset
        bits = reader.read_bytes((len(self._json_columns) + 7) // 8, "the bitmap of partial JSON columns")
        partial_columns = {
            index for place, index in enumerate(self._json_columns) if bits[place >> 3] >> (place & 7) & 1
        }
        return frozenset(place for place, index in enumerate(self.present) if index in partial_columns), reader.offset


# --- Rows of events with the same table and columns ---

Row = dict[str, dict[str, Any]]
"""{"before": {column: value}, "after": {column: value}}; only the images that the event has."""


class RowReader:
    """Reads rows that have a before image, an after image, or both."""

    __slots__ = ("_images",)

    def __init__(self, before: RowImageReader | None, after: RowImageReader | None) -> None:
        images = ("before", before), ("after", after)
        self._images = [(name, image) for name, image in images if image is not None]

    def decode_all_rows(self, data: bytes, offset: int, budget: DecodeBudget) -> list[Row]:
        """Decode all rows from `offset` to the end.

        Raises:
            MalformedError: the images do not fit, or a value is not valid for its type.
            DecompressionError: see `RowImageReader`.
        """
        images = [(name, image.decode_image) for name, image in self._images]
        rows: list[Row] = []
        end = len(data)
        while offset < end:
            row: Row = {}
            start = offset
            for name, decode in images:
                row[name], offset = decode(data, offset, budget)
            _require_progress(start, offset)
            rows.append(row)
        return rows

    def iter_row_bounds(self, data: bytes, offset: int) -> Iterator[list[int]]:
        """Yield, for each row from `offset` on, its start and the end of each of its images.

        Raises:
            MalformedError: the images do not fit.
        """
        skips = [image.find_image_end for _, image in self._images]
        end = len(data)
        while offset < end:
            bounds = [offset]
            for skip in skips:
                offset = skip(data, offset)
                bounds.append(offset)
            _require_progress(bounds[0], offset)
            yield bounds

    def iter_row_value_ranges(self, data: bytes, offset: int) -> Iterator[dict[str, ImageValueRanges]]:
        """Yield the values of the images of each row from `offset` on.

        Raises:
            MalformedError: the images do not fit.
        """
        while offset < len(data):
            start, row = offset, dict[str, ImageValueRanges]()
            for name, image in self._images:
                row[name] = image.locate_values(data, offset)
                offset = row[name].end
            _require_progress(start, offset)
            yield row


def _require_progress(offset: int, row_end: int) -> None:
    if row_end == offset:
        raise MalformedError(f"bytes from {offset:,} on belong to no row: the images have no columns")


# --- Decoded row events ---

DUMMY_TABLE_ID = 0xFFFFFF
"""Table id of a row event that only closes its statement and has no TABLE_MAP."""


class RowsHead(msgspec.Struct, frozen=True):
    """Fields before the images of a row event.

    Attributes:
        extra: extra data of version 2, without its length; None in version 1.
        before, after: bitmap of the columns present in that image (bit i of byte i/8, lowest first, is column i);
            None if the event has no such image.
        images_at: offset of the first image (or of the compressed block, if `compressed`) in the body.
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
        MalformedError: a part of the head does not fit.
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
"""Maximum size of a head in bytes: extra data of at most 64 KiB, and two bitmaps of 512 bytes."""


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


_MIN_COMPILED_BYTES = 512
"""Minimum size of images in bytes for native code; for fewer bytes, Python's own loop is as fast."""
_PARTIAL = EventType.PARTIAL_UPDATE_ROWS
_MAX_CACHED_HEADS = 64
"""Maximum number of cached heads per table map."""

_ImagesReader = tuple[RowReader, int, bool]
"""(reader of the images, offset of the first image in the body, whether the images are compressed)."""


def _get_row_reader(type_code: int, body: bytes | memoryview, table_map: TableMap) -> _ImagesReader:
    """Return (row reader, offset of the images in the body, whether they are compressed) of a row event.

    Readers are cached in the table map by the bytes of the head without its flags, because a table has many row events.
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


def _make_row_reader(type_code: int, rows_head: RowsHead, table_map: TableMap) -> RowReader:
    before = after = None
    if rows_head.before is not None:
        before = RowImageReader(table_map, list_present_columns(rows_head.before, rows_head.n_cols))
    if rows_head.after is not None:
        kind = PartialRowImageReader if type_code == EventType.PARTIAL_UPDATE_ROWS else RowImageReader
        after = kind(table_map, list_present_columns(rows_head.after, rows_head.n_cols))
    return RowReader(before, after)


def _unpack_images(body: bytes | memoryview, images_reader: _ImagesReader, limits: Limits) -> tuple[bytes, int]:
    """Return (bytes that hold the images, offset of the images in them)."""
    _, offset, compressed = images_reader
    return (unpack_compressed_block(body[offset:], limits), 0) if compressed else (bytes(body), offset)


def uncompress_rows(type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits) -> tuple[int, bytes]:
    """Return type and body of a row event in uncompressed form.

    Raises:
        MalformedError, DecompressionError: the event cannot be uncompressed.
    """
    if type_code not in COMPRESSED_ROW_EVENTS:
        return type_code, bytes(body)
    at = _get_row_reader(type_code, body, table_map)[1]
    return UNCOMPRESSED_ROW_EVENTS[type_code], bytes(body[:at]) + unpack_compressed_block(body[at:], limits)


def open_row_reader(
    type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits
) -> tuple[RowReader, bytes, int]:
    """Return the reader of a row event's rows, the bytes that hold them, uncompressed, and the offset of the first.

    Raises:
        MalformedError, DecompressionError: the event does not fit its map, or the images cannot be unpacked.
    """
    images_reader = _get_row_reader(type_code, body, table_map)
    return images_reader[0], *_unpack_images(body, images_reader, limits)


def decode_rows(type_code: int, body: bytes | memoryview, table_map: TableMap, limits: Limits = Limits()) -> list[Row]:
    """Decode the rows of a row event.

    Positions in errors count from the start of the body, or of the unpacked images if they are compressed.

    Args:
        body: the body of the event, without header and checksum.
        table_map: the map of its table.

    Raises:
        MalformedError: the event does not fit its map, or a value is not valid for its type.
        DecompressionError: the images or a compressed value cannot be unpacked.
        LimitError: the rows need more memory than is allowed.
    """
    reader, data, offset = open_row_reader(type_code, body, table_map, limits)
    if len(data) > _LARGE_EVENT_BYTES:
        _check_row_memory(_count_images(reader, data, offset), len(table_map.columns), limits)
    return reader.decode_all_rows(data, offset, DecodeBudget(limits))


_LARGE_EVENT_BYTES = 1 << 17
_VALUE_BYTES = 150
"""Memory of one decoded value in bytes, and of the fixed part of a row; a row has two fixed parts."""


def _check_row_memory(row_count: int, column_count: int, limits: Limits) -> None:
    """Reject events whose decoded rows would fill the memory; rows of NULLs take few bytes even in a sound log.

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
    count_kernel: Kernel | None = None,
) -> int:
    """Count the rows of a row event: checks all lengths, but decodes no values.

    Args:
        count_kernel: native `json_kernels.count_image_rows`, if available.

    Raises:
        MalformedError: the event does not fit its map.
        DecompressionError: the images cannot be unpacked.
    """
    reader, images_at, _ = images_reader = _get_row_reader(type_code, body, table_map)
    data, offset = _unpack_images(body, images_reader, limits)
    if count_kernel is not None and len(data) - offset >= _MIN_COMPILED_BYTES and type_code != _PARTIAL:
        template = table_map.memo.get("template")
        if template is None:
            template = table_map.memo["template"] = build_row_event_template(table_map)
        size = (len(table_map.columns) + 7) // 8
        before = images_at - size * (2 if type_code in UPDATE_ROW_EVENTS else 1)
        head = bytes(body[:images_at])
        rows: int = (
            count_kernel(data, offset, len(data), head, before, images_at - size, template, 0) if template else -2
        )
        if rows >= 0:
            return rows
    return _count_images(reader, data, offset)  # raises an error that describes the problem


def _count_images(reader: RowReader, data: bytes, offset: int) -> int:
    return sum(1 for _ in reader.iter_row_bounds(data, offset))


def build_body_of_selected_rows(type_code: int, body: bytes, table_map: TableMap, row_flags: Sequence[bool]) -> bytes:
    """Return the body of an uncompressed row event with only the selected rows.

    Args:
        row_flags: for each row, whether it is kept.

    Raises:
        MalformedError: the event does not fit its map, or has a different number of rows.
    """
    reader, offset, _ = _get_row_reader(type_code, body, table_map)
    row_bounds = list(reader.iter_row_bounds(body, offset))
    if len(row_bounds) != len(row_flags):
        raise MalformedError(f"{len(row_bounds):,} rows were found, {len(row_flags):,} were decoded")
    rows = (body[bounds[0] : bounds[-1]] for bounds, keep in zip(row_bounds, row_flags, strict=True) if keep)
    return body[:offset] + b"".join(rows)
