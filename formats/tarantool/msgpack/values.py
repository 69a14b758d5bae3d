"""Convert MessagePack to JSON-able Python values: msgspec for the bulk, a tree where msgspec would not be exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from binlogtool.formats.fields import MalformedError
from binlogtool.formats.tarantool.msgpack.extensions import (
    ERROR_FIELDS,
    ExtType,
    decode_datetime,
    decode_interval,
    format_datetime,
    format_decimal,
    format_uuid,
)
from binlogtool.formats.tarantool.msgpack.messages import MAX_DEPTH, MpKind, MpNode, decode_value, nesting_error

_CONTAINER_TYPES = (list, dict)


class InexactValueError(Exception):
    """msgspec's result would not be exact: the value has to be decoded as a tree."""


@cache
def get_fast_decoder() -> Callable[[Any], Any]:
    """Return msgspec's decoder with Tarantool's extension types; it raises its own errors on anything unusual."""
    import msgspec

    return msgspec.msgpack.Decoder(ext_hook=decode_extension_hook).decode


def to_python(value: MpNode) -> Any:
    """Convert a tree to a Python value: lists, dicts, numbers, text.

    `bytes` for bin and for text that is not UTF-8; {"$map": pairs} for a map whose keys are not distinct texts and
    integers, or look like one of our own marks; {"$float": …} for numbers that JSON lacks.
    """
    if value.kind is MpKind.STR:
        return decode_text(value.value)
    if value.kind is MpKind.ARRAY:
        return [to_python(item) for item in value.value]
    if value.kind is MpKind.MAP:
        return _to_dict([(to_python(k), to_python(v)) for k, v in value.value])
    if value.kind is MpKind.EXT:
        return decode_extension(value.value.code, value.value.data)
    if value.kind in (MpKind.FLOAT, MpKind.DOUBLE):
        return to_json_float(value.value)
    return value.value


def decode_text(raw: bytes) -> str | bytes:
    """Decode UTF-8 text; return the bytes if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def to_json_float(value: float) -> Any:
    """Return the float, or {"$float": "NaN"} (Infinity, -Infinity), which JSON lacks."""
    if math.isfinite(value):
        return value
    return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _to_dict(pairs: list[tuple[Any, Any]]) -> Any:
    if all(type(key) is str for key, _ in pairs):
        named = dict(pairs)
    elif all(type(key) in (str, int) for key, _ in pairs):
        named = {str(key): value for key, value in pairs}
    else:
        named = {}
    exact = len(named) == len(pairs) and not _has_marked_key(named)
    return named if exact else {"$map": [list(pair) for pair in pairs]}


def check_exact(value: Any, pairs: int, depth: int) -> Any:
    """Return what msgspec decoded if it is exact: no pair of a map lost, integer keys as text, not nested too deep.

    Args:
        pairs: number of pairs in all maps of the value.

    Raises:
        InexactValueError: a map lost pairs or has other keys.
        MalformedError: nested deeper than `depth`.
    """
    if _is_exact(value, pairs, depth):
        return value
    missing_pairs = [pairs]
    result = _check_nested(value, depth, missing_pairs)
    if missing_pairs[0]:
        raise InexactValueError
    return result


def _is_exact(value: Any, pairs: int, depth: int) -> bool:
    """Check the most frequent case without a copy: all keys are texts, none is a mark, no pair is missing."""
    level = [value]
    while level and depth > 0:
        next_level: list[Any] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if type(key) is not str or key[:1] == "$":
                        return False
                pairs -= len(item)
                next_level += [inner for inner in item.values() if type(inner) in _CONTAINER_TYPES]
            else:
                next_level += [inner for inner in item if type(inner) in _CONTAINER_TYPES]
        level = next_level
        depth -= 1
    return not level and not pairs


def _check_nested(value: Any, depth: int, missing_pairs: list[int]) -> Any:
    kind = type(value)
    if kind is list:
        if depth <= 0:
            raise nesting_error()
        return [_check_nested(item, depth - 1, missing_pairs) if type(item) in (list, dict) else item for item in value]
    if kind is not dict or _has_marked_key(value):
        return value
    if depth <= 0:
        raise nesting_error()
    missing_pairs[0] -= len(value)
    named = {_key_to_text(k): _check_nested(v, depth - 1, missing_pairs) for k, v in value.items()}
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
    """Decode a stack of errors, outermost first: {0: [{type, file, line, message, errno, code, fields}, …]}.

    Raises:
        MalformedError: another shape.
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


__all__ = [
    "InexactValueError",
    "MalformedError",
    "check_exact",
    "decode_extension",
    "decode_text",
    "get_fast_decoder",
    "to_json_float",
    "to_python",
]
