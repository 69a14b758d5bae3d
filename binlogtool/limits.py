"""Limits that bound memory, time and nesting for any input, and the parser of sizes."""

from __future__ import annotations

import re

import msgspec

from binlogtool.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
LONG_VALUE_BYTES = MIB
"""Bytes of a value that is written in pieces, where an output can do that."""

_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": KIB * MIB, "tib": MIB * MIB}
_UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": KIB, "m": MIB, "g": KIB * MIB}


_MAX_SIZE = (1 << 63) - 1
_MAX_DIGITS = 64


def parse_size(text: str | int) -> int:
    """Parse a size in bytes: `4096`, `0x1000`, `4KiB` or `4kB`.

    Raises:
        UsageError: the text is not a size.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(0x[0-9a-fA-F]+|\d+)\s*([a-zA-Z]*)\s*", text)
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(f"{shorten(text)!r} is not a size; write 4096, 0x1000, 4KiB or 4kB")
    size = _MAX_SIZE + 1 if len(match[1]) > _MAX_DIGITS else int(match[1], 0) * _UNITS[match[2].lower()]
    if size > _MAX_SIZE:
        raise UsageError(f"{shorten(text)!r} is too large for a size; the most is 2^63 - 1 bytes")
    return size


def shorten(text: str) -> str:
    """Return the text for a message; the middle of a text longer than 80 characters is left out."""
    return text if len(text) <= 80 else f"{text[:40]}…{text[-20:]} ({len(text):,} characters)"


class Limits(msgspec.Struct, frozen=True):
    """Limits of a call. Sizes are in bytes, times in seconds; None = no limit (`max_record`: the format's default).

    Args:
        max_whole: values longer than this are returned in pieces (`LongValue`) to readers whose output supports that;
            None = all values are returned whole.
    """

    max_memory: int = 256 * MIB
    max_record: int | None = None
    max_inflate: int = 256 * MIB
    max_depth: int = 64
    max_findings_per_id: int = 1000
    timeout: float | None = None
    max_whole: int | None = None
