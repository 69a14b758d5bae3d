"""TABLE_MAP and row events in an annotated parse: every byte, down to single values.

See docs/spec/mysql_binlog.md#table_map and #row-events.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from construct import Bytes, BytesInteger, Check, Construct, FlagsEnum, GreedyBytes, Int16ul, Struct, stream_write, this

from binlogtool.format_api.schema_fields import (
    CompressedSchema,
    DecompressionError,
    MalformedError,
    NestedSchema,
    PlainPart,
    TracePart,
    decode_text,
    make_fields_kernel,
    make_truncation_error,
)
from binlogtool.formats.binlog_events.rows.rows_event import (
    PARTIAL_JSON_UPDATES,
    ColumnReader,
    RowImageReader,
    decode_column_value,
    list_present_columns,
)
from binlogtool.formats.binlog_events.rows.table_map import (
    MapField,
    OptionalMetadataItem,
    TableMap,
    get_optional_metadata_name,
    iter_head_fields,
    iter_metadata_bits,
    iter_metadata_fields,
    iter_nullable_bits,
    iter_optional_metadata,
    parse_table_map,
    read_null_bits,
    split_string_metadata,
)
from binlogtool.formats.binlog_events.values.column_types import ColumnType
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget, decode_json_diffs
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_ROW_EVENTS,
    DELETE_ROW_EVENTS,
    ROW_EVENTS_WITH_EXTRA_DATA,
    UPDATE_ROW_EVENTS,
    BoundedReader,
    EventType,
    Lenenc,
    RowsFlag,
    describe_flags,
    load_lenenc,
    read_lenenc,
    unpack_compressed_block,
)
from binlogtool.limits import Limits

# --- TABLE_MAP in the annotated view ---

FLAGS = {0x0001: "BIT_LEN_EXACT", 0x0002: "REFERRED_FK_DB", 0x4000: "HAS_TRIGGERS"}
_C = ColumnType
_TYPE_NAMES = {int(kind): kind.name for kind in ColumnType}
Parts = Iterator[PlainPart]
MapListener = Callable[[TableMap], None]


class TableMapConstruct(Construct):  # type: ignore[misc]
    """Construct of a TABLE_MAP body; its value is a `TableMap`.

    Args:
        on_table_map: called with each table map that the annotated parse has processed.
        mariadb: whether a MariaDB server wrote it; None = unknown.
    """

    fills_stream = True

    def __init__(
        self, table_id_size: int = 6, on_table_map: MapListener | None = None, mariadb: bool | None = None
    ) -> None:
        super().__init__()
        self.table_id_size, self.on_table_map, self.mariadb = table_id_size, on_table_map, mariadb

    def _parse(self, stream: Any, context: Any, path: str) -> TableMap:
        return parse_table_map(stream.read(), self.table_id_size, self.mariadb)

    def _build(self, obj: TableMap, stream: Any, context: Any, path: str) -> TableMap:
        stream_write(stream, obj.body, len(obj.body), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace the fields, the type and metadata of each column, and the optional metadata item by item."""
        return map(TracePart._make, self.trace_plain_parts(data, start, end, limits))

    def trace_plain_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Parts:
        """Trace the same parts as plain tuples."""
        reader = BoundedReader(data, "TABLE_MAP", start, end)
        types, size = b"", 0
        for field in iter_head_fields(reader, self.table_id_size):
            yield from _trace_head_field(field)
            name, _, _, size, _, _ = field
            types = size if name == "types" else types
        real_types = yield from _trace_column_metadata(reader, size, types)
        _, at, bits_end, bits, _, _ = read_null_bits(reader, len(types))
        if bits:
            meaning = _list_set_columns(range(len(types)), iter_nullable_bits(bits, len(types)))
            yield ".null_bits", 1, at, bits_end, bits, meaning
        if reader.bytes_left:
            yield from _trace_optional_metadata(iter_optional_metadata(reader, real_types, self.mariadb), reader.offset)
        if self.on_table_map is not None:
            self.on_table_map(parse_table_map(data[start:end], self.table_id_size, self.mariadb))


def _trace_head_field(field: MapField) -> Parts:
    name, start, end, value, _, _ = field
    if name == "types":
        yield ".types", 1, start, None, None, ""
        for index, code in enumerate(value):
            yield f".types[{index}]", 2, start + index, start + index + 1, code, _TYPE_NAMES.get(code, "unknown")
    elif isinstance(value, bytes):
        if value:
            yield f".{name}", 1, start, end, decode_text(value), ""
    else:
        yield f".{name}", 1, start, end, value, describe_flags(value, FLAGS) if name == "flags" else ""


def _trace_column_metadata(reader: BoundedReader, size: int, types: bytes) -> Generator[PlainPart, None, list[int]]:
    """Trace the metadata of the columns; return their real types, because ENUM and SET are stored as STRING."""
    metadata_reader = reader.take_sub_reader(size, "metadata")
    if size:
        yield ".metadata", 1, metadata_reader.offset, None, None, ""
    real_types = list(types)
    for _, start, end, value, index, _ in iter_metadata_fields(metadata_reader, types):
        code = types[index]
        if end > start:
            yield f".metadata[{index}]", 2, start, end, value, _describe_column_metadata(code, value)
        if code == _C.STRING:
            real_types[index] = split_string_metadata(value)[0]
    return real_types


def _describe_column_metadata(column_type: int, metadata: int) -> str:
    """Describe the metadata of a column."""
    if column_type in (_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return f"{_TYPE_NAMES[column_type]}, at most {metadata} bytes"
    first, second = metadata & 0xFF, metadata >> 8
    if column_type == _C.BIT:
        return f"BIT({first + 8 * second})"
    if column_type == _C.NEWDECIMAL:
        return f"NEWDECIMAL({first},{second})"
    if column_type in (_C.STRING, _C.ENUM, _C.SET):
        real, length = split_string_metadata(metadata)
        return f"{_TYPE_NAMES.get(real, real)}, {length} bytes"
    if column_type in (_C.TIMESTAMP2, _C.DATETIME2, _C.TIME2):
        return f"{_TYPE_NAMES[column_type]}({metadata})"
    prefix = "" if column_type in (_C.FLOAT, _C.DOUBLE) else "length of "
    return f"{_TYPE_NAMES[column_type]}, {prefix}{metadata} bytes"


def _list_set_columns(columns: Iterable[int], bits: Iterable[bool]) -> str:
    """List the columns whose bits are set, as @1, @2, …"""
    return " ".join(f"@{column + 1}" for column, is_set in zip(columns, bits, strict=True) if is_set)


# -- optional metadata -------------------------------------------------------------------------------------------------


def _trace_optional_metadata(items: Iterable[MapField | OptionalMetadataItem], offset: int) -> Parts:
    yield ".optional_metadata", 1, offset, None, None, ""
    path = ""
    for item in items:
        if isinstance(item, OptionalMetadataItem):
            yield from _trace_optional_metadata_item(item, path)
            continue
        name, start, end, value, number, _ = item
        if name == "type":
            path, meaning = f".optional_metadata[{number}]", get_optional_metadata_name(value).upper()
            yield path, 2, start, None, None, meaning
            yield f"{path}.type", 3, start, end, value, meaning
        else:
            yield f"{path}.{name}", 3, start, end, value, ""


def _trace_optional_metadata_item(metadata_item: OptionalMetadataItem, path: str) -> Parts:
    value, name = metadata_item.value, get_optional_metadata_name(metadata_item.code)
    if not value.bytes_left:
        return
    columns, path = metadata_item.list_column_indexes(), f"{path}.{name}"
    if metadata_item.has_several_fields:
        yield path, 3, value.offset, None, None, ""
        yield from _trace_value_fields(metadata_item, path, columns)
    else:
        for kind, start, end, raw, _, _ in metadata_item.iter_value_fields(columns):
            if raw:
                yield (
                    path,
                    3,
                    start,
                    end,
                    raw,
                    _list_set_columns(columns, iter_metadata_bits(raw, len(columns))) if kind == "bits" else "",
                )
    if value.bytes_left:
        raise MalformedError(f"{value.bytes_left:,} bytes too many in {name}")


def _trace_value_fields(metadata_item: OptionalMetadataItem, path: str, columns: Sequence[int]) -> Parts:
    """Trace the fields of a value that consists of several fields."""
    for name, start, end, value, index, number in metadata_item.iter_value_fields(columns):
        if name == "choices":
            yield f"{path}[{index}]", 4, start, None, None, ""
        elif name == "choice":
            yield f"{path}[{index}].values[{number}]", 5, start, end, decode_text(value), ""
        elif name == "text":
            yield f"{path}[{index}]", 4, start, end, decode_text(value), ""
        else:
            suffix, depth, describe = _NUMBER_PARTS[name]
            field_path = f"{path}[{index}]{suffix}" if name != "default" else f"{path}.default"
            yield field_path, depth, start, end, value, describe(value, columns) if describe else ""


def _describe_column(value: int, columns: Sequence[int]) -> str:
    return f"@{value + 1}"


def _describe_listed_column(value: int, columns: Sequence[int]) -> str:
    """Describe a position in the list of columns to which the value applies."""
    return f"@{columns[value] + 1}" if value < len(columns) else ""


def _describe_prefix(value: int, columns: Sequence[int]) -> str:
    return "" if value else "all of it"


_NUMBER_PARTS: dict[str, tuple[str, int, Callable[[int, Sequence[int]], str] | None]] = {
    "number": ("", 4, None),
    "count": (".count", 5, None),
    "default": ("", 4, None),
    "place": (".column", 4, _describe_listed_column),
    "collation": (".collation", 4, None),
    "key": ("", 4, _describe_column),
    "column": (".column", 4, _describe_column),
    "prefix": (".prefix", 4, _describe_prefix),
}
"""For each numeric field: (suffix of its path, its depth, function that returns its meaning)."""


def make_table_map_construct(
    table_id_size: int = 6, on_table_map: MapListener | None = None, is_mariadb: bool | None = None
) -> Construct:
    """Return the construct of TABLE_MAP.

    Args:
        table_id_size: size of the table id in bytes; 4 in very old logs.
    """
    return TableMapConstruct(table_id_size, on_table_map, is_mariadb)


# --- Row events in the annotated view ---

TableMapLookup = Callable[[int], TableMap | None]
"""Table id -> its current table map."""

_PARTIAL = EventType.PARTIAL_UPDATE_ROWS

_FLAGS = FlagsEnum(Int16ul, RowsFlag)


def _make_rows_head_fields(has_extra_data: bool) -> list[Construct]:
    """Return the fields from the flags to the number of columns."""
    extra_data = ("extra_len" / Int16ul, Check(this.extra_len >= 2), "extra_data" / Bytes(this.extra_len - 2))
    return ["flags" / _FLAGS, *(extra_data if has_extra_data else ()), "n_cols" / Lenenc()]


load_rows_head_v1 = make_fields_kernel(
    Struct(*_make_rows_head_fields(False), "bitmaps" / GreedyBytes), "flags", "n_cols", "bitmaps", uses=(load_lenenc,)
)
load_rows_head_v2 = make_fields_kernel(
    Struct(*_make_rows_head_fields(True), "bitmaps" / GreedyBytes),
    "flags",
    "extra_len",
    "n_cols",
    "bitmaps",
    uses=(load_lenenc,),
)
"""Kernels' readers of a row event's fields from its flags on: without and with extra data."""


def make_rows_event_construct(
    event_type: EventType, table_map_lookup: TableMapLookup, table_id_size: int = 6
) -> Construct:
    """Return the construct of one row event type."""
    head_fields = _make_rows_head_fields(event_type in ROW_EVENTS_WITH_EXTRA_DATA)
    fields = ["table_id" / BytesInteger(table_id_size, swapped=True), *head_fields]
    fields += ["columns_present" / Bytes((this.n_cols + 7) // 8)]
    if event_type in UPDATE_ROW_EVENTS:
        fields += ["columns_present_after" / Bytes((this.n_cols + 7) // 8)]
    images: Construct = RowImagesConstruct(event_type, table_map_lookup)
    if event_type in COMPRESSED_ROW_EVENTS:
        images = CompressedSchema(Struct("rows" / images), unpack_compressed_block, "zlib")
        return Struct(*fields, "images" / NestedSchema(GreedyBytes, images))
    return Struct(*fields, "rows" / NestedSchema(GreedyBytes, images))


class _RowsHeadFields(msgspec.Struct):
    """Fields before the images that are needed to read the images."""

    table_id: int = 0
    n_cols: int = 0
    present: tuple[bytes, ...] = ()


class RowImagesConstruct(Construct):  # type: ignore[misc]
    """Construct of the row images up to the end of the event.

    Its value is their bytes; its parts are rows, images and values.

    The annotated parse first calls `_parse`, which reads the fields before the images, and then requests the parts.
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
        """Trace the rows by index, each with `before` and `after`; nothing without a table map."""
        return map(TracePart._make, self.trace_plain_parts(data, start, end, limits))

    def trace_plain_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Trace the same parts as plain tuples."""
        head = self.head
        table_map = self.table_map_lookup(head.table_id)
        if table_map is None:
            return
        images = _get_image_tracers(self.event_type, head, table_map)
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


def _get_image_tracers(
    event_type: EventType, rows_head: _RowsHeadFields, table_map: TableMap
) -> tuple[_ImageTracer, ...]:
    """Return the tracers of the images of a row; cached in the table map."""
    key = ("annotated", event_type, rows_head.present)
    tracers: tuple[_ImageTracer, ...] | None = table_map.memo.get(key)
    if tracers is None:
        if rows_head.n_cols != len(table_map.columns):
            raise MalformedError(
                f"the row event has {rows_head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}"
            )
        image_names = (
            ("before", "after")
            if event_type in UPDATE_ROW_EVENTS
            else ("before",)
            if event_type in DELETE_ROW_EVENTS
            else ("after",)
        )
        tracers = table_map.memo[key] = tuple(
            _ImageTracer(
                name,
                table_map,
                list_present_columns(bitmap, rows_head.n_cols),
                event_type == _PARTIAL and name == "after",
            )
            for name, bitmap in zip(image_names, rows_head.present, strict=True)
        )
    return tracers


class _ImageTracer:
    """Traces one image of a row.

    Args:
        partial: the image has value_options, and its JSON columns may be diffs.
    """

    def __init__(self, name: str, table_map: TableMap, present: tuple[int, ...], partial: bool) -> None:
        self.name, self.present, self.partial = name, present, partial
        self.reader = RowImageReader(table_map, present)
        columns = [table_map.columns[index] for index in present]
        self.column_labels = [
            column.type_name if column.name is None else f"@{index + 1} {column.type_name}"
            for index, column in zip(present, columns, strict=True)
        ]
        self.json_columns = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def trace_image(self, data: bytes, offset: int, path: str, budget: DecodeBudget) -> Generator[PlainPart, None, int]:
        """Trace the parts of the image at `data[offset]`; return its end."""
        differences: frozenset[int] = frozenset()
        if self.partial:
            differences, offset = yield from self._trace_value_options(data, offset, path)
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
        for position, column, start, end in self.reader.iter_value_ranges(data, nulls, differences):
            if start >= 0 and end > offset:
                value = _decode_shown_value(column, data[start:end], start, budget, position in differences)
                yield f"{path}{column.key}", 3, offset, end, value, self.column_labels[position]
                offset = end
        return offset

    def _trace_value_options(
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
            return {"$diff": decode_json_diffs(raw, budget.max_depth)}
        return decode_column_value(column, raw, start, budget)
    except DecompressionError as error:
        raise MalformedError(f"{column.label}: {error}", finding_id=error.finding_id) from None
