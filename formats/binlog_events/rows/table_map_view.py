"""Show TABLE_MAP in the annotated view, every byte down to single columns and texts.

See docs/spec/mysql_binlog.md#table_map.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from construct import Construct, stream_write

from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.table_map_fields import (
    MapField,
    OptionalMetadataItem,
    iter_head_fields,
    iter_metadata_bits,
    iter_metadata_fields,
    iter_nullable_bits,
    iter_optional_metadata,
    optional_name,
    read_null_bits,
    split_string_metadata,
)
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.wire.fields import describe_flags
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.bodies import decode_text
from binlogtool.formats.fields import MalformedError, PlainPart, TracePart
from binlogtool.limits import Limits

FLAGS = {0x0001: "BIT_LEN_EXACT", 0x0002: "REFERRED_FK_DB", 0x4000: "HAS_TRIGGERS"}
_C = ColumnType
_TYPE_NAMES = {int(kind): kind.name for kind in ColumnType}
Parts = Iterator[PlainPart]
MapListener = Callable[[TableMap], None]


class TableMapBody(Construct):  # type: ignore[misc]
    """Construct of a TABLE_MAP body; its value is a `TableMap`.

    Args:
        on_table_map: called with each table map that the annotated parse has shown.
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
        """Trace the fields, each column's type and metadata, and the optional metadata item by item."""
        return map(TracePart._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Parts:
        """Trace the same parts as plain tuples."""
        reader = BoundedReader(data, "TABLE_MAP", start, end)
        types, size = b"", 0
        for field in iter_head_fields(reader, self.table_id_size):
            yield from _trace_head_field(field)
            name, _, _, size, _, _ = field
            types = size if name == "types" else types
        real_types = yield from _trace_metadata(reader, size, types)
        _, at, bits_end, bits, _, _ = read_null_bits(reader, len(types))
        if bits:
            meaning = _describe_set_columns(range(len(types)), iter_nullable_bits(bits, len(types)))
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


def _trace_metadata(reader: BoundedReader, size: int, types: bytes) -> Generator[PlainPart, None, list[int]]:
    """Trace the metadata of the columns; returns their real types, because ENUM and SET are stored as STRING."""
    metadata_reader = reader.sub_reader(size, "metadata")
    if size:
        yield ".metadata", 1, metadata_reader.offset, None, None, ""
    real_types = list(types)
    for _, start, end, value, index, _ in iter_metadata_fields(metadata_reader, types):
        code = types[index]
        if end > start:
            yield f".metadata[{index}]", 2, start, end, value, _describe_metadata(code, value)
        if code == _C.STRING:
            real_types[index] = split_string_metadata(value)[0]
    return real_types


def _describe_metadata(code: int, value: int) -> str:
    """Describe the metadata of a column."""
    if code in (_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return f"{_TYPE_NAMES[code]}, at most {value} bytes"
    first, second = value & 0xFF, value >> 8
    if code == _C.BIT:
        return f"BIT({first + 8 * second})"
    if code == _C.NEWDECIMAL:
        return f"NEWDECIMAL({first},{second})"
    if code in (_C.STRING, _C.ENUM, _C.SET):
        real, length = split_string_metadata(value)
        return f"{_TYPE_NAMES.get(real, real)}, {length} bytes"
    if code in (_C.TIMESTAMP2, _C.DATETIME2, _C.TIME2):
        return f"{_TYPE_NAMES[code]}({value})"
    prefix = "" if code in (_C.FLOAT, _C.DOUBLE) else "length of "
    return f"{_TYPE_NAMES[code]}, {prefix}{value} bytes"


def _describe_set_columns(columns: Iterable[int], bits: Iterable[bool]) -> str:
    """List the columns whose bits are set as @1, @2, …"""
    return " ".join(f"@{column + 1}" for column, is_set in zip(columns, bits, strict=True) if is_set)


# -- optional metadata -------------------------------------------------------------------------------------------------


def _trace_optional_metadata(items: Iterable[MapField | OptionalMetadataItem], offset: int) -> Parts:
    yield ".optional_metadata", 1, offset, None, None, ""
    path = ""
    for item in items:
        if isinstance(item, OptionalMetadataItem):
            yield from _trace_item(item, path)
            continue
        name, start, end, value, number, _ = item
        if name == "type":
            path, meaning = f".optional_metadata[{number}]", optional_name(value).upper()
            yield path, 2, start, None, None, meaning
            yield f"{path}.type", 3, start, end, value, meaning
        else:
            yield f"{path}.{name}", 3, start, end, value, ""


def _trace_item(item: OptionalMetadataItem, path: str) -> Parts:
    value, name = item.value, optional_name(item.code)
    if not value.bytes_left:
        return
    columns, path = item.columns(), f"{path}.{name}"
    if item.has_parts:
        yield path, 3, value.offset, None, None, ""
        yield from _trace_value_fields(item, path, columns)
    else:
        for kind, start, end, raw, _, _ in item.iter_fields(columns):
            if raw:
                yield (
                    path,
                    3,
                    start,
                    end,
                    raw,
                    _describe_set_columns(columns, iter_metadata_bits(raw, len(columns))) if kind == "bits" else "",
                )
    if value.bytes_left:
        raise MalformedError(f"{value.bytes_left:,} bytes too many in {name}")


def _trace_value_fields(item: OptionalMetadataItem, path: str, columns: Sequence[int]) -> Parts:
    """Trace the fields of a value that has several."""
    for name, start, end, value, index, number in item.iter_fields(columns):
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
    """Describe a position among the columns that the value is about."""
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
"""Of each field that is a number what stands behind its place in the path, its depth, its words."""


def table_map_construct(
    table_id_size: int = 6, on_table_map: MapListener | None = None, mariadb: bool | None = None
) -> Construct:
    """Return the construct of TABLE_MAP.

    Args:
        table_id_size: bytes of the table id; 4 in very old logs.
    """
    return TableMapBody(table_id_size, on_table_map, mariadb)
