"""Key files and keyrings: real ones are read, all others end in one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlogtool.errors import BinlogtoolError
from binlogtool.formats.binlog_events.crypt import keys_and_ciphers as encrypt
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import KeyFileError
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import crypt_samples as samples_of

ENCRYPTED = [
    "keys-sha1.enc", "keys-sha224.enc", "keys-sha256.enc", "keys-sha384.enc", "keys-sha512.enc",
    "keys-sha256-pbkdf2-10000.enc", "keys-sha512-pbkdf2-1000.enc",
]  # fmt: skip


@pytest.fixture
def home(samples: Path) -> Path:
    return samples / "mysql_binlog" / "encrypted"


@pytest.fixture
def written(home: Path) -> dict[int, bytes]:
    """The keys of keys.txt, read by the simplest means."""
    pairs = [line.split(";") for line in (home / "keys.txt").read_text().splitlines()]
    return {int(number): bytes.fromhex(key) for number, key in pairs}


def says(found: pytest.ExceptionInfo[KeyFileError]) -> str:
    """The message, which is one line of an error with an exit code."""
    assert isinstance(found.value, BinlogtoolError)
    assert found.value.exit_code == 4
    text = str(found.value)
    assert text
    assert "\n" not in text
    return text


def test_a_plain_key_file_gives_its_keys(home: Path, written: dict[int, bytes]) -> None:
    assert encrypt.read_mariadb_keys((home / "keys.txt").read_bytes(), None) == written


@pytest.mark.parametrize("name", ENCRYPTED)
def test_a_key_file_that_openssl_encrypted_gives_its_keys(home: Path, written: dict[int, bytes], name: str) -> None:
    secret = (home / "secret.txt").read_bytes()
    assert encrypt.read_mariadb_keys((home / name).read_bytes(), secret) == written
    assert encrypt.read_mariadb_keys((home / name).read_bytes(), secret.strip() + b"\r\n") == written


def test_comments_spaces_and_line_ends_are_as_the_server_takes_them() -> None:
    text = b"# a comment\n\n  \t\n 1;%b\r\n\t4294967295;%b what follows\n#;\n2;%b" % (
        b"aB" * 16,
        b"01" * 24,
        b"ff" * 32,
    )
    expected = {1: b"\xab" * 16, 4294967295: b"\x01" * 24, 2: b"\xff" * 32}
    assert encrypt.read_mariadb_keys(text, None) == expected


def test_the_log_key_is_the_one_with_id_1() -> None:
    assert encrypt.read_mariadb_key(b"2;" + b"00" * 16 + b"\n1;" + b"01" * 16, None) == b"\x01" * 16
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_key(b"2;" + b"00" * 16, None)
    assert "no key with id 1" in says(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "contains no key"),
        (b"# nothing\n", "contains no key"),
        (b"\0\0\0", "contains no key"),
        (b"-----BEGIN PRIVATE KEY-----\n", "line 1"),
        (b"1;" + b"00" * 16 + b"\n2:" + b"00" * 16, "line 2"),
        (b"1;" + b"00" * 15, "line 1 of the key file: a key has"),
        (b"1;" + b"00" * 33, "line 1 of the key file: a key has"),
        (b"1;" + b"0" * 33, "line 1 of the key file: a key has"),
        (b"0;" + b"00" * 16, "line 1 of the key file: invalid key id"),
        (b"4294967296;" + b"00" * 16, "line 1"),
        (b"99999999999999999999;" + b"00" * 16, "line 1"),
        (b'{"version":"1.0","elements":[]}', "line 1"),
        (b"1;" + b"00" * (1 << 20), "1 MiB"),
        (bytes(range(1, 256)) * 10, "line 1"),
    ],
)
def test_a_garbage_key_file_is_one_clear_line(text: bytes, words: str) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_keys(text, None)
    assert words in says(found)


def test_an_encrypted_key_file_asks_for_its_secret(home: Path) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_keys((home / "keys-sha1.enc").read_bytes(), None)
    assert "--keyfile-secret" in says(found)


@pytest.mark.full
@pytest.mark.parametrize("secret", [b"", b"wrong", b"a secret for this test only!"])
def test_a_wrong_secret_is_one_clear_line(home: Path, secret: bytes) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_keys((home / "keys-sha1.enc").read_bytes(), secret)
    assert "cannot be decrypted with this secret" in says(found)


def test_an_unknown_round_count_names_the_way_out(home: Path) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_keys((home / "keys-sha1-pbkdf2-777.enc").read_bytes(), (home / "secret.txt").read_bytes())
    assert "openssl enc -d" in says(found)


@pytest.mark.parametrize("size", [8, 15, 16, 17, 31, 33])
def test_an_encrypted_key_file_cut_short_is_one_clear_line(home: Path, size: int) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mariadb_keys((home / "keys-sha1.enc").read_bytes()[:size], b"x")
    assert "the encrypted key file is truncated" in says(found)


KEY_ID = "MySQLReplicationKey_4806e0cc-e55c-11f1-8d64-02fc00000001_1"


def test_a_keyring_gives_the_key_of_this_id(corpus: Path) -> None:
    ring = (samples_of.folder(corpus, samples_of.MYSQL) / "keyring.json").read_bytes()
    expected = bytes.fromhex("A8AE51AE873069835ACC678FF999CDDA15BA2B2A4145CD961BB689A94E717636")
    assert encrypt.read_mysql_master_key(ring, KEY_ID) == expected
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mysql_master_key(ring, KEY_ID[:-1] + "2")
    assert "has no key" in says(found)
    with pytest.raises(KeyFileError) as found:  # the entry that holds the sequence number: 16 bytes
        encrypt.read_mysql_master_key(ring, KEY_ID[:-2])
    assert "32 bytes" in says(found)
    for size in range(len(ring)):
        with pytest.raises(KeyFileError) as found:
            encrypt.read_mysql_master_key(ring[:size], KEY_ID)
        assert "not JSON, or is truncated" in says(found)


@pytest.mark.parametrize(
    "ring",
    [
        b"\xff\xfe\xfd", b"1;00", b"[]", b"{}", b'{"elements": {}}', b'{"elements": [1, null, [], {}]}', b"[" * 100000,
        b" " * ((1 << 24) + 1), json.dumps({"elements": [{"data_id": KEY_ID}]}).encode(),
        json.dumps({"elements": [{"data_id": KEY_ID, "data": 5}]}).encode(),
        json.dumps({"elements": [{"data_id": KEY_ID, "data": "zz" * 32}]}).encode(),
    ],
)  # fmt: skip
def test_a_hostile_keyring_is_one_clear_line(ring: bytes) -> None:
    with pytest.raises(KeyFileError) as found:
        encrypt.read_mysql_master_key(ring, KEY_ID)
    says(found)


def test_a_key_file_of_the_other_server_is_recognised(corpus: Path) -> None:
    generated = corpus / "mysql-binlog/generated"
    keys = str(generated / "mariadb-11.8/encrypted/keys.txt")
    done = invoke("verify", "--keyfile", keys, str(generated / "mysql-9.7/encrypted/enc-bin.000001"))
    assert "this is a key file of MariaDB; the log is MySQL's" in done.err


def test_the_diagnosis_of_an_encrypted_directory_asks_for_the_key(corpus: Path) -> None:
    directory = str(corpus / "mysql-binlog/generated/mysql-9.7/encrypted")
    assert invoke("diagnose", directory).text.splitlines()[-1].strip() == (
        f"binlogtool diagnose --keyfile KEYFILE {directory}"
    )
