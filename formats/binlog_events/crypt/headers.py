"""Encrypted logs: their headers, and decryption to plain bytes at the same file offsets.

MySQL: a header of 512 bytes, then the whole plain file under AES-256-CTR. Its magic is at 512, its first
event at 516; positions in events (end_log_pos) refer to the plain file and are lower by 512. MariaDB:
FORMAT_DESCRIPTION and START_ENCRYPTION are plain, each event after them is encrypted alone and only its
size is readable (`sealing`, `sealed`).
Sources: docs/spec/mysql_binlog.md#encryption; MySQL `sql/rpl_log_encryption.h`,
`sql/stream_cipher.cc`; MariaDB `Start_encryption_log_event`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import msgspec
from construct import (
    Bytes,
    Check,
    Const,
    Construct,
    ConstructError,
    Enum,
    Error,
    Int8ul,
    Int32ul,
    Pass,
    RepeatUntil,
    Struct,
    Switch,
    Tell,
    this,
)

from binlogtool.formats.binlog_events.codes import (
    ENCRYPTED_MAGIC,
    HEADER_SIZE,
    MAGIC,
    MAX_EVENT_SIZE,
    EventFlag,
    EventType,
)
from binlogtool.formats.binlog_events.crypt.keys import MASTER_KEY_SIZE, KeyFileError, decrypt_aes_cbc
from binlogtool.formats.binlog_events.crypt.sealed import EventDecryptor, HeaderEvidence
from binlogtool.formats.binlog_events.crypt.sealing import (
    CbcEventCipher,
    CtrEventCipher,
    EventCipher,
    decrypt_header,
    read_event_size,
)
from binlogtool.formats.binlog_events.wire.header import END_LOG_POS_AT, FLAGS_AT, TYPE_AT
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import BufferDecryptor, RangeReader

ENCRYPTED_HEADER_SIZE = 512
"""Bytes in front of the plain image of a MySQL log."""

NO_KEY_MESSAGE = "the log is encrypted; give the key with --keyfile FILE"
"""What a layout says when there is no key."""

_PASSWORD_SIZE = 32
_IV_SIZE = 16
_VERSION = 1
_STREAM_CHUNK_SIZE = 1 << 20
_MAX_PROBED_EVENTS = 64
_START_ENCRYPTION = struct.Struct("<BI12s")
_SCHEME = 1


def _is_end_field(field: Any, fields: Any, context: Any) -> bool:
    """Return whether a header field is the end marker."""
    return str(field.type) == "end"


ENCRYPTION_HEADER = Struct(
    "magic" / Const(ENCRYPTED_MAGIC),
    "version" / Int8ul,
    "fields"
    / RepeatUntil(
        _is_end_field,
        Struct(
            "type" / Enum(Int8ul, end=0, key_id=1, encrypted_password=2, iv=3),
            "value"
            / Switch(
                this.type,
                {
                    "end": Pass,
                    "key_id": Struct("length" / Int8ul, "text" / Bytes(this.length)),
                    "encrypted_password": Bytes(_PASSWORD_SIZE),
                    "iv": Bytes(_IV_SIZE),
                },
                default=Error,
            ),
        ),
    ),
    "end" / Tell,
    Check(this.end <= ENCRYPTED_HEADER_SIZE),
    "padding" / Bytes(ENCRYPTED_HEADER_SIZE - this.end),
)
"""The first 512 bytes of an encrypted file of MySQL."""

ENCRYPTED_FILE_HEADER = Struct("encryption" / ENCRYPTION_HEADER, "magic" / Const(MAGIC))
"""What stands in front of the first event of an encrypted file of MySQL, 516 bytes (with the key)."""

ENCRYPTED_EVENT_HEAD = Struct(
    "start" / Tell,
    "sealed_head" / Bytes(9),
    "event_size" / Int32ul,
    Check(this.event_size >= HEADER_SIZE),
    Check(this.event_size <= MAX_EVENT_SIZE),
    "sealed_body" / Bytes(this.event_size - 13),
    "end" / Tell,
)
"""An event of MariaDB without the key: only its size is readable. A plain event fits, too."""


class EncryptionHeader(msgspec.Struct, frozen=True):
    """Header of an encrypted MySQL log; `encrypted_password`: encrypted with the master key `key_id` and this IV."""

    version: int
    key_id: str
    encrypted_password: bytes
    iv: bytes


class StartEncryption(msgspec.Struct, frozen=True):
    """START_ENCRYPTION event; `end`: file offset of the first encrypted event."""

    scheme: int
    key_version: int
    nonce: bytes
    server_id: int
    end: int


# -- MySQL -----------------------------------------------------------------------------------------------------------


def parse_encryption_header(head: bytes) -> EncryptionHeader:
    """Parse the header of an encrypted MySQL log from the first bytes of the file.

    Raises:
        MalformedError: it is damaged, truncated, or of another version; `finding_id` tells them apart.
    """
    if not head.startswith(ENCRYPTED_MAGIC):
        raise MalformedError("this is no encrypted log of MySQL", finding_id="bad-magic")
    if head[4:5] != bytes([_VERSION]) and len(head) > 4:
        raise MalformedError(f"the encryption header has version {head[4]}", None, "unsupported-version")
    parsed = _parse_schema(ENCRYPTION_HEADER, head[:ENCRYPTED_HEADER_SIZE])
    values = {str(one.type): one.value for one in parsed.fields}
    missing = [name for name in ("key_id", "encrypted_password", "iv") if name not in values]
    if missing:
        raise MalformedError(f"the encryption header has no {missing[0]}", finding_id="bad-header")
    key_id = values["key_id"].text.decode("utf-8", "backslashreplace")
    return EncryptionHeader(parsed.version, key_id, values["encrypted_password"], values["iv"])


def _parse_schema(schema: Construct, data: bytes) -> Struct:
    """Parse bytes by a schema.

    Raises:
        MalformedError: they do not match.
    """
    try:
        return schema.parse(data)
    except ConstructError as error:
        reason = "it is cut short" if len(data) < ENCRYPTED_HEADER_SIZE else "a field of it is none that is known"
        raise MalformedError(f"the encryption header cannot be read: {reason}", None, "bad-header") from error


def create_mysql_decryptor(head: bytes, master_key: bytes) -> Callable[[RangeReader], BufferDecryptor]:
    """Return a function that opens an encrypted MySQL log for reading.

    The decryptor only needs the bytes that it is given, so it works on streams too.

    Args:
        head: the first bytes of the file, up to its first event if there is one.

    Raises:
        MalformedError: see `parse_encryption_header`.
        KeyFileError: the key does not decrypt the log.
    """
    header = parse_encryption_header(head)
    if len(master_key) != MASTER_KEY_SIZE:
        raise KeyFileError(f"the master key has {len(master_key)} bytes, not {MASTER_KEY_SIZE}")
    secret = hashlib.sha512(decrypt_aes_cbc(master_key, header.iv, header.encrypted_password)).digest()
    first = bytearray(head[: ENCRYPTED_HEADER_SIZE + len(MAGIC) + HEADER_SIZE])
    _create_stream_decryptor(secret)(0, memoryview(first))
    if not _is_plain_log(bytes(first[ENCRYPTED_HEADER_SIZE:])):
        raise KeyFileError(f"the keyring's key {header.key_id!r} does not decrypt this log: a wrong key")
    return lambda _: _create_stream_decryptor(secret)


def _is_plain_log(start: bytes) -> bool:
    """Return whether the bytes begin a plain log: with the magic, or with a valid FORMAT_DESCRIPTION."""
    if len(start) < len(MAGIC) + HEADER_SIZE or start.startswith(MAGIC):
        return MAGIC.startswith(start[: len(MAGIC)])
    event = start[len(MAGIC) :]
    end = int.from_bytes(event[END_LOG_POS_AT:FLAGS_AT], "little")
    return event[TYPE_AT] == EventType.FORMAT_DESCRIPTION and end == len(MAGIC) + read_event_size(event)


def _create_stream_decryptor(secret: bytes) -> BufferDecryptor:
    """Return the AES-256-CTR decryptor for what follows the header.

    Args:
        secret: 32 bytes of key, 8 bytes before the block counter.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonce = secret[32:40]
    cipher = Cipher(algorithms.AES(secret[:32]), modes.CTR(nonce + bytes(8))).decryptor()

    def decrypt(offset: int, view: memoryview) -> None:
        for start in range(max(0, ENCRYPTED_HEADER_SIZE - offset), len(view), _STREAM_CHUNK_SIZE):
            block, skip = divmod(offset + start - ENCRYPTED_HEADER_SIZE, 16)
            cipher.reset_nonce(nonce + block.to_bytes(8, "big"))
            cipher.update(bytes(skip))
            chunk = view[start : start + _STREAM_CHUNK_SIZE]
            chunk[:] = cipher.update(chunk)

    return decrypt


# -- MariaDB ---------------------------------------------------------------------------------------------------------


def parse_start_encryption(event: bytes, offset: int) -> StartEncryption:
    """Parse a complete START_ENCRYPTION event at a file offset.

    Raises:
        MalformedError: it is too short, or of an unknown scheme.
    """
    if not HEADER_SIZE + _START_ENCRYPTION.size <= read_event_size(event) <= len(event):
        raise MalformedError(f"START_ENCRYPTION of {read_event_size(event)} bytes: not its size", None, "bad-header")
    scheme, version, nonce = _START_ENCRYPTION.unpack_from(event, HEADER_SIZE)
    if scheme != _SCHEME:
        raise MalformedError(f"encryption scheme {scheme} is unknown", None, "unsupported-version")
    return StartEncryption(
        scheme, version, nonce, int.from_bytes(event[5:9], "little"), offset + read_event_size(event)
    )


class EventDecryptorFactory(msgspec.Struct):
    """Opens an encrypted MariaDB log for reading (`LogFileLayout.decrypt`); `decryptor`: the decryptor, once the file
    is open.
    """

    create: Callable[[RangeReader], EventDecryptor]
    decryptor: EventDecryptor | None = None

    def __call__(self, read_range: RangeReader) -> EventDecryptor:
        """Open the file."""
        self.decryptor = self.create(read_range)
        return self.decryptor


def create_mariadb_decryptor(start: StartEncryption, key: bytes, head: bytes) -> EventDecryptorFactory:
    """Return what opens an encrypted MariaDB log, whether its plugin uses AES-CBC or AES-CTR.

    If bytes were removed or inserted, the events after that are found only under AES-CBC: their headers tell
    where they were written.

    Args:
        head: the first bytes of the file, with the events before `start.end` and some after it.

    Raises:
        KeyFileError: the key decrypts no event of the head.
    """
    since, server_id = int.from_bytes(head[4:8], "little"), int.from_bytes(head[9:13], "little")
    is_relay = bool(int.from_bytes(head[21:23], "little") & EventFlag.RELAY_LOG)

    def create_evidence() -> HeaderEvidence:
        return HeaderEvidence({server_id, start.server_id}, since, is_relay)

    cipher_class = _find_cipher(start, key, head, create_evidence())
    return EventDecryptorFactory(
        lambda read: EventDecryptor(cipher_class(key, start.nonce), start.end, create_evidence(), read)
    )


_CIPHERS: tuple[Callable[[bytes, bytes], EventCipher], ...] = (CbcEventCipher, CtrEventCipher)


def _find_cipher(
    start: StartEncryption, key: bytes, head: bytes, evidence: HeaderEvidence
) -> Callable[[bytes, bytes], EventCipher]:
    """Return the cipher that decrypts valid headers of the events in the head."""
    events = _find_events(start.end, head)
    if not events:
        return CbcEventCipher
    for cipher_class in _CIPHERS:
        cipher = cipher_class(key, start.nonce)
        heads = [(decrypt_header(cipher, head[at:], at), at) for at in events]
        if any(one is not None and evidence.is_certain(one, at) for one, at in heads):
            return cipher_class
    raise KeyFileError("the key file's key 1 does not decrypt this log: a wrong key")


def _find_events(offset: int, head: bytes) -> list[int]:
    """Return the offsets of the first encrypted events, as far as the head extends and their sizes are plausible."""
    offsets: list[int] = []
    while len(head) - offset >= 20 and len(offsets) < _MAX_PROBED_EVENTS:
        offsets.append(offset)
        size = read_event_size(head[offset : offset + 13])
        if not HEADER_SIZE <= size <= MAX_EVENT_SIZE:
            break
        offset += size
    return offsets
