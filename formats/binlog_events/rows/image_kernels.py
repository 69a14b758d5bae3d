"""Kernels that find the bounds of values in row images without decoding them."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s
from binlogtool.formats.loads import load_little_endian


@kernel(load_little_endian)
def find_value_bounds(buf: UInt8s, pos: int, limit: int, fixed: int, prefix: int) -> tuple[int, int]:
    """Find where the value at `buf[pos]` starts and ends.

    Args:
        limit: end of the readable bytes.
        fixed: size of a value of fixed width; used if `prefix` is 0.
        prefix: bytes of the little-endian length before the value.

    Returns:
        (start, end) of the value; the end is -2 if it does not fit.
    """
    if prefix > limit - pos:
        return pos, -2
    size = load_little_endian(buf, pos, prefix) if prefix > 0 else fixed
    pos += prefix
    if size > limit - pos:
        return pos, -2
    return pos, pos + size


@kernel(find_value_bounds)
def skip_row_image(buf: UInt8s, pos: int, limit: int, cells: Int64s, first: int, count: int) -> int:
    """Find the end of the row image at `buf[pos]`; -2 if it does not fit.

    Args:
        limit: end of the readable bytes.
        cells: two numbers per column: the width of a fixed value, and the bytes of the length before a value.
        first: number of the image's first column in `cells`.
        count: number of columns of the image.
    """
    nulls = pos
    pos += (count + 7) >> 3
    if pos > limit:
        return -2
    for i in range(count):
        if not buf[nulls + (i >> 3)] >> (i & 7) & 1:
            _, pos = find_value_bounds(buf, pos, limit, cells[2 * (first + i)], cells[2 * (first + i) + 1])
            if pos < 0:
                return -2
    return pos


@kernel(skip_row_image)
def count_image_rows(buf: UInt8s, pos: int, limit: int, cells: Int64s, first: int, second: int) -> int:
    """Count the rows in `buf[pos:limit]`; -2 if they do not fit.

    Args:
        cells: two numbers per column of both images (see `skip_row_image`).
        first: columns of the before image, or of the only image of a row.
        second: columns of the after image; -1 if a row has only one image.
    """
    rows = 0
    while pos < limit:
        start = pos
        pos = skip_row_image(buf, pos, limit, cells, 0, first)
        if pos >= 0 and second >= 0:
            pos = skip_row_image(buf, pos, limit, cells, first, second)
        if pos <= start:
            return -2
        rows += 1
    return rows
