"""zint: 7-bit groups, the most significant first.

Source: `docs/spec/manticore.md#zint`.
"""

from __future__ import annotations

from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, ScalarForm, ScalarKernel, kernel
from binlogtool.formats.kernel_types import UInt8s

MAX_ZINT_SIZE = 10
"""Bytes of the longest zint: 64 bits, seven to a byte."""

UINT64_MASK = (1 << 64) - 1


class WideZint(int):
    """A zint that took more bytes than needed (`width`), so that building gives the same bytes again."""

    width: int

    def __new__(cls, value: int, width: int) -> WideZint:  # noqa: D102 - see the class
        self = super().__new__(cls, value)
        self.width = width
        return self


@kernel()
def read_zint(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a zint: the low 64 bits and the next position, SHORT, or MALFORMED after ten bytes."""
    if n - p > 2:  # the frequent case: up to three bytes
        value = buf[p]
        if value < 128:
            return value, p + 1
        byte = buf[p + 1]
        if byte < 128:
            return (value & 127) << 7 | byte, p + 2
        third = buf[p + 2]
        if third < 128:
            return (value & 127) << 14 | (byte & 127) << 7 | third, p + 3
    value = 0
    stop = p + 10
    while p < n:
        byte = buf[p]
        p += 1
        value = (value & 0x1FFFFFFFFFFFFFF) << 7 | byte & 127
        if byte < 128:
            return value, p
        if p == stop:
            return 0, -2
    return 0, -1


@kernel(read_zint)
def read_zint32(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Read a zint as a signed number of 32 bits."""
    value, p = read_zint(buf, p, n)
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, p


def zint_size(value: int) -> int:
    """Return the bytes of the shortest zint of a value (as 64-bit two's complement)."""
    return max(1, ((value & UINT64_MASK).bit_length() + 6) // 7)


def build_zint(value: int) -> bytes:
    """Encode a value as the shortest zint, or in the width of a `WideZint`."""
    rest, width = int(value) & UINT64_MASK, getattr(value, "width", zint_size(value))
    groups = [rest >> 7 * at & 127 for at in range(width)]
    return bytes([group | 128 for group in groups[:0:-1]] + groups[:1])


class Zint(Construct):  # type: ignore[misc]
    """Construct type of a zint. A longer form than needed is kept (`WideZint`).

    Args:
        bits: number of bits that are kept.
        signed: two's complement.
    """

    def __init__(self, bits: int = 64, signed: bool = False) -> None:
        super().__init__()
        self.bits, self.signed = bits, signed
        read = read_zint32 if bits == 32 else read_zint
        self.kernel = ScalarKernel(read, (ScalarForm(0, 127),), unsigned=not signed)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        data = bytearray()
        while not data or data[-1] >= 128:
            if len(data) == MAX_ZINT_SIZE:
                raise MalformedError(f"a zint has at most {MAX_ZINT_SIZE} bytes", path, "varint-overlong")
            data += stream_read(stream, 1, path)
        value = read_zint(data, 0, len(data))[0] & UINT64_MASK
        wide = len(data) != zint_size(value)
        if self.signed:
            value = ((value & (1 << self.bits) - 1) ^ 1 << self.bits - 1) - (1 << self.bits - 1)
        return WideZint(value, len(data)) if wide else value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        is_negative = self.signed and obj < 0 and not isinstance(obj, WideZint)
        data = build_zint(obj & (1 << self.bits) - 1 if is_negative else obj)
        stream_write(stream, data, len(data), path)
        return obj
