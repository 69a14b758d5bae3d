"""Bodies of versions 2 to 4 (Sphinx up to 2.0): numbers of 7 bits a byte, the lowest first, also as lengths of texts.

Kernels return what those of `walk` do. Document ids take 8 bytes, or 4 where binlog.meta says id64=0 (`DocID_t` of that
build). Source: Sphinx 2.0.9, `BinlogWriter_c::ZipOffset`, `RtBinlog_c`.
"""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, ScalarForm, ScalarKernel, kernel
from binlogtool.formats.kernel_types import Int64s, MutableInt64s, UInt8s
from binlogtool.formats.manticore.payloads.zint import MAX_ZINT_SIZE, UINT64_MASK, WideZint, zint_size

LAST_LOW_VERSION = 4
"""The last version whose numbers begin with their lowest bits."""


@kernel()
def read_low_zint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a number: the low 64 bits and the next position, SHORT, or MALFORMED after ten bytes."""
    value = 0
    shift = 0
    while p < n:
        byte = buf[p]
        p += 1
        if shift < 63:
            value |= (byte & 127) << shift
        else:
            value |= (byte & 1) << 63
        if byte < 128:
            return value, p
        shift += 7
        if shift == 70:
            return 0, -2
    return 0, -1


@kernel(read_low_zint)
def skip_low_zints(buf: UInt8s, p: int, n: int, count: int) -> int:
    """Skip `count` numbers."""
    for _ in range(count):
        if p < 0:
            return p
        _value, p = read_low_zint(buf, p, n)
    return p


@kernel(read_low_zint)
def read_low_vector(buf: UInt8s, p: int, n: int, width: int) -> tuple[int, int]:
    """Read a count and skip as many elements: the count and the end."""
    count, p = read_low_zint(buf, p, n)
    if p < 0:
        return 0, p
    if count < 0 or count > (n - p) // width:
        return 0, -1
    return count, p + count * width


@kernel(read_low_vector)
def read_low_vector1(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vector of bytes: the count and the end."""
    return read_low_vector(buf, p, n, 1)


@kernel(read_low_vector)
def read_low_vector4(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vector of dwords: the count and the end."""
    return read_low_vector(buf, p, n, 4)


@kernel(read_low_vector)
def read_low_vector8(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a vector of qwords: the count and the end."""
    return read_low_vector(buf, p, n, 8)


@kernel(read_low_vector)
def skip_low_vector(buf: UInt8s, p: int, n: int, width: int) -> int:
    """Skip a count and as many elements; a text is a vector of bytes."""
    if p < 0:
        return p
    _count, p = read_low_vector(buf, p, n, width)
    return p


@kernel(read_low_zint, skip_low_zints, skip_low_vector)
def skip_low_cache(buf: UInt8s, p: int, n: int, ids: int) -> int:
    """Skip the table of an ADD_CACHE."""
    count, p = read_low_zint(buf, p, n)
    if p >= 0 and (count < 0 or count > (n - p) // 6):
        return -1
    for _ in range(count):
        p = skip_low_zints(buf, skip_low_vector(buf, p, n, 1), n, 5)
        if p < 0:
            return p
    return p


@kernel(read_low_zint, skip_low_zints, skip_low_vector)
def skip_low_commit(buf: UInt8s, p: int, n: int, version: int, ids: int) -> int:
    """Skip an RT commit."""
    rows, p = read_low_zint(buf, p, n)
    if p >= 0 and rows != 0:
        p = skip_low_vector(buf, p, n, 1)
        if p < 0:
            return p
        count, p = read_low_zint(buf, p, n)
        if p < 0:
            return p
        if count < 0 or count > (n - p) // 2:
            return -1
        p = skip_low_zints(buf, p, n, 2 * count)
        p = skip_low_vector(buf, p, n, 1)
        p = skip_low_vector(buf, p, n, 1)
        p = skip_low_vector(buf, p, n, 4)
        p = skip_low_vector(buf, p, n, 1)
        if version >= 3:
            p = skip_low_vector(buf, p, n, 4)
        if version >= 4:
            p = skip_low_vector(buf, p, n, 1)
    return skip_low_vector(buf, p, n, ids)


@kernel(read_low_zint, skip_low_zints, skip_low_vector)
def skip_low_update(buf: UInt8s, p: int, n: int, ids: int) -> int:
    """Skip an attribute update."""
    count, p = read_low_zint(buf, p, n)
    if p >= 0 and (count < 0 or count > (n - p) // 2):
        return -1
    for _ in range(count):
        p = skip_low_zints(buf, skip_low_vector(buf, p, n, 1), n, 1)
        if p < 0:
            return p
    p = skip_low_vector(buf, p, n, 4)
    p = skip_low_vector(buf, p, n, ids)
    return skip_low_vector(buf, p, n, 4)


@kernel(read_low_zint, skip_low_vector, skip_low_cache, skip_low_commit, skip_low_update)
def read_low_body(buf: UInt8s, p: int, n: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Read a body to the columns id, tid, time. The op is the byte before it.

    Args:
        table: version, and bytes of a document id.
    """
    op = int(buf[p - 1])
    ids = table[1]
    out[at] = 0
    out[at + 1] = 0
    out[at + 2] = 0
    if op == 4:
        return skip_low_cache(buf, p, n, ids)
    out[at], p = read_low_zint(buf, p, n)
    if p >= 0 and op == 3:
        p = skip_low_vector(buf, p, n, 1)
    if p < 0:
        return p
    tid, p = read_low_zint(buf, p, n)
    if p < 0:
        return p
    time, p = read_low_zint(buf, p, n)
    if p < 0:
        return p
    out[at + 1] = tid
    out[at + 2] = time
    if op == 1:
        return skip_low_commit(buf, p, n, table[0], ids)
    if op == 2:
        return skip_low_update(buf, p, n, ids)
    return p if op == 3 else -2


class LowZint(Construct):  # type: ignore[misc]
    """Construct type of a number of 7 bits a byte, the lowest first. A longer form than needed is kept (`WideZint`)."""

    kernel = ScalarKernel(read_low_zint, (ScalarForm(0, 127),), unsigned=True)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_ZINT_SIZE:
                raise MalformedError(f"a number has at most {MAX_ZINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        value = read_low_zint(data, 0, len(data))[0] & UINT64_MASK
        return WideZint(value, len(data)) if len(data) != zint_size(value) else value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        rest, width = int(obj) & UINT64_MASK, getattr(obj, "width", zint_size(int(obj)))
        data = bytes(rest >> 7 * at & 127 | (128 if at < width - 1 else 0) for at in range(width))
        stream_write(stream, data, len(data), path)
        return obj
