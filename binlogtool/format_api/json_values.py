"""Convert values to JSON: bytes become `{"$bytes": "…"}`, invalid text becomes bytes, and nothing changes silently."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

_UNSAFE = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
)
"""Matches U+007F to U+009F, U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF, U+FFF9 to U+FFFB."""


def _escape_bytes(data: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)


BYTES_FORMS: Mapping[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "escape": _escape_bytes,
}
"""Value of `--bytes` -> function that encodes bytes."""


class JsonStyle(msgspec.Struct, frozen=True):
    """Style of values in JSON. bytes_form: a key of `BYTES_FORMS`."""

    bytes_form: str = "hex"

    def to_json_value(self, value: Any) -> Any:
        """Convert a value to JSON types; a value of any other kind becomes text."""
        match value:
            case None | bool():
                return value
            case str():
                return self.text_value(value)
            case int():
                return int(value)
            case float():
                return value if math.isfinite(value) else {"$float": str(value)}
            case bytes() | bytearray() | memoryview():
                return self.mark_bytes(bytes(value))
            case Mapping():
                return {self.member_name(k): self.to_json_value(v) for k, v in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.to_json_value(v) for v in value]
            case _:
                return str(value)

    def text_value(self, value: str) -> Any:
        """Return the text, or marked bytes if it is not valid text (a file name that is not UTF-8)."""
        return str(value) if is_valid_text(value) else self.mark_bytes(encode_text(value))

    def member_name(self, value: Any) -> str:
        """Return the JSON member name for any key."""
        if isinstance(value, bytes):
            return f"$bytes:{self.encode_bytes(value)}"
        if isinstance(value, bool) or value is None:
            return {None: "null", True: "true", False: "false"}[value]
        return (
            value if isinstance(value, str) and is_valid_text(value) else str(value).encode("ascii", "replace").decode()
        )

    def mark_bytes(self, data: bytes) -> dict[str, str]:
        """Return bytes as the marked JSON value `{"$bytes": "…"}`."""
        return {"$bytes": self.encode_bytes(data)}

    def encode_bytes(self, data: bytes) -> str:
        """Return bytes as text, in the selected form."""
        return BYTES_FORMS[self.bytes_form](data)


DEFAULT_STYLE = JsonStyle()


def encode_text(text: str) -> bytes:
    """Return the bytes that a text represents, even if it contains lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def is_valid_text(value: str) -> bool:
    """Return False for text with lone surrogates: bytes that were never text."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def escape_unsafe(document: bytes) -> bytes:
    """Return the same JSON with Unicode escapes for DEL, C1, bidirectional and invisible characters.

    JSON itself escapes only the C0 controls; the other characters would reach a terminal unchanged.
    """
    if document.isascii() and b"\x7f" not in document:
        return document
    return _UNSAFE.sub(lambda m: b"\\u%04x" % ord(m[0].decode("utf-8")), document)


class TimeFormatter:
    """Formatter of times as RFC 3339 with microseconds, UTC; it caches the text up to the second."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._prefix: str | None = None

    def __call__(self, microseconds: int | None) -> str | None:
        """Format microseconds since 1970-01-01 UTC; return None if the calendar has no such time."""
        return self.format_column((microseconds,))[0]

    def format_column(self, times: Iterable[int | None]) -> list[str | None]:
        """Format a column of times."""
        second, prefix = self._second, self._prefix
        out: list[str | None] = []
        for microseconds in times:
            if microseconds is None:
                out.append(None)
                continue
            now, fraction = divmod(microseconds, 1_000_000)
            if now != second:
                second, prefix = now, _format_second(now)
            out.append(None if prefix is None else f"{prefix}{fraction:06d}Z")
        self._second, self._prefix = second, prefix
        return out


def _format_second(second: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.".rjust(20, "0")
