"""Keys of encrypted logs: MariaDB's file_key_management and MySQL's component_keyring_file.

Sources: docs/spec/mysql_binlog.md#encryption; MariaDB plugin `file_key_management` (`Parser`),
the `openssl enc` program, MySQL `component_keyring_file`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from binlogtool.errors import InputOutputError

SYSTEM_KEY = 1
"""Id of the key that logs are encrypted with (ENCRYPTION_KEY_SYSTEM_DATA)."""

MASTER_KEY_SIZE = 32

_SALT_MAGIC = b"Salted__"
_SALT_SIZE = 8
_KEY_SIZE, _IV_SIZE = 32, 16
_DIGESTS = ("sha1", "sha256", "sha512", "sha224", "sha384")
"""Names of file_key_management_digest; sha1 is the default, and the only one before 12.0."""
_PBKDF2_ROUNDS = (10000, 1000, 2048, 4096, 20000, 50000, 65536, 100000)
"""Values of file_key_management_use_pbkdf2 that are tried: that of `openssl enc -pbkdf2`, then other usual ones."""
_MAX_KEY_FILE = 1 << 20
_MAX_SECRET = 256
_MAX_KEYRING = 1 << 24
_LINE = re.compile(rb"[ \t\r\f\v]*(?:#.*|(\d{1,10});([0-9a-fA-F]*).*)?")
_KEY_SIZES = (16, 24, 32)


class KeyFileError(InputOutputError):
    """The key file or keyring that the user named cannot be used; the message says why."""


def read_mariadb_keys(keyfile: bytes, secret: bytes | None) -> dict[int, bytes]:
    """Return the keys of a key file by id.

    A secret that is not needed is ignored. A file encrypted by `openssl enc` does not say how its key was
    derived from the secret: all digests that the server supports are tried, without and with PBKDF2 (common
    round counts).

    Args:
        secret: what the file is encrypted with, as in the server's filekey.

    Raises:
        KeyFileError: not a key file, encrypted without a secret given, or not decryptable with this secret.
    """
    if len(keyfile) > _MAX_KEY_FILE:
        raise KeyFileError(f"the key file has {len(keyfile):,} bytes; the server reads 1 MiB at most")
    if not keyfile.startswith(_SALT_MAGIC):
        return _parse_key_file(keyfile)
    if secret is None:
        raise KeyFileError("the key file is encrypted; give its secret with --keyfile-secret FILE")
    for plain in _iter_decryptions(keyfile, secret.rstrip(b"\r\n")[:_MAX_SECRET]):
        try:
            return _parse_key_file(plain)
        except KeyFileError:
            continue
    raise KeyFileError(
        "the key file cannot be decrypted with this secret (if a rare PBKDF2 round count was used, decrypt it with "
        "`openssl enc -d` first)"
    )


def read_mariadb_key(keyfile: bytes, secret: bytes | None) -> bytes:
    """Return the key of a key file that encrypts logs.

    Raises:
        KeyFileError: see `read_mariadb_keys`; or the file has no such key.
    """
    keys = read_mariadb_keys(keyfile, secret)
    if SYSTEM_KEY not in keys:
        raise KeyFileError(f"the key file has no key with id {SYSTEM_KEY}, which encrypts logs")
    return keys[SYSTEM_KEY]


def _parse_key_file(text: bytes) -> dict[int, bytes]:
    """Return the keys of a plain key file."""
    keys: dict[int, bytes] = {}
    for number, line in enumerate(text.split(b"\0")[0].split(b"\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise KeyFileError(f"line {number} of the key file is not `id;hexkey`, nor a comment")
        if match[1] is not None:
            keys[_parse_key_id(match[1], number)] = _parse_key(match[2], number)
    if not keys:
        raise KeyFileError("the key file holds no key")
    return keys


def _parse_key_id(digits: bytes, line_number: int) -> int:
    """Return a key id."""
    if not 0 < int(digits) < 1 << 32:
        raise KeyFileError(f"line {line_number} of the key file: no such key id")
    return int(digits)


def _parse_key(digits: bytes, line_number: int) -> bytes:
    """Return a key from its hexadecimal digits."""
    if len(digits) not in [2 * size for size in _KEY_SIZES]:
        raise KeyFileError(f"line {line_number} of the key file: a key has 32, 48 or 64 hexadecimal digits")
    return bytes.fromhex(digits.decode("ascii"))


def _iter_decryptions(data: bytes, secret: bytes) -> Iterator[bytes]:
    """Yield the possible plain files, one for each derivation whose padding is valid."""
    salt, body = data[len(_SALT_MAGIC) : len(_SALT_MAGIC) + _SALT_SIZE], data[len(_SALT_MAGIC) + _SALT_SIZE :]
    if not body or len(body) % _IV_SIZE:
        raise KeyFileError("the encrypted key file is cut short")
    for key_and_iv in _iter_derived_keys(secret, salt):
        plain = decrypt_aes_cbc(key_and_iv[:_KEY_SIZE], key_and_iv[_KEY_SIZE:], body)
        padding = plain[-1]
        if 0 < padding <= _IV_SIZE and plain.endswith(bytes([padding]) * padding):
            yield plain[:-padding]


def _iter_derived_keys(secret: bytes, salt: bytes) -> Iterator[bytes]:
    """Yield key and IV for each known derivation, likely ones first."""
    for digest in _DIGESTS:
        yield _derive_by_digest(digest, secret, salt)
    for rounds in _PBKDF2_ROUNDS:
        for digest in _DIGESTS:
            yield hashlib.pbkdf2_hmac(digest, secret, salt, rounds, _KEY_SIZE + _IV_SIZE)


def _derive_by_digest(digest: str, secret: bytes, salt: bytes) -> bytes:
    """Derive key and IV by OpenSSL's EVP_BytesToKey with one round.

    Each digest is made of the previous one, the secret and the salt.
    """
    output = last = b""
    while len(output) < _KEY_SIZE + _IV_SIZE:
        last = hashlib.new(digest, last + secret + salt).digest()
        output += last
    return output[: _KEY_SIZE + _IV_SIZE]


def decrypt_aes_cbc(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Decrypt whole blocks with AES-CBC, leaving the padding."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor().update(data)


def read_mysql_master_key(keyring: bytes, key_id: str) -> bytes:
    """Return the 32-byte master key with this id from a JSON keyring.

    Raises:
        KeyFileError: not a keyring, or one without this key.
    """
    for element in _parse_keyring(keyring):
        if isinstance(element, dict) and element.get("data_id") == key_id:
            return _parse_master_key(element.get("data"), key_id)
    raise KeyFileError(f"the keyring has no key {key_id!r}: it belongs to another server, or the key was purged")


def _parse_keyring(keyring: bytes) -> list[Any]:
    """Return the elements of a keyring."""
    if len(keyring) > _MAX_KEYRING:
        raise KeyFileError(f"the keyring has {len(keyring):,} bytes; 16 MiB at most are read")
    try:
        import json

        document = json.loads(keyring)
    except (ValueError, RecursionError) as error:
        raise KeyFileError("the keyring is not JSON, or cut short: component_keyring_file writes JSON") from error
    elements = document.get("elements") if isinstance(document, dict) else None
    if not isinstance(elements, list):
        raise KeyFileError("the keyring has no list of elements: it is not one of component_keyring_file")
    return elements


def _parse_master_key(data: Any, key_id: str) -> bytes:
    """Return the bytes of a master key."""
    if not isinstance(data, str) or not re.fullmatch(f"[0-9a-fA-F]{{{2 * MASTER_KEY_SIZE}}}", data):
        raise KeyFileError(f"the keyring's key {key_id!r} is not {MASTER_KEY_SIZE} bytes in hexadecimal")
    return bytes.fromhex(data)
