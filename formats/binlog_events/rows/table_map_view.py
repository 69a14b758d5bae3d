"""Show TABLE_MAP in the annotated view, every byte down to single columns and texts.

See docs/spec/mysql-mariadb-binlog.md#6-table_map-v.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from construct import Construct, stream_write

from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.rows.table_map_fields import (
    Field,
    Item,
    bits_of,
    head,
    metadata,
    null_bits,
    nullable_of,
    optional,
    optional_name,
    string_type,
)
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.wire.fields import flag_words
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.bodies import text
from binlogtool.formats.fields import MalformedError, Part, PlainPart
from binlogtool.limits import Limits

FLAGS = {0x0001: "BIT_LEN_EXACT", 0x0002: "REFERRED_FK_DB", 0x4000: "HAS_TRIGGERS"}
_C = ColumnType
_NAMES = {int(kind): kind.name for kind in ColumnType}
Parts = Iterator[PlainPart]
Learn = Callable[[TableMap], None]


class TableMapBody(Construct):  # type: ignore[misc]
    """Construct of a TABLE_MAP body; its value is a `TableMap`.

    Args:
        on_table_map: called with each table map that the annotated parse has shown.
        mariadb: whether a MariaDB server wrote it; None = unknown.
    """

    fills_stream = True

    def __init__(self, table_id_size: int = 6, learn: Learn | None = None, mariadb: bool | None = None) -> None:
        super().__init__()
        self.table_id_size, self.learn, self.mariadb = table_id_size, learn, mariadb

    def _parse(self, stream: Any, context: Any, path: str) -> TableMap:
        return parse_table_map(stream.read(), self.table_id_size, self.mariadb)

    def _build(self, obj: TableMap, stream: Any, context: Any, path: str) -> TableMap:
        stream_write(stream, obj.body, len(obj.body), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace the fields, each column's type and metadata, and the optional metadata item by item."""
        return map(Part._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Parts:
        """Trace the same parts as plain tuples."""
        reader = Reader(data, "TABLE_MAP", start, end)
        types, size = b"", 0
        for field in head(reader, self.table_id_size):
            yield from _head_parts(field)
            name, _, _, size, _, _ = field
            types = size if name == "types" else types
        real = yield from _metadata(reader, size, types)
        _, at, behind, bits, _, _ = null_bits(reader, len(types))
        if bits:
            words = _chosen(range(len(types)), nullable_of(bits, len(types)))
            yield ".null_bits", 1, at, behind, bits, words
        if reader.left:
            yield from _optional(optional(reader, real, self.mariadb), reader.at)
        if self.learn is not None:
            self.learn(parse_table_map(data[start:end], self.table_id_size, self.mariadb))


def _head_parts(field: Field) -> Parts:
    name, start, end, value, _, _ = field
    if name == "types":
        yield ".types", 1, start, None, None, ""
        for index, code in enumerate(value):
            yield f".types[{index}]", 2, start + index, start + index + 1, code, _NAMES.get(code, "unknown")
    elif isinstance(value, bytes):
        if value:
            yield f".{name}", 1, start, end, text(value), ""
    else:
        yield f".{name}", 1, start, end, value, flag_words(value, FLAGS) if name == "flags" else ""


def _metadata(reader: Reader, size: int, types: bytes) -> Generator[PlainPart, None, list[int]]:
    """Trace the metadata of the columns; returns their real types, because ENUM and SET are stored as STRING."""
    part = reader.part(size, "metadata")
    if size:
        yield ".metadata", 1, part.at, None, None, ""
    real = list(types)
    for _, start, end, value, index, _ in metadata(part, types):
        code = types[index]
        if end > start:
            yield f".metadata[{index}]", 2, start, end, value, _metadata_words(code, value)
        if code == _C.STRING:
            real[index] = string_type(value)[0]
    return real


def _metadata_words(code: int, value: int) -> str:
    """Describe the metadata of a column."""
    if code in (_C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED):
        return f"{_NAMES[code]}, at most {value} bytes"
    first, second = value & 0xFF, value >> 8
    if code == _C.BIT:
        return f"BIT({first + 8 * second})"
    if code == _C.NEWDECIMAL:
        return f"NEWDECIMAL({first},{second})"
    if code in (_C.STRING, _C.ENUM, _C.SET):
        real, length = string_type(value)
        return f"{_NAMES.get(real, real)}, {length} bytes"
    if code in (_C.TIMESTAMP2, _C.DATETIME2, _C.TIME2):
        return f"{_NAMES[code]}({value})"
    what = "" if code in (_C.FLOAT, _C.DOUBLE) else "length of "
    return f"{_NAMES[code]}, {what}{value} bytes"


def _chosen(columns: Iterable[int], bits: Iterable[bool]) -> str:
    """List the columns whose bits are set as @1, @2, …"""
    return " ".join(f"@{column + 1}" for column, is_set in zip(columns, bits, strict=True) if is_set)


# -- optional metadata -------------------------------------------------------------------------------------------------


def _optional(pieces: Iterable[Field | Item], at: int) -> Parts:
    yield ".optional_metadata", 1, at, None, None, ""
    path = ""
    for piece in pieces:
        if isinstance(piece, Item):
            yield from _item(piece, path)
            continue
        name, start, end, value, number, _ = piece
        if name == "type":
            path, words = f".optional_metadata[{number}]", optional_name(value).upper()
            yield path, 2, start, None, None, words
            yield f"{path}.type", 3, start, end, value, words
        else:
            yield f"{path}.{name}", 3, start, end, value, ""


def _item(item: Item, path: str) -> Parts:
    value, name = item.value, optional_name(item.code)
    if not value.left:
        return
    columns, path = item.columns(), f"{path}.{name}"
    if item.has_parts:
        yield path, 3, value.at, None, None, ""
        yield from _value_parts(item, path, columns)
    else:
        for kind, start, end, raw, _, _ in item.fields(columns):
            if raw:
                yield path, 3, start, end, raw, _chosen(columns, bits_of(raw, len(columns))) if kind == "bits" else ""
    if value.left:
        raise MalformedError(f"{value.left:,} bytes too many in {name}")


def _value_parts(item: Item, path: str, columns: Sequence[int]) -> Parts:
    """Trace the fields of a value that has several."""
    for name, start, end, value, index, number in item.fields(columns):
        if name == "choices":
            yield f"{path}[{index}]", 4, start, None, None, ""
        elif name == "choice":
            yield f"{path}[{index}].values[{number}]", 5, start, end, text(value), ""
        elif name == "text":
            yield f"{path}[{index}]", 4, start, end, text(value), ""
        else:
            below, depth, words = _NUMBERS[name]
            place = f"{path}[{index}]{below}" if name != "default" else f"{path}.default"
            yield place, depth, start, end, value, words(value, columns) if words else ""


def _column(value: int, columns: Sequence[int]) -> str:
    return f"@{value + 1}"


def _place(value: int, columns: Sequence[int]) -> str:
    """Describe a position among the columns that the value is about."""
    return f"@{columns[value] + 1}" if value < len(columns) else ""


def _prefix(value: int, columns: Sequence[int]) -> str:
    return "" if value else "all of it"


_NUMBERS: dict[str, tuple[str, int, Callable[[int, Sequence[int]], str] | None]] = {
    "number": ("", 4, None),
    "count": (".count", 5, None),
    "default": ("", 4, None),
    "place": (".column", 4, _place),
    "collation": (".collation", 4, None),
    "key": ("", 4, _column),
    "column": (".column", 4, _column),
    "prefix": (".prefix", 4, _prefix),
}
"""Of each field that is a number what stands behind its place in the path, its depth, its words."""


def table_map_body(table_id_size: int = 6, learn: Learn | None = None, mariadb: bool | None = None) -> Construct:
    """Return the construct of TABLE_MAP.

    Args:
        table_id_size: bytes of the table id; 4 in very old logs.
    """
    return TableMapBody(table_id_size, learn, mariadb)
