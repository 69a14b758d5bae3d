"""JSON encoding in C by msgspec, into a bytearray.

msgspec's own buffer is not checked when it cannot grow, and the process crashes; a bytearray raises `MemoryError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

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
