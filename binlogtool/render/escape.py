"""Escaping: the only way text from data reaches a terminal; characters that act on it, or are invisible, are shown."""

from __future__ import annotations

import re

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that draw nothing: Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 16)."""

_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape(text: str) -> str:
    """The text on one line, with every character that is not plainly printable as `\\x1b`, `\\u202e`, `\\U000e0041`.

    Covers C0, DEL, C1, bidirectional controls, zero-width characters, line and paragraph separators and lone
    surrogates; a byte that was kept as a surrogate (`surrogateescape`) is shown as that byte.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    if char.isprintable() and not _IGNORABLE.match(char):
        return char
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_json(text: str) -> str:
    """Escape invisible characters in JSON as Unicode escapes, which is the same JSON."""
    return text if text.isascii() else _IGNORABLE.sub(_escape_json_match, text)


def _escape_json_match(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def escape_bytes(data: bytes) -> str:
    """Bytes as ASCII: printable ones as they are, a backslash doubled, all others as `\\x1b`."""
    return "".join(map(_BYTE_TEXTS.__getitem__, data))


_BYTE_TEXTS = [chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in range(256)]
_BYTE_TEXTS[0x5C] = "\\\\"
