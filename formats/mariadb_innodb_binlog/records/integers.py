"""Read InnoDB's compressed integer: 1 to 7 or 9 bytes, with the length in the low three bits.

See docs/spec/mariadb_innodb_binlog.md#compressed-integers (`mysys/my_compr_int.cc`).
"""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

MAX_SIZE = 9


@kernel()
def read_compr_int(buf: UInt8s, pos: int, limit: int) -> tuple[int, int]:
    """Read a compressed integer: (value as 64-bit pattern, next position); -1 = truncated, -2 = over 64 bits."""
    if pos >= limit:
        return 0, -1
    first = buf[pos]
    size = (first & 7) + 1
    if size > limit - pos:
        return 0, -1
    value = first >> 3
    if size == 1:
        return value, pos + 1
    if size == 8:
        if limit - pos < 9:
            return 0, -1
        if buf[pos + 8] > 7:
            return 0, -2
    for k in range(1, min(size, 8)):
        value |= buf[pos + k] << 8 * k - 3
    if size < 8:
        return value, pos + size
    value |= (buf[pos + 8] & 3) << 61
    if buf[pos + 8] & 4:
        value = value - 9223372036854775807 - 1
    return value, pos + 9


def compr_int_size(value: int) -> int:
    """Return the size in bytes of the shortest encoding."""
    size = (max(value.bit_length(), 1) + 3 + 7) // 8
    return size if size < 8 else MAX_SIZE


def encode_compr_int(value: int) -> bytes:
    """Encode a compressed integer in its shortest form, as the server does."""
    size = compr_int_size(value)
    return (value << 3 | min(size - 1, 7)).to_bytes(size, "little")


def parse_compr_int(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Parse the integer at `data[offset]`; returns (value, its end).

    Raises:
        MalformedError: it does not end inside the bytes, or has more than 64 bits.
    """
    value, end = read_compr_int(data, offset, len(data))
    if end < 0:
        reason = "does not end inside the record" if end == -1 else "has more than 64 bits"
        raise MalformedError(f"a compressed integer {reason}", finding_id="varint-overlong")
    return value & 0xFFFFFFFFFFFFFFFF, end


class ComprInt(Construct):  # type: ignore[misc]
    """Construct of a compressed integer."""

    scan = ScalarKernel(read_compr_int)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        first = stream_read(stream, 1, path)
        size = first[0] & 7
        data = first + stream_read(stream, MAX_SIZE - 1 if size == 7 else size, path)
        return parse_compr_int(data, 0)[0]

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = encode_compr_int(obj)
        stream_write(stream, data, len(data), path)
        return obj
