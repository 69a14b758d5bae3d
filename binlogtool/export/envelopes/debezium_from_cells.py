"""Encode rows as Debezium messages from cells that compiled code decoded, many at once.

The messages are those of `debezium.DebeziumEncoder`, which encodes change by change.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from binlogtool.export.envelopes.debezium import ValueConverter, create_value_converter
from binlogtool.export.output_options import EnvelopeOptions
from binlogtool.format_api.encode_json import encode_json, encode_json_lines
from binlogtool.format_api.row_output_interfaces import CellRun, ChangeRows, ColumnCells, SqlColumn, SqlTable
from binlogtool.limits import Limits

# --- Values of a column ---

CellValuesReader = Callable[[ColumnCells], Iterable[Any]]
"""Returns the values of all cells as the message has them; those of cells without a stored value are arbitrary."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MASK_64 = (1 << 64) - 1
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


class UnsupportedCellsError(Exception):
    """A column has stored values of which this module does not know the form."""


def _read_integers(cells: ColumnCells) -> list[int]:
    return cells.values.tolist()[:: 1 + cells.wide]


def _read_unsigned(cells: ColumnCells) -> Iterator[int]:
    return (value & _MASK_64 for value in _read_integers(cells))


def _read_128_bit_integers(cells: ColumnCells) -> Iterator[int]:
    """Yield numbers of 128 bits."""
    words = cells.values.tolist()
    return (high << 64 | low & _MASK_64 for low, high in zip(words[::2], words[1::2], strict=True))


def _read_doubles(cells: ColumnCells) -> Sequence[float]:
    data = cells.values.cast("B")
    return struct.unpack(f"={len(data) // 8}d", data)


def _read_floats(cells: ColumnCells) -> Iterator[Any]:
    """Yield floats, as the shortest numbers that mean them."""
    limits = Limits()
    return (cells.decode_raw((bits & 0xFFFFFFFF).to_bytes(4, "little"), limits) for bits in cells.values)


def _read_texts(cells: ColumnCells) -> Sequence[str]:
    assert cells.data is not None
    ends = cells.values.tolist()
    first, data = ends[0], bytes(cells.data[ends[0] : ends[-1]])
    if data.isascii():
        text = data.decode()
        return [text[a - first : b - first] for a, b in pairwise(ends)]
    return [data[a - first : b - first].decode("utf-8", "replace") for a, b in pairwise(ends)]


def _read_bytes(cells: ColumnCells) -> Sequence[bytes]:
    assert cells.data is not None
    return [bytes(cells.data[a:b]) for a, b in zip(cells.values, cells.values[1:], strict=False)]


def _read_enum_or_set_names(column: SqlColumn, cells: ColumnCells) -> Sequence[Any]:
    """Read an ENUM or SET, whose names the log may lack."""
    numbers, names = _read_integers(cells), column.values
    if cells.texts is None:
        return numbers
    if column.type == "enum":
        return [names[number - 1] if 0 < number <= len(names) else "" for number in numbers]
    return [",".join(name for bit, name in enumerate(names) if number >> bit & 1) for number in numbers]


def _format_decimals(scale: int, cells: ColumnCells) -> Iterator[str]:
    for number in _read_128_bit_integers(cells):
        digits = str(abs(number)).rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        yield f"-{text}" if number < 0 else text


def _format_timestamps(scale: int, cells: ColumnCells) -> Iterator[str]:
    for micros in cells.values:
        text = (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S")
        yield f"{text}.{micros % 1_000_000:06}"[: 20 + scale] + "Z" if scale else f"{text}Z"


def _convert(read: CellValuesReader, writer: ValueConverter, cells: ColumnCells) -> Sequence[Any]:
    flags = bytes(cells.valid)
    return [writer(value) if flag == 1 else None for value, flag in zip(read(cells), flags, strict=False)]


def _choose_cell_values_reader(column: SqlColumn, options: EnvelopeOptions) -> CellValuesReader | None:
    """Return the function for the stored values of a column; None if this module knows no function for them."""
    kind, writer = column.type, create_value_converter(column, options)
    if kind == "bigint" and column.unsigned:
        return _read_integers if options.unsigned_bigint == "long" else partial(_convert, _read_unsigned, writer)
    if kind in _INTEGERS:
        return _read_integers
    if kind in ("float", "double"):
        return _read_floats if kind == "float" else _read_doubles
    if kind == "decimal":
        return partial(_convert, partial(_format_decimals, column.scale), writer)
    if kind == "bit":
        return partial(_convert, _read_unsigned, writer)
    if kind == "date":
        return _read_integers
    if kind == "datetime":
        unit = 1000 if options.times == "connect" or column.scale <= 3 else 1
        return lambda cells: [value // unit for value in cells.values]
    if kind == "timestamp":
        return partial(_format_timestamps, column.scale)
    if kind == "time":
        return partial(_convert, _read_texts, writer)
    if kind in ("enum", "set"):
        return partial(_read_enum_or_set_names, column)
    return _read_texts if kind in _TEXTS else _read_bytes if kind in _BYTES else None


class ColumnEncoder:
    """Encodes the cells of one column as JSON."""

    def __init__(self, column: SqlColumn, options: EnvelopeOptions) -> None:
        self._column, self._write = column, create_value_converter(column, options)
        self._stored_values = _choose_cell_values_reader(column, options)

    def encode(self, cells: ColumnCells, limits: Limits) -> list[bytes]:
        """Return the JSON of each cell.

        Raises:
            UnsupportedCellsError: stored values have an unknown form.
        """
        flags = bytes(cells.valid)
        if 1 not in flags:
            encoded = [b"null"] * len(flags)
        elif self._stored_values is None or (
            (self._column.type in _BYTES + _TEXTS) != (cells.data is not None) and (self._column.type != "time")
        ):
            raise UnsupportedCellsError
        else:
            values = self._stored_values(cells)
            encoded = encode_json_lines(values).split(b"\n")[:-1]
            if flags.count(1) < len(flags):
                encoded = [one if flag == 1 else b"null" for one, flag in zip(encoded, flags, strict=False)]
        for i, raw in cells.iter_raw():
            encoded[i] = encode_json(self._write(cells.decode_raw(raw, limits)))
        return encoded


# --- Messages of the rows of events ---


class _RowImagesJson:
    """JSON of the images of the rows of one run of cells, made when it is asked for."""

    def __init__(
        self, run: CellRun, count: int, table: SqlTable, encoders: Sequence[ColumnEncoder], limits: Limits
    ) -> None:
        self._run, self._count, self._table, self._encoders, self._limits = run, count, table, encoders, limits
        self._columns: dict[tuple[int, int], list[bytes]] = {}
        self._images: dict[tuple[int, tuple[int, ...]], list[bytes]] = {}

    def _read_column(self, index: int, side: int) -> list[bytes]:
        if (index, side) not in self._columns:
            start = self._run.start
            cells = self._run.buffer.read_column(index, side, start, start + self._count)
            self._columns[index, side] = self._encoders[index].encode(cells, self._limits)
        return self._columns[index, side]

    def encode_row_images(self, image_side: int, absent_columns: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return one image of each row. image_side: 0 = before, 1 = after.

        absent_columns: (side, column) that the log lacks.
        """
        lacking = tuple(index for one, index in absent_columns if one == image_side)
        if (image_side, lacking) not in self._images:
            present = [(index, image_side) for index in range(len(self._table.columns)) if index not in lacking]
            self._images[image_side, lacking] = self._build_json_objects(present)
        return self._images[image_side, lacking]

    def encode_row_keys(
        self, preferred_side: int, available_sides: int, absent_columns: Sequence[tuple[int, int]]
    ) -> list[bytes] | None:
        """Return the key of each row; None if the table has none.

        preferred_side: the image that it is from, if that has it.
        """
        if not self._table.key:
            return None
        names = [column.name for column in self._table.columns]
        indexes = [names.index(name) for name in self._table.key]
        places = [
            next(
                (
                    (i, one)
                    for one in (preferred_side, 1 - preferred_side)
                    if available_sides >> one & 1 and (one, i) not in absent_columns
                ),
                None,
            )
            for i in indexes
        ]
        return self._build_json_objects([one for one in places if one is not None])

    def _build_json_objects(self, column_sides: Sequence[tuple[int, int]]) -> list[bytes]:
        if not column_sides:
            return [b"{}"] * self._count
        names = (encode_json(self._table.columns[index].name).replace(b"%", b"%%") for index, _ in column_sides)
        template = b"{%b}" % b",".join(name + b":%b" for name in names)
        return list(map(template.__mod__, zip(*(self._read_column(*place) for place in column_sides), strict=True)))


class _EventSource(NamedTuple):
    """JSON text of the member `source` of an event's rows, in two parts: before and after the row number."""

    head: bytes
    tail: bytes


class DebeziumRowEncoder:
    """Encodes rows as Debezium messages. version: of this program."""

    def __init__(self, options: EnvelopeOptions, version: str) -> None:
        self._options, self._version = options, version
        self._encoders: dict[int, tuple[SqlTable, list[ColumnEncoder]]] = {}
        self.message_count = 0

    def encode_rows(self, rows: ChangeRows, is_selected: Callable[[SqlTable], bool], limits: Limits) -> bytes | None:
        """Return the lines for all rows, in the order of the log; None if cells have an unknown form."""
        events, lines, count = rows.events, dict[int, bytes](), 0
        try:
            for run, table in zip(events.runs, rows.tables, strict=True):
                if is_selected(table):
                    count += self._encode_run(rows, run, table, lines, limits)
        except UnsupportedCellsError:
            return None
        self.message_count += count
        return b"".join([lines[number] for number in sorted(lines)])

    def _encode_run(
        self, rows: ChangeRows, run: CellRun, table: SqlTable, lines: dict[int, bytes], limits: Limits
    ) -> int:
        """Add the lines of each event of a run; return the number of messages."""
        events, encoders = rows.events, self._get_encoders(table)
        images = _RowImagesJson(run, sum(events.row_counts[n] for n in run.event_numbers), table, encoders, limits)
        head, tail = self._source_templates(rows, table)
        kinds = {
            kind: _KindImages(images, *events.kinds[kind])
            for kind in {events.kind_indexes[n] for n in run.event_numbers}
        }
        first = count = 0
        for number in run.event_numbers:
            source = _EventSource(head % _source_values(rows, number), tail % rows.thread_texts[number])
            stop = first + events.row_counts[number]
            found = self._encode_event(kinds[events.kind_indexes[number]], first, stop, source)
            lines[number] = b"".join(found)
            count += len(found)
            first = stop
        return count

    def _get_encoders(self, table: SqlTable) -> list[ColumnEncoder]:
        known = self._encoders.get(id(table))
        if known is None:
            if len(self._encoders) > _MAX_CACHED_TABLES:
                self._encoders.clear()
            known = self._encoders[id(table)] = table, [ColumnEncoder(one, self._options) for one in table.columns]
        return known[1]

    def _source_templates(self, rows: ChangeRows, table: SqlTable) -> tuple[bytes, bytes]:
        """Return the member `source` before and after the number of the row, as templates."""
        name = {} if self._options.source_name is None else {"name": self._options.source_name}
        members: Mapping[str, Any] = {
            "version": self._version, "connector": rows.engine, **name, "ts_ms": _HOLE, "snapshot": "false",
            "db": table.database, "sequence": None, "ts_us": _HOLE, "ts_ns": _HOLE, "table": table.name,
            "server_id": _HOLE, "gtid": _HOLE, "file": rows.file, "pos": _HOLE, "row": _HOLE, "thread": _HOLE,
            "query": None,
        }  # fmt: skip
        pairs = (
            encode_json(key) + b":" + (b"%b" if value is _HOLE else encode_json(value).replace(b"%", b"%%"))
            for key, value in members.items()
        )
        head, row, tail = (b"{" + b",".join(pairs) + b"}").partition(b'"row":%b')
        return head + row[:-2], tail

    def _encode_event(self, kind: _KindImages, first: int, stop: int, source: _EventSource) -> list[bytes]:
        lines = list[bytes]()
        for row, i in enumerate(range(first, stop)):
            block = b"%b%d%b" % (source.head, row, source.tail)
            key = kind.keys[i] if kind.keys is not None else b"null"
            before = kind.before[i] if kind.before is not None else b"null"
            after = kind.after[i] if kind.after is not None else b"null"
            if kind.after is None:
                lines += self._delete_lines(b"", key, before, block)
            elif kind.old_keys is not None and kind.old_keys[i] != key:
                old = kind.old_keys[i]
                lines += self._delete_lines(b'"headers":{"__debezium.newkey":%b},' % key, old, before, block)
                head = b'"headers":{"__debezium.oldkey":%b},' % old
                lines.append(_LINE % (head, key, b"null", after, block, b"c"))
            else:
                lines.append(_LINE % (b"", key, before, after, block, b"c" if kind.before is None else b"u"))
        return lines

    def _delete_lines(self, head: bytes, key: bytes, before: bytes, block: bytes) -> Iterator[bytes]:
        yield _LINE % (head, key, before, b"null", block, b"d")
        if self._options.tombstones:
            yield b'{%b"key":%b,"value":null}\n' % (head, key)


class _KindImages:
    """The images and keys of rows with one kind of images. sides: 1 = before, 2 = after, 3 = both."""

    def __init__(self, images: _RowImagesJson, sides: int, absent: Sequence[tuple[int, int]]) -> None:
        self.before = images.encode_row_images(0, absent) if sides & 1 else None
        self.after = images.encode_row_images(1, absent) if sides & 2 else None
        self.keys = images.encode_row_keys(int(sides != 1), sides, absent)
        self.old_keys = images.encode_row_keys(0, sides, absent) if sides == 3 else None


_HOLE = object()
_MAX_CACHED_TABLES = 10_000
_LINE = b'{%b"key":%b,"value":{"before":%b,"after":%b,"source":%b,"transaction":null,"op":"%b"}}\n'


def _source_values(rows: ChangeRows, number: int) -> tuple[bytes, ...]:
    """Return the values in the first template of `source` for an event."""
    events = rows.events
    time, owner, serial = events.times[number], events.owners[number], events.serials[number]
    if owner < 0:
        gtid = b"null"
    else:
        text = events.sources[owner][0]
        gtid = b"null" if text is None else encode_json(text if serial < 0 else f"{text}{serial}")
    moments = (b"null",) * 3 if time < 0 else (b"%d" % (time // 1000), b"%d" % time, b"%d000" % time)
    origin = events.origins[number]
    offset = events.offsets[number] + rows.base if rows.container_offset is None else rows.container_offset
    return moments[0], moments[1], moments[2], b"%d" % origin, gtid, b"%d" % offset
