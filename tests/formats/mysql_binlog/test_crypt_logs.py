"""Encrypted logs of real servers: what comes out is what the server itself printed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from binlogtool.core.open_file import read_range
from binlogtool.formats.binlog_events.crypt import decrypt
from binlogtool.formats.binlog_events.crypt.decrypt import EncryptedEventStart, EventStartIndex
from tests.formats.mysql_binlog import crypt_samples as samples_of
from tests.formats.mysql_binlog import crypt_writer as writer
from tests.formats.mysql_binlog.crypt_samples import MARIA, MYSQL

pytestmark = pytest.mark.filterwarnings("error")

LOGS = [(server, number) for server in (*MARIA, MYSQL) for number in (1, 2)]


def _shown(event: bytes) -> tuple[int, int, int]:
    return int.from_bytes(event[:4], "little"), int.from_bytes(event[5:9], "little"), event[4]


def _agrees(plain: bytes, first: int, text: Path, mysql: bool, checksums: bool) -> int:
    """Compares each event with the text; returns how many were compared. Positions of the text count from the magic.

    On its way to the tool the server fills in positions that are 0, and sends an empty event for START_ENCRYPTION: then
    the checksum is another one, too.
    """
    events = list(writer.events(plain, first))
    listed, positions = samples_of.printed(text, mysql)
    header = first - 4
    assert set(positions) <= {at - header for at, _ in events}
    for (at, event), one in zip(events, listed, strict=False):
        assert (at + len(event) - header, *_shown(event)) == (one.end, one.time, one.server_id, one.type)
        if checksums:
            assert writer.checksum_is_right(event)
            if event[4] != 164 and int.from_bytes(event[13:17], "little") == one.end:
                assert int.from_bytes(event[-4:], "little") == one.crc
    unlisted = [event[4] for _, event in events[len(listed) :]]
    assert unlisted in ([], [3])  # STOP, written after the server was asked
    return len(listed)


@pytest.mark.parametrize(("server", "number"), LOGS)
def test_every_event_is_what_the_server_printed(corpus: Path, server: str, number: int) -> None:
    data, unveil = samples_of.corpus_log(corpus, server, number)
    mysql = server == MYSQL
    text = samples_of.folder(corpus, server) / f"enc-bin.{number:06}.txt.gz"
    assert _agrees(samples_of.plain(data, unveil), 516 if mysql else 4, text, mysql, True) > 25


@pytest.mark.parametrize(("name", "checksums"), [("aes-ctr", True), ("no-checksum", False)])
def test_aes_ctr_and_events_without_checksum_are_what_the_server_printed(
    samples: Path, name: str, checksums: bool
) -> None:
    home = samples / "mysql_binlog" / "encrypted"
    data = (home / f"{name}.000001").read_bytes()
    unveil = samples_of.maria(data, (home / "keys-sha1.enc").read_bytes(), (home / "secret.txt").read_bytes())
    assert _agrees(samples_of.plain(data, unveil), 4, home / f"{name}.000001.txt.gz", False, checksums) == 34


def test_an_event_of_19_bytes_has_no_whole_block_and_is_read(samples: Path) -> None:
    home = samples / "mysql_binlog" / "encrypted"
    data = (home / "no-checksum.000002").read_bytes()
    plain = samples_of.plain(data, samples_of.maria(data, (home / "keys.txt").read_bytes()))
    at, stop = list(writer.events(plain, 4))[-1]
    assert at + 19 == len(data)
    assert _shown(stop)[1:] == (7, 3)
    assert int.from_bytes(stop[13:17], "little") == len(data)


@pytest.mark.parametrize(("server", "number"), LOGS)
def test_reads_in_any_order_give_the_same_bytes(corpus: Path, server: str, number: int) -> None:
    data, unveil = samples_of.corpus_log(corpus, server, number)
    whole = samples_of.plain(data, unveil)
    chance = random.Random(f"{server}{number}")
    source = samples_of.source(data, unveil)
    for _ in range(400):
        at, size = chance.randrange(len(data)), chance.choice([1, 7, 16, 100, 4096, 70000])
        assert read_range(source, at, size) == whole[at : at + size]


@pytest.mark.parametrize("server", MARIA)
@pytest.mark.parametrize("mode", ["cbc", "ctr"])
def test_long_events_are_read_piece_by_piece_in_any_order(corpus: Path, server: str, mode: str) -> None:
    data, unveil = samples_of.corpus_log(corpus, server)
    head = samples_of.plain(data, unveil)[:296]
    key, nonce = random.Random(1).randbytes(32), data[280:292]
    parts, at = [head], 296
    for size in (50, 262100, 262144, 262163, 700001, 30, 262145, 20):
        parts.append(writer.event(at, 2, random.Random(size).randbytes(size)))
        at += len(parts[-1])
    plain = b"".join(parts)
    sealed = writer.seal_log(plain, 296, key, nonce, mode)
    unveil = samples_of.maria(sealed, b"1;" + key.hex().encode())
    assert samples_of.plain(sealed, unveil) == plain
    source, chance = samples_of.source(sealed, unveil), random.Random(2)
    for _ in range(60):
        at, size = chance.randrange(len(plain)), chance.choice([1, 100, 262144, 1 << 20])
        assert read_range(source, at, size) == plain[at : at + size]


@pytest.mark.parametrize("server", MARIA)
def test_the_writer_of_these_tests_makes_the_bytes_that_the_server_made(corpus: Path, server: str) -> None:
    data, unveil = samples_of.corpus_log(corpus, server)
    key = bytes.fromhex((samples_of.folder(corpus, server) / "keys.txt").read_text().split(";")[1].split()[0])
    assert writer.seal_log(samples_of.plain(data, unveil), 296, key, data[280:292]) == data


def test_a_relay_log_is_read_though_its_positions_are_those_of_the_source(corpus: Path) -> None:
    home = corpus / "mysql-binlog" / "generated" / "mariadb-11.8" / "relay"
    key, nonce = bytes(range(32)), bytes(range(100, 112))
    read = 0
    for path in sorted(home.glob("relay.0*[0-9]")):
        log = path.read_bytes()
        first = 4 + int.from_bytes(log[13:17], "little")
        begin = writer.start_encryption(first, nonce)
        events = list(writer.events(log, first))
        at, sealed = first + len(begin), [log[:first], begin]
        for _, event in events:
            sealed.append(writer.seal(event, at, key, nonce))
            at += len(event)
        data = b"".join(sealed)
        plain = samples_of.plain(data, samples_of.maria(data, b"1;" + key.hex().encode()))
        assert plain == log[:first] + begin + log[first:]
        read += len(events)
    assert read > 100


@pytest.mark.parametrize("mode", ["cbc", "ctr"])
@pytest.mark.parametrize("first", [(1 << 32) - 5000, (5 << 30) + 7])
def test_positions_beyond_4_gib_count_from_0_again(first: int, mode: str) -> None:
    key, nonce = bytes(range(32)), bytes(range(12))
    events, at = [], first
    while at < first + 20000:
        events.append(writer.event(at, 2, bytes(at % 500)))
        at += len(events[-1])
    places = [first + sum(map(len, events[:i])) for i in range(len(events))]
    sealed = b"".join(writer.seal(event, at, key, nonce, mode) for at, event in zip(places, events, strict=True))

    def read(offset: int, size: int) -> bytes:
        return sealed[max(0, offset - first) : max(0, offset - first + size)]

    start = decrypt.StartEncryption(1, 1, nonce, 2, first)
    sealing = {"cbc": decrypt.CbcEventCipher, "ctr": decrypt.CtrEventCipher}[mode](key, nonce)
    unveil = decrypt.EventDecryptor(sealing, start.end, decrypt.HeaderEvidence({start.server_id}, 0, False), read)
    plain = b"".join(events)
    for low, high in ((0, len(sealed)), (7000, 10000), (100, 101)):
        view = bytearray(sealed[low:high])
        unveil(first + low, memoryview(view))
        assert view == plain[low:high]
    view = bytearray(b"in front" + sealed[:300])
    unveil(first - 8, memoryview(view))
    assert view == b"in front" + plain[:300]


def test_the_list_of_borders_stays_short_and_names_one_not_far_before() -> None:
    borders, step, last = EventStartIndex(EncryptedEventStart(296, 0)), 5000, 296
    for last in range(296, 4 << 30, step):
        borders.add_unless_nearby(EncryptedEventStart(last, 0))
    for offset in (296, 300, 1 << 20, 1 << 30, last):
        found = borders.find_before(offset)
        assert (found.offset - 296) % step == 0
        assert 0 <= offset - found.offset < 1 << 20
    assert len(borders._starts) <= 1 << 13
