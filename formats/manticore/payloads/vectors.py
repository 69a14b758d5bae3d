"""Kernels of successive zints and vectors; see `walk` for their results."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.manticore.payloads.zint import read_zint


@kernel(read_zint)
def skip_zints(buf: UInt8s, p: int, n: int, count: int) -> int:
    """Skip `count` zints."""
    for _ in range(count):
        _value, p = read_zint(buf, p, n)
        if p < 0:
            return p
    return p


@kernel(read_zint)
def read_vector(buf: UInt8s, p: int, n: int, width: int) -> tuple[int, int]:
    """Read the count of a vec(width) and skip its elements: the count and the end."""
    count, p = read_zint(buf, p, n)
    if p < 0:
        return 0, p
    if count < 0 or count > (n - p) // width:
        return 0, -1
    return count, p + count * width


@kernel(read_vector)
def read_vector1(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(1): the count and the end."""
    return read_vector(buf, p, n, 1)


@kernel(read_vector)
def read_vector4(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(4): the count and the end."""
    return read_vector(buf, p, n, 4)


@kernel(read_vector)
def read_vector8(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vec(8): the count and the end."""
    return read_vector(buf, p, n, 8)


@kernel(read_vector)
def skip_vector(buf: UInt8s, p: int, n: int, width: int) -> int:
    """Skip a vec(width)."""
    _count, p = read_vector(buf, p, n, width)
    return p
