"""MariaDB's encryption of one log event.

Every event is encrypted alone, as a *stream*: its bytes 4..8, then 0..3, then those from 13 on. Bytes
9..12, the size, stay readable. The IV is the nonce of the file and the offset at which the event was
written.
Sources: docs/spec/mysql_binlog.md#encryption; `Log_event_writer` in `sql/log_event.cc`.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, Protocol

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, EVENT_SIZE_AT, TYPE_AT

BLOCK_SIZE = 16
FIRST_BLOCK_END = 20
"""Bytes of an event up to the end of its first cipher block: enough to read its header."""

_U32 = (1 << 32) - 1
_pack_uint32 = struct.Struct("<I").pack


def read_event_size(event: bytes) -> int:
    """Return the readable event_size of an event; 0 if there are too few bytes."""
    return int.from_bytes(event[EVENT_SIZE_AT:END_LOG_POS_AT], "little") if len(event) >= END_LOG_POS_AT else 0


def to_stream(event: bytes) -> bytes:
    """Return the encrypted bytes of an event in the order in which they were encrypted."""
    return event[TYPE_AT:EVENT_SIZE_AT] + event[:TYPE_AT] + event[END_LOG_POS_AT:]


def from_stream(stream: bytes, size: bytes) -> bytes:
    """Return the event from its stream.

    Args:
        size: its four bytes event_size.
    """
    return stream[5:9] + stream[:5] + size + stream[9:]


class EventCipher(Protocol):
    """Cipher of one file; `at` is the offset at which an event was written.

    `server_id_mask`: what remains on bytes 1..4 (the server id) of each block that `decrypt_first_blocks`
    returns. `tolerates_wrong_offset`: the header can be read with the IV of a wrong offset, except for its last
    bytes.
    """

    server_id_mask: bytes
    tolerates_wrong_offset: bool

    def decrypt_part(self, at: int, block: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream, from block `block` to a block boundary or its end.

        Args:
            previous_block: the preceding cipher block; ignored for block 0.
        """

    def decrypt_events(self, raw: bytes, base: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events of at least 20 bytes each, from cuts[0] to cuts[-1] (file offsets).

        Args:
            raw: the bytes from offset `base` on.
            shift: how many bytes after the offset where they were written the events are.
        """

    def decrypt_first_blocks(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the first block of a possible event at each of the first `count` offsets, up to `server_id_mask`.

        The result has 16 bytes for each.
        """


def decrypt_header(cipher: EventCipher, event: bytes, at: int) -> bytes | None:
    """Return the plain common header of an event; None if the file ends before it is complete."""
    size = min(max(read_event_size(event), HEADER_SIZE), FIRST_BLOCK_END)
    if len(event) < size:
        return None
    stream = cipher.decrypt_part(at, 0, b"", to_stream(event[:size]))
    return from_stream(stream, event[EVENT_SIZE_AT:END_LOG_POS_AT])[:HEADER_SIZE]


def _xor_bytes(data: bytes, mask: bytes) -> bytes:
    """Return the XOR of bytes with the beginning of others."""
    size = len(data)
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask[:size], "little")).to_bytes(size, "little")


def _gather_first_blocks(raw: bytes, count: int) -> bytearray:
    """Return for each of the first `count` offsets the first cipher block of an event that starts there."""
    blocks = bytearray(BLOCK_SIZE * count)
    for i, start in enumerate((4, 5, 6, 7, 8, 0, 1, 2, 3, *range(13, FIRST_BLOCK_END))):
        blocks[i::BLOCK_SIZE] = raw[start : start + count]
    return blocks


def _create_cipher(key: bytes, mode: Any) -> Any:
    """Return an AES cipher."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.AES(key), mode)


def _restore_events(raw: bytes, offsets: list[int], plain: bytes, remainders: bytes) -> bytes:
    """Return the events in their byte order.

    Args:
        raw: the encrypted bytes.
        offsets: offsets in `raw` where the events start, and where the last one ends.
        plain: for each event a block to drop and its whole blocks.
        remainders: for each event 16 bytes, its remaining ones first.
    """
    parts: list[bytes] = []
    plain_at, ends_at, start = BLOCK_SIZE, 0, offsets[0]
    for stop in offsets[1:]:
        remainder_size = (stop - start - 4) & 15
        plain_end = plain_at + stop - start - 4 - remainder_size
        size = raw[start + EVENT_SIZE_AT : start + END_LOG_POS_AT]
        parts += (
            plain[plain_at + 5 : plain_at + 9],
            plain[plain_at : plain_at + 5],
            size,
            plain[plain_at + 9 : plain_end],
        )
        parts.append(remainders[ends_at : ends_at + remainder_size])
        plain_at, ends_at, start = plain_end + BLOCK_SIZE, ends_at + BLOCK_SIZE, stop
    return b"".join(parts)


class CbcEventCipher:
    """AES-CBC; bytes after the last whole block are XORed with the encrypted IV (the plugin's default)."""

    tolerates_wrong_offset = True

    def __init__(self, key: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import modes

        self._nonce = nonce
        self._chain = _create_cipher(key, modes.CBC(bytes(BLOCK_SIZE))).decryptor().update
        self._decrypt = _create_cipher(key, modes.ECB()).decryptor().update
        self._encrypt = _create_cipher(key, modes.ECB()).encryptor().update
        self.server_id_mask = nonce[1:5]

    def _make_iv(self, at: int) -> bytes:
        """Return the IV of an event."""
        return self._nonce + _pack_uint32(at & _U32)

    def decrypt_part(self, at: int, block: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._make_iv(at)
        whole_size = len(data) - len(data) % BLOCK_SIZE
        plain: bytes = self._chain((previous_block if block else iv) + data[:whole_size])[BLOCK_SIZE:]
        return plain + _xor_bytes(data[whole_size:], self._encrypt(iv)) if whole_size < len(data) else plain

    def decrypt_events(self, raw: bytes, base: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events in one call.

        The IV precedes each event as a cipher block of its own, which has the effect of an IV; the plain block at
        its place is dropped.
        """
        nonce = self._nonce
        offsets = [cut - base for cut in boundaries]
        ivs = [nonce + _pack_uint32((cut - shift) & _U32) for cut in boundaries]
        stream: list[bytes] = []
        tails: list[bytes] = []
        start = offsets[0]
        for iv, stop in zip(ivs, offsets[1:], strict=False):
            whole_end = stop - ((stop - start - 4) & 15)
            stream += (iv, raw[start + 4 : start + 9], raw[start : start + 4], raw[start + 13 : whole_end])
            tails.append(raw[whole_end : whole_end + BLOCK_SIZE])
            start = stop
        plain = self._chain(b"".join(stream))
        ends = _xor_bytes(b"".join(tails), self._encrypt(b"".join(ivs)))
        return _restore_events(raw, offsets, plain, ends)

    def decrypt_first_blocks(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the possible first blocks."""
        blocks: bytes = self._decrypt(_gather_first_blocks(raw, count))
        return blocks


class CtrEventCipher:
    """AES-CTR, which the plugin can be configured to use."""

    tolerates_wrong_offset = False
    server_id_mask = bytes(4)

    def __init__(self, key: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import modes

        self._nonce = nonce
        self._counter = _create_cipher(key, modes.CTR(bytes(BLOCK_SIZE))).decryptor()
        self._encrypt = _create_cipher(key, modes.ECB()).encryptor().update

    def decrypt_part(self, at: int, block: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._nonce + _pack_uint32(at & _U32)
        first = (int.from_bytes(iv, "big") + block) % (1 << 8 * BLOCK_SIZE)
        self._counter.reset_nonce(first.to_bytes(BLOCK_SIZE, "big"))
        plain: bytes = self._counter.update(data)
        return plain

    def decrypt_events(self, raw: bytes, base: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events."""
        reset, update, nonce = self._counter.reset_nonce, self._counter.update, self._nonce
        parts: list[bytes] = []
        for start, stop in pairwise(cut - base for cut in boundaries):
            reset(nonce + _pack_uint32((base + start - shift) & _U32))
            plain = update(to_stream(raw[start:stop]))
            parts += (plain[5:9], plain[:5], raw[start + EVENT_SIZE_AT : start + END_LOG_POS_AT], plain[9:])
        return b"".join(parts)

    def decrypt_first_blocks(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the possible first blocks."""
        ivs = bytearray((self._nonce + bytes(4)) * count)
        offsets = struct.pack(f"<{count}I", *((base + i) & _U32 for i in range(count)))
        for i in range(4):
            ivs[12 + i :: BLOCK_SIZE] = offsets[i::4]
        return _xor_bytes(bytes(_gather_first_blocks(raw, count)), self._encrypt(ivs))
