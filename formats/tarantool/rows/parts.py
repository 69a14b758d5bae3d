"""Name every byte of rows for the annotated hexdump (`fields.Traceable`).

Each generator yields parts and returns where the next value starts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from binlogtool.formats.fields import MalformedError, Part
from binlogtool.formats.tarantool import codes
from binlogtool.formats.tarantool.msgpack.messages import Kind, Token, read_token
from binlogtool.formats.tarantool.msgpack.parts import Parts, leaf, nested, value_parts
from binlogtool.formats.tarantool.rows.names import BODY_NAMES, HEADER_NAMES, OWN_KEYS, TYPE_NAMES

_UINT, _DOUBLE, _STR, _EXT, _ARRAY, _MAP = Kind.UINT, Kind.DOUBLE, Kind.STR, Kind.EXT, Kind.ARRAY, Kind.MAP
_TYPE, _TIMESTAMP, _TSN, _FLAGS = map(int, (
    codes.HeaderKey.TYPE, codes.HeaderKey.TIMESTAMP, codes.HeaderKey.TSN, codes.HeaderKey.FLAGS,
))  # fmt: skip
_LAST_HEADER_KEY = int(codes.HeaderKey.THREAD_ID)
_SPACE_ID = int(codes.BodyKey.SPACE_ID)
_RAFT, _NOP = int(codes.RowType.RAFT), int(codes.RowType.NOP)
_OPERATIONS = {
    int(codes.RowType.UPDATE): int(codes.BodyKey.TUPLE),
    int(codes.RowType.UPSERT): int(codes.BodyKey.OPS),
}
"""Row types with update operations, and the key that holds them."""


def row_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """Trace one row: header map, body map.

    Raises:
        MalformedError: after the good parts.
    """
    yield f"{path}.header", depth + 1, start, None, None, ""
    row_type = 0
    position, size = _map_head(data, start, end, "header")
    yield f"{path}.header.count", depth + 2, start, position, size, "map"
    for index in range(size):
        number, after = _key(data, position, end)
        name = HEADER_NAMES.get(number) or f"key_0x{number:02x}"
        yield f"{path}.header.keys[{index}]", depth + 2, position, after, number, name
        token = _header_value(data, after, end, number)
        yield leaf(f"{path}.header.{name}", depth + 2, token, _header_words(number, token.value))
        position = token.end
        if number == _TYPE:
            row_type = token.value
    if position >= end or (row_type == _NOP and data[position] != 0x80):
        return position
    yield f"{path}.body", depth + 1, position, None, None, TYPE_NAMES[row_type]
    return (yield from _body(data, position, end, f"{path}.body", depth + 2, left, row_type))


def _map_head(data: Any, start: int, end: int, what: str) -> tuple[int, int]:
    """Return where the pairs of a row's map start, and their number."""
    head = read_token(data, start, end)
    if head.kind is not _MAP:
        raise MalformedError(f"a row's {what} is no map")
    return head.end, head.value


def _key(data: Any, start: int, end: int) -> tuple[int, int]:
    """Read a key of a row's map; return it and where its value starts."""
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
    return " + ".join(flag.name.lower() for flag in codes.Flag if value & flag and flag.name)


def _body(data: Any, start: int, end: int, path: str, depth: int, left: int, row_type: int) -> Parts:
    position, size = _map_head(data, start, end, "body")
    yield f"{path}.count", depth, start, position, size, "map"
    names, operations = OWN_KEYS.get(row_type, BODY_NAMES), _OPERATIONS.get(row_type, -1)
    for index in range(size):
        if row_type < _RAFT and read_token(data, position, end).kind is not _UINT:
            number, name = -1, f"key_{index}"
            yield f"{path}.keys[{index}]", depth, position, None, None, "no number: passed over"
            after = yield from value_parts(data, position, end, f"{path}.keys[{index}].value", depth + 1, left)
        else:
            number, after = _key(data, position, end)
            name = names.get(number) or f"key_0x{number:02x}"
            yield f"{path}.keys[{index}]", depth, position, after, number, name
        if number == operations:
            position = yield from _operations(data, after, end, f"{path}.{name}", depth, left)
            continue
        token = read_token(data, after, end)
        if token.kind < _EXT:
            space = number == _SPACE_ID and row_type < _RAFT
            yield leaf(f"{path}.{name}", depth, token, codes.SYSTEM_SPACES.get(token.value, "") if space else "")
            position = token.end
        else:
            position = yield from nested(data, token, end, f"{path}.{name}", depth, left)
    return position


def _operations(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """Trace an array of update operations: `[i].op`, `[i].field`, `[i].argument[j]`."""
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
                words = codes.UPDATE_OPERATIONS.get(token.value.decode("latin-1"), "unknown")
            yield leaf(where, depth + 1, token, words)
            position = token.end
        else:
            position = yield from nested(data, token, end, where, depth + 1, left - 1)
    return position
