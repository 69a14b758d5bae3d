"""Bodies and findings as JSON text, written by msgspec within the memory limit.

If msgspec's own buffer cannot grow, the process crashes; a bytearray raises `MemoryError` instead.

msgspec writes values in C, but writes bytes as base64 without a marker; so the types of all nested values are collected
first, and values with anything but plain JSON take the slower path through `JsonStyle`.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool.findings import Finding, finding_to_value
from binlogtool.format_api.json_values import DEFAULT_STYLE, JsonStyle, escape_unsafe

if TYPE_CHECKING:
    from json.encoder import JSONEncoder

STYLE = JsonStyle()


# --- JSON encoding in C by msgspec, into a bytearray ---

_encode_into = msgspec.json.Encoder().encode_into


def encode_json(value: Any) -> bytes:
    """Encode one value as JSON.

    Raises:
        MemoryError: there is not enough memory.
        UnicodeEncodeError, TypeError, OverflowError: msgspec has no JSON for the value.
    """
    out = bytearray()
    _encode_into(value, out)
    return bytes(out)


def encode_json_lines(values: Iterable[Any]) -> bytes:
    """Encode each value as JSON with a line feed after it. Raises as `encode_json`."""
    out = bytearray()
    for value in values:
        _encode_into(value, out, -1)
        out += b"\n"
    return bytes(out)


# --- Bodies and findings as JSON text, identical in all outputs ---

_NESTED_TYPES = {dict, list, tuple}
_PLAIN_TYPES = {str, int, bool, type(None), float, msgspec.UnsetType, *_NESTED_TYPES}
_EXPONENT = re.compile(r"\de[+-]\d")
"""Float with an exponent in Python's form (1e+16); msgspec writes it differently, and outputs must not differ."""


def collect_types(values: Sequence[Any]) -> set[type]:
    """Return the types of all nested values; `complex` represents floats that JSON cannot express (infinities, NaN).

    Needs one call into C per level of nesting, whatever the number of values.
    """
    types_found: set[type] = set(map(type, values))
    level: list[Any] = list(values)
    while level:
        inside = gc.get_referents(*level)
        types = set(map(type, inside))
        if float in types and not math.isfinite(sum([v for v in inside if type(v) is float])):
            types_found.add(complex)
        types_found |= types
        if not types <= _PLAIN_TYPES:
            break
        level = [v for v in inside if type(v) in _NESTED_TYPES] if types & _NESTED_TYPES else []
    return types_found


class BodyEncoder:
    """Turn bodies into JSON-ready values: unchanged where msgspec writes them correctly, else `msgspec.Raw`."""

    def __init__(self, style: JsonStyle) -> None:
        self._style = style

    @cached_property
    def _json(self) -> JSONEncoder:
        """The slower encoder; most runs do not need it, so it is imported and created on first use."""
        from json.encoder import JSONEncoder

        return JSONEncoder(default=self._encode_other, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    def _encode_other(self, value: Any) -> Any:
        return self._style.mark_bytes(value) if type(value) is bytes else self._style.to_json_value(value)

    def encode(self, bodies: Sequence[Any]) -> Sequence[Any]:
        """Return one JSON-ready value per body."""
        if collect_types(bodies) <= _PLAIN_TYPES:
            return bodies
        return [self.encode_one(body) for body in bodies]

    def encode_one(self, body: Any) -> Any:
        """Return one body as a JSON-ready value, whatever it contains."""
        if body is msgspec.UNSET:
            return body
        if isinstance(body, Finding):
            return msgspec.Raw(b"null")
        try:
            text = self._json.encode(body)
            if not _EXPONENT.search(text):
                return msgspec.Raw(text.encode("utf-8"))
        except (TypeError, ValueError, RecursionError):
            pass
        return msgspec.Raw(encode_json(self._style.to_json_value(body)))

    def encode_texts(self, bodies: Sequence[Any]) -> list[bytes | None]:
        """Return the JSON text of each body; None for a record without a body, or with an undecodable one."""
        values = self.encode(bodies)
        try:
            lines = escape_unsafe(encode_json_lines(values))
        except (UnicodeEncodeError, TypeError, OverflowError):
            lines = escape_unsafe(encode_json_lines([self.encode_one(value) for value in bodies]))
        return [None if line == b"null" else line for line in lines.split(b"\n")[: len(bodies)]]


def to_json_bytes(value: object) -> bytes:
    """Return any JSON value as bytes of a JSON line."""
    return escape_unsafe(encode_json(value))


_DEFAULT_ENCODER = BodyEncoder(DEFAULT_STYLE)


def to_json_text(value: Any) -> str:
    """Return any value as JSON text."""
    return escape_unsafe(bytes(_DEFAULT_ENCODER.encode_one(value))).decode()


def encode_bodies(bodies: Sequence[Any]) -> list[bytes | None]:
    """Return the JSON of each body; None for a record without a body, or with an undecodable body (see its finding)."""
    return _DEFAULT_ENCODER.encode_texts(bodies)


def findings_to_json(findings: Sequence[Finding]) -> str | None:
    """Return the JSON of findings, as in `verify -O json`; None when there are none."""
    return to_json_text([finding_to_value(found) for found in findings]) if findings else None


def encode_document(value: Any, *, indent: int = 2) -> bytes:
    """Encode a value as one JSON document with a line end."""
    text = encode_json(STYLE.to_json_value(value))
    return escape_unsafe(msgspec.json.format(text, indent=indent)) + b"\n"


def encode_line(value: Any) -> bytes:
    """Encode a value as one line of JSON."""
    return escape_unsafe(encode_json(STYLE.to_json_value(value))) + b"\n"


# --- Describe partial updates of JSON columns as the functions of MySQL that made them ---

PARTIAL_UPDATE = "$diff"
"""Member of a value that holds the changes of a JSON column whose new value the log does not have."""
_MARKS = frozenset({"$decimal", "$date", "$time", "$datetime", "$timestamp"})
_CHANGES = frozenset({"REPLACE", "INSERT", "REMOVE"})


def describe_json_changes(column: str, value: Any) -> str | None:
    """Return a partial update as the functions of MySQL that made it; None for any other value.

    Two changes of `j` are JSON_REMOVE(JSON_REPLACE(j, '$.a', 99), '$.b[1]'), no change is j, as `mysqlbinlog -v` prints
    them.
    """
    changes = value.get(PARTIAL_UPDATE) if type(value) is dict and len(value) == 1 else None
    if not isinstance(changes, list):
        return None
    text = column
    for change in changes:
        if not isinstance(change, dict) or change.get("op") not in _CHANGES:
            return None
        new = "" if change["op"] == "REMOVE" else f", {_format_json_literal(change.get('value'))}"
        text = f"JSON_{change['op']}({text}, {_quote_sql(str(change.get('path')))}{new})"
    return text


def _format_json_literal(value: Any) -> str:
    import json

    is_mark = isinstance(value, dict) and len(value) == 1 and not _MARKS.isdisjoint(value)
    if isinstance(value, dict | list) and not is_mark:
        return f"CAST({_quote_sql(_format_json(value))} AS JSON)"
    text = _format_json(value)
    return _quote_sql(json.loads(text)) if text.startswith('"') else text


def _format_json(value: Any) -> str:
    """Return a value as JSON, with MySQL's own types as plain numbers and texts."""
    import json

    if isinstance(value, list):
        return f"[{', '.join(map(_format_json, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if len(value) == 1 and not _MARKS.isdisjoint(value):
        (mark, text), *_ = value.items()
        return str(text) if mark == "$decimal" else json.dumps(text, ensure_ascii=False, default=str)
    members = (f"{json.dumps(name, ensure_ascii=False)}: {_format_json(one)}" for name, one in value.items())
    return f"{{{', '.join(members)}}}"


def _quote_sql(text: str) -> str:
    return f"""'{text.replace("'", "''")}'"""
