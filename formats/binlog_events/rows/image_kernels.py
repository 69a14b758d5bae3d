"""Where the values of row images are, as kernels; no value is looked at."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s
from binlogtool.formats.loads import load_little


@kernel(load_little)
def bounds_of(buf: UInt8s, p: int, n: int, fixed: int, prefix: int) -> tuple[int, int]:
    """Where a value starts and ends; the end is -2 if it does not fit."""
    if prefix > n - p:
        return p, -2
    size = load_little(buf, p, prefix) if prefix > 0 else fixed
    p += prefix
    if size > n - p:
        return p, -2
    return p, p + size


@kernel(bounds_of)
def behind_image(buf: UInt8s, p: int, n: int, cells: Int64s, first: int, count: int) -> int:
    """The place behind the image at `buf[p]`; -2 if it does not fit. Its columns are `count` of `cells`, from the one
    with the number `first` on; each has two: its width, and the bytes of the length before it."""
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
    """How many rows `buf[p:n]` has; -2 if they do not fit. first: columns of the only image of a row, or of that
    before; second: of that after, -1 = there is none. cells: of both (see `behind_image`)."""
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
