"""Values of records that are too long to hold in memory and are read in pieces."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

PIECE_SIZE = 1 << 20
"""Bytes, or signs of a text, that are passed on at a time."""


class LongValue(msgspec.Struct, frozen=True):
    """A text, or bytes, in pieces. pieces: restarts with each call; those of a text are UTF-8, split anywhere."""

    pieces: Callable[[], Iterator[bytes]]
    is_text: bool


class BodyWithLongValues(NamedTuple):
    """A body that contains long values."""

    body: Any


def make_long_value(pieces: Callable[[], Iterator[bytes]]) -> LongValue:
    """Create a long value: text where the bytes are valid UTF-8, else bytes; reads all pieces once."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    is_text = True
    for piece in pieces():
        try:
            is_text = is_text and decode(piece) is not None
        except UnicodeDecodeError:
            is_text = False
    try:
        is_text = is_text and decode(b"", True) is not None
    except UnicodeDecodeError:
        is_text = False
    return LongValue(pieces, is_text)


def split_into_pieces(data: bytes) -> Callable[[], Iterator[bytes]]:
    """Return a function that yields bytes in memory in pieces."""
    return lambda: (data[at : at + PIECE_SIZE] for at in range(0, len(data), PIECE_SIZE))
