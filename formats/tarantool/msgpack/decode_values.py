"""MessagePack values as JSON-able values, extension types, and their annotated parts.

Source: `docs/spec/tarantool.md#extension-types`.

Each generator yields parts and returns the position where the next value starts.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Generator, Iterator
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from binlogtool.format_api.schema_fields import MalformedError, PlainPart, TracePart, decode_text
from binlogtool.format_api.schema_fields import format_uuid as uuid_text
from binlogtool.formats.tarantool.msgpack.parse import (
    MAX_DEPTH,
    MpKind,
    MpNode,
    MpToken,
    decode_value,
    nesting_error,
    read_token,
)

# --- Extension types as JSON values ---


class ExtType(enum.IntEnum):
    """Codes of the extension types (`mp_extension_type`)."""

    DECIMAL = 1
    UUID = 2
    ERROR = 3
    DATETIME = 4
    COMPRESSION = 5
    INTERVAL = 6
    TUPLE = 7
    ARROW = 8


INTERVAL_FIELDS = ("year", "month", "week", "day", "hour", "minute", "second", "nanosecond", "adjust")
ERROR_FIELDS = ("type", "file", "line", "message", "errno", "code", "fields")
MAX_DIGITS = 128
"""Maximum number of packed decimal digits that are shown as a number; the server stores up to 38."""

_SIGN_NIBBLES = {0xA: 0, 0xB: 1, 0xC: 0, 0xD: 1, 0xE: 0, 0xF: 0}
_SHORT_DATETIME = struct.Struct("<q")
_LONG_DATETIME = struct.Struct("<qihh")
_SECONDS_PER_DAY = 86400


def format_decimal(data: bytes) -> str:
    """Format a decimal exactly as the server prints it ("1.50", "100000"); with an exponent if it would be very long.

    Raises:
        MalformedError: no scale, a digit over 9, or no sign.
    """
    token = read_token(data, 0, len(data))
    if token.kind not in (MpKind.UINT, MpKind.INT):
        raise MalformedError("a decimal's scale is no integer")
    nibbles = [half for byte in data[token.end :] for half in (byte >> 4, byte & 15)]
    if not nibbles or nibbles[-1] not in _SIGN_NIBBLES or len(nibbles) > MAX_DIGITS or any(n > 9 for n in nibbles[:-1]):
        raise MalformedError("a decimal's digits are not packed BCD")
    try:
        value = Decimal((_SIGN_NIBBLES[nibbles[-1]], tuple(nibbles[:-1]), -token.value))
        return f"{value:f}" if abs(token.value) <= MAX_DIGITS else str(value)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise MalformedError("a decimal's scale is out of range") from error


def format_uuid(data: bytes) -> str:
    """Format a uuid as 36 characters (RFC 4122). Raises MalformedError: not 16 bytes."""
    if len(data) != 16:
        raise MalformedError(f"a uuid has {len(data)} bytes instead of 16")
    return uuid_text(data)


def decode_datetime(data: bytes) -> dict[str, int]:
    """Decode the stored fields of a datetime: seconds since 1970 (UTC), nanoseconds, tz_offset in minutes, tz_index.

    Raises:
        MalformedError: neither 8 nor 16 bytes, or a part out of its range.
    """
    if len(data) == _SHORT_DATETIME.size:
        return {"seconds": _SHORT_DATETIME.unpack(data)[0]}
    if len(data) != _LONG_DATETIME.size:
        raise MalformedError(f"a datetime has {len(data)} bytes instead of 8 or 16")
    seconds, nanoseconds, tz_offset, tz_index = _LONG_DATETIME.unpack(data)
    if not 0 <= nanoseconds < 10**9 or abs(tz_offset) >= 24 * 60:
        raise MalformedError("a datetime's nanoseconds or zone offset are out of range")
    return {"seconds": seconds, "nanoseconds": nanoseconds, "tz_offset": tz_offset, "tz_index": tz_index}


def format_datetime(seconds: int, nanoseconds: int = 0, tz_offset: int = 0, tz_index: int = 0) -> str:
    """Format a datetime as RFC 3339 in its own zone; years beyond 0000..9999 get a sign."""
    days, second = divmod(seconds + tz_offset * 60, _SECONDS_PER_DAY)
    year, month, day = to_civil_date(days)
    years = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    sign, minutes = "-" if tz_offset < 0 else "+", abs(tz_offset)
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if tz_offset else "Z"
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{years}-{month:02d}-{day:02d}T{clock}{fraction}{zone}"


def to_civil_date(days: int) -> tuple[int, int, int]:
    """Convert a day counted from 1970-01-01 to (year, month, day), proleptic Gregorian, any year."""
    era, of_era = divmod(days + 719468, 146097)  # eras of 400 years that begin on 1 March
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + 400 * era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def decode_interval(data: bytes) -> list[tuple[str, int, int, int]]:
    """Decode the stored fields of an interval to (name, value, start, end), positions in `data`.

    Raises:
        MalformedError: unknown field, value no integer, or bytes left over.
    """
    if not data:
        raise MalformedError("an interval is empty")
    parts = []
    position = 1
    for _ in range(data[0]):
        if position >= len(data) or data[position] >= len(INTERVAL_FIELDS):
            raise MalformedError("an interval has an unknown field")
        token = read_token(data, position + 1, len(data))
        if token.kind not in (MpKind.UINT, MpKind.INT):
            raise MalformedError("an interval's value is no integer")
        parts.append((INTERVAL_FIELDS[data[position]], token.value, position, token.end))
        position = token.end
    if position != len(data):
        raise MalformedError("an interval has bytes left over")
    return parts


# --- MessagePack as JSON values ---

_CONTAINER_TYPES = (list, dict)


class InexactValueError(Exception):
    """Error: msgspec's result would not be exact, so the value must be decoded as a tree."""


@cache
def get_fast_decoder() -> Callable[[Any], Any]:
    """Return msgspec's decoder with Tarantool's extension types; it raises its own errors on unusual values."""
    import msgspec

    return msgspec.msgpack.Decoder(ext_hook=decode_extension_hook).decode


def to_python(value: MpNode) -> Any:
    """Convert a tree to a Python value: lists, dicts, numbers, text.

    `bytes` for bin and for text that is not UTF-8; {"$map": pairs} for a map whose keys are not distinct texts and
    integers, or begin like these "$" marks; {"$float": …} for numbers that JSON lacks.
    """
    if value.kind is MpKind.STR:
        return decode_text(value.value)
    if value.kind is MpKind.ARRAY:
        return [to_python(item) for item in value.value]
    if value.kind is MpKind.MAP:
        return _pairs_to_json_map([(to_python(k), to_python(v)) for k, v in value.value])
    if value.kind is MpKind.EXT:
        return decode_extension(value.value.code, value.value.data)
    if value.kind in (MpKind.FLOAT, MpKind.DOUBLE):
        return to_json_float(value.value)
    return value.value


def to_json_float(value: float) -> Any:
    """Return the float, or {"$float": "NaN"} (Infinity, -Infinity), which JSON lacks."""
    if math.isfinite(value):
        return value
    return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _pairs_to_json_map(pairs: list[tuple[Any, Any]]) -> Any:
    if all(type(key) is str for key, _ in pairs):
        named = dict(pairs)
    elif all(type(key) in (str, int) for key, _ in pairs):
        named = {str(key): value for key, value in pairs}
    else:
        named = {}
    exact = len(named) == len(pairs) and not _has_marked_key(named)
    return named if exact else {"$map": [list(pair) for pair in pairs]}


def convert_if_exact(decoded_value: Any, stored_pair_count: int, max_depth: int) -> Any:
    """Return a value decoded by msgspec if it is exact: no lost pairs, integer keys as text, not nested too deep.

    Args:
        stored_pair_count: number of pairs in all maps of the value.

    Raises:
        InexactValueError: a map lost pairs or has other keys.
        MalformedError: nested deeper than `max_depth`.
    """
    if _is_exact(decoded_value, stored_pair_count, max_depth):
        return decoded_value
    missing_pairs = [stored_pair_count]
    result = _convert_map_keys_to_text(decoded_value, max_depth, missing_pairs)
    if missing_pairs[0]:
        raise InexactValueError
    return result


def _is_exact(value: Any, stored_pair_count: int, max_depth: int) -> bool:
    """Return whether a value is exact in the most frequent case: all keys are texts, no marks, no lost pairs."""
    level = [value]
    while level and max_depth > 0:
        next_level: list[Any] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if type(key) is not str or key[:1] == "$":
                        return False
                stored_pair_count -= len(item)
                next_level += [inner for inner in item.values() if type(inner) in _CONTAINER_TYPES]
            else:
                next_level += [inner for inner in item if type(inner) in _CONTAINER_TYPES]
        level = next_level
        max_depth -= 1
    return not level and not stored_pair_count


def _convert_map_keys_to_text(value: Any, max_depth: int, missing_pairs: list[int]) -> Any:
    """Copy a value with all map keys as text, and subtract the number of its pairs from `missing_pairs[0]`.

    Raises InexactValueError, MalformedError.
    """
    kind = type(value)
    if kind is list:
        if max_depth <= 0:
            raise nesting_error()
        return [
            _convert_map_keys_to_text(item, max_depth - 1, missing_pairs) if type(item) in (list, dict) else item
            for item in value
        ]
    if kind is not dict or _has_marked_key(value):
        return value
    if max_depth <= 0:
        raise nesting_error()
    missing_pairs[0] -= len(value)
    named = {_key_to_text(k): _convert_map_keys_to_text(v, max_depth - 1, missing_pairs) for k, v in value.items()}
    if len(named) != len(value):
        raise InexactValueError
    return named


def _has_marked_key(value: dict[Any, Any]) -> bool:
    return any(type(key) is str and key[:1] == "$" for key in value)


def _key_to_text(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    raise InexactValueError


# -- values of Tarantool's own types -----------------------------------------------------------------------------------


def decode_error_stack(data: bytes) -> list[dict[str, Any]]:
    """Decode a stack of errors, outermost first, from {0: [{type, file, line, message, errno, code, fields}, …]}.

    Raises:
        MalformedError: the value has another shape.
    """
    root = decode_value(data, 0, len(data), MAX_DEPTH)
    stack = root.get(0) if root.kind is MpKind.MAP else None
    if stack is None or stack.kind is not MpKind.ARRAY or root.end != len(data):
        raise MalformedError("an error value has no stack")
    return [_decode_error(item) for item in stack.value]


def _decode_error(item: MpNode) -> dict[str, Any]:
    if item.kind is not MpKind.MAP:
        raise MalformedError("an entry of an error stack is no map")
    known_keys = range(len(ERROR_FIELDS))
    return {ERROR_FIELDS[k.value] if k.value in known_keys else str(k.value): to_python(v) for k, v in item.value}


def decode_extension(code: int, data: bytes) -> Any:
    """Decode one extension value to JSON-able data.

    {"$decimal": …}, {"$uuid": …}, {"$datetime": …}, {"$interval": …}, {"$error": …}; for any other code, and for
    content that does not follow its type: {"$ext": [code, bytes]}.
    """
    try:
        if code == ExtType.DECIMAL:
            return {"$decimal": format_decimal(data)}
        if code == ExtType.UUID:
            return {"$uuid": format_uuid(data)}
        if code == ExtType.DATETIME:
            fields = decode_datetime(data)
            return {"$datetime": format_datetime(**fields), **fields}
        if code == ExtType.INTERVAL:
            return {"$interval": {name: value for name, value, _, _ in decode_interval(data)}}
        if code == ExtType.ERROR:
            return {"$error": decode_error_stack(data)}
    except MalformedError:
        pass
    return {"$ext": [code, data]}


def decode_extension_hook(code: int, data: memoryview) -> Any:
    """Decode an extension with the signature that msgspec calls."""
    return decode_extension(code, bytes(data))


# --- MessagePack values in the annotated view ---

PartsThenEnd = Generator[PlainPart, None, int]

_STR, _EXT, _MAP = MpKind.STR, MpKind.EXT, MpKind.MAP


def trace_value(data: Any, start: int, end: int, path: str, depth: int, allowed_levels: int) -> PartsThenEnd:
    """Trace the value at `data[start]`: yield one leaf, or a container with its parts.

    Args:
        depth: level of the field in the hexdump; 0 = the field itself is not named.
        allowed_levels: nesting levels that are still allowed.

    Raises:
        MalformedError: the bytes are not a value; raised after the valid parts were yielded.
    """
    token = read_token(data, start, end)
    if token.kind < _EXT:
        yield create_leaf(path, depth, token)
        return token.end
    return (yield from trace_container_or_extension(data, token, end, path, depth, allowed_levels))


def create_leaf(path: str, depth: int, token: MpToken, meaning: str = "") -> PlainPart:
    """Create the part of a value that has no parts of its own."""
    _, kind, value, start, _, end = token
    return path, depth, start, end, decode_text(value) if kind is _STR else value, meaning


def trace_container_or_extension(
    data: Any, token: MpToken, end: int, path: str, depth: int, allowed_levels: int
) -> PartsThenEnd:
    """Trace an extension, array or map that begins with this token."""
    if token.kind is _EXT:
        yield from _trace_extension(token, path, depth)
        return token.end
    if allowed_levels <= 0:
        raise nesting_error()
    pairs, size, position = token.kind is _MAP, token.value, token.end
    if depth:
        yield path, depth, token.start, None, None, f"{size} {'pairs' if pairs else 'values'}"
    depth, allowed_levels = depth + 1, allowed_levels - 1
    yield f"{path}.count", depth, token.start, position, size, "map" if pairs else "array"
    for index in range(size):
        item_path = f"{path}[{index}]"
        if pairs:
            item_path = path + _path_suffix(read_token(data, position, end), index)
            position = yield from trace_value(data, position, end, f"{path}.keys[{index}]", depth, allowed_levels)
        item = read_token(data, position, end)
        if item.kind < _EXT:
            yield create_leaf(item_path, depth, item)
            position = item.end
        else:
            position = yield from trace_container_or_extension(data, item, end, item_path, depth, allowed_levels)
    return position


def _path_suffix(key: MpToken, index: int) -> str:
    """Return the path suffix of a map value: `.name` for a plain word, `[5]` for a number, else its index."""
    if key.kind is _STR and key.value.isalnum() and len(key.value) <= 64 and key.value.isascii():
        return f".{key.value.decode()}"
    return f"[{key.value}]" if key.kind in (MpKind.UINT, MpKind.INT) else f".value[{index}]"


def _trace_extension(token: MpToken, path: str, depth: int) -> Iterator[TracePart]:
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
    """Yield (suffix, start, end, value, meaning) of the parts of an extension's content, without gaps."""
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
