"""Bodies and findings as JSON text, identical in all outputs.

msgspec writes values in C, but writes bytes as base64 without a marker; so the types inside are collected first, and
values with anything but plain JSON take the slower path through `JsonStyle`.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Sequence
from json.encoder import JSONEncoder
from typing import Any

import msgspec

from binlogtool.findings import Finding
from binlogtool.log.jsonbytes import encoded, encoded_lines
from binlogtool.log.plain import DEFAULT, Style, safe_json

_NESTED = {dict, list, tuple}
_PLAIN = {str, int, bool, type(None), float, msgspec.UnsetType, *_NESTED}
_EXPONENT = re.compile(r"\de[+-]\d")
"""A float as only Python writes it (1e+16): msgspec has another form, and one number must not have two."""


def kinds(values: Sequence[Any]) -> set[type]:
    """Return the types of all values inside; complex stands for floats that JSON may lack (infinities, NaN).

    Needs one call into C per level of nesting, whatever the number of values.
    """
    found: set[type] = set(map(type, values))
    level: list[Any] = list(values)
    while level:
        inside = gc.get_referents(*level)
        types = set(map(type, inside))
        if float in types and not math.isfinite(sum([v for v in inside if type(v) is float])):
            found.add(complex)
        found |= types
        if not types <= _PLAIN:
            break
        level = [v for v in inside if type(v) in _NESTED] if types & _NESTED else []
    return found


class BodyEncoder:
    """Turn bodies into JSON-ready values: unchanged where msgspec writes them correctly, else `msgspec.Raw`."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._json = JSONEncoder(default=self._other, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    def _other(self, value: Any) -> Any:
        return self._style.marked(value) if type(value) is bytes else self._style.plain(value)

    def encode(self, bodies: Sequence[Any]) -> Sequence[Any]:
        """Return one JSON-ready value per body."""
        if self._style.bigint == "number" and kinds(bodies) <= _PLAIN:
            return bodies
        return [self.one(body) for body in bodies]

    def one(self, body: Any) -> Any:
        """Return one body as a JSON-ready value, whatever it contains."""
        if body is msgspec.UNSET:
            return body
        if isinstance(body, Finding):
            return msgspec.Raw(b"null")
        try:
            text = self._json.encode(body) if self._style.bigint == "number" else None
            if text is not None and not _EXPONENT.search(text):
                return msgspec.Raw(text.encode("utf-8"))
        except (TypeError, ValueError, RecursionError):
            pass
        return msgspec.Raw(encoded(self._style.plain(body)))

    def texts(self, bodies: Sequence[Any]) -> list[bytes | None]:
        """Return the JSON text of each body; None where there is none, or where it could not be decoded."""
        values = self.encode(bodies)
        try:
            lines = safe_json(encoded_lines(values))
        except (UnicodeEncodeError, TypeError, OverflowError):
            lines = safe_json(encoded_lines([self.one(value) for value in bodies]))
        return [None if line == b"null" else line for line in lines.split(b"\n")[: len(bodies)]]


def quoted(value: object) -> bytes:
    """Return any JSON value as bytes of a JSON line."""
    return safe_json(encoded(value))


_ENCODED = BodyEncoder(DEFAULT)


def json_text(value: Any) -> str:
    """Return any value as JSON text."""
    return safe_json(bytes(_ENCODED.one(value))).decode()


def body_texts(bodies: Sequence[Any]) -> list[bytes | None]:
    """Return the JSON of each body; None where there is none, or where it could not be decoded (it has a finding)."""
    return _ENCODED.texts(bodies)


def findings_text(findings: Sequence[Finding]) -> str | None:
    """Return the JSON of findings, as in `verify -O json`; None when there are none."""
    return json_text([finding_json(found) for found in findings]) if findings else None


def finding_json(found: Finding) -> dict[str, Any]:
    """Return a finding as one member of `findings`."""
    return {
        "id": found.id,
        "severity": found.severity.label,
        "offset": found.offset,
        "length": found.length,
        "record": found.record,
        "message": found.message,
        "facts": dict(found.facts),
    }
