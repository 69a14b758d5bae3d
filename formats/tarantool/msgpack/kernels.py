"""Scan kernels over MessagePack: numbers, heads of maps, and skipping of whole values (see `formats.fields`)."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s

BIN_SEEN = 1
EXT_SEEN = 2
ODD_SEEN = 4
"""Marks of `skip_value`: a bin, an ext of a known type, or a value that only the tree decodes exactly (NaN, infinity,
an ext of an unknown type)."""


@kernel()
def load16(buf: UInt8s, p: int) -> int:
    """Load two bytes, big-endian."""
    return buf[p] * 256 + buf[p + 1]


@kernel(load16)
def load32(buf: UInt8s, p: int) -> int:
    """Load four bytes, big-endian."""
    return load16(buf, p) * 65536 + load16(buf, p + 2)


@kernel(load32)
def load64(buf: UInt8s, p: int) -> int:
    """Load eight bytes, big-endian, as a signed number with the same bits."""
    high = load32(buf, p)
    if high >= 0x80000000:
        high -= 0x100000000
    return high * 0x100000000 + load32(buf, p + 4)


@kernel(load16, load32, load64)
def read_uint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read one mp uint of any width."""
    if p >= n:
        return 0, -1
    code = buf[p] + 0
    if code < 0x80:
        return code, p + 1
    if code < 0xCC or code > 0xCF:
        return 0, -2
    if code == 0xCC:
        if p + 2 > n:
            return 0, -1
        return buf[p + 1] + 0, p + 2
    if code == 0xCD:
        if p + 3 > n:
            return 0, -1
        return load16(buf, p + 1), p + 3
    if code == 0xCE:
        if p + 5 > n:
            return 0, -1
        return load32(buf, p + 1), p + 5
    if p + 9 > n:
        return 0, -1
    return load64(buf, p + 1), p + 9


@kernel(read_uint)
def read_uint32(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read one mp uint of any width, of which the server keeps 32 bits."""
    value, p = read_uint(buf, p, n)
    return value & 0xFFFFFFFF, p


@kernel(load16, load32)
def read_map_head(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read the head of a map: its number of pairs."""
    if p >= n:
        return 0, -1
    code = buf[p] + 0
    if code >= 0x80 and code < 0x90:
        return code - 0x80, p + 1
    if code == 0xDE:
        if p + 3 > n:
            return 0, -1
        return load16(buf, p + 1), p + 3
    if code == 0xDF:
        if p + 5 > n:
            return 0, -1
        return load32(buf, p + 1), p + 5
    return 0, -2


@kernel(load16, load32)
def read_length(buf: UInt8s, p: int, n: int, code: int) -> tuple[int, int]:
    """Read the length field after a first byte 0xc4..0xc9 or 0xd9..0xdf."""
    if code == 0xC4 or code == 0xC7 or code == 0xD9:
        if p + 1 > n:
            return 0, -1
        return buf[p] + 0, p + 1
    if code == 0xC5 or code == 0xC8 or code == 0xDA or code == 0xDC or code == 0xDE:
        if p + 2 > n:
            return 0, -1
        return load16(buf, p), p + 2
    if p + 4 > n:
        return 0, -1
    return load32(buf, p), p + 4


@kernel()
def skip_number(buf: UInt8s, p: int, n: int, code: int) -> tuple[int, int]:
    """Skip the content of a number (0xca..0xd3): (next, marks)."""
    if code > 0xCB:
        return p + (1 << ((code - 0xCC) & 3)), 0
    size = 4 if code == 0xCA else 8
    if p + size > n:
        return -1, 0
    infinite = 0x80 if code == 0xCA else 0xF0
    if buf[p] & 0x7F == 0x7F and buf[p + 1] >= infinite:
        return p + size, 4
    return p + size, 0


@kernel()
def skip_extension(buf: UInt8s, p: int, n: int, size: int) -> tuple[int, int]:
    """Skip the type and content of an extension: (next, marks)."""
    if p >= n:
        return -1, 0
    if buf[p] >= 1 and buf[p] <= 8:
        return p + 1 + size, 2
    return p + 1 + size, 4


@kernel(read_length, skip_extension, skip_number)
def skip_value(buf: UInt8s, p: int, n: int) -> tuple[int, int, int, int]:
    """Skip one value of any kind: (next, marks, pairs in all its maps, number of its arrays and maps).

    Iterative: `pending` counts the values still to come, and each of them needs at least one byte.
    """
    pending = 1
    marks = 0
    pairs = 0
    nested = 0
    while pending > 0:
        if pending > n - p:
            return -1, 0, 0, 0
        code = buf[p] + 0
        p += 1
        pending -= 1
        new_marks = 0
        if code < 0x80 or code >= 0xE0:
            continue
        if code >= 0xA0 and code < 0xC0:
            p += code - 0xA0
        elif code < 0xA0 or code >= 0xDC:
            size = code & 15
            if code >= 0xDC:
                size, p = read_length(buf, p, n, code)
            if code >= 0xDE or code < 0x90:
                pairs += size
                pending += size
            pending += size
            nested += 1
        elif code >= 0xCA and code <= 0xD3:
            p, new_marks = skip_number(buf, p, n, code)
        elif code >= 0xD4 and code <= 0xD8:
            p, new_marks = skip_extension(buf, p, n, 1 << (code - 0xD4))
        elif code >= 0xC4:
            size, p = read_length(buf, p, n, code)
            if code >= 0xC7 and code <= 0xC9 and p >= 0:
                p, new_marks = skip_extension(buf, p, n, size)
            elif p >= 0:
                p += size
            if code <= 0xC6:
                new_marks = 1
        elif code == 0xC1:
            return -2, 0, 0, 0
        if p < 0 or p > n:
            return -1, 0, 0, 0
        marks |= new_marks
    return p, marks, pairs, nested


@kernel(skip_value)
def read_filler(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Skip one value of any kind; its value is its size without the first byte."""
    after, _, _, _ = skip_value(buf, p, n)
    return after - p - 1, after
