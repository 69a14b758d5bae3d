"""Keys of encrypted logs, and the cipher of one event.

MariaDB encrypts every event by itself, as a *stream*: its bytes 4..8, then 0..3, then those from 13 on. Bytes 9..12,
the size, stay readable. The IV is the nonce of the file and the offset at which the event was written. Sources:
docs/spec/mysql_binlog.md#encryption; MariaDB `sql/log_event.cc` (`Log_event_writer`), its plugin `file_key_management`
(`Parser`), the `openssl enc` program, MySQL `component_keyring_file`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

from binlogtool.errors import InputOutputError
from binlogtool.formats.binlog_events.wire_format import (
    END_LOG_POS_AT,
    EVENT_SIZE_AT,
    HEADER_SIZE,
    TYPE_AT,
    read_event_size,
)

# --- Keys of encrypted logs ---

SYSTEM_KEY = 1
"""Id of the key that encrypts logs (ENCRYPTION_KEY_SYSTEM_DATA)."""

MASTER_KEY_SIZE = 32

_SALT_MAGIC = b"Salted__"
_SALT_SIZE = 8
_KEY_SIZE, _IV_SIZE = 32, 16
_DIGESTS = ("sha1", "sha256", "sha512", "sha224", "sha384")
"""Digests for file_key_management_digest; sha1 is the default, and the only one before 12.0."""
_PBKDF2_ROUNDS = (10000, 1000, 2048, 4096, 20000, 50000, 65536, 100000)
"""Round counts for file_key_management_use_pbkdf2 to try: that of `openssl enc -pbkdf2`, then other common ones."""
_MAX_KEY_FILE = 1 << 20
_MAX_SECRET = 256
_MAX_KEYRING = 1 << 24
_LINE = re.compile(rb"[ \t\r\f\v]*(?:#.*|(\d{1,10});([0-9a-fA-F]*).*)?")
_KEY_SIZES = (16, 24, 32)


class KeyFileError(InputOutputError):
    """Error: the key file or keyring that the user named cannot be used; the message says why."""


def read_mariadb_keys(keyfile: bytes, secret: bytes | None) -> dict[int, bytes]:
    """Return the keys of a key file by id.

    An unneeded secret is ignored. A file encrypted by `openssl enc` does not say how its key was derived from the
    secret, so all digests that the server supports are tried, without and with PBKDF2 (common round counts).

    Args:
        secret: password with which the file is encrypted, as in the server's filekey.

    Raises:
        KeyFileError: not a key file, encrypted without a secret given, or not decryptable with this secret.
    """
    if len(keyfile) > _MAX_KEY_FILE:
        raise KeyFileError(f"the key file has {len(keyfile):,} bytes; the server reads 1 MiB at most")
    if not keyfile.startswith(_SALT_MAGIC):
        return _parse_key_file(keyfile)
    if secret is None:
        raise KeyFileError("the key file is encrypted; give its secret with --keyfile-secret FILE")
    for plain in _iter_possible_plain_texts(keyfile, secret.rstrip(b"\r\n")[:_MAX_SECRET]):
        try:
            return _parse_key_file(plain)
        except KeyFileError:
            continue
    raise KeyFileError(
        "the key file cannot be decrypted with this secret (if a rare PBKDF2 round count was used, decrypt it with "
        "`openssl enc -d` first)"
    )


def read_mariadb_key(keyfile: bytes, secret: bytes | None) -> bytes:
    """Return the key that encrypts logs from a key file.

    Raises:
        KeyFileError: see `read_mariadb_keys`; also if the file has no such key.
    """
    keys = read_mariadb_keys(keyfile, secret)
    if SYSTEM_KEY not in keys:
        raise KeyFileError(f"the key file has no key with id {SYSTEM_KEY}, which encrypts logs")
    return keys[SYSTEM_KEY]


def _parse_key_file(text: bytes) -> dict[int, bytes]:
    """Parse a plain key file; return its keys by id."""
    keys: dict[int, bytes] = {}
    for number, line in enumerate(text.split(b"\0")[0].split(b"\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise KeyFileError(f"line {number} of the key file is neither `id;hexkey` nor a comment")
        if match[1] is not None:
            digits = match[1]
            if not 0 < int(digits) < 1 << 32:
                raise KeyFileError(f"line {number} of the key file: invalid key id")
            keys[int(digits)] = _parse_hex_key(match[2], number)
    if not keys:
        raise KeyFileError("the key file contains no key")
    return keys


def _parse_hex_key(digits: bytes, line_number: int) -> bytes:
    """Parse a key from its hexadecimal digits."""
    if len(digits) not in [2 * size for size in _KEY_SIZES]:
        raise KeyFileError(f"line {line_number} of the key file: a key has 32, 48 or 64 hexadecimal digits")
    return bytes.fromhex(digits.decode("ascii"))


def _iter_possible_plain_texts(encrypted_key_file: bytes, secret: bytes) -> Iterator[bytes]:
    """Yield possible plain texts of the file, one per key derivation that leads to valid padding."""
    salt, body = (
        encrypted_key_file[len(_SALT_MAGIC) : len(_SALT_MAGIC) + _SALT_SIZE],
        encrypted_key_file[len(_SALT_MAGIC) + _SALT_SIZE :],
    )
    if not body or len(body) % _IV_SIZE:
        raise KeyFileError("the encrypted key file is truncated")
    for key_and_iv in _iter_derived_keys_and_ivs(secret, salt):
        plain = decrypt_aes_cbc(key_and_iv[:_KEY_SIZE], key_and_iv[_KEY_SIZE:], body)
        padding = plain[-1]
        if 0 < padding <= _IV_SIZE and plain.endswith(bytes([padding]) * padding):
            yield plain[:-padding]


def _iter_derived_keys_and_ivs(secret: bytes, salt: bytes) -> Iterator[bytes]:
    """Yield key and IV for each known derivation, most likely ones first."""
    for digest in _DIGESTS:
        # Derive key and IV by OpenSSL's EVP_BytesToKey with one round
        output = last = b""
        while len(output) < _KEY_SIZE + _IV_SIZE:
            last = hashlib.new(digest, last + secret + salt).digest()
            output += last
        yield output[: _KEY_SIZE + _IV_SIZE]
    for rounds in _PBKDF2_ROUNDS:
        for digest in _DIGESTS:
            yield hashlib.pbkdf2_hmac(digest, secret, salt, rounds, _KEY_SIZE + _IV_SIZE)


def decrypt_aes_cbc(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Decrypt whole blocks with AES-CBC, without removing the padding."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor().update(data)


def read_mysql_master_key(keyring: bytes, key_id: str) -> bytes:
    """Return the 32-byte master key with this id from a JSON keyring.

    Raises:
        KeyFileError: not a keyring, or this key is not in it.
    """
    for element in _parse_keyring_elements(keyring):
        if isinstance(element, dict) and element.get("data_id") == key_id:
            data = element.get("data")
            if not isinstance(data, str) or not re.fullmatch(f"[0-9a-fA-F]{{{2 * MASTER_KEY_SIZE}}}", data):
                raise KeyFileError(f"the keyring's key {key_id!r} is not {MASTER_KEY_SIZE} bytes in hexadecimal")
            return bytes.fromhex(data)
    raise KeyFileError(f"the keyring has no key {key_id!r}: it belongs to another server, or the key was purged")


_MARIADB_KEY = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*\d+[ \t]*;[ \t]*[0-9A-Fa-f]{32}")
"""First key in a file of the plug-in file_key_management: number;key."""


def _parse_keyring_elements(keyring: bytes) -> list[Any]:
    """Return the elements of a keyring."""
    if len(keyring) > _MAX_KEYRING:
        raise KeyFileError(f"the keyring has {len(keyring):,} bytes; 16 MiB at most are read")
    try:
        import json

        document = json.loads(keyring)
    except (ValueError, RecursionError) as error:
        if _MARIADB_KEY.match(keyring):
            text = "this is a key file of MariaDB; the log is MySQL's, and needs the keyring of component_keyring_file"
            raise KeyFileError(text) from error
        raise KeyFileError("the keyring is not JSON, or is truncated; component_keyring_file writes JSON") from error
    elements = document.get("elements") if isinstance(document, dict) else None
    if not isinstance(elements, list):
        raise KeyFileError("the keyring has no list of elements; it was not written by component_keyring_file")
    return elements


# --- MariaDB's encryption of one log event ---

BLOCK_SIZE = 16
FIRST_BLOCK_END = 20
"""Number of bytes of an event up to the end of its first cipher block, enough to read its header."""

_U32 = (1 << 32) - 1
_pack_uint32 = struct.Struct("<I").pack


def to_encryption_order(event: bytes) -> bytes:
    """Return the encrypted bytes of an event in the order in which they were encrypted."""
    return event[TYPE_AT:EVENT_SIZE_AT] + event[:TYPE_AT] + event[END_LOG_POS_AT:]


def from_encryption_order(stream: bytes, event_size_bytes: bytes) -> bytes:
    """Return the event from its stream; `event_size_bytes`: the four bytes of its event_size."""
    return stream[5:9] + stream[:5] + event_size_bytes + stream[9:]


class EventCipher(Protocol):
    """Cipher of one file; `at` is the offset at which an event was written.

    `server_id_mask`: XOR mask that remains on bytes 1..4 (server id) of each block from
    `decrypt_possible_first_blocks`.
    `tolerates_wrong_offset`: the header can be read with the IV of a wrong offset, except for its last bytes.
    """

    server_id_mask: bytes
    tolerates_wrong_offset: bool

    def decrypt_stream_part(self, written_offset: int, block_number: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt whole cipher blocks of one event's stream, from block number `block_number` on; return the plain
        bytes in stream order.

        `previous_block`: the preceding cipher block; ignored for block 0.
        """

    def decrypt_events(self, raw: bytes, base_offset: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events of at least 20 bytes each, from boundaries[0] to boundaries[-1] (file offsets).

        Args:
            raw: the bytes from offset `base_offset` on.
            shift: distance of the events from the offsets at which they were written, in bytes.
        """

    def decrypt_possible_first_blocks(self, raw: bytes, base_offset: int, offset_count: int) -> bytes:
        """Decrypt the first block of a possible event at each of the first `offset_count` offsets, up to
        `server_id_mask`.

        The result has 16 bytes per offset.
        """


def decrypt_common_header(cipher: EventCipher, event: bytes, written_offset: int) -> bytes | None:
    """Return the plain common header of an event; None if the file ends before it is complete."""
    size = min(max(read_event_size(event), HEADER_SIZE), FIRST_BLOCK_END)
    if len(event) < size:
        return None
    stream = cipher.decrypt_stream_part(written_offset, 0, b"", to_encryption_order(event[:size]))
    return from_encryption_order(stream, event[EVENT_SIZE_AT:END_LOG_POS_AT])[:HEADER_SIZE]


def _xor_bytes(data: bytes, mask: bytes) -> bytes:
    """Return the XOR of `data` with the beginning of `mask`."""
    size = len(data)
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask[:size], "little")).to_bytes(size, "little")


def _concatenate_possible_first_blocks(raw: bytes, offset_count: int) -> bytearray:
    """Return, for each of the first `offset_count` offsets, the first cipher block of an event that starts there."""
    blocks = bytearray(BLOCK_SIZE * offset_count)
    for i, start in enumerate((4, 5, 6, 7, 8, 0, 1, 2, 3, *range(13, FIRST_BLOCK_END))):
        blocks[i::BLOCK_SIZE] = raw[start : start + offset_count]
    return blocks


def _create_aes_cipher(key: bytes, mode: Any) -> Any:
    """Return an AES cipher."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.AES(key), mode)


def _restore_stored_byte_order(raw: bytes, offsets: list[int], plain: bytes, remainders: bytes) -> bytes:
    """Return the decrypted events in their stored byte order.

    `raw`: the encrypted bytes. `offsets`: offsets in `raw` of the event starts, and of the end of the last event.
    `plain`: for each event, a block to drop and its whole blocks. `remainders`: for each event 16 bytes, which begin
    with its bytes after the whole blocks.
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
        self._chain = _create_aes_cipher(key, modes.CBC(bytes(BLOCK_SIZE))).decryptor().update
        self._decrypt = _create_aes_cipher(key, modes.ECB()).decryptor().update
        self._encrypt = _create_aes_cipher(key, modes.ECB()).encryptor().update
        self.server_id_mask = nonce[1:5]

    def decrypt_stream_part(self, written_offset: int, block_number: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._nonce + _pack_uint32(written_offset & _U32)
        whole_size = len(data) - len(data) % BLOCK_SIZE
        plain: bytes = self._chain((previous_block if block_number else iv) + data[:whole_size])[BLOCK_SIZE:]
        return plain + _xor_bytes(data[whole_size:], self._encrypt(iv)) if whole_size < len(data) else plain

    def decrypt_events(self, raw: bytes, base_offset: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events in one call.

        The IV is put before each event as a cipher block, which has the effect of an IV; the plain block at its
        position is dropped.
        """
        nonce = self._nonce
        offsets = [cut - base_offset for cut in boundaries]
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
        return _restore_stored_byte_order(raw, offsets, plain, ends)

    def decrypt_possible_first_blocks(self, raw: bytes, base_offset: int, offset_count: int) -> bytes:
        """Decrypt the possible first blocks."""
        blocks: bytes = self._decrypt(_concatenate_possible_first_blocks(raw, offset_count))
        return blocks


class CtrEventCipher:
    """AES-CTR, which the plugin can be configured to use."""

    tolerates_wrong_offset = False
    server_id_mask = bytes(4)

    def __init__(self, key: bytes, nonce: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import modes

        self._nonce = nonce
        self._counter = _create_aes_cipher(key, modes.CTR(bytes(BLOCK_SIZE))).decryptor()
        self._encrypt = _create_aes_cipher(key, modes.ECB()).encryptor().update

    def decrypt_stream_part(self, written_offset: int, block_number: int, previous_block: bytes, data: bytes) -> bytes:
        """Decrypt a part of a stream."""
        iv = self._nonce + _pack_uint32(written_offset & _U32)
        first = (int.from_bytes(iv, "big") + block_number) % (1 << 8 * BLOCK_SIZE)
        self._counter.reset_nonce(first.to_bytes(BLOCK_SIZE, "big"))
        plain: bytes = self._counter.update(data)
        return plain

    def decrypt_events(self, raw: bytes, base_offset: int, boundaries: list[int], shift: int) -> bytes:
        """Decrypt complete events."""
        reset, update, nonce = self._counter.reset_nonce, self._counter.update, self._nonce
        parts: list[bytes] = []
        for start, stop in pairwise(cut - base_offset for cut in boundaries):
            reset(nonce + _pack_uint32((base_offset + start - shift) & _U32))
            plain = update(to_encryption_order(raw[start:stop]))
            parts += (plain[5:9], plain[:5], raw[start + EVENT_SIZE_AT : start + END_LOG_POS_AT], plain[9:])
        return b"".join(parts)

    def decrypt_possible_first_blocks(self, raw: bytes, base_offset: int, offset_count: int) -> bytes:
        """Decrypt the possible first blocks."""
        ivs = bytearray((self._nonce + bytes(4)) * offset_count)
        offsets = struct.pack(f"<{offset_count}I", *((base_offset + i) & _U32 for i in range(offset_count)))
        for i in range(4):
            ivs[12 + i :: BLOCK_SIZE] = offsets[i::4]
        return _xor_bytes(bytes(_concatenate_possible_first_blocks(raw, offset_count)), self._encrypt(ivs))
