"""Name every byte of MessagePack values for the annotated hexdump (`fields.Traceable`).

Each generator yields parts and returns where the next value starts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from construct import Construct

from binlogtool.formats.fields import MalformedError, PlainPart, TracePart
from binlogtool.formats.tarantool.msgpack.extensions import ExtType, decode_interval
from binlogtool.formats.tarantool.msgpack.messages import (
    MpKind,
    MpNode,
    MpToken,
    decode_value,
    encode_value,
    get_remaining,
    limit_depth,
    nesting_error,
    read_token,
)
from binlogtool.formats.tarantool.msgpack.values import decode_extension, decode_text
from binlogtool.limits import Limits

Parts = Generator[PlainPart, None, int]

_STR, _EXT, _MAP = MpKind.STR, MpKind.EXT, MpKind.MAP


def trace_value(data: Any, start: int, end: int, path: str, depth: int, levels: int) -> Parts:
    """Trace the value at `data[start]`: one leaf, or a container with its parts.

    Args:
        depth: level of the field in the hexdump; 0 = the field itself is not named.
        levels: nesting still allowed.

    Raises:
        MalformedError: after the good parts, where the bytes are no value.
    """
    token = read_token(data, start, end)
    if token.kind < _EXT:
        yield create_leaf(path, depth, token)
        return token.end
    return (yield from trace_nested(data, token, end, path, depth, levels))


def create_leaf(path: str, depth: int, token: MpToken, meaning: str = "") -> PlainPart:
    """Create the part of a value without parts of its own."""
    _, kind, value, start, _, end = token
    return path, depth, start, end, decode_text(value) if kind is _STR else value, meaning


def trace_nested(data: Any, token: MpToken, end: int, path: str, depth: int, levels: int) -> Parts:
    """Trace an extension, array or map that begins with this token."""
    if token.kind is _EXT:
        yield from _trace_extension(data, token, path, depth)
        return token.end
    if levels <= 0:
        raise nesting_error()
    pairs, size, position = token.kind is _MAP, token.value, token.end
    if depth:
        yield path, depth, token.start, None, None, f"{size} {'pairs' if pairs else 'values'}"
    depth, levels = depth + 1, levels - 1
    yield f"{path}.count", depth, token.start, position, size, "map" if pairs else "array"
    for index in range(size):
        item_path = f"{path}[{index}]"
        if pairs:
            item_path = path + _path_suffix(read_token(data, position, end), index)
            position = yield from trace_value(data, position, end, f"{path}.keys[{index}]", depth, levels)
        item = read_token(data, position, end)
        if item.kind < _EXT:
            yield create_leaf(item_path, depth, item)
            position = item.end
        else:
            position = yield from trace_nested(data, item, end, item_path, depth, levels)
    return position


def _path_suffix(key: MpToken, index: int) -> str:
    """Return the path suffix of a map value: `.name` for a plain word, `[5]` for a number, else its place."""
    if key.kind is _STR and key.value.isalnum() and len(key.value) <= 64 and key.value.isascii():
        return f".{key.value.decode()}"
    return f"[{key.value}]" if key.kind in (MpKind.UINT, MpKind.INT) else f".value[{index}]"


def _trace_extension(data: Any, token: MpToken, path: str, depth: int) -> Iterator[TracePart]:
    code, content = token.value
    name = ExtType(code).name.lower() if code in ExtType.__members__.values() else "unknown"
    meaning = f"{code} = {name}"
    if depth:
        decoded = decode_extension(code, content)
        yield TracePart(path, depth, token.start, None, None if "$ext" in decoded else decoded, name)
    yield TracePart(f"{path}.ext", depth + 1, token.start, token.body, code, meaning)
    content_start = token.body
    try:
        pieces = list(_split_extension(code, content))
    except MalformedError as error:
        pieces = [(".data", 0, len(content), content, str(error.args[0]))] if content else []
    for suffix, low, high, value, part_meaning in pieces:
        yield TracePart(path + suffix, depth + 1, content_start + low, content_start + high, value, part_meaning)


def _split_extension(code: int, content: bytes) -> Iterator[tuple[str, int, int, Any, str]]:
    """Yield (suffix, start, end, value, meaning) of the parts of an extension's content, without holes."""
    size = len(content)
    decoded = decode_extension(code, content)
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
                meaning = decoded["$datetime"] if name == "seconds" else "minutes" if name == "tz_offset" else ""
                yield f".{name}", low, high, decoded[name], meaning
    else:
        yield ".count", 0, 1, content[0], ""
        for name, value, low, high in decode_interval(content):
            yield f".{name}", low, high, value, ""


class MpValue(Construct):  # type: ignore[misc]
    """Construct type of any value, as an `MpNode` tree."""

    def _parse(self, stream: Any, context: Any, path: str) -> MpNode:
        data, start, end, base = get_remaining(stream)
        try:
            value = decode_value(data, start, end)
        except MalformedError as error:
            raise MalformedError(error.args[0], path, error.finding_id) from None
        stream.seek(value.end + base)
        return value

    def _build(self, obj: MpNode, stream: Any, context: Any, path: str) -> MpNode:
        stream.write(encode_value(obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Yield nested values with their indexes and keys; a plain value has no parts."""
        if read_token(data, start, end).kind >= MpKind.EXT:
            yield from map(TracePart._make, trace_value(data, start, end, "", 0, limit_depth(limits)))
