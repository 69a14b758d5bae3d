"""Encrypted logs (specification section 9): their headers, and how the plain bytes come out at the same file offsets.

MySQL: a header of 512 bytes, then the whole plain file under AES-256-CTR. Its magic stands at 512, its first event at
516; positions that events name (end_log_pos) are those of the plain file, 512 less. MariaDB: FORMAT_DESCRIPTION and
START_ENCRYPTION are plain, each event behind them is encrypted alone, only its size is readable (`sealing`, `sealed`).

Sources: MySQL `sql/rpl_log_encryption.h`, `sql/stream_cipher.cc`; MariaDB `Start_encryption_log_event`.
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

from binlogtool.formats.binlog_events.codes import ENCRYPTED_MAGIC, HEADER_SIZE, MAGIC, MAX_EVENT, EventFlag, EventType
from binlogtool.formats.binlog_events.crypt.keys import MASTER_KEY_SIZE, KeyFileError, aes_cbc
from binlogtool.formats.binlog_events.crypt.sealed import Known, Sealed
from binlogtool.formats.binlog_events.crypt.sealing import CbcSealing, CtrSealing, Sealing, head_of, size_of
from binlogtool.formats.binlog_events.wire.header import END_AT, FLAGS_AT, TYPE_AT
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import Read, Unveil

ENCRYPTED_HEADER_SIZE = 512
"""Bytes in front of the plain image of a MySQL log."""

NO_KEY = "the log is encrypted; give the key with --keyfile FILE"
"""What a layout says when there is no key."""

_PASSWORD = 32
_IV = 16
_VERSION = 1
_PIECE = 1 << 20
_PROBES = 64
_START = struct.Struct("<BI12s")
_SCHEME = 1


def _is_last(field: Any, fields: Any, context: Any) -> bool:
    return str(field.type) == "end"


ENCRYPTION_HEADER = Struct(
    "magic" / Const(ENCRYPTED_MAGIC),
    "version" / Int8ul,
    "fields"
    / RepeatUntil(
        _is_last,
        Struct(
            "type" / Enum(Int8ul, end=0, key_id=1, encrypted_password=2, iv=3),
            "value"
            / Switch(
                this.type,
                {
                    "end": Pass,
                    "key_id": Struct("length" / Int8ul, "text" / Bytes(this.length)),
                    "encrypted_password": Bytes(_PASSWORD),
                    "iv": Bytes(_IV),
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

SEALED_EVENT = Struct(
    "start" / Tell,
    "sealed_head" / Bytes(9),
    "event_size" / Int32ul,
    Check(this.event_size >= HEADER_SIZE),
    Check(this.event_size <= MAX_EVENT),
    "sealed_body" / Bytes(this.event_size - 13),
    "end" / Tell,
)
"""An event of MariaDB without the key: only its size is readable. A plain event fits, too."""


class EncryptionHeader(msgspec.Struct, frozen=True):
    """The header of an encrypted MySQL log. encrypted_password: under the master key `key_id`, with this IV."""

    version: int
    key_id: str
    encrypted_password: bytes
    iv: bytes


class StartEncryption(msgspec.Struct, frozen=True):
    """A START_ENCRYPTION event. end: file offset of the first encrypted event."""

    scheme: int
    key_version: int
    nonce: bytes
    server_id: int
    end: int


# -- MySQL -----------------------------------------------------------------------------------------------------------


def parse_encryption_header(head: bytes) -> EncryptionHeader:
    """Reads the header of an encrypted MySQL log from the first bytes of the file.

    Raises:
        MalformedError: damaged, cut short, or of another version (its `finding_id` says which).
    """
    if not head.startswith(ENCRYPTED_MAGIC):
        raise MalformedError("this is no encrypted log of MySQL", finding_id="bad-magic")
    if head[4:5] != bytes([_VERSION]) and len(head) > 4:
        raise MalformedError(f"the encryption header has version {head[4]}", None, "unsupported-version")
    parsed = _parsed(ENCRYPTION_HEADER, head[:ENCRYPTED_HEADER_SIZE])
    found = {str(one.type): one.value for one in parsed.fields}
    missing = [name for name in ("key_id", "encrypted_password", "iv") if name not in found]
    if missing:
        raise MalformedError(f"the encryption header has no {missing[0]}", finding_id="bad-header")
    key_id = found["key_id"].text.decode("utf-8", "backslashreplace")
    return EncryptionHeader(parsed.version, key_id, found["encrypted_password"], found["iv"])


def _parsed(schema: Construct, data: bytes) -> Struct:
    try:
        return schema.parse(data)
    except ConstructError as error:
        why = "it is cut short" if len(data) < ENCRYPTED_HEADER_SIZE else "a field of it is none that is known"
        raise MalformedError(f"the encryption header cannot be read: {why}", None, "bad-header") from error


def mysql_unveiler(head: bytes, master_key: bytes) -> Callable[[Read], Unveil]:
    """How to read an encrypted MySQL log. head: its first bytes, up to its first event if there is one.

    The unveiler only looks at the bytes that it is given, so it serves streams, too.

    Raises:
        MalformedError: see `parse_encryption_header`.
        KeyFileError: the plain file that comes out is none.
    """
    header = parse_encryption_header(head)
    if len(master_key) != MASTER_KEY_SIZE:
        raise KeyFileError(f"the master key has {len(master_key)} bytes, not {MASTER_KEY_SIZE}")
    secret = hashlib.sha512(aes_cbc(master_key, header.iv, header.encrypted_password)).digest()
    first = bytearray(head[: ENCRYPTED_HEADER_SIZE + len(MAGIC) + HEADER_SIZE])
    _stream_unveiler(secret)(0, memoryview(first))
    if not _is_plain_log(bytes(first[ENCRYPTED_HEADER_SIZE:])):
        raise KeyFileError(f"the keyring's key {header.key_id!r} does not decrypt this log: a wrong key")
    return lambda _: _stream_unveiler(secret)


def _is_plain_log(start: bytes) -> bool:
    """The magic, or a right FORMAT_DESCRIPTION behind a damaged one; nothing at all may be a log, too."""
    if len(start) < len(MAGIC) + HEADER_SIZE or start.startswith(MAGIC):
        return MAGIC.startswith(start[: len(MAGIC)])
    event = start[len(MAGIC) :]
    end = int.from_bytes(event[END_AT:FLAGS_AT], "little")
    return event[TYPE_AT] == EventType.FORMAT_DESCRIPTION and end == len(MAGIC) + size_of(event)


def _stream_unveiler(secret: bytes) -> Unveil:
    """AES-256-CTR from the end of the header on. secret: 32 bytes key, 8 bytes in front of the block counter."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonce = secret[32:40]
    cipher = Cipher(algorithms.AES(secret[:32]), modes.CTR(nonce + bytes(8))).decryptor()

    def unveil(offset: int, view: memoryview) -> None:
        for start in range(max(0, ENCRYPTED_HEADER_SIZE - offset), len(view), _PIECE):
            block, skip = divmod(offset + start - ENCRYPTED_HEADER_SIZE, 16)
            cipher.reset_nonce(nonce + block.to_bytes(8, "big"))
            cipher.update(bytes(skip))
            piece = view[start : start + _PIECE]
            piece[:] = cipher.update(piece)

    return unveil


# -- MariaDB ---------------------------------------------------------------------------------------------------------


def parse_start_encryption(event: bytes, offset: int) -> StartEncryption:
    """Reads a whole START_ENCRYPTION event that stands at a file offset.

    Raises:
        MalformedError: too short, or of an unknown scheme.
    """
    if not HEADER_SIZE + _START.size <= size_of(event) <= len(event):
        raise MalformedError(f"START_ENCRYPTION of {size_of(event)} bytes: not its size", None, "bad-header")
    scheme, version, nonce = _START.unpack_from(event, HEADER_SIZE)
    if scheme != _SCHEME:
        raise MalformedError(f"encryption scheme {scheme} is unknown", None, "unsupported-version")
    return StartEncryption(scheme, version, nonce, int.from_bytes(event[5:9], "little"), offset + size_of(event))


class EventUnveiler(msgspec.Struct):
    """How to read an encrypted MariaDB log (`Layout.unveil`). sealed: what reads it, once it is open."""

    make: Callable[[Read], Sealed]
    sealed: Sealed | None = None

    def __call__(self, read: Read) -> Sealed:
        """Opens the file."""
        self.sealed = self.make(read)
        return self.sealed


def mariadb_unveiler(start: StartEncryption, key: bytes, head: bytes) -> EventUnveiler:
    """How to read an encrypted MariaDB log, whether its plugin uses AES-CBC or AES-CTR.

    head: the first bytes of the file, with the events in front of `start.end` and some behind it. After bytes were
    removed or inserted, the events behind are found only under AES-CBC (their headers tell where they were written).

    Raises:
        KeyFileError: no event of the head can be decrypted with the key.
    """
    since, server_id = int.from_bytes(head[4:8], "little"), int.from_bytes(head[9:13], "little")
    relay = bool(int.from_bytes(head[21:23], "little") & EventFlag.RELAY_LOG)

    def known() -> Known:
        return Known({server_id, start.server_id}, since, relay)

    chosen = _fitting(start, key, head, known())
    return EventUnveiler(lambda read: Sealed(chosen(key, start.nonce), start.end, known(), read))


_SEALINGS: tuple[Callable[[bytes, bytes], Sealing], ...] = (CbcSealing, CtrSealing)


def _fitting(start: StartEncryption, key: bytes, head: bytes, known: Known) -> Callable[[bytes, bytes], Sealing]:
    """The cipher that makes headers of the events in the head."""
    events = _events(start.end, head)
    if not events:
        return CbcSealing
    for kind in _SEALINGS:
        sealing = kind(key, start.nonce)
        heads = [(head_of(sealing, head[at:], at), at) for at in events]
        if any(one is not None and known.certain(one, at) for one, at in heads):
            return kind
    raise KeyFileError("the key file's key 1 does not decrypt this log: a wrong key")


def _events(offset: int, head: bytes) -> list[int]:
    """Where the first encrypted events start, as far as the head goes and their sizes make sense."""
    found: list[int] = []
    while len(head) - offset >= 20 and len(found) < _PROBES:
        found.append(offset)
        size = size_of(head[offset : offset + 13])
        if not HEADER_SIZE <= size <= MAX_EVENT:
            break
        offset += size
    return found
