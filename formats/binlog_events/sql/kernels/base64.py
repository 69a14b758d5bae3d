"""Base64, and the checksums of events that are put together anew, as kernels over tables of bytes."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.fields import kernel
from binlogtool.formats.loads import load_big

PAIRS_AT, CRC_AT, SIZE = 0, 8192, 8192 + 1024
"""Where the tables stand in the texts: the two digits of each twelve bits; CRC-32 of each byte, 32 bits, big-endian."""

_POLYNOMIAL = 0xEDB88320


@kernel()
def load_sextet(buf: Any, p: int) -> int:
    """Six bytes, big-endian."""
    return (  # type: ignore[no-any-return]
        buf[p] << 40 | buf[p + 1] << 32 | buf[p + 2] << 24 | buf[p + 3] << 16 | buf[p + 4] << 8 | buf[p + 5]
    )


@kernel()
def pair(texts: Any, number: int) -> int:
    """The two digits of twelve bits in base64."""
    at = 2 * (number & 4095)
    return texts[at] | texts[at + 1] << 8  # type: ignore[no-any-return]


@kernel(load_sextet, pair, native="base64_line")
def put_base64(buf: Any, p: int, n: int, texts: Any, out: Any, o: int) -> int:
    """`buf[p:n]` in base64, and a line's end."""
    while n - p >= 6:
        six = load_sextet(buf, p)
        word = pair(texts, six >> 36) | pair(texts, six >> 24) << 16
        word |= pair(texts, six >> 12) << 32
        more = pair(texts, six)
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
        word = pair(texts, three >> 12) | pair(texts, three) << 16
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


@kernel(load_big, native="crc32_bytes")
def crc_of(buf: Any, p: int, n: int, texts: Any) -> int:
    """The CRC-32 of `buf[p:n]`."""
    crc = 0xFFFFFFFF
    for i in range(p, n):
        crc = load_big(texts, CRC_AT + 4 * ((crc ^ buf[i]) & 255), 4) ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def tables() -> bytes:
    """Both tables."""
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    pairs = b"".join(bytes((digits[i >> 6], digits[i & 63])) for i in range(4096))
    return pairs + b"".join(_crc_of_byte(i).to_bytes(4, "big") for i in range(256))


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ _POLYNOMIAL * (value & 1)
    return value
