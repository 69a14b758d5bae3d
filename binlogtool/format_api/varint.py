"""Integers of variable length, seven bits to a byte, the lowest first (varints of Protocol Buffers)."""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.format_api.schema_fields import (
    MALFORMED,
    SHORT,
    MalformedError,
    ScalarForm,
    ScalarKernel,
    UInt8s,
    kernel,
)

MAX_VARINT_SIZE = 10
"""Bytes of the longest varint: 64 bits, seven to a byte."""

UINT64_MASK = (1 << 64) - 1


class WideVarint(int):
    """A varint that took more bytes than needed (`width`), so that building gives the same bytes again."""

    width: int

    def __new__(cls, value: int, width: int) -> WideVarint:  # noqa: D102 - see the class
        self = super().__new__(cls, value)
        self.width = width
        return self


@kernel()
def read_varint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a varint: its 64-bit pattern (as a signed value) and the next position, SHORT or MALFORMED."""
    value = 0
    shift = 0
    while p < n:
        byte = int(buf[p])
        p += 1
        if shift < 63:
            value |= (byte & 127) << shift
        elif byte & 1:
            value += -9223372036854775808
        if byte < 128:
            return value, p
        shift += 7
        if shift > 63:
            return 0, -2
    return 0, -1


def parse_varint(data: bytes, p: int, end: int) -> tuple[int, int]:
    """Return the unsigned value at `p` (a `WideVarint` if it is longer than needed) and the next position.

    Raises:
        MalformedError: more than ten bytes, or cut off by `end`.
    """
    if p < end and data[p] < 128:
        return data[p], p + 1
    value, q = read_varint(data, p, end)
    if q == MALFORMED:
        raise MalformedError(f"varint at byte {p} is longer than {MAX_VARINT_SIZE} bytes", None, "varint-overlong")
    if q == SHORT:
        raise MalformedError(f"varint at byte {p} is cut off")
    value &= UINT64_MASK
    return (value if q - p == varint_size(value) else WideVarint(value, q - p)), q


def varint_size(value: int) -> int:
    """Return the bytes of the shortest varint of a value (as 64-bit two's complement)."""
    return max(1, ((value & UINT64_MASK).bit_length() + 6) // 7)


def build_varint(value: int) -> bytes:
    """Encode a value as the shortest varint, or in the width of a `WideVarint`."""
    out = bytearray()
    rest = int(value) & UINT64_MASK
    for _ in range(getattr(value, "width", varint_size(rest)) - 1):
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest & 127)
    return bytes(out)


class Varint(Construct):  # type: ignore[misc]
    """Construct type of an unsigned varint of at most ten bytes; a longer form than needed is kept (`WideVarint`)."""

    kernel = ScalarKernel(read_varint, (ScalarForm(0, 127),), unsigned=True)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_VARINT_SIZE:
                raise MalformedError(f"a number has at most {MAX_VARINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        return parse_varint(bytes(data), 0, len(data))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        data = build_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj
