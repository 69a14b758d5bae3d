"""Loads of numbers, as kernels: of constant widths (`wordN`, little-endian), and of others."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel


@kernel()
def word32(buf: Any, p: int) -> int:
    """Unsigned 32 bits, little-endian."""
    word: int = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    return word


@kernel(word32)
def word48(buf: Any, p: int) -> int:
    """Unsigned 48 bits, little-endian."""
    word: int = word32(buf, p) | buf[p + 4] << 32 | buf[p + 5] << 40
    return word


@kernel(word32)
def word64(buf: Any, p: int) -> int:
    """64 bits, little-endian; negative above the signed range."""
    high = word32(buf, p + 4)
    if high >= 2147483648:
        high -= 4294967296
    return word32(buf, p) | high << 32


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
