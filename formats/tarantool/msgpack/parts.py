"""Name every byte of MessagePack values for the annotated hexdump (`fields.Traceable`).

Each generator yields parts and returns where the next value starts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from construct import Construct

from binlogtool.formats.fields import MalformedError, Part, PlainPart
from binlogtool.formats.tarantool.msgpack.extensions import ExtType, interval_parts
from binlogtool.formats.tarantool.msgpack.messages import (
    Kind,
    Mp,
    Token,
    bounded,
    decode,
    encode,
    read_token,
    remaining,
    too_deep,
)
from binlogtool.formats.tarantool.msgpack.values import readable, text
from binlogtool.limits import Limits

Parts = Generator[PlainPart, None, int]

_STR, _EXT, _MAP = Kind.STR, Kind.EXT, Kind.MAP


def value_parts(data: Any, start: int, end: int, path: str, depth: int, left: int) -> Parts:
    """Trace the value at `data[start]`: one leaf, or a container with its parts.

    Args:
        depth: level of the field in the hexdump; 0 = the field itself is not named.
        levels: nesting still allowed.

    Raises:
        MalformedError: after the good parts, where the bytes are no value.
    """
    token = read_token(data, start, end)
    if token.kind < _EXT:
        yield leaf(path, depth, token)
        return token.end
    return (yield from nested(data, token, end, path, depth, left))


def leaf(path: str, depth: int, token: Token, meaning: str = "") -> PlainPart:
    """Create the part of a value without parts of its own."""
    _, kind, value, start, _, end = token
    return path, depth, start, end, text(value) if kind is _STR else value, meaning


def nested(data: Any, token: Token, end: int, path: str, depth: int, left: int) -> Parts:
    """Trace an extension, array or map that begins with this token."""
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
            yield leaf(where, depth, item)
            position = item.end
        else:
            position = yield from nested(data, item, end, where, depth, left)
    return position


def _suffix(key: Token, index: int) -> str:
    """Return the path suffix of a map value: `.name` for a plain word, `[5]` for a number, else its place."""
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
    """Yield (suffix, start, end, value, meaning) of the parts of an extension's content, without holes."""
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


class MpValue(Construct):  # type: ignore[misc]
    """Construct type of any value, as an `MpNode` tree."""

    def _parse(self, stream: Any, context: Any, path: str) -> Mp:
        data, start, end, base = remaining(stream)
        try:
            value = decode(data, start, end)
        except MalformedError as error:
            raise MalformedError(error.args[0], path, error.finding_id) from None
        stream.seek(value.end + base)
        return value

    def _build(self, obj: Mp, stream: Any, context: Any, path: str) -> Mp:
        stream.write(encode(obj))
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Yield nested values with their indexes and keys; a plain value has no parts."""
        if read_token(data, start, end).kind >= Kind.EXT:
            yield from map(Part._make, value_parts(data, start, end, "", 0, bounded(limits)))
