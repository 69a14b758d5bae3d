"""Names for every byte of MessagePack values and rows: what the annotated parse shows (`fields.Traceable`).

Each generator yields parts and returns where the next value starts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache
from typing import Any

from binlogtool.formats.fields import MalformedError, Part, PlainPart
from binlogtool.formats.tarantool import schema
from binlogtool.formats.tarantool.msgpack.extensions import ExtType, interval_parts, readable
from binlogtool.formats.tarantool.msgpack.messages import Kind, Token, read_token, too_deep
from binlogtool.formats.tarantool.msgpack.values import text
from binlogtool.formats.tarantool.rows.names import BODY_NAMES, HEADER_NAMES, OWN_KEYS, TYPE_NAMES
from binlogtool.formats.tarantool.rows.rows import NOP

Parts = Generator[PlainPart, None, int]

_UINT, _DOUBLE, _STR, _EXT, _ARRAY, _MAP = Kind.UINT, Kind.DOUBLE, Kind.STR, Kind.EXT, Kind.ARRAY, Kind.MAP
_TYPE, _TIMESTAMP, _TSN, _FLAGS = map(int, (
    schema.HeaderKey.TYPE, schema.HeaderKey.TIMESTAMP, schema.HeaderKey.TSN, schema.HeaderKey.FLAGS,
))  # fmt: skip
_LAST_HEADER_KEY = int(schema.HeaderKey.THREAD_ID)
_SPACE_ID = int(schema.BodyKey.SPACE_ID)
_RAFT = int(schema.RowType.RAFT)
_OPERATIONS = {
    int(schema.RowType.UPDATE): int(schema.BodyKey.TUPLE),
    int(schema.RowType.UPSERT): int(schema.BodyKey.OPS),
}
"""Row types with update operations, and the key that holds them."""


def value_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """The value at `data[start]`: one leaf, or a container with its parts. depth 0 = the field itself is not named.

    left: levels of nesting that are still allowed.

    Raises:
        MalformedError: after the good parts, where the bytes are no value.
    """
    token = read_token(data, start, end)
    if token.kind < _EXT:
        yield _leaf(path, depth, token)
        return token.end
    return (yield from _nested(data, token, end, path, depth, left))


def _leaf(path: str, depth: int, token: Token, meaning: str = "") -> PlainPart:
    _, kind, value, start, _, end = token
    return path, depth, start, end, text(value) if kind is _STR else value, meaning


def _nested(data: Any, token: Token, end: int, path: str, depth: int, left: int) -> Parts:
    """An extension, array or map that begins with this token."""
    if token.kind is _EXT:
        yield from _extension(data, token, path, depth)
        return token.end
    if left <= 0:
        raise too_deep()
    pairs, size, position = token.kind is _MAP, token.value, token.end
    if depth:
        yield path, depth, token.start, None, None, f"{size} {'pairs' if pairs else 'values'}"
    depth, left = depth + 1, left - 1
    yield f"{path}.count", depth, token.start, position, size, "map" if pairs else "array"
    for index in range(size):
        where = f"{path}[{index}]"
        if pairs:
            where = path + _suffix(read_token(data, position, end), index)
            position = yield from value_parts(data, position, end, f"{path}.keys[{index}]", depth, left)
        item = read_token(data, position, end)
        if item.kind < _EXT:
            yield _leaf(where, depth, item)
            position = item.end
        else:
            position = yield from _nested(data, item, end, where, depth, left)
    return position


def _suffix(key: Token, index: int) -> str:
    """How a value of a map is named: `.name` for a plain word, `[5]` for a number, else its place."""
    if key.kind is _STR and key.value.isalnum() and len(key.value) <= 64 and key.value.isascii():
        return f".{key.value.decode()}"
    return f"[{key.value}]" if key.kind in (Kind.UINT, Kind.INT) else f".value[{index}]"


def _extension(data: Any, token: Token, path: str, depth: int) -> Iterator[Part]:
    code, content = token.value
    name = ExtType(code).name.lower() if code in ExtType.__members__.values() else "unknown"
    meaning = f"{code} = {name}"
    if depth:
        decoded = readable(code, content)
        yield Part(path, depth, token.start, None, None if "$ext" in decoded else decoded, name)
    yield Part(f"{path}.ext", depth + 1, token.start, token.body, code, meaning)
    at = token.body
    try:
        pieces = list(_pieces(code, content))
    except MalformedError as error:
        pieces = [(".data", 0, len(content), content, str(error.args[0]))] if content else []
    for suffix, low, high, value, words in pieces:
        yield Part(path + suffix, depth + 1, at + low, at + high, value, words)


def _pieces(code: int, content: bytes) -> Iterator[tuple[str, int, int, Any, str]]:
    """(suffix, start, end, value, meaning) of the parts of an extension's content, tiling it."""
    size = len(content)
    decoded = readable(code, content)
    if "$ext" in decoded or code == ExtType.ERROR:
        if size:
            yield ".data", 0, size, content, ""
    elif code == ExtType.DECIMAL:
        token = read_token(content, 0, size)
        yield ".scale", 0, token.end, token.value, ""
        yield ".digits", token.end, size, content[token.end :].hex(), decoded["$decimal"]
    elif code == ExtType.UUID:
        yield ".uuid", 0, size, decoded["$uuid"], ""
    elif code == ExtType.DATETIME:
        places = {"seconds": (0, 8), "nanoseconds": (8, 12), "tz_offset": (12, 14), "tz_index": (14, 16)}
        for name, (low, high) in places.items():
            if name in decoded:
                words = decoded["$datetime"] if name == "seconds" else "minutes" if name == "tz_offset" else ""
                yield f".{name}", low, high, decoded[name], words
    else:
        yield ".count", 0, 1, content[0], ""
        for name, value, low, high in interval_parts(content):
            yield f".{name}", low, high, value, ""


def row_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """The parts of one row: header map, body map.

    Raises:
        MalformedError: after the good parts.
    """
    yield f"{path}.header", depth + 1, start, None, None, ""
    row_type = -1
    position, size = _map_head(data, start, end, "header")
    yield f"{path}.header.count", depth + 2, start, position, size, "map"
    for index in range(size):
        number, after = _key(data, position, end)
        name = HEADER_NAMES.get(number) or f"key_0x{number:02x}"
        yield f"{path}.header.keys[{index}]", depth + 2, position, after, number, name
        token = _header_value(data, after, end, number)
        yield _leaf(f"{path}.header.{name}", depth + 2, token, _header_words(number, token.value))
        position = token.end
        if number == _TYPE:
            row_type = token.value
    if row_type < 0:
        raise MalformedError("a row's header has no type")
    if position >= end or (row_type == NOP and data[position] != 0x80):
        return position
    yield f"{path}.body", depth + 1, position, None, None, TYPE_NAMES[row_type]
    return (yield from _body(data, position, end, f"{path}.body", depth + 2, left, row_type))


def _map_head(data: Any, start: int, end: int, what: str) -> tuple[int, int]:
    """Where the pairs of a row's map start, and how many there are."""
    head = read_token(data, start, end)
    if head.kind is not _MAP:
        raise MalformedError(f"a row's {what} is no map")
    return head.end, head.value


def _key(data: Any, start: int, end: int) -> tuple[int, int]:
    """A key of a row's map and where its value starts."""
    if start < end and data[start] < 0x80:
        return data[start], start + 1
    token = read_token(data, start, end)
    if token.kind is not _UINT:
        raise MalformedError("a key of a row is no unsigned integer")
    return token.value, token.end


def _header_value(data: Any, start: int, end: int, key: int) -> Token:
    token = read_token(data, start, end)
    wanted = _DOUBLE if key == _TIMESTAMP else _UINT
    if key <= _LAST_HEADER_KEY and token.kind is not wanted:
        raise MalformedError(f"header key {key} has a value of another type than {wanted.name.lower()}")
    if token.kind >= _ARRAY:
        raise MalformedError(f"header key {key} has an array or map as its value")
    return token


def _header_words(key: int, value: Any) -> str:
    if key == _TYPE:
        return TYPE_NAMES[value]
    if key == _FLAGS:
        return _flag_words(value)
    return "lsn - tsn" if key == _TSN else ""


@lru_cache(maxsize=64)
def _flag_words(value: int) -> str:
    return " + ".join(flag.name.lower() for flag in schema.Flag if value & flag and flag.name)


def _body(data: Any, start: int, end: int, path: str, depth: int, left: int, row_type: int) -> Parts:
    position, size = _map_head(data, start, end, "body")
    yield f"{path}.count", depth, start, position, size, "map"
    names, operations = OWN_KEYS.get(row_type, BODY_NAMES), _OPERATIONS.get(row_type, -1)
    for index in range(size):
        number, after = _key(data, position, end)
        name = names.get(number) or f"key_0x{number:02x}"
        yield f"{path}.keys[{index}]", depth, position, after, number, name
        if number == operations:
            position = yield from _operations(data, after, end, f"{path}.{name}", depth, left)
            continue
        token = read_token(data, after, end)
        if token.kind < _EXT:
            space = number == _SPACE_ID and row_type < _RAFT
            yield _leaf(f"{path}.{name}", depth, token, schema.SYSTEM_SPACES.get(token.value, "") if space else "")
            position = token.end
        else:
            position = yield from _nested(data, token, end, f"{path}.{name}", depth, left)
    return position


def _operations(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """An array of update operations: `[i].op`, `[i].field`, `[i].argument[j]`."""
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        raise MalformedError("update operations are no array")
    yield Part(path, depth, start, None, meaning=f"{head.value} operations")
    yield Part(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        position = yield from _operation(data, position, end, f"{path}[{index}]", depth + 1, left - 1)
    return position


def _operation(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        return (yield from value_parts(data, start, end, path, depth, left))
    yield Part(path, depth, start, None)
    yield Part(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for place in range(head.value):
        where = path + ((".op", ".field")[place] if place < 2 else f".argument[{place - 2}]")
        token = read_token(data, position, end)
        if token.kind < _EXT:
            words = ""
            if place == 0 and token.kind is _STR:
                words = schema.UPDATE_OPERATIONS.get(token.value.decode("latin-1"), "unknown")
            yield _leaf(where, depth + 1, token, words)
            position = token.end
        else:
            position = yield from _nested(data, token, end, where, depth + 1, left - 1)
    return position
