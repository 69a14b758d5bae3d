"""What stands in front of encrypted events: real headers, damaged ones, and keys that do not fit."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.crypt import decrypt
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import KeyFileError
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
from tests.formats.mysql_binlog import crypt_samples as samples_of
from tests.formats.mysql_binlog import crypt_writer as writer
from tests.formats.mysql_binlog.crypt_samples import HEAD, MARIA, MYSQL

KEY_ID = "MySQLReplicationKey_4806e0cc-e55c-11f1-8d64-02fc00000001_1"


def _header(*fields: bytes) -> bytes:
    return (b"\xfdbin\x01" + b"".join(fields)).ljust(512, b"\0")


ID = b"\x01\x03abc"
PASSWORD = b"\x02" + bytes(range(32))
IV = b"\x03" + bytes(range(16))


def test_the_header_of_mysql_is_read_field_by_field(corpus: Path) -> None:
    data, unveil = samples_of.corpus_log(corpus, MYSQL)
    header = decrypt.parse_encryption_header(data)
    assert (header.version, header.key_id) == (1, KEY_ID)
    assert (header.encrypted_password, header.iv) == (data[66:98], data[99:115])
    assert data[65:66] == b"\x02"
    assert data[98:99] == b"\x03"
    assert not any(data[115:512])
    rows = parse_to_field_rows(decrypt.ENCRYPTED_FILE_HEADER, samples_of.plain(data, unveil)[:516], 0, Limits()).rows
    leaves = [row for row in rows if row.leaf]
    assert [row.start for row in leaves] == [0, *(row.end for row in leaves[:-1])]
    assert leaves[-1].end == 516
    starts = {row.path: row.start for row in leaves}
    assert starts["encryption.fields[0].value.text"] == 7
    assert starts["encryption.fields[1].value"] == 66
    assert starts["magic"] == 512


def test_fields_may_come_in_any_order() -> None:
    header = decrypt.parse_encryption_header(_header(IV, PASSWORD, ID))
    assert (header.key_id, header.encrypted_password[5], header.iv[15]) == ("abc", 5, 15)


@pytest.mark.parametrize(
    ("head", "id_"),
    [
        (b"", "bad-magic"),
        (b"\xfebin", "bad-magic"),
        (b"\xfdbin", "bad-header"),
        (_header(ID, PASSWORD, IV)[:511], "bad-header"),
        (_header(ID, PASSWORD, IV).replace(b"\xfdbin\x01", b"\xfdbin\x02"), "unsupported-version"),
        (_header(PASSWORD, IV), "bad-header"),
        (_header(ID, IV), "bad-header"),
        (_header(ID, PASSWORD), "bad-header"),
        (_header(), "bad-header"),
        (_header(b"\x04", ID, PASSWORD, IV), "bad-header"),
        (_header(b"\xff"), "bad-header"),
        (_header(b"\x01\xff" + b"\x01" * 255, b"\x01\xff" + b"\x01" * 255), "bad-header"),
        (_header(*[b"\x01\x00"] * 300)[:512], "bad-header"),
        (_header(*[PASSWORD] * 20), "bad-header"),
        (b"\xfdbin\x01" + b"\x01\x00" * 5000, "bad-header"),
    ],
)
def test_a_hostile_header_is_one_clear_line(head: bytes, id_: str) -> None:
    with pytest.raises(MalformedError) as found:
        decrypt.parse_encryption_header(head)
    assert found.value.finding_id == id_
    assert "\n" not in str(found.value.args[0])


def test_a_wrong_key_is_told_before_anything_is_read(corpus: Path) -> None:
    data, _ = samples_of.corpus_log(corpus, MYSQL)
    for key in (bytes(32), bytes(16)):
        with pytest.raises(KeyFileError) as found:
            decrypt.create_mysql_decryptor_factory(data[:HEAD], key)
        assert "\n" not in str(found.value)
    for server in MARIA:
        data, _ = samples_of.corpus_log(corpus, server)
        for size in (16, 24, 32):
            with pytest.raises(KeyFileError, match="it is the wrong key"):
                samples_of.maria(data, b"1;" + b"5a" * size)


@pytest.mark.parametrize("server", MARIA)
def test_damage_in_the_first_events_is_not_taken_for_a_wrong_key(corpus: Path, server: str) -> None:
    data, _ = samples_of.corpus_log(corpus, server)
    keyfile = (samples_of.folder(corpus, server) / "keys.txt").read_bytes()
    for at in (296, 300, 301, 310, 326, 330, 367):
        bad = bytearray(data)
        bad[at] ^= 0x10
        samples_of.maria(bytes(bad), keyfile)


def test_damage_in_the_first_plain_bytes_of_mysql_is_not_taken_for_a_wrong_key(corpus: Path) -> None:
    data, _ = samples_of.corpus_log(corpus, MYSQL)
    ring = (samples_of.folder(corpus, MYSQL) / "keyring.json").read_bytes()
    for at in range(512, 536):
        bad = bytearray(data)
        bad[at] ^= 0x10
        samples_of.mysql(bytes(bad), ring)


@pytest.mark.parametrize("server", [*MARIA, MYSQL])
def test_a_log_that_ends_early_can_still_be_opened(corpus: Path, server: str) -> None:
    data, unveil = samples_of.corpus_log(corpus, server)
    whole = samples_of.plain(data, unveil)
    home = samples_of.folder(corpus, server)
    for size in (*range(512 if server == MYSQL else 296, 545), 700, 1000):
        cut = data[:size]
        if server == MYSQL:
            got = samples_of.plain(cut, samples_of.mysql(cut, (home / "keyring.json").read_bytes()))
            assert got == whole[:size]
        else:
            got = samples_of.plain(cut, samples_of.maria(cut, (home / "keys.txt").read_bytes()))
            ends = [at + len(event) for at, event in writer.events(whole, 4) if at + len(event) <= size]
            assert got[: ends[-1]] == whole[: ends[-1]]


@pytest.mark.parametrize("server", MARIA)
def test_start_encryption_is_read_and_bounded(corpus: Path, server: str) -> None:
    data, _ = samples_of.corpus_log(corpus, server)
    start = decrypt.parse_start_encryption(data[256:HEAD], 256)
    assert (start.scheme, start.key_version, start.nonce, start.end) == (1, 1, data[280:292], 296)
    for size in range(40):
        with pytest.raises(MalformedError):
            decrypt.parse_start_encryption(data[256 : 256 + size], 256)
    event = bytearray(data[256:296])
    event[19] = 2
    with pytest.raises(MalformedError) as found:
        decrypt.parse_start_encryption(bytes(event), 256)
    assert found.value.finding_id == "unsupported-version"
    for size in (0, 19, 35, 41, 0xFFFFFFFF):
        event = bytearray(data[256:296])
        event[9:13] = struct.pack("<I", size)
        with pytest.raises(MalformedError):
            decrypt.parse_start_encryption(bytes(event), 256)


@pytest.mark.parametrize("server", MARIA)
def test_sizes_can_be_walked_without_a_key(corpus: Path, server: str) -> None:
    data, unveil = samples_of.corpus_log(corpus, server)
    expected = [(at, at + len(event)) for at, event in writer.events(samples_of.plain(data, unveil), 4)]
    walked, at = [], 4
    while at < len(data):
        event = decrypt.ENCRYPTED_EVENT_HEAD.parse(data[at:])
        walked.append((at, at + event.end))
        at += event.end
    assert walked == expected
