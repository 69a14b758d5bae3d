"""Detect MessagePack in the canonical form of `replay_rules.encode_canonical`: such bytes can be compared unchanged."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.jsontext import is_utf8
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.tarantool.msgpack.kernels import load16, load32, load64

MAX_CANONICAL_DEPTH = 12
"""Arrays and maps inside each other that a kernel follows."""


@kernel(load16, load32)
def read_shortest_head(buf: UInt8s, p: int, n: int, code: int) -> tuple[int, int]:
    """Read the head of a text, bin, array or map in its shortest form: (size, position after the head); else (-1,
    p).
    """
    if code >= 0xA0 and code <= 0xBF:
        return code - 0xA0, p + 1
    if code >= 0x80 and code <= 0x9F:
        return code & 15, p + 1
    if (code == 0xD9 or code == 0xC4) and n - p >= 2:
        size = buf[p + 1] + 0
        return (size, p + 2) if size > 31 or code == 0xC4 else (-1, p)
    if (code == 0xDA or code == 0xC5) and n - p >= 3:
        size = load16(buf, p + 1)
        return (size, p + 3) if size > 255 else (-1, p)
    if (code == 0xDC or code == 0xDE) and n - p >= 3:
        size = load16(buf, p + 1)
        return (size, p + 3) if size > 15 else (-1, p)
    if (code == 0xDB or code == 0xDD or code == 0xDF or code == 0xC6) and n - p >= 5:
        size = load32(buf, p + 1)
        return (size, p + 5) if size > 65535 else (-1, p)
    return -1, p


@kernel(load16, load32, load64)
def find_number_end(buf: UInt8s, p: int, n: int, code: int) -> int:
    """Return the end of the number 0xcb..0xd3 at `buf[p]`; NOT_MINE if it has a shorter form, or is NaN or infinite."""
    size = 8 if code == 0xCB else 1 << (code & 3)
    if code < 0xCB or code > 0xD3 or n - p <= size:
        return -2
    if code == 0xCB:
        return p + 9 if buf[p + 1] & 0x7F != 0x7F or buf[p + 2] < 0xF0 else -2
    short = False
    if size == 1:
        short = buf[p + 1] < 0x80 if code == 0xCC else buf[p + 1] < 0x80 or buf[p + 1] >= 0xE0
    elif size == 2:
        value = load16(buf, p + 1)
        short = value < 0x100 if code == 0xCD else value < 0x8000 or value >= 0xFF80
    elif size == 4:
        value = load32(buf, p + 1)
        short = value < 0x10000 if code == 0xCE else value < 0x80000000 or value >= 0xFFFF8000
    else:
        value = load64(buf, p + 1)
        short = value >= 0 and value < 0x100000000 if code == 0xCF else value >= -0x80000000
    return -2 if short else p + 1 + size


@kernel()
def is_text_before(buf: UInt8s, p: int, n: int, q: int, z: int) -> bool:
    """Check that the text `buf[p:n]` sorts before `buf[q:z]`."""
    while p < n and q < z:
        if buf[p] != buf[q]:
            return bool(buf[p] < buf[q])
        p += 1
        q += 1
    return p == n and q < z


@kernel(read_shortest_head, is_text_before, is_utf8, find_number_end)
def find_canonical_end(buf: UInt8s, p: int, n: int, levels: int) -> int:
    """Return the end of the value at `buf[p]`; NOT_MINE if it is not in canonical form.

    Args:
        levels: nesting still allowed below it.
    """
    if p >= n:
        return -2
    code = buf[p] + 0
    if code < 0x80 or code >= 0xE0 or code == 0xC0 or code == 0xC2 or code == 0xC3:
        return p + 1
    size, at = read_shortest_head(buf, p, n, code)
    if size < 0:
        return find_number_end(buf, p, n, code)
    if size > n - at:
        return -2
    if code >= 0xC4 and code <= 0xC6:
        return at + size
    if (code >= 0xA0 and code <= 0xBF) or (code >= 0xD9 and code <= 0xDB):
        return at + size if is_utf8(buf, at, at + size) else -2
    if levels == 0:
        return -2
    before = 0
    before_end = -1
    for _ in range(size):
        if code < 0x90 or code >= 0xDE:
            key_size, key = read_shortest_head(buf, at, n, buf[at] + 0) if at < n else (-1, at)
            if key_size < 0 or buf[at] < 0xA0 or (buf[at] > 0xBF and buf[at] < 0xD9) or buf[at] > 0xDB:
                return -2
            if key_size > n - key or (key_size > 0 and buf[key] == 0x24) or not is_utf8(buf, key, key + key_size):
                return -2
            if before_end >= 0 and not is_text_before(buf, before, before_end, key, key + key_size):
                return -2
            before = key
            before_end = key + key_size
            at = before_end
        at = find_canonical_end(buf, at, n, levels - 1)
        if at < 0:
            return at
    return at


@kernel(load16, load32, load64)
def read_addable_integer(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Return (value, position after it) of the canonical integer at `buf[p]`.

    The position is NOT_MINE for other values, and for an integer too large to be added without an overflow check.
    """
    if p >= n:
        return 0, -2
    code = buf[p] + 0
    if code < 0x80:
        return code, p + 1
    if code >= 0xE0:
        return code - 256, p + 1
    if code < 0xCC or code > 0xD3:
        return 0, -2
    size = 1 << (code & 3)
    if n - p <= size:
        return 0, -2
    value = buf[p + 1] + 0
    if size == 2:
        value = load16(buf, p + 1)
    elif size == 4:
        value = load32(buf, p + 1)
    elif size == 8:
        value = load64(buf, p + 1)
    if code >= 0xD0 and size < 8:
        sign = 1 << (8 * size - 1)
        value = (value ^ sign) - sign
    if (code == 0xCF and value < 0) or value > 0x3FFFFFFFFFFFFFFF or value < -0x3FFFFFFFFFFFFFFF:
        return 0, -2
    return value, p + 1 + size


@kernel()
def write_integer(value: int, texts: UInt8s, out: MutableUInt8s, o: int) -> int:
    """Write an integer in canonical form, at most 9 bytes; return the end. `texts` marks `out` as bytes for the
    compiler.
    """
    if value >= -32 and value < 0x80:
        out[o] = value & 255
        return o + 1
    code = 0xCC if value >= 0 else 0xD0
    size = 8
    if value >= -0x80 and value < 0x100:
        size = 1
    elif value >= -0x8000 and value < 0x10000:
        size = 2
        code += 1
    elif value >= -0x80000000 and value < 0x100000000:
        size = 4
        code += 2
    else:
        code += 3
    out[o] = code
    for i in range(size):
        out[o + 1 + i] = (value >> 8 * (size - 1 - i)) & 255
    return o + 1 + size
