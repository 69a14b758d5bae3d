"""Show row events in the annotated view: head, bitmaps, then every value of every image.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
from construct import Bytes, BytesInteger, Check, Construct, FlagsEnum, GreedyBytes, Int16ul, Struct, stream_write, this

from binlogtool.formats.binlog_events.codes import DELETES, ROWS_COMPRESSED, ROWS_WITH_EXTRA, UPDATES, EventType
from binlogtool.formats.binlog_events.rows.image_source import Cell
from binlogtool.formats.binlog_events.rows.images import ImageReader, value_of
from binlogtool.formats.binlog_events.rows.partial_rows import PARTIAL_JSON
from binlogtool.formats.binlog_events.rows.rows import present_columns
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.values.binary_json import decode_diff
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decoding import Budget
from binlogtool.formats.binlog_events.wire.compression import unpack_block
from binlogtool.formats.binlog_events.wire.fields import Lenenc, read_lenenc
from binlogtool.formats.bodies import cut
from binlogtool.formats.fields import Expanded, MalformedError, Part, PlainPart, Unpacked
from binlogtool.formats.layouts import CodecError
from binlogtool.limits import Limits

Lookup = Callable[[int], TableMap | None]
"""Table id -> the table map that is in force."""

_PARTIAL = EventType.PARTIAL_UPDATE_ROWS

_FLAGS = FlagsEnum(
    Int16ul, STMT_END=0x01, NO_FOREIGN_KEY_CHECKS=0x02, RELAXED_UNIQUE_CHECKS=0x04, COMPLETE_ROWS=0x08,
    USE_SQL_FOREIGN_KEY=0x10, NO_CHECK_CONSTRAINT_CHECKS=0x80,
)  # fmt: skip


def rows_event(kind: EventType, lookup: Lookup, table_id_size: int = 6) -> Construct:
    """Return the construct of one row event type."""
    fields = ["table_id" / BytesInteger(table_id_size, swapped=True), "flags" / _FLAGS]
    if kind in ROWS_WITH_EXTRA:
        fields += ["extra_len" / Int16ul, Check(this.extra_len >= 2), "extra_data" / Bytes(this.extra_len - 2)]
    fields += ["n_cols" / Lenenc(), "columns_present" / Bytes((this.n_cols + 7) // 8)]
    if kind in UPDATES:
        fields += ["columns_present_after" / Bytes((this.n_cols + 7) // 8)]
    images: Construct = Images(kind, lookup)
    if kind in ROWS_COMPRESSED:
        images = Unpacked(Struct("rows" / images), unpack_block, "zlib")
        return Struct(*fields, "images" / Expanded(GreedyBytes, images))
    return Struct(*fields, "rows" / Expanded(GreedyBytes, images))


class _Head(msgspec.Struct):
    """The fields before the images that are needed to read them."""

    table_id: int = 0
    n_cols: int = 0
    present: tuple[bytes, ...] = ()


class Images(Construct):  # type: ignore[misc]
    """Construct of the row images up to the end of the event.

    Its value is their bytes; its parts are rows, images and values.

    The annotated parse calls `_parse`, which sees the fields before the images, and then asks for the parts.
    """

    def __init__(self, kind: EventType, lookup: Lookup) -> None:
        super().__init__()
        self.kind, self.lookup = kind, lookup
        self.head = _Head()

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        fields = context._ if self.kind in ROWS_COMPRESSED else context
        after = fields.get("columns_present_after")
        present = (fields.columns_present,) if after is None else (fields.columns_present, after)
        self.head = _Head(int(fields.table_id), int(fields.n_cols), present)
        data: bytes = stream.read()
        return data

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace the rows by index with `before` and `after`; nothing without a table map."""
        return map(Part._make, self.trace_parts(data, start, end, limits))

    def trace_parts(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[PlainPart]:
        """Trace the same parts as plain tuples."""
        head = self.head
        table_map = self.lookup(head.table_id)
        if table_map is None:
            return
        images = _images(self.kind, head, table_map)
        budget, index = Budget(limits), 0
        while start < end:
            yield f"[{index}]", 1, start, None, None, ""
            before = start
            for image in images:
                path = f"[{index}].{image.name}"
                yield path, 2, start, None, None, ""
                start = yield from image.parts(data, start, f"{path}.", budget)
            if start == before:
                raise MalformedError(f"{end - start:,} bytes belong to no row: the images have no columns")
            index += 1


def _images(kind: EventType, head: _Head, table_map: TableMap) -> tuple[_Image, ...]:
    """Return the tracers of the images of a row; cached in the table map."""
    key = ("annotated", kind, head.present)
    kept: tuple[_Image, ...] | None = table_map.memo.get(key)
    if kept is None:
        if head.n_cols != len(table_map.columns):
            raise MalformedError(f"the row event has {head.n_cols} columns, its TABLE_MAP {len(table_map.columns)}")
        names = ("before", "after") if kind in UPDATES else ("before",) if kind in DELETES else ("after",)
        kept = table_map.memo[key] = tuple(
            _Image(name, table_map, present_columns(bitmap, head.n_cols), kind == _PARTIAL and name == "after")
            for name, bitmap in zip(names, head.present, strict=True)
        )
    return kept


class _Image:
    """Traces one image of a row.

    Args:
        partial: the image has value_options, and its JSON columns may be differences.
    """

    def __init__(self, name: str, table_map: TableMap, present: tuple[int, ...], partial: bool) -> None:
        self.name, self.present, self.partial = name, present, partial
        self.reader = ImageReader(table_map, present)
        columns = [table_map.columns[index] for index in present]
        self.meanings = [
            column.type_name if column.name is None else f"@{index + 1} {column.type_name}"
            for index, column in zip(present, columns, strict=True)
        ]
        self.json = [index for index, column in enumerate(table_map.columns) if column.type == ColumnType.JSON]

    def parts(self, data: bytes, at: int, path: str, budget: Budget) -> Generator[PlainPart, None, int]:
        """Trace the parts of the image at `data[offset]`; returns its end."""
        differences: frozenset[int] = frozenset()
        if self.partial:
            differences, at = yield from self._options(data, at, path)
        nulls, behind = at, at + self.reader.null_bytes
        if nulls < behind <= len(data):
            yield f"{path}nulls", 3, nulls, behind, data[nulls:behind], self._null_words(data[nulls:behind])
            at = behind
        for place, cell, start, end in self.reader.fields(data, nulls, differences):
            if start >= 0 and end > at:
                value = _value(cell, data[start:end], start, budget, place in differences)
                yield f"{path}{cell.key}", 3, at, end, value, self.meanings[place]
                at = end
        return at

    def _options(self, data: bytes, at: int, path: str) -> Generator[PlainPart, None, tuple[frozenset[int], int]]:
        options, behind = read_lenenc(data, at, len(data))
        words = "PARTIAL_JSON" if options & PARTIAL_JSON else ""
        yield f"{path}value_options", 3, at, behind, options, words
        size = (len(self.json) + 7) // 8 if options & PARTIAL_JSON else 0
        at, behind = behind, behind + size
        if behind > len(data):
            raise cut("the bitmap of partial columns", size, len(data) - at)
        bits = data[at:behind]
        chosen = {index for place, index in enumerate(self.json) if size and bits[place >> 3] >> (place & 7) & 1}
        if size:
            words = " ".join(f"@{index + 1}" for index in sorted(chosen))
            yield f"{path}partial_bits", 3, at, behind, bits, words
        return frozenset(place for place, index in enumerate(self.present) if index in chosen), behind

    def _null_words(self, bits: bytes) -> str:
        null = [f"@{index + 1}" for place, index in enumerate(self.present) if bits[place >> 3] >> (place & 7) & 1]
        return "NULL: " + " ".join(null) if null else "no NULL"


def _value(cell: Cell, raw: bytes, start: int, budget: Budget, difference: bool) -> Any:
    try:
        if difference:
            return {"$diff": decode_diff(raw, budget.max_depth)}
        return value_of(cell, raw, start, budget)
    except CodecError as error:
        raise MalformedError(f"{cell.label}: {error}", finding_id=error.finding_id) from None
