"""Decode MySQL's binary JSON and its partial updates to JSON-able Python values.

See docs/spec/mysql_binlog.md#row-events. In a damaged value, parts may overlap or point back into the value itself. So
every byte that is read is deducted from a budget of as many bytes as the value has: in a valid value no byte belongs to
two parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.values import temporal
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decimals import make_decimal_reader
from binlogtool.formats.binlog_events.wire.reading import BoundedReader
from binlogtool.formats.fields import MalformedError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _JSON_DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_LITERALS = {0: None, 1: True, 2: False}
_NUMBERS = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
    _JSON_DOUBLE: struct.Struct("<d"),
}
_INLINE_SMALL = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE = _INLINE_SMALL | {_INT32, _UINT32}
JSON_NULL: Mapping[str, None] = MappingProxyType({"$json": None})
"""The value null of a JSON column, where SQL's NULL can stand, too."""
_OPERATIONS = ("REPLACE", "INSERT", "REMOVE")


def decode_json(data: bytes, max_depth: int) -> Any:
    """Decode a binary JSON value.

    The result is None, bool, int, float, str, list or dict; decimals are {"$decimal": "1.50"}, temporal values
    {"$date": …}, {"$time": …}, {"$datetime": …} and {"$timestamp": …}; other opaque values, and text that is not UTF-8,
    are bytes. An object whose keys are not distinct texts, or could be taken for a member name of our own output
    ("$..."), is {"$map": [[key, value], ...]}.

    Raises:
        MalformedError: offsets, sizes or types that do not fit; nested deeper than `max_depth` (id nesting-too-deep).
    """
    if not data:
        return None
    return _JsonDecoder(data, max_depth).read_value(data[0], 1, len(data), max_depth)


def has_opaque_value(data: bytes, max_depth: int) -> bool:
    """Check for decimal, temporal or other opaque values, whose type would be lost in JSON text.

    Raises:
        MalformedError: as `decode_json`.
    """
    decoder = _JsonDecoder(data, max_depth)
    if data:
        decoder.read_value(data[0], 1, len(data), max_depth)
    return decoder.has_opaque


class JsonChange(NamedTuple):
    """One change of a partial update.

    Attributes:
        operation: REPLACE, INSERT or REMOVE.
        path: JSON path.
        value: binary JSON; None for REMOVE.
    """

    operation: str
    path: bytes
    value: bytes | None


def iter_json_changes(data: bytes) -> Iterator[JsonChange]:
    """Iterate over the changes of a partial update, in the order in which they are applied.

    Raises:
        MalformedError: a change that does not fit.
    """
    reader = BoundedReader(data, "JSON diff")
    while reader.bytes_left:
        code = reader.read_uint(1, "an operation")
        if code >= len(_OPERATIONS):
            raise MalformedError(f"JSON diff: operation {code} at byte {reader.offset - 1} is not known")
        path, operation = reader.read_sized("a path"), _OPERATIONS[code]
        yield JsonChange(operation, path, None if operation == "REMOVE" else reader.read_sized("a value"))


def decode_diff(data: bytes, max_depth: int) -> list[dict[str, Any]]:
    """Decode a partial update to {"op", "path", "value"} for each change; REMOVE has no value.

    Raises:
        MalformedError: as `decode_json`; a change that does not fit.
    """
    changes = []
    for operation, path, value in iter_json_changes(data):
        change: dict[str, Any] = {"op": operation, "path": path.decode("utf-8", "backslashreplace")}
        if value is not None:
            change["value"] = decode_json(value, max_depth)
        changes.append(change)
    return changes


class _JsonDecoder:
    """Decodes one value. All offsets count from the start of `data`.

    Attributes:
        max_depth: allowed nesting.
        bytes_left: bytes that may still be read.
        has_opaque: an opaque value was decoded.
    """

    __slots__ = ("bytes_left", "data", "has_opaque", "max_depth")

    def __init__(self, data: bytes, max_depth: int) -> None:
        self.data = data
        self.max_depth = max_depth
        self.bytes_left = len(data)
        self.has_opaque = False

    def consume(self, start: int, size: int, end: int, label: str) -> int:
        """Deduct a part from the bytes that may be read; returns its end, which must not be after `end`."""
        if start + size > end:
            raise MalformedError(f"JSON: {label} of {size:,} bytes at byte {start:,} goes beyond byte {end:,}")
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise MalformedError(f"JSON: parts lie over each other (at byte {start:,})")
        return start + size

    def read_uint(self, offset: int, width: int, end: int, label: str) -> int:
        return int.from_bytes(self.data[offset : self.consume(offset, width, end, label)], "little")

    def read_value(self, type_: int, offset: int, end: int, depth: int) -> Any:
        if type_ <= _LARGE_ARRAY:
            return self.read_container(type_, offset, end, depth)
        if type_ in _NUMBERS:
            layout = _NUMBERS[type_]
            self.consume(offset, layout.size, end, "a number")
            return layout.unpack_from(self.data, offset)[0]
        if type_ == _LITERAL:
            return self.read_literal(self.read_uint(offset, 1, end, "a literal"), offset)
        if type_ == _STRING:
            return _decode_utf8(self.read_sized(offset, end, "a string"))
        if type_ == _OPAQUE:
            self.has_opaque = True
            code = self.read_uint(offset, 1, end, "an opaque type")
            return _decode_opaque(code, self.read_sized(offset + 1, end, "an opaque value"))
        raise MalformedError(f"JSON: value type 0x{type_:02x} is not known (before byte {offset:,})")

    def read_literal(self, code: int, offset: int) -> bool | None:
        if code not in _LITERALS:
            raise MalformedError(f"JSON: literal {code} at byte {offset:,} is not known")
        return _LITERALS[code]

    def read_sized(self, offset: int, end: int, label: str) -> bytes:
        """Read a length in groups of 7 bits, lowest first, and that many bytes."""
        length = shift = 0
        while True:
            byte = self.read_uint(offset, 1, end, f"the length of {label}")
            offset += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return self.data[offset : self.consume(offset, length, end, label)]
            shift += 7
            if shift > 28:
                text = f"JSON: the length of {label} before byte {offset:,} has no end"
                raise MalformedError(text, finding_id="varint-overlong")

    def read_container(self, type_: int, offset: int, end: int, depth: int) -> Any:
        if depth <= 0:
            raise MalformedError(f"JSON: nested deeper than {self.max_depth} levels", finding_id="nesting-too-deep")
        width = 4 if type_ in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        is_object = type_ <= _LARGE_OBJECT
        count = self.read_uint(offset, width, end, "the number of elements")
        size = self.read_uint(offset + width, width, end, "the size")
        if offset + size > end:
            raise MalformedError(f"JSON: a container of {size:,} bytes at byte {offset:,} goes beyond byte {end:,}")
        end = offset + size
        keys_at = offset + 2 * width
        values_at = keys_at + count * (width + 2) if is_object else keys_at
        if values_at + count * (width + 1) > end:
            text = f"JSON: {count:,} elements in a container of {size:,} bytes at byte {offset:,}"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        keys = (
            [self.read_key(keys_at + index * (width + 2), width, offset, end) for index in range(count)]
            if is_object
            else []
        )
        values = [self.read_entry(values_at + index * (width + 1), width, offset, end, depth) for index in range(count)]
        return _make_object(keys, values) if is_object else values

    def read_key(self, entry_at: int, width: int, start: int, end: int) -> str | bytes:
        offset = self.read_uint(entry_at, width, end, "a key's offset")
        length = self.read_uint(entry_at + width, 2, end, "a key's length")
        key_at = start + offset
        return _decode_utf8(self.data[key_at : self.consume(key_at, length, end, "a key")])

    def read_entry(self, entry_at: int, width: int, start: int, end: int, depth: int) -> Any:
        type_ = self.read_uint(entry_at, 1, end, "a value's type")
        entry_at += 1
        if type_ in (_INLINE_SMALL if width == 2 else _INLINE_LARGE):
            after = self.consume(entry_at, width, end, "an inlined value")
            if type_ == _LITERAL:
                return self.read_literal(self.data[entry_at], entry_at)
            signed = type_ in (_INT16, _INT32)
            size = 2 if type_ in (_INT16, _UINT16) else 4
            return int.from_bytes(self.data[entry_at : min(entry_at + size, after)], "little", signed=signed)
        offset = self.read_uint(entry_at, width, end, "a value's offset")
        if offset < 2 * width:
            raise MalformedError(
                f"JSON: the value's offset {offset} at byte {entry_at:,} points to the container's head"
            )
        return self.read_value(type_, start + offset, end, depth - 1)


def _decode_utf8(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _make_object(keys: list[str | bytes], values: list[Any]) -> Any:
    named = dict(zip(keys, values, strict=True))
    is_plain = len(named) == len(keys) and all(type(key) is str and key[:1] != "$" for key in keys)
    return named if is_plain else {"$map": [list(pair) for pair in zip(keys, values, strict=True)]}


_TEMPORAL_FORMATS = {
    ColumnType.TIMESTAMP: ("$timestamp", temporal.format_json_datetime),
    ColumnType.DATETIME: ("$datetime", temporal.format_json_datetime),
    ColumnType.TIMESTAMP2: ("$timestamp", temporal.format_json_datetime),
    ColumnType.DATETIME2: ("$datetime", temporal.format_json_datetime),
    ColumnType.DATE: ("$date", temporal.format_json_date),
    ColumnType.NEWDATE: ("$date", temporal.format_json_date),
    ColumnType.TIME: ("$time", temporal.format_json_time),
    ColumnType.TIME2: ("$time", temporal.format_json_time),
}
"""The mark of a type, and its text."""


def _decode_opaque(code: int, raw: bytes) -> Any:
    """Decode a value of a column type inside JSON."""
    if code == ColumnType.NEWDECIMAL and len(raw) > 2:
        precision, scale = raw[0], raw[1]
        if not 0 < precision <= 65 or scale > precision:
            raise MalformedError(f"JSON: a decimal of precision {precision} and scale {scale}")
        return {"$decimal": make_decimal_reader(precision, scale)(raw[2:])}
    if code in _TEMPORAL_FORMATS and len(raw) == 8:
        member, format_value = _TEMPORAL_FORMATS[ColumnType(code)]
        return {member: format_value(int.from_bytes(raw, "little", signed=True))}
    return raw
