"""Base64 encoding as kernels over lookup tables."""

from __future__ import annotations

from binlogtool.formats.crc32 import TABLE_OFFSET, build_crc_table
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s

PAIR_TABLE_AT, TABLES_SIZE = 0, TABLE_OFFSET + 1024
"""Where the table of the two digits of each twelve bits stands in the texts, and the size of both tables."""


@kernel()
def load_six_bytes(buf: UInt8s, p: int) -> int:
    """Load six bytes, big-endian."""
    return buf[p] << 40 | buf[p + 1] << 32 | buf[p + 2] << 24 | buf[p + 3] << 16 | buf[p + 4] << 8 | buf[p + 5]


@kernel()
def load_digit_pair(texts: UInt8s, number: int) -> int:
    """Load the two base64 digits of a 12-bit number."""
    at = 2 * (number & 4095)
    return texts[at] | texts[at + 1] << 8


@kernel(load_six_bytes, load_digit_pair, native="base64_line")
def put_base64(buf: UInt8s, p: int, n: int, texts: UInt8s, out: MutableUInt8s, o: int) -> int:
    """Write `buf[p:n]` in base64 and a line end; return the end offset."""
    while n - p >= 6:
        six = load_six_bytes(buf, p)
        word = load_digit_pair(texts, six >> 36) | load_digit_pair(texts, six >> 24) << 16
        word |= load_digit_pair(texts, six >> 12) << 32
        more = load_digit_pair(texts, six)
        for i in range(6):
            out[o + i] = (word >> 8 * i) & 255
        out[o + 6] = more & 255
        out[o + 7] = more >> 8
        o += 8
        p += 6
    while n > p:
        three = buf[p] << 16
        if n - p > 1:
            three |= buf[p + 1] << 8
        if n - p > 2:
            three |= buf[p + 2] + 0
        word = load_digit_pair(texts, three >> 12) | load_digit_pair(texts, three) << 16
        for i in range(4):
            out[o + i] = (word >> 8 * i) & 255
        if n - p < 3:
            out[o + 3] = 61
        if n - p < 2:
            out[o + 2] = 61
        o += 4
        p += 3
    out[o] = 10
    return o + 1


def build_tables() -> bytes:
    """Build the table of digit pairs and the CRC table."""
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    pairs = b"".join(bytes((digits[i >> 6], digits[i & 63])) for i in range(4096))
    return pairs + build_crc_table()
