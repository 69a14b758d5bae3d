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
    datetime_fields,
    datetime_text,
    decimal_text,
    interval_parts,
    uuid_text,
)
from binlogtool.formats.tarantool.msgpack.messages import MAX_DEPTH, Kind, Mp, decode, too_deep

_NESTED = (list, dict)


class NotPlain(Exception):
    """msgspec's result would not be exact: the value has to be decoded as a tree."""


@cache
def fast_decoder() -> Callable[[Any], Any]:
    """Return msgspec's decoder with Tarantool's extension types; it raises its own errors on anything unusual."""
    import msgspec

    return msgspec.msgpack.Decoder(ext_hook=msgspec_hook).decode


def plain(value: Mp) -> Any:
    """Convert a tree to a Python value: lists, dicts, numbers, text.

    `bytes` for bin and for text that is not UTF-8; {"$map": pairs} for a map whose keys are not distinct texts and
    integers, or look like one of our own marks; {"$float": …} for numbers that JSON lacks.
    """
    if value.kind is Kind.STR:
        return text(value.value)
    if value.kind is Kind.ARRAY:
        return [plain(item) for item in value.value]
    if value.kind is Kind.MAP:
        return _mapping([(plain(k), plain(v)) for k, v in value.value])
    if value.kind is Kind.EXT:
        return readable(value.value.code, value.value.data)
    if value.kind in (Kind.FLOAT, Kind.DOUBLE):
        return number(value.value)
    return value.value


def text(raw: bytes) -> str | bytes:
    """Decode UTF-8 text; return the bytes if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def number(value: float) -> Any:
    """Return the float, or {"$float": "NaN"} (Infinity, -Infinity), which JSON lacks."""
    if math.isfinite(value):
        return value
    return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _mapping(pairs: list[tuple[Any, Any]]) -> Any:
    if all(type(key) is str for key, _ in pairs):
        named = dict(pairs)
    elif all(type(key) in (str, int) for key, _ in pairs):
        named = {str(key): value for key, value in pairs}
    else:
        named = {}
    exact = len(named) == len(pairs) and not _is_extension(named)
    return named if exact else {"$map": [list(pair) for pair in pairs]}


def checked(value: Any, pairs: int, depth: int) -> Any:
    """Return what msgspec decoded if it is exact: no pair of a map lost, integer keys as text, not nested too deep.

    Args:
        pairs: number of pairs in all maps of the value.

    Raises:
        InexactValueError: a map lost pairs or has other keys.
        MalformedError: nested deeper than `depth`.
    """
    if _is_exact(value, pairs, depth):
        return value
    left = [pairs]
    result = _checked(value, depth, left)
    if left[0]:
        raise NotPlain
    return result


def _is_exact(value: Any, pairs: int, depth: int) -> bool:
    """Check the most frequent case without a copy: all keys are texts, none is a mark, no pair is missing."""
    level = [value]
    while level and depth > 0:
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if type(key) is not str or key[:1] == "$":
                        return False
                pairs -= len(item)
                below += [inner for inner in item.values() if type(inner) in _NESTED]
            else:
                below += [inner for inner in item if type(inner) in _NESTED]
        level = below
        depth -= 1
    return not level and not pairs


def _checked(value: Any, depth: int, left: list[int]) -> Any:
    kind = type(value)
    if kind is list:
        if depth <= 0:
            raise too_deep()
        return [_checked(item, depth - 1, left) if type(item) in (list, dict) else item for item in value]
    if kind is not dict or _is_extension(value):
        return value
    if depth <= 0:
        raise too_deep()
    left[0] -= len(value)
    named = {_key(k): _checked(v, depth - 1, left) for k, v in value.items()}
    if len(named) != len(value):
        raise NotPlain
    return named


def _is_extension(value: dict[Any, Any]) -> bool:
    return any(type(key) is str and key[:1] == "$" for key in value)


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    raise NotPlain


# -- values of Tarantool's own types -----------------------------------------------------------------------------------


def error_stack(data: bytes) -> list[dict[str, Any]]:
    """Decode a stack of errors, outermost first: {0: [{type, file, line, message, errno, code, fields}, …]}.

    Raises:
        MalformedError: another shape.
    """
    root = decode(data, 0, len(data), MAX_DEPTH)
    stack = root.get(0) if root.kind is Kind.MAP else None
    if stack is None or stack.kind is not Kind.ARRAY or root.end != len(data):
        raise MalformedError("an error value has no stack")
    return [_error(item) for item in stack.value]


def _error(item: Mp) -> dict[str, Any]:
    if item.kind is not Kind.MAP:
        raise MalformedError("an entry of an error stack is no map")
    known = range(len(ERROR_FIELDS))
    return {ERROR_FIELDS[k.value] if k.value in known else str(k.value): plain(v) for k, v in item.value}


def readable(code: int, data: bytes) -> Any:
    """Decode one extension value to JSON-able data.

    {"$decimal": …}, {"$uuid": …}, {"$datetime": …}, {"$interval": …}, {"$error": …}; for any other code, and for
    content that does not follow its type: {"$ext": [code, bytes]}.
    """
    try:
        if code == ExtType.DECIMAL:
            return {"$decimal": decimal_text(data)}
        if code == ExtType.UUID:
            return {"$uuid": uuid_text(data)}
        if code == ExtType.DATETIME:
            fields = datetime_fields(data)
            return {"$datetime": datetime_text(**fields), **fields}
        if code == ExtType.INTERVAL:
            return {"$interval": {name: value for name, value, _, _ in interval_parts(data)}}
        if code == ExtType.ERROR:
            return {"$error": error_stack(data)}
    except MalformedError:
        pass
    return {"$ext": [code, data]}


def msgspec_hook(code: int, data: memoryview) -> Any:
    """Decode an extension with the signature that msgspec calls."""
    return readable(code, bytes(data))


__all__ = ["MalformedError", "NotPlain", "checked", "fast_decoder", "number", "plain", "readable", "text"]
