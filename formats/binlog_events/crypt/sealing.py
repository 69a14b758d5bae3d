"""MariaDB's encryption of one log event.

Every event is encrypted alone, as a *stream*: its bytes 4..8, then 0..3, then those from 13 on. Bytes
9..12, the size, stay readable. The IV is the nonce of the file and the offset at which the event was
written.
Sources: docs/spec/mysql-mariadb-binlog.md#9-encryption-v; `Log_event_writer` in `sql/log_event.cc`.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, Protocol

from binlogtool.formats.binlog_events.codes import HEADER_SIZE
from binlogtool.formats.binlog_events.wire.header import END_AT, SIZE_AT, TYPE_AT

BLOCK = 16
FIRST = 20
"""Bytes of an event up to the end of its first cipher block: enough to read its header."""

_U32 = (1 << 32) - 1
_pack = struct.Struct("<I").pack


def size_of(event: bytes) -> int:
    """Return the readable event_size of an event; 0 if there are too few bytes."""
    return int.from_bytes(event[SIZE_AT:END_AT], "little") if len(event) >= END_AT else 0


def to_stream(event: bytes) -> bytes:
    """Return the encrypted bytes of an event in the order in which they were encrypted."""
    return event[TYPE_AT:SIZE_AT] + event[:TYPE_AT] + event[END_AT:]


def from_stream(stream: bytes, size: bytes) -> bytes:
    """Return the event from its stream.

    Args:
        size: its four bytes event_size.
    """
    return stream[5:9] + stream[:5] + size + stream[9:]


class Sealing(Protocol):
    """Cipher of one file; `at` is the offset at which an event was written.

    `server_id_mask`: what remains on bytes 1..4 (the server id) of each block that `decrypt_first_blocks`
    returns. `tolerates_wrong_offset`: the header can be read with the IV of a wrong offset, except for its last
    bytes.
    """

    veil: bytes
    finds_shift: bool

    def part(self, at: int, block: int, before: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream, from block `block` to a block boundary or its end.

        Args:
            previous_block: the preceding cipher block; ignored for block 0.
        """

    def events(self, raw: bytes, base: int, cuts: list[int], shift: int) -> bytes:
        """Decrypt complete events of at least 20 bytes each, from cuts[0] to cuts[-1] (file offsets).

        Args:
            raw: the bytes from offset `base` on.
            shift: how many bytes after the offset where they were written the events are.
        """

    def heads(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the first block of a possible event at each of the first `count` offsets, up to `server_id_mask`.

        The result has 16 bytes for each.
        """


def head_of(sealing: Sealing, event: bytes, at: int) -> bytes | None:
    """Return the plain common header of an event; None if the file ends before it is complete."""
    wanted = min(max(size_of(event), HEADER_SIZE), FIRST)
    if len(event) < wanted:
        return None
    stream = sealing.part(at, 0, b"", to_stream(event[:wanted]))
    return from_stream(stream, event[SIZE_AT:END_AT])[:HEADER_SIZE]


def _xor(one: bytes, other: bytes) -> bytes:
    """Return the XOR of bytes with the beginning of others."""
    size = len(one)
    return (int.from_bytes(one, "little") ^ int.from_bytes(other[:size], "little")).to_bytes(size, "little")


def _first_blocks(raw: bytes, count: int) -> bytearray:
    """Return for each of the first `count` offsets the first cipher block of an event that starts there."""
    blocks = bytearray(BLOCK * count)
    for i, start in enumerate((4, 5, 6, 7, 8, 0, 1, 2, 3, *range(13, FIRST))):
        blocks[i::BLOCK] = raw[start : start + count]
    return blocks


def _cipher(key: bytes, mode: Any) -> Any:
    """Return an AES cipher."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.AES(key), mode)


def _in_order(raw: bytes, places: list[int], plain: bytes, ends: bytes) -> bytes:
    """Return the events in their byte order.

    Args:
        raw: the encrypted bytes.
        offsets: offsets in `raw` where the events start, and where the last one ends.
        plain: for each event a block to drop and its whole blocks.
        remainders: for each event 16 bytes, its remaining ones first.
    """
    pieces: list[bytes] = []
    here, end, low = BLOCK, 0, places[0]
    for high in places[1:]:
        rest = (high - low - 4) & 15
        behind = here + high - low - 4 - rest
        size = raw[low + SIZE_AT : low + END_AT]
        pieces += (plain[here + 5 : here + 9], plain[here : here + 5], size, plain[here + 9 : behind])
        pieces.append(ends[end : end + rest])
        here, end, low = behind + BLOCK, end + BLOCK, high
    return b"".join(pieces)


class CbcSealing:
    """AES-CBC; bytes after the last whole block are XORed with the encrypted IV (the plugin's default)."""

    finds_shift = True

    def __init__(self, key: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import modes

        self._nonce = nonce
        self._chain = _cipher(key, modes.CBC(bytes(BLOCK))).decryptor().update
        self._decrypt = _cipher(key, modes.ECB()).decryptor().update
        self._encrypt = _cipher(key, modes.ECB()).encryptor().update
        self.veil = nonce[1:5]

    def _iv(self, at: int) -> bytes:
        """Return the IV of an event."""
        return self._nonce + _pack(at & _U32)

    def part(self, at: int, block: int, before: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._iv(at)
        whole = len(data) - len(data) % BLOCK
        plain: bytes = self._chain((before if block else iv) + data[:whole])[BLOCK:]
        return plain + _xor(data[whole:], self._encrypt(iv)) if whole < len(data) else plain

    def events(self, raw: bytes, base: int, cuts: list[int], shift: int) -> bytes:
        """Decrypt complete events in one call.

        The IV precedes each event as a cipher block of its own, which has the effect of an IV; the plain block at
        its place is dropped.
        """
        nonce = self._nonce
        places = [cut - base for cut in cuts]
        ivs = [nonce + _pack((cut - shift) & _U32) for cut in cuts]
        stream: list[bytes] = []
        tails: list[bytes] = []
        low = places[0]
        for iv, high in zip(ivs, places[1:], strict=False):
            whole = high - ((high - low - 4) & 15)
            stream += (iv, raw[low + 4 : low + 9], raw[low : low + 4], raw[low + 13 : whole])
            tails.append(raw[whole : whole + BLOCK])
            low = high
        plain = self._chain(b"".join(stream))
        ends = _xor(b"".join(tails), self._encrypt(b"".join(ivs)))
        return _in_order(raw, places, plain, ends)

    def heads(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the possible first blocks."""
        blocks: bytes = self._decrypt(_first_blocks(raw, count))
        return blocks


class CtrSealing:
    """AES-CTR, which the plugin can be configured to use."""

    finds_shift = False
    veil = bytes(4)

    def __init__(self, key: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import modes

        self._nonce = nonce
        self._counter = _cipher(key, modes.CTR(bytes(BLOCK))).decryptor()
        self._encrypt = _cipher(key, modes.ECB()).encryptor().update

    def part(self, at: int, block: int, before: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._nonce + _pack(at & _U32)
        first = (int.from_bytes(iv, "big") + block) % (1 << 8 * BLOCK)
        self._counter.reset_nonce(first.to_bytes(BLOCK, "big"))
        plain: bytes = self._counter.update(data)
        return plain

    def events(self, raw: bytes, base: int, cuts: list[int], shift: int) -> bytes:
        """Decrypt complete events."""
        reset, update, nonce = self._counter.reset_nonce, self._counter.update, self._nonce
        pieces: list[bytes] = []
        for low, high in pairwise(cut - base for cut in cuts):
            reset(nonce + _pack((base + low - shift) & _U32))
            plain = update(to_stream(raw[low:high]))
            pieces += (plain[5:9], plain[:5], raw[low + SIZE_AT : low + END_AT], plain[9:])
        return b"".join(pieces)

    def heads(self, raw: bytes, base: int, count: int) -> bytes:
        """Decrypt the possible first blocks."""
        ivs = bytearray((self._nonce + bytes(4)) * count)
        offsets = struct.pack(f"<{count}I", *((base + i) & _U32 for i in range(count)))
        for i in range(4):
            ivs[12 + i :: BLOCK] = offsets[i::4]
        return _xor(bytes(_first_blocks(raw, count)), self._encrypt(ivs))
