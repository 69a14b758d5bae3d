"""Read the redo log's varint: 1 to 5 bytes, big-endian, each length with its own base.

See docs/spec/mariadb_innodb_binlog.md#redo-records (`mlog_decode_varint`).
"""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, ScalarForm, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

_BASES = (0, 128, 16512, 2113664, 270549120)
_PREFIXES = (0x00, 0x80, 0xC0, 0xE0, 0xF0)


@kernel()
def read_varint(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a varint: (value, next position); -1 = truncated, -2 = a reserved first byte or over 32 bits."""
    if pos >= limit:
        return 0, -1
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    if first < 0xC0:
        if pos + 2 > limit:
            return 0, -1
        return 128 + ((first & 0x3F) << 8 | buf[pos + 1]), pos + 2
    if first < 0xE0:
        if pos + 3 > limit:
            return 0, -1
        return 16512 + ((first & 0x1F) << 16 | buf[pos + 1] << 8 | buf[pos + 2]), pos + 3
    if first < 0xF0:
        if pos + 4 > limit:
            return 0, -1
        return 2113664 + ((first & 0x0F) << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]), pos + 4
    if first >= 0xF8:
        return 0, -2
    if pos + 5 > limit:
        return 0, -1
    if first != 0xF0:
        return 0, -2
    value = 270549120 + (buf[pos + 1] << 24 | buf[pos + 2] << 16 | buf[pos + 3] << 8 | buf[pos + 4])
    if value > 0xFFFFFFFF:
        return 0, -2
    return value, pos + 5


def varint_size(first: int) -> int:
    """Return the size in bytes of a varint by its first byte; 0 = reserved first byte."""
    return next((size for size, end in ((1, 0x80), (2, 0xC0), (3, 0xE0), (4, 0xF0), (5, 0xF8)) if first < end), 0)


def encode_varint(value: int) -> bytes:
    """Encode a value of 0 to 2**32 - 1; the encoding is unique."""
    size = max(size for size, base in enumerate(_BASES, 1) if value >= base)
    data = bytearray((value - _BASES[size - 1]).to_bytes(size, "big"))
    data[0] |= _PREFIXES[size - 1]
    return bytes(data)


class RedoVarint(Construct):  # type: ignore[misc]
    """Construct of a varint of at most 32 bits."""

    kernel = ScalarKernel(read_varint, (ScalarForm(0, 127),))

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        first = stream_read(stream, 1, path)
        size = varint_size(first[0])
        if size == 0:
            raise MalformedError(f"{first[0]:#04x} starts no varint", path, "varint-overlong")
        data = first + stream_read(stream, size - 1, path)
        value, after = read_varint(data, 0, size)
        if after < 0:
            raise MalformedError("a varint of more than 32 bits", path, "varint-overlong")
        return value

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = encode_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj
