"""Loads of numbers whose width is not constant, as kernels."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel


@kernel()
def load_little(buf: Any, p: int, size: int) -> int:
    """An unsigned number of up to 7 bytes, or the signed one with these 8 bytes."""
    if size == 4:
        return buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24  # type: ignore[no-any-return]
    value = 0
    for i in range(min(size, 7)):
        value |= buf[p + i] << 8 * i
    if size == 8:
        top = buf[p + 7] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value


@kernel()
def load_big(buf: Any, p: int, size: int) -> int:
    """The same, big-endian."""
    value = 0
    first = 1 if size == 8 else 0
    for i in range(first, size):
        value = value << 8 | buf[p + i]
    if size == 8:
        top = buf[p] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value
