"""Bodies and findings as JSON text inside rows: the same values as `dump -O jsonl` writes.

Bytes become `{"$bytes": "<hex>"}`, numbers that JSON lacks `{"$float": "inf"}`, text that is no text becomes bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from json.encoder import JSONEncoder
from typing import Any

from binlogtool.findings import Finding


def body_text(body: Any) -> str | None:
    """The JSON of a body; None for a body that could not be decoded (its finding stands in its place)."""
    return None if body is None or isinstance(body, Finding) else json_text(body)


def findings_text(findings: Sequence[Finding]) -> str | None:
    """The JSON of findings, in the shape of `verify -O json`; None when there are none."""
    return json_text([finding_value(f) for f in findings]) if findings else None


def finding_value(found: Finding) -> dict[str, Any]:
    """One member of `findings`."""
    return {
        "id": found.id,
        "severity": found.severity.label,
        "offset": found.offset,
        "length": found.length,
        "record": found.record,
        "message": found.message,
        "facts": dict(found.facts),
    }


def json_text(value: Any) -> str:
    """Any value as JSON text. The usual case is one call into C; anything else is first made plain."""
    try:
        return _valid(_encode(value))
    except (TypeError, ValueError, RecursionError):
        return _valid(_encode(_plain(value)))


def _valid(text: str) -> str:
    if not text.isascii():
        text.encode()
    return text


def _other(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return _marked(bytes(value))
    return dict(value) if isinstance(value, Mapping) else str(value)


_encode = JSONEncoder(default=_other, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def _plain(value: Any) -> Any:
    match value:
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {_key(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return _other(value)


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return _marked(value.encode(errors="surrogateescape"))
    return value


def _key(value: Any) -> str:
    if isinstance(value, bytes):
        return f"$bytes:{value.hex()}"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value).encode(errors="backslashreplace").decode()


def _marked(data: bytes) -> dict[str, str]:
    return {"$bytes": data.hex()}
