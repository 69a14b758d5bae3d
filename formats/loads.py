"""Kernels that load integers: of constant widths (little-endian), and of variable ones."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s


@kernel()
def load_uint32(buf: UInt8s, p: int) -> int:
    """Load an unsigned 32-bit integer, little-endian."""
    return buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24


@kernel()
def load_uint48(buf: UInt8s, p: int) -> int:
    """Load an unsigned 48-bit integer, little-endian."""
    low = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    return low | buf[p + 4] << 32 | buf[p + 5] << 40


@kernel()
def load_int64(buf: UInt8s, p: int) -> int:
    """Load 64 bits, little-endian; negative above the signed range."""
    low = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    high = buf[p + 4] | buf[p + 5] << 8 | buf[p + 6] << 16
    top = buf[p + 7] + 0
    return low | high << 32 | (top - 256 if top >= 128 else top) << 56


@kernel()
def load_little_endian(buf: UInt8s, p: int, size: int) -> int:
    """Load an unsigned integer of up to 7 bytes, or a signed one of 8 bytes, little-endian."""
    if size == 4:
        return buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16 | buf[p + 3] << 24
    value = 0
    for i in range(min(size, 7)):
        value |= buf[p + i] << 8 * i
    if size == 8:
        top = buf[p + 7] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value


@kernel()
def load_big_endian(buf: UInt8s, p: int, size: int) -> int:
    """Load an unsigned integer of up to 7 bytes, or a signed one of 8 bytes, big-endian."""
    value = 0
    first = 1 if size == 8 else 0
    for i in range(first, size):
        value = value << 8 | buf[p + i]
    if size == 8:
        top = buf[p] + 0
        value += (top - 256 if top >= 128 else top) * 0x100000000000000
    return value
