"""Long values on their way to JSON output: replaced by placeholders in a body, and written in pieces in its text.

The writer of the body needs to know nothing of it. Placeholders are random: nothing in a log can be one.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from binlogtool.formats.longvalues import PIECE_SIZE, LongValue, split_into_pieces
from binlogtool.log.jsonbytes import encode_json
from binlogtool.log.plain import DEFAULT_STYLE, JsonStyle, escape_unsafe

_PLACEHOLDER_BYTES = 16
_PLACEHOLDER = re.compile(rb"@[0-9a-f]{32}@")
_BASE64_GROUP = 3
"""Bytes that base64 writes together."""


def extract_long_values(body: Any, max_bytes: int) -> tuple[Any, dict[str, LongValue]]:
    """Return the body with placeholders for values of more than `max_bytes` bytes, and these values by placeholder."""
    extracted: dict[str, LongValue] = {}
    return _replace_long(body, max_bytes, extracted), extracted


def _replace_long(value: Any, max_bytes: int, extracted: dict[str, LongValue]) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _replace_long(inner, max_bytes, extracted) for name, inner in value.items()}
    if kind is list or kind is tuple:
        return [_replace_long(inner, max_bytes, extracted) for inner in value]
    if kind is str or kind is bytes:
        value = _to_long_value(value) if len(value) > max_bytes else value
    if not isinstance(value, LongValue):
        return value
    placeholder = f"@{os.urandom(_PLACEHOLDER_BYTES).hex()}@"
    extracted[placeholder] = value
    return placeholder if value.is_text else {"$bytes": placeholder}


def _to_long_value(value: str | bytes) -> LongValue | str | bytes:
    """Return the value as one that is read in pieces; unchanged if it is a text that cannot be encoded."""
    if isinstance(value, bytes):
        return LongValue(split_into_pieces(value), False)

    def pieces() -> Iterator[bytes]:
        return (value[at : at + PIECE_SIZE].encode() for at in range(0, len(value), PIECE_SIZE))

    try:
        for _ in pieces():
            pass
    except UnicodeEncodeError:
        return value
    return LongValue(pieces, True)


class LongValueWriter:
    """Write the values in place of their placeholders. doubles_quotes: double the quotation marks, as in a CSV cell."""

    def __init__(self, style: JsonStyle = DEFAULT_STYLE, *, doubles_quotes: bool = False) -> None:
        self._style = style
        self._doubles_quotes = doubles_quotes
        self._waiting: dict[bytes, LongValue] = {}

    def fill(self, data: bytes, extracted: Mapping[str, LongValue]) -> Iterator[bytes]:
        """Yield the text of some records with the values extracted from them.

        The text of a record may also come later, with that of others.
        """
        self._waiting.update((mark.encode(), value) for mark, value in extracted.items())
        at = 0
        if self._waiting:
            for match in _PLACEHOLDER.finditer(data):
                value = self._waiting.pop(match[0], None)
                if value is not None:
                    yield data[at : match.start()]
                    yield from map(self._escape_cell, self._iter_encoded(value))
                    at = match.end()
        yield data[at:] if at else data

    def _escape_cell(self, text: bytes) -> bytes:
        return text.replace(b'"', b'""') if self._doubles_quotes else text

    def _iter_encoded(self, value: LongValue) -> Iterator[bytes]:
        """Yield the text between the quotation marks."""
        texts = _iter_text(value) if value.is_text else map(self._style.encode_bytes, _iter_groups(value))
        return (escape_unsafe(encode_json(text))[1:-1] for text in texts)


def _iter_text(value: LongValue) -> Iterator[str]:
    """Yield the text in pieces of whole characters."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    return (decode(piece) for piece in value.pieces())


def _iter_groups(value: LongValue) -> Iterator[bytes]:
    """Yield the bytes in pieces that can be encoded one by one, in any form."""
    remainder = b""
    for piece in value.pieces():
        piece = remainder + piece if remainder else piece
        group_bytes = len(piece) - len(piece) % _BASE64_GROUP
        yield piece[:group_bytes]
        remainder = piece[group_bytes:]
    yield remainder
