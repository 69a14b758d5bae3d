"""Values as JSON, written in C by msgspec: into memory that may be refused.

Its own buffer is not looked at where it cannot grow, and the process dies of it; a bytearray raises `MemoryError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

_into = msgspec.json.Encoder().encode_into


def encoded(value: Any) -> bytes:
    """The JSON of one value.

    Raises:
        MemoryError: there is not enough of it.
        UnicodeEncodeError, TypeError, OverflowError: msgspec has no JSON for it.
    """
    out = bytearray()
    _into(value, out)
    return bytes(out)


def encoded_lines(values: Iterable[Any]) -> bytes:
    """The JSON of each value and a line feed behind it. Raises: as `encoded`."""
    out = bytearray()
    for value in values:
        _into(value, out, -1)
        out += b"\n"
    return bytes(out)
