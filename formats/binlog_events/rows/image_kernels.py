"""Kernels that find the bounds of values in row images without decoding them."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s
from binlogtool.formats.loads import load_little


@kernel(load_little)
def bounds_of(buf: UInt8s, p: int, n: int, fixed: int, prefix: int) -> tuple[int, int]:
    """Find where the value at `buf[pos]` starts and ends.

    Args:
        limit: end of the readable bytes.
        fixed: size of a value of fixed width; used if `prefix` is 0.
        prefix: bytes of the little-endian length before the value.

    Returns:
        (start, end) of the value; the end is -2 if it does not fit.
    """
    if prefix > n - p:
        return p, -2
    size = load_little(buf, p, prefix) if prefix > 0 else fixed
    p += prefix
    if size > n - p:
        return p, -2
    return p, p + size


@kernel(bounds_of)
def behind_image(buf: UInt8s, p: int, n: int, cells: Int64s, first: int, count: int) -> int:
    """Find the end of the row image at `buf[pos]`; -2 if it does not fit.

    Args:
        limit: end of the readable bytes.
        cells: two numbers per column: the width of a fixed value, and the bytes of the length before a value.
        first: number of the image's first column in `cells`.
        count: number of columns of the image.
    """
    nulls = p
    p += (count + 7) >> 3
    if p > n:
        return -2
    for i in range(count):
        if not buf[nulls + (i >> 3)] >> (i & 7) & 1:
            _, p = bounds_of(buf, p, n, cells[2 * (first + i)], cells[2 * (first + i) + 1])
            if p < 0:
                return -2
    return p


@kernel(behind_image)
def rows_between(buf: UInt8s, p: int, n: int, cells: Int64s, first: int, second: int) -> int:
    """Count the rows in `buf[pos:limit]`; -2 if they do not fit.

    Args:
        cells: two numbers per column of both images (see `skip_row_image`).
        first: columns of the before image, or of the only image of a row.
        second: columns of the after image; -1 if a row has only one image.
    """
    rows = 0
    while p < n:
        start = p
        p = behind_image(buf, p, n, cells, 0, first)
        if p >= 0 and second >= 0:
            p = behind_image(buf, p, n, cells, first, second)
        if p <= start:
            return -2
        rows += 1
    return rows
