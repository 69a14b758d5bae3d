"""Long values on their way to JSON output: replaced by placeholders in a body, and written in pieces in its text.

The writer of the body needs to know nothing of it. Placeholders are random: nothing in a log can be one.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from binlogtool.formats.longvalues import PIECE, LongValue, cut
from binlogtool.log.jsonbytes import encoded
from binlogtool.log.plain import DEFAULT, Style, safe_json

_RANDOM = 16
_MARK = re.compile(rb"@[0-9a-f]{32}@")
_THREE = 3
"""Bytes that base64 writes together."""


def taken_out(body: Any, most: int) -> tuple[Any, dict[str, LongValue]]:
    """Return the body with placeholders for values of more than `max_bytes` bytes, and these values by placeholder."""
    taken: dict[str, LongValue] = {}
    return _without(body, most, taken), taken


def _without(value: Any, most: int, taken: dict[str, LongValue]) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _without(inner, most, taken) for name, inner in value.items()}
    if kind is list or kind is tuple:
        return [_without(inner, most, taken) for inner in value]
    if kind is str or kind is bytes:
        value = _long(value) if len(value) > most else value
    if not isinstance(value, LongValue):
        return value
    mark = f"@{os.urandom(_RANDOM).hex()}@"
    taken[mark] = value
    return mark if value.is_text else {"$bytes": mark}


def _long(value: str | bytes) -> LongValue | str | bytes:
    """Return the value as one that is read in pieces; unchanged if it is a text that cannot be encoded."""
    if isinstance(value, bytes):
        return LongValue(cut(value), False)

    def pieces() -> Iterator[bytes]:
        return (value[at : at + PIECE].encode() for at in range(0, len(value), PIECE))

    try:
        for _ in pieces():
            pass
    except UnicodeEncodeError:
        return value
    return LongValue(pieces, True)


class Filler:
    """Write the values in place of their placeholders. doubled: double the quotation marks, as in a CSV cell."""

    def __init__(self, style: Style = DEFAULT, *, doubled: bool = False) -> None:
        self._style = style
        self._doubled = doubled
        self._waiting: dict[bytes, LongValue] = {}

    def filled(self, data: bytes, taken: Mapping[str, LongValue]) -> Iterator[bytes]:
        """Yield the text of some records with the values extracted from them.

        The text of a record may also come later, with that of others.
        """
        self._waiting.update((mark.encode(), value) for mark, value in taken.items())
        at = 0
        if self._waiting:
            for found in _MARK.finditer(data):
                value = self._waiting.pop(found[0], None)
                if value is not None:
                    yield data[at : found.start()]
                    yield from map(self._cell, self._inside(value))
                    at = found.end()
        yield data[at:] if at else data

    def _cell(self, text: bytes) -> bytes:
        return text.replace(b'"', b'""') if self._doubled else text

    def _inside(self, value: LongValue) -> Iterator[bytes]:
        """Yield the text between the quotation marks."""
        texts = _texts(value) if value.is_text else map(self._style.encoded, _in_threes(value))
        return (safe_json(encoded(text))[1:-1] for text in texts)


def _texts(value: LongValue) -> Iterator[str]:
    """Yield the text in pieces of whole characters."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    return (decode(piece) for piece in value.pieces())


def _in_threes(value: LongValue) -> Iterator[bytes]:
    """Yield the bytes in pieces that can be encoded one by one, in any form."""
    left = b""
    for piece in value.pieces():
        piece = left + piece if left else piece
        whole = len(piece) - len(piece) % _THREE
        yield piece[:whole]
        left = piece[whole:]
    yield left
