"""Decode MySQL's binary JSON and its partial updates to JSON-able Python values.

See docs/spec/mysql-mariadb-binlog.md#7-row-events-v. In a damaged value, parts may overlap or point back into the
value
itself. So every byte that is read is deducted from a budget of as many bytes as the value has: in a valid value no
byte
belongs to two parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from binlogtool.formats.binlog_events.values import temporal
from binlogtool.formats.binlog_events.values.columns import ColumnType
from binlogtool.formats.binlog_events.values.decimals import decimal_reader
from binlogtool.formats.binlog_events.wire.reading import Reader
from binlogtool.formats.fields import MalformedError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_LITERALS = {0: None, 1: True, 2: False}
_NUMBERS = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
    _DOUBLE: struct.Struct("<d"),
}
_INLINE_SMALL = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE = _INLINE_SMALL | {_INT32, _UINT32}
JSON_NULL: Mapping[str, None] = MappingProxyType({"$json": None})
"""The value null of a JSON column, where SQL's NULL can stand, too."""
_OPERATIONS = ("REPLACE", "INSERT", "REMOVE")


def decode_json(data: bytes, max_depth: int) -> Any:
    """Decode a binary JSON value.

    The result is None, bool, int, float, str, list or dict; decimals are {"$decimal": "1.50"}, temporal values
    {"$date": …}, {"$time": …}, {"$datetime": …} and {"$timestamp": …}; other opaque values, and text that is not
    UTF-8,
    are bytes. An object whose keys are not distinct texts, or could be taken for a member name of our own output
    ("$..."), is {"$map": [[key, value], ...]}.

    Raises:
        MalformedError: offsets, sizes or types that do not fit; nested deeper than `max_depth` (id nesting-too-deep).
    """
    if not data:
        return None
    return _Decoder(data, max_depth).value(data[0], 1, len(data), max_depth)


def holds_opaque(data: bytes, max_depth: int) -> bool:
    """Check for decimal, temporal or other opaque values, whose type would be lost in JSON text.

    Raises:
        MalformedError: as `decode_json`.
    """
    decoder = _Decoder(data, max_depth)
    if data:
        decoder.value(data[0], 1, len(data), max_depth)
    return decoder.opaque


class Change(NamedTuple):
    """One change of a partial update.

    Attributes:
        operation: REPLACE, INSERT or REMOVE.
        path: JSON path.
        value: binary JSON; None for REMOVE.
    """

    operation: str
    path: bytes
    value: bytes | None


def changes_of(data: bytes) -> Iterator[Change]:
    """Iterate over the changes of a partial update, in the order in which they are applied.

    Raises:
        MalformedError: a change that does not fit.
    """
    reader = Reader(data, "JSON diff")
    while reader.left:
        code = reader.uint(1, "an operation")
        if code >= len(_OPERATIONS):
            raise MalformedError(f"JSON diff: operation {code} at byte {reader.at - 1} is not known")
        path, operation = reader.sized("a path"), _OPERATIONS[code]
        yield Change(operation, path, None if operation == "REMOVE" else reader.sized("a value"))


def decode_diff(data: bytes, max_depth: int) -> list[dict[str, Any]]:
    """Decode a partial update to {"op", "path", "value"} for each change; REMOVE has no value.

    Raises:
        MalformedError: as `decode_json`; a change that does not fit.
    """
    changes = []
    for operation, path, value in changes_of(data):
        change: dict[str, Any] = {"op": operation, "path": path.decode("utf-8", "backslashreplace")}
        if value is not None:
            change["value"] = decode_json(value, max_depth)
        changes.append(change)
    return changes


class _Decoder:
    """Decodes one value. All offsets count from the start of `data`.

    Attributes:
        max_depth: allowed nesting.
        bytes_left: bytes that may still be read.
        has_opaque: an opaque value was decoded.
    """

    __slots__ = ("data", "depth", "opaque", "purse")

    def __init__(self, data: bytes, depth: int) -> None:
        self.data = data
        self.depth = depth
        self.purse = len(data)
        self.opaque = False

    def pay(self, start: int, size: int, end: int, what: str) -> int:
        """Deduct a part from the bytes that may be read; returns its end, which must not be after `end`."""
        if start + size > end:
            raise MalformedError(f"JSON: {what} of {size:,} bytes at byte {start:,} goes beyond byte {end:,}")
        self.purse -= size
        if self.purse < 0:
            raise MalformedError(f"JSON: parts lie over each other (at byte {start:,})")
        return start + size

    def uint(self, at: int, width: int, end: int, what: str) -> int:
        return int.from_bytes(self.data[at : self.pay(at, width, end, what)], "little")

    def value(self, type_: int, at: int, end: int, depth: int) -> Any:
        if type_ <= _LARGE_ARRAY:
            return self.container(type_, at, end, depth)
        if type_ in _NUMBERS:
            layout = _NUMBERS[type_]
            self.pay(at, layout.size, end, "a number")
            return layout.unpack_from(self.data, at)[0]
        if type_ == _LITERAL:
            return self.literal(self.uint(at, 1, end, "a literal"), at)
        if type_ == _STRING:
            return _text(self.sized(at, end, "a string"))
        if type_ == _OPAQUE:
            self.opaque = True
            code = self.uint(at, 1, end, "an opaque type")
            return _opaque(code, self.sized(at + 1, end, "an opaque value"))
        raise MalformedError(f"JSON: value type 0x{type_:02x} is not known (before byte {at:,})")

    def literal(self, code: int, at: int) -> bool | None:
        if code not in _LITERALS:
            raise MalformedError(f"JSON: literal {code} at byte {at:,} is not known")
        return _LITERALS[code]

    def sized(self, at: int, end: int, what: str) -> bytes:
        """Read a length in groups of 7 bits, lowest first, and that many bytes."""
        length = shift = 0
        while True:
            byte = self.uint(at, 1, end, f"the length of {what}")
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return self.data[at : self.pay(at, length, end, what)]
            shift += 7
            if shift > 28:
                text = f"JSON: the length of {what} before byte {at:,} has no end"
                raise MalformedError(text, finding_id="varint-overlong")

    def container(self, type_: int, at: int, end: int, depth: int) -> Any:
        if depth <= 0:
            raise MalformedError(f"JSON: nested deeper than {self.depth} levels", finding_id="nesting-too-deep")
        width = 4 if type_ in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        is_object = type_ <= _LARGE_OBJECT
        count = self.uint(at, width, end, "the number of elements")
        size = self.uint(at + width, width, end, "the size")
        if at + size > end:
            raise MalformedError(f"JSON: a container of {size:,} bytes at byte {at:,} goes beyond byte {end:,}")
        end = at + size
        keys_at = at + 2 * width
        values_at = keys_at + count * (width + 2) if is_object else keys_at
        if values_at + count * (width + 1) > end:
            text = f"JSON: {count:,} elements in a container of {size:,} bytes at byte {at:,}"
            raise MalformedError(text, finding_id="count-out-of-bounds")
        keys = [self.key(keys_at + index * (width + 2), width, at, end) for index in range(count)] if is_object else []
        values = [self.entry(values_at + index * (width + 1), width, at, end, depth) for index in range(count)]
        return _mapping(keys, values) if is_object else values

    def key(self, at: int, width: int, start: int, end: int) -> str | bytes:
        offset = self.uint(at, width, end, "a key's offset")
        length = self.uint(at + width, 2, end, "a key's length")
        place = start + offset
        return _text(self.data[place : self.pay(place, length, end, "a key")])

    def entry(self, at: int, width: int, start: int, end: int, depth: int) -> Any:
        type_ = self.uint(at, 1, end, "a value's type")
        at += 1
        if type_ in (_INLINE_SMALL if width == 2 else _INLINE_LARGE):
            after = self.pay(at, width, end, "an inlined value")
            if type_ == _LITERAL:
                return self.literal(self.data[at], at)
            signed = type_ in (_INT16, _INT32)
            size = 2 if type_ in (_INT16, _UINT16) else 4
            return int.from_bytes(self.data[at : min(at + size, after)], "little", signed=signed)
        offset = self.uint(at, width, end, "a value's offset")
        if offset < 2 * width:
            raise MalformedError(f"JSON: the value's offset {offset} at byte {at:,} points to the container's head")
        return self.value(type_, start + offset, end, depth - 1)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _mapping(keys: list[str | bytes], values: list[Any]) -> Any:
    named = dict(zip(keys, values, strict=True))
    exact = len(named) == len(keys) and all(type(key) is str and key[:1] != "$" for key in keys)
    return named if exact else {"$map": [list(pair) for pair in zip(keys, values, strict=True)]}


_TEMPORAL = {
    ColumnType.TIMESTAMP: ("$timestamp", temporal.json_datetime),
    ColumnType.DATETIME: ("$datetime", temporal.json_datetime),
    ColumnType.TIMESTAMP2: ("$timestamp", temporal.json_datetime),
    ColumnType.DATETIME2: ("$datetime", temporal.json_datetime),
    ColumnType.DATE: ("$date", temporal.json_date),
    ColumnType.NEWDATE: ("$date", temporal.json_date),
    ColumnType.TIME: ("$time", temporal.json_time),
    ColumnType.TIME2: ("$time", temporal.json_time),
}
"""The mark of a type, and its text."""


def _opaque(code: int, raw: bytes) -> Any:
    """Decode a value of a column type inside JSON."""
    if code == ColumnType.NEWDECIMAL and len(raw) > 2:
        precision, scale = raw[0], raw[1]
        if not 0 < precision <= 65 or scale > precision:
            raise MalformedError(f"JSON: a decimal of precision {precision} and scale {scale}")
        return {"$decimal": decimal_reader(precision, scale)(raw[2:])}
    if code in _TEMPORAL and len(raw) == 8:
        mark, text = _TEMPORAL[ColumnType(code)]
        return {mark: text(int.from_bytes(raw, "little", signed=True))}
    return raw
