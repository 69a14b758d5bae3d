"""Name every byte of rows for the annotated hexdump (`fields.Traceable`).

Each generator yields parts and returns where the next value starts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from binlogtool.formats.fields import MalformedError, TracePart
from binlogtool.formats.tarantool import codes
from binlogtool.formats.tarantool.msgpack.messages import MpKind, MpToken, read_token
from binlogtool.formats.tarantool.msgpack.parts import Parts, create_leaf, trace_nested, trace_value
from binlogtool.formats.tarantool.rows.names import BODY_NAMES, BODY_NAMES_BY_TYPE, HEADER_NAMES, TYPE_NAMES

_UINT, _DOUBLE, _STR, _EXT, _ARRAY, _MAP = MpKind.UINT, MpKind.DOUBLE, MpKind.STR, MpKind.EXT, MpKind.ARRAY, MpKind.MAP
_TYPE, _TIMESTAMP, _TSN, _FLAGS = map(int, (
    codes.HeaderKey.TYPE, codes.HeaderKey.TIMESTAMP, codes.HeaderKey.TSN, codes.HeaderKey.FLAGS,
))  # fmt: skip
_LAST_HEADER_KEY = int(codes.HeaderKey.THREAD_ID)
_SPACE_ID = int(codes.BodyKey.SPACE_ID)
_RAFT, _NOP = int(codes.RowType.RAFT), int(codes.RowType.NOP)
_OPERATIONS_KEYS = {
    int(codes.RowType.UPDATE): int(codes.BodyKey.TUPLE),
    int(codes.RowType.UPSERT): int(codes.BodyKey.OPS),
}
"""Row types with update operations, and the key that holds them."""


def trace_row(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> Parts:
    """Trace one row: header map, body map.

    Raises:
        MalformedError: after the good parts.
    """
    yield f"{path}.header", depth + 1, start, None, None, ""
    row_type = 0
    position, size = _read_map_head(data, start, end, "header")
    yield f"{path}.header.count", depth + 2, start, position, size, "map"
    for index in range(size):
        number, after = _read_key(data, position, end)
        name = HEADER_NAMES.get(number) or f"key_0x{number:02x}"
        yield f"{path}.header.keys[{index}]", depth + 2, position, after, number, name
        token = _read_header_value(data, after, end, number)
        yield create_leaf(f"{path}.header.{name}", depth + 2, token, _describe_header_value(number, token.value))
        position = token.end
        if number == _TYPE:
            row_type = token.value
    if position >= end or (row_type == _NOP and data[position] != 0x80):
        return position
    yield f"{path}.body", depth + 1, position, None, None, TYPE_NAMES[row_type]
    return (yield from _trace_body(data, position, end, f"{path}.body", depth + 2, levels, row_type))


def _read_map_head(data: Any, start: int, end: int, map_name: str) -> tuple[int, int]:
    """Return where the pairs of a row's map start, and their number."""
    head = read_token(data, start, end)
    if head.kind is not _MAP:
        raise MalformedError(f"a row's {map_name} is no map")
    return head.end, head.value


def _read_key(data: Any, start: int, end: int) -> tuple[int, int]:
    """Read a key of a row's map; return it and where its value starts."""
    if start < end and data[start] < 0x80:
        return data[start], start + 1
    token = read_token(data, start, end)
    if token.kind is not _UINT:
        raise MalformedError("a key of a row is no unsigned integer")
    return token.value, token.end


def _read_header_value(data: Any, start: int, end: int, key: int) -> MpToken:
    token = read_token(data, start, end)
    expected_kind = _DOUBLE if key == _TIMESTAMP else _UINT
    if key <= _LAST_HEADER_KEY and token.kind is not expected_kind:
        raise MalformedError(f"header key {key} has a value of another type than {expected_kind.name.lower()}")
    if token.kind >= _ARRAY:
        raise MalformedError(f"header key {key} has an array or map as its value")
    return token


def _describe_header_value(key: int, value: Any) -> str:
    if key == _TYPE:
        return TYPE_NAMES[value]
    if key == _FLAGS:
        return _describe_flags(value)
    return "lsn - tsn" if key == _TSN else ""


@lru_cache(maxsize=64)
def _describe_flags(value: int) -> str:
    return " + ".join(flag.name.lower() for flag in codes.RowFlag if value & flag and flag.name)


def _trace_body(data: Any, start: int, end: int, path: str, depth: int, levels: int, row_type: int) -> Parts:
    position, size = _read_map_head(data, start, end, "body")
    yield f"{path}.count", depth, start, position, size, "map"
    names, operations = BODY_NAMES_BY_TYPE.get(row_type, BODY_NAMES), _OPERATIONS_KEYS.get(row_type, -1)
    for index in range(size):
        if row_type < _RAFT and read_token(data, position, end).kind is not _UINT:
            number, name = -1, f"key_{index}"
            yield f"{path}.keys[{index}]", depth, position, None, None, "no number: passed over"
            after = yield from trace_value(data, position, end, f"{path}.keys[{index}].value", depth + 1, levels)
        else:
            number, after = _read_key(data, position, end)
            name = names.get(number) or f"key_0x{number:02x}"
            yield f"{path}.keys[{index}]", depth, position, after, number, name
        if number == operations:
            position = yield from _trace_operations(data, after, end, f"{path}.{name}", depth, levels)
            continue
        token = read_token(data, after, end)
        if token.kind < _EXT:
            is_space_id = number == _SPACE_ID and row_type < _RAFT
            yield create_leaf(
                f"{path}.{name}", depth, token, codes.SYSTEM_SPACES.get(token.value, "") if is_space_id else ""
            )
            position = token.end
        else:
            position = yield from trace_nested(data, token, end, f"{path}.{name}", depth, levels)
    return position


def _trace_operations(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> Parts:
    """Trace an array of update operations: `[i].op`, `[i].field`, `[i].argument[j]`."""
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        raise MalformedError("update operations are no array")
    yield TracePart(path, depth, start, None, meaning=f"{head.value} operations")
    yield TracePart(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        position = yield from _trace_operation(data, position, end, f"{path}[{index}]", depth + 1, levels - 1)
    return position


def _trace_operation(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> Parts:
    head = read_token(data, start, end)
    if head.kind is not _ARRAY:
        return (yield from trace_value(data, start, end, path, depth, levels))
    yield TracePart(path, depth, start, None)
    yield TracePart(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        item_path = path + ((".op", ".field")[index] if index < 2 else f".argument[{index - 2}]")
        token = read_token(data, position, end)
        if token.kind < _EXT:
            meaning = ""
            if index == 0 and token.kind is _STR:
                meaning = codes.UPDATE_OPERATIONS.get(token.value.decode("latin-1"), "unknown")
            yield create_leaf(item_path, depth + 1, token, meaning)
            position = token.end
        else:
            position = yield from trace_nested(data, token, end, item_path, depth + 1, levels - 1)
    return position
