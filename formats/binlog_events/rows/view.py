"""Show row events in the annotated view: head, bitmaps, then every value of every image.

See docs/spec/mysql_binlog.md#row-events.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
from construct import Bytes, BytesInteger, Check, Construct, FlagsEnum, GreedyBytes, Int16ul, Struct, stream_write, this

from binlogtool.formats.binlog_events.codes import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    UPDATE_ROW_EVENTS,
    EventType,
)
from binlogtool.formats.binlog_events.rows.image_source import ColumnReader
from binlogtool.formats.binlog_events.rows.images import ImageReader, decode_value
from binlogtool.formats.binlog_events.rows.partial_rows import PARTIAL_JSON_UPDATES
from binlogtool.formats.binlog_events.rows.rows import list_present_columns
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.binary_json import decode_diff
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decoding import DecodeBudget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.fields import Lenenc, read_lenenc
from binlogtool.formats.bodies import make_truncation_error
from binlogtool.formats.fields import CompressedSchema, MalformedError, NestedSchema, PlainPart, TracePart
from binlogtool.formats.layouts import DecompressionError
from binlogtool.limits import Limits

TableMapLookup = Callable[[int], TableMap | None]
"""Table id -> the table map that is in force."""

_PARTIAL = EventType.PARTIAL_UPDATE_ROWS

_FLAGS = FlagsEnum(
    Int16ul, STMT_END=0x01, NO_FOREIGN_KEY_CHECKS=0x02, RELAXED_UNIQUE_CHECKS=0x04, COMPLETE_ROWS=0x08,
    USE_SQL_FOREIGN_KEY=0x10, NO_CHECK_CONSTRAINT_CHECKS=0x80,
)  # fmt: skip


def rows_event_construct(event_type: EventType, table_map_lookup: TableMapLookup, table_id_size: int = 6) -> Construct:
    """Return the construct of one row event type."""
    fields = ["table_id" / BytesInteger(table_id_size, swapped=True), "flags" / _FLAGS]
    if event_type in ROW_EVENTS_WITH_EXTRA_DATA:
        fields += ["extra_len" / Int16ul, Check(this.extra_len >= 2), "extra_data" / Bytes(this.extra_len - 2)]
    fields += ["n_cols" / Lenenc(), "columns_present" / Bytes((this.n_cols + 7) // 8)]
    if event_type in UPDATE_ROW_EVENTS:
        fields += ["columns_present_after" / Bytes((this.n_cols + 7) // 8)]
    images: Construct = RowImages(event_type, table_map_lookup)
    if event_type in COMPRESSED_ROW_EVENTS:
        images = CompressedSchema(Struct("rows" / images), unpack_block, "zlib")
        return Struct(*fields, "images" / NestedSchema(GreedyBytes, images))
    return Struct(*fields, "rows" / NestedSchema(GreedyBytes, images))


class _RowsHeadFields(msgspec.Struct):
    """The fields before the images that are needed to read them."""

    table_id: int = 0
    n_cols: int = 0
    present: tuple[bytes, ...] = ()


class RowImages(Construct):  # type: ignore[misc]
    """Construct of the row images up to the end of the event.

    Its value is their bytes; its parts are rows, images and values.

    The annotated parse calls `_parse`, which sees the fields before the images, and then asks for the parts.
    """

    def __init__(self, event_type: EventType, table_map_lookup: TableMapLookup) -> None:
        super().__init__()
        self.event_type, self.table_map_lookup = event_type, table_map_lookup
        self.head = _RowsHeadFields()

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        fields = context._ if self.event_type in COMPRESSED_ROW_EVENTS else context
        after = fields.get("columns_present_after")
        present = (fields.columns_present,) if after is None else (fields.columns_present, after)
        self.head = _RowsHeadFields(int(fields.table_id), int(fields.n_cols), present)
        data: bytes = stream.read()
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace the rows by index with `before` and `after`; nothing without a table map."""
        return map(TracePart._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Trace the same parts as plain tuples."""
        head = self.head
        table_map = self.table_map_lookup(head.table_id)
        if table_map is None:
            return
        images = _image_tracers(self.event_type, head, table_map)
        budget, index = DecodeBudget(limits), 0
        while start < end:
            yield f"[{index}]", 1, start, None, None, ""
            before = start
            for image in images:
                path = f"[{index}].{image.name}"
                yield path, 2, start, None, None, ""
                start = yield from image.trace_image(data, start, f"{path}.", budget)
            if start == before:
                raise MalformedError(f"{end - start:,} bytes belong to no row: the images have no columns")
            index += 1


def _image_tracers(event_type: EventType, head: _RowsHeadFields, table_map: TableMap) -> tuple[_ImageTracer, ...]:
    """Return the tracers of the images of a row; cached in the table map."""
    key = ("annotated", event_type, head.present)
    tracers: tuple[_ImageTracer, ...] | None = table_map.memo.get(key)
    if tracers is None:
        if head.n_cols != len(table_map.columns):
            raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}")
        image_names = (
            ("before", "after")
            if event_type in UPDATE_ROW_EVENTS
            else ("before",)
            if event_type in DELETE_ROW_EVENTS
            else ("after",)
        )
        tracers = table_map.memo[key] = tuple(
            _ImageTracer(
                name, table_map, list_present_columns(bitmap, head.n_cols), event_type == _PARTIAL and name == "after"
            )
            for name, bitmap in zip(image_names, head.present, strict=True)
        )
    return tracers


class _ImageTracer:
    """Traces one image of a row.

    Args:
        partial: the image has value_options, and its JSON columns may be differences.
    """

    def __init__(self, name: str, table_map: TableMap, present: tuple[int, ...], partial: bool) -> None:
        self.name, self.present, self.partial = name, present, partial
        self.reader = ImageReader(table_map, present)
        columns = [table_map.columns[index] for index in present]
        self.column_labels = [
            column.type_name if column.name is None else f"@{index + 1} {column.type_name}"
            for index, column in zip(present, columns, strict=True)
        ]
        self.json_columns = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def trace_image(self, data: bytes, offset: int, path: str, budget: DecodeBudget) -> Generator[PlainPart, None, int]:
        """Trace the parts of the image at `data[offset]`; returns its end."""
        differences: frozenset[int] = frozenset()
        if self.partial:
            differences, offset = yield from self._trace_options(data, offset, path)
        nulls, nulls_end = offset, offset + self.reader.null_bytes
        if nulls < nulls_end <= len(data):
            yield (
                f"{path}nulls",
                3,
                nulls,
                nulls_end,
                data[nulls:nulls_end],
                self._describe_nulls(data[nulls:nulls_end]),
            )
            offset = nulls_end
        for position, column, start, end in self.reader.iter_fields(data, nulls, differences):
            if start >= 0 and end > offset:
                value = _decode_shown_value(column, data[start:end], start, budget, position in differences)
                yield f"{path}{column.key}", 3, offset, end, value, self.column_labels[position]
                offset = end
        return offset

    def _trace_options(
        self, data: bytes, offset: int, path: str
    ) -> Generator[PlainPart, None, tuple[frozenset[int], int]]:
        options, part_end = read_lenenc(data, offset, len(data))
        meaning = "PARTIAL_JSON" if options & PARTIAL_JSON_UPDATES else ""
        yield f"{path}value_options", 3, offset, part_end, options, meaning
        size = (len(self.json_columns) + 7) // 8 if options & PARTIAL_JSON_UPDATES else 0
        offset, part_end = part_end, part_end + size
        if part_end > len(data):
            raise make_truncation_error("the bitmap of partial columns", size, len(data) - offset)
        bits = data[offset:part_end]
        partial_columns = {
            index for place, index in enumerate(self.json_columns) if size and bits[place >> 3] >> (place & 7) & 1
        }
        if size:
            meaning = " ".join(f"@{index + 1}" for index in sorted(partial_columns))
            yield f"{path}partial_bits", 3, offset, part_end, bits, meaning
        return frozenset(place for place, index in enumerate(self.present) if index in partial_columns), part_end

    def _describe_nulls(self, bits: bytes) -> str:
        null_columns = [
            f"@{index + 1}" for place, index in enumerate(self.present) if bits[place >> 3] >> (place & 7) & 1
        ]
        return "NULL: " + " ".join(null_columns) if null_columns else "no NULL"


def _decode_shown_value(column: ColumnReader, raw: bytes, start: int, budget: DecodeBudget, is_difference: bool) -> Any:
    try:
        if is_difference:
            return {"$diff": decode_diff(raw, budget.max_depth)}
        return decode_value(column, raw, start, budget)
    except DecompressionError as error:
        raise MalformedError(f"{column.label}: {error}", finding_id=error.finding_id) from None
