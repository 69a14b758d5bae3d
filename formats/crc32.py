"""Kernel for zlib's CRC-32 (`checksums.CRC32`)."""

from __future__ import annotations

from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import UInt8s
from binlogtool.formats.loads import load_big_endian

TABLE_OFFSET = 8192
"""Where the table stands in the texts: the CRC-32 of each byte, 32 bits, big-endian. Native code has its own."""

_POLYNOMIAL = 0xEDB88320


@kernel(load_big_endian, native="crc32_bytes")
def compute_crc32(buf: UInt8s, p: int, n: int, texts: UInt8s) -> int:
    """Return the CRC-32 of `buf[p:n]`."""
    crc = 0xFFFFFFFF
    for i in range(p, n):
        crc = load_big_endian(texts, TABLE_OFFSET + 4 * ((crc ^ buf[i]) & 255), 4) ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def build_crc_table() -> bytes:
    """Return the table: the CRC-32 of each byte value, big-endian."""
    return b"".join(_compute_byte_crc(i).to_bytes(4, "big") for i in range(256))


def _compute_byte_crc(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ _POLYNOMIAL * (value & 1)
    return value
