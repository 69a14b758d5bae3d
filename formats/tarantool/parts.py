"""Names for every byte of MessagePack values and rows: what the annotated parse shows (`fields.Traceable`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from binlogtool.formats.fields import MalformedError, Part
from binlogtool.formats.tarantool import schema
from binlogtool.formats.tarantool.extensions import ExtType, interval_parts, readable
from binlogtool.formats.tarantool.msgpack import Kind, Token, read_token, too_deep
from binlogtool.formats.tarantool.names import TYPE_NAMES, body_key_name, header_key_name
from binlogtool.formats.tarantool.rows import NOP
from binlogtool.formats.tarantool.values import text


def value_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Iterator[Part]:
    """The value at `data[start]`: one leaf, or a container with its parts. depth 0 = the field itself is not named.

    left: levels of nesting that are still allowed.

    Raises:
        MalformedError: after the good parts, where the bytes are no value.
    """
    token = read_token(data, start, end)
    if token.kind < Kind.EXT:
        yield Part(path, depth, start, token.end, _shown(token))
        return
    if token.kind is Kind.EXT:
        yield from _extension(data, token, path, depth)
        return
    if left <= 0:
        raise too_deep()
    if depth:
        yield Part(path, depth, start, None, meaning=f"{token.value} {'pairs' if token.kind is Kind.MAP else 'values'}")
    yield Part(f"{path}.count", depth + 1, start, token.end, token.value, token.kind.name.lower())
    position = token.end
    for index in range(token.value):
        where = f"{path}[{index}]"
        if token.kind is Kind.MAP:
            key = read_token(data, position, end)
            for part in value_parts(data, position, end, f"{path}.keys[{index}]", depth + 1, left - 1):
                position = part.end or position
                yield part
            where = path + _suffix(key, index)
        for part in value_parts(data, position, end, where, depth + 1, left - 1):
            position = part.end or position
            yield part


def _shown(token: Token) -> Any:
    return text(token.value) if token.kind is Kind.STR else token.value


def _suffix(key: Token, index: int) -> str:
    """How a value of a map is named: `.name` for a plain word, `[5]` for a number, else its place."""
    if key.kind is Kind.STR and key.value.isalnum() and len(key.value) <= 64 and key.value.isascii():
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


def row_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Iterator[Part]:
    """The parts of one row: header map, body map.

    Raises:
        MalformedError: after the good parts.
    """
    position = start
    row_type = -1
    yield Part(f"{path}.header", depth + 1, start, None)
    for part in _named_map(data, start, end, f"{path}.header", depth + 1, left, -1):
        position = part.end or position
        if part.path == f"{path}.header.type":
            row_type = part.value
        yield part
    if row_type < 0:
        raise MalformedError("a row's header has no type")
    if position >= end or (row_type == NOP and data[position] != 0x80):
        return
    yield Part(f"{path}.body", depth + 1, position, None, meaning=TYPE_NAMES[row_type])
    yield from _named_map(data, position, end, f"{path}.body", depth + 1, left, row_type)


def _named_map(data: Any, start: int, end: int, path: str, depth: int, left: int, row_type: int) -> Iterator[Part]:
    """A header (row_type -1) or body map with the names of its keys."""
    head = read_token(data, start, end)
    if head.kind is not Kind.MAP:
        raise MalformedError(f"a row's {path.rpartition('.')[2]} is no map")
    yield Part(f"{path}.count", depth + 1, start, head.end, head.value, "map")
    position = head.end
    for index in range(head.value):
        key = read_token(data, position, end)
        if key.kind is not Kind.UINT:
            raise MalformedError("a key of a row is no unsigned integer")
        name = header_key_name(key.value) if row_type < 0 else body_key_name(row_type, key.value)
        yield Part(f"{path}.keys[{index}]", depth + 1, position, key.end, key.value, name)
        for part in _keyed_value(data, key.end, end, f"{path}.{name}", depth + 1, left, row_type, key.value):
            position = part.end or position
            yield part


def _keyed_value(
    data: Any, start: int, end: int, path: str, depth: int, left: int, row_type: int, key: int
) -> Iterator[Part]:
    if row_type < 0:
        yield _header_value(data, start, end, path, depth, key)
    elif _holds_operations(row_type, key):
        yield from _operations(data, start, end, path, depth, left)
    elif 0 <= row_type < schema.RowType.RAFT and key == schema.BodyKey.SPACE_ID:
        token = read_token(data, start, end)
        yield Part(path, depth, start, token.end, token.value, schema.SYSTEM_SPACES.get(token.value, ""))
    else:
        yield from value_parts(data, start, end, path, depth, left)


def _header_value(data: Any, start: int, end: int, path: str, depth: int, key: int) -> Part:
    token = read_token(data, start, end)
    wanted = Kind.DOUBLE if key == schema.HeaderKey.TIMESTAMP else Kind.UINT
    if key <= schema.HeaderKey.THREAD_ID and token.kind is not wanted:
        raise MalformedError(f"header key {key} has a value of another type than {wanted.name.lower()}")
    if token.kind >= Kind.ARRAY:
        raise MalformedError(f"header key {key} has an array or map as its value")
    meaning = ""
    if key == schema.HeaderKey.TYPE:
        meaning = TYPE_NAMES[token.value]
    elif key == schema.HeaderKey.FLAGS:
        meaning = " + ".join(flag.name.lower() for flag in schema.Flag if token.value & flag and flag.name)
    elif key == schema.HeaderKey.TSN:
        meaning = "lsn - tsn"
    return Part(path, depth, start, token.end, _shown(token), meaning)


def _holds_operations(row_type: int, key: int) -> bool:
    return (row_type, key) in (
        (schema.RowType.UPDATE, schema.BodyKey.TUPLE),
        (schema.RowType.UPSERT, schema.BodyKey.OPS),
    )


def _operations(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Iterator[Part]:
    """An array of update operations: `[i].op`, `[i].field`, `[i].argument[j]`."""
    head = read_token(data, start, end)
    if head.kind is not Kind.ARRAY:
        raise MalformedError("update operations are no array")
    yield Part(path, depth, start, None, meaning=f"{head.value} operations")
    yield Part(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for index in range(head.value):
        for part in _operation(data, position, end, f"{path}[{index}]", depth + 1, left - 1):
            position = part.end or position
            yield part


def _operation(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Iterator[Part]:
    head = read_token(data, start, end)
    if head.kind is not Kind.ARRAY:
        yield from value_parts(data, start, end, path, depth, left)
        return
    yield Part(path, depth, start, None)
    yield Part(f"{path}.count", depth + 1, start, head.end, head.value, "array")
    position = head.end
    for place in range(head.value):
        suffix = (".op", ".field")[place] if place < 2 else f".argument[{place - 2}]"
        for part in value_parts(data, position, end, path + suffix, depth + 1, left - 1):
            position = part.end or position
            if place == 0 and isinstance(part.value, str):
                part = part._replace(meaning=schema.UPDATE_OPERATIONS.get(part.value, "unknown"))
            yield part
