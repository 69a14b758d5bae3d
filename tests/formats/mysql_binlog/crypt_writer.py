"""Encrypts events as the servers do: the other direction of what is tested, after the specification's words."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def events(plain: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each event of a plain log."""
    while start < len(plain):
        size = int.from_bytes(plain[start + 9 : start + 13], "little")
        yield start, plain[start : start + size]
        start += size


def checksum_is_right(event: bytes) -> bool:
    """CRC-32 over the event without its last four bytes, the in-use flag of FORMAT_DESCRIPTION cleared."""
    data = bytearray(event)
    if data[4] == 15:
        data[17] &= 0xFE
    return zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little")


def seal(event: bytes, offset: int, key: bytes, nonce: bytes, mode: str = "cbc") -> bytes:
    """One event of MariaDB, encrypted for this offset."""
    iv = nonce + struct.pack("<I", offset & 0xFFFFFFFF)
    size = event[9:13]
    moved = event[4:9] + event[0:4] + event[13:]
    aes = algorithms.AES(key)
    if mode == "ctr":
        cipher = Cipher(aes, modes.CTR(iv)).encryptor().update(moved)
    else:
        whole = len(moved) // 16 * 16
        mask = Cipher(aes, modes.ECB()).encryptor().update(iv)
        rest = bytes(a ^ b for a, b in zip(moved[whole:], mask, strict=False))
        cipher = Cipher(aes, modes.CBC(iv)).encryptor().update(moved[:whole]) + rest
    return cipher[5:9] + cipher[:5] + size + cipher[9:]


def seal_log(plain: bytes, first: int, key: bytes, nonce: bytes, mode: str = "cbc") -> bytes:
    """A log of MariaDB whose events from `first` on are to be encrypted."""
    return plain[:first] + b"".join(seal(event, at, key, nonce, mode) for at, event in events(plain, first))


def event(offset: int, type_: int, body: bytes, server_id: int = 2, flags: int = 0, time: int = 1795232434) -> bytes:
    """A plain event with the right position and checksum."""
    size = 19 + len(body) + 4
    head = struct.pack("<IBIIIH", time, type_, server_id, size, (offset + size) & 0xFFFFFFFF, flags)
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def start_encryption(offset: int, nonce: bytes) -> bytes:
    """A START_ENCRYPTION event."""
    return event(offset, 164, struct.pack("<BI12s", 1, 1, nonce))
