"""Damaged encrypted logs: only the events that were hit are lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from binlogtool.core.open_file import read_range
from binlogtool.format_api.layout import BufferDecryptor, RangeReader
from tests.formats.mysql_binlog import crypt_samples as samples_of
from tests.formats.mysql_binlog import crypt_writer as writer
from tests.formats.mysql_binlog.crypt_samples import MARIA, MYSQL

Log = tuple[bytes, bytes, list[tuple[int, int]], Callable[[RangeReader], BufferDecryptor]]


@pytest.fixture(params=MARIA)
def log(request: pytest.FixtureRequest, corpus: Path) -> Log:
    """Encrypted bytes, plain bytes, the events' ranges, the unveiler."""
    data, unveil = samples_of.corpus_log(corpus, request.param)
    plain = samples_of.plain(data, unveil)
    ranges = [(at, at + len(event)) for at, event in writer.events(plain, 4)]
    return data, plain, ranges, unveil


def _lost(bad: bytes | bytearray, log: Log, moved: Callable[[int], int]) -> set[int]:
    """Which events do not come out; `moved`: where a byte of the intact file stands now (-1 = nowhere)."""
    _, plain, ranges, unveil = log
    got = samples_of.plain(bad, unveil)
    assert len(got) == len(bad)
    return {
        i
        for i, (low, high) in enumerate(ranges)
        if moved(low) < 0 or got[moved(low) : moved(low) + high - low] != plain[low:high]
    }


def _hit(ranges: list[tuple[int, int]], low: int, high: int) -> set[int]:
    return {i for i, (start, end) in enumerate(ranges) if start < high and end > low}


def test_a_flipped_bit_in_a_header_costs_one_event(log: Log) -> None:
    data, _, ranges, _ = log
    for i, (low, _) in enumerate(ranges[2:-1], 2):
        bad = bytearray(data)
        bad[low + (i % 9)] ^= 1 << (i % 8)
        assert _lost(bad, log, lambda at: at) == {i}


@pytest.mark.full
def test_a_flipped_bit_in_a_size_costs_one_event_unless_it_hits_another_border(log: Log) -> None:
    data, _, ranges, _ = log
    borders = {low for low, _ in ranges} | {len(data)}
    tried = 0
    for i, (low, high) in enumerate(ranges[2:-1], 2):
        for bit in (0, 3, 6, 9, 15, 24, 31):
            bad = bytearray(data)
            bad[low + 9 + bit // 8] ^= 1 << bit % 8
            if low + (high - low ^ 1 << bit) not in borders:
                assert _lost(bad, log, lambda at: at) == {i}
                tried += 1
    assert tried > 900


def test_a_size_that_hits_another_border_costs_the_events_up_to_it(log: Log) -> None:
    data, _, ranges, _ = log
    i = 60
    bad = bytearray(data)
    bad[ranges[i][0] + 9 : ranges[i][0] + 13] = (ranges[i + 2][1] - ranges[i][0]).to_bytes(4, "little")
    assert _lost(bad, log, lambda at: at) == {i, i + 1, i + 2}


def test_behind_a_hole_of_zeros_or_noise_every_event_is_readable(log: Log) -> None:
    data, _, ranges, _ = log
    chance = random.Random(3)
    for size in (1, 19, 300, 4000, 9000):
        at = chance.randrange(400, len(data) - 10000)
        for filler in (bytes(size), chance.randbytes(size)):
            bad = data[:at] + filler + data[at + size :]
            assert _lost(bad, log, lambda at: at) <= _hit(ranges, at, at + size)


def test_bytes_of_a_hole_are_shown_as_they_are(log: Log) -> None:
    data, _, ranges, unveil = log
    low, high = ranges[40][0], ranges[44][1]
    noise = random.Random(5).randbytes(high - low)
    assert samples_of.plain(data[:low] + noise + data[high:], unveil)[low:high] == noise
    assert samples_of.plain(data[:low] + bytes(high - low) + data[high:], unveil)[low:high] == bytes(high - low)


def test_after_inserted_bytes_every_event_is_readable_at_its_new_place(log: Log) -> None:
    data, _, ranges, _ = log
    chance = random.Random(4)
    for size in (1, 16, 256, 777, 70000):
        at = chance.randrange(400, len(data) - 3000)
        bad = data[:at] + chance.randbytes(size) + data[at:]
        moved: Callable[[int], int] = lambda place, at=at, size=size: place + size * (place >= at)  # noqa: E731
        assert _lost(bad, log, moved) <= _hit(ranges, at, at + 1)


def test_after_removed_bytes_events_are_readable_again_from_the_next_that_tells_its_position(log: Log) -> None:
    data, plain, ranges, _ = log
    told = [int.from_bytes(plain[low + 13 : low + 17], "little") == high for low, high in ranges]
    chance = random.Random(6)
    for size in (1, 16, 256, 777, 9000):
        at = chance.randrange(400, len(data) - 12000)
        bad = data[:at] + data[at + size :]
        moved: Callable[[int], int] = (  # noqa: E731
            lambda place, at=at, size=size: place if place < at else place - size if place >= at + size else -1
        )
        hit = _hit(ranges, at, at + size)
        again = next(i for i in range(max(hit) + 1, len(ranges)) if told[i])
        assert _lost(bad, log, moved) <= set(range(min(hit), again))


def test_removed_whole_events_shift_the_rest(log: Log) -> None:
    data, plain, ranges, _ = log
    first = next(i for i in range(50, len(ranges)) if plain[ranges[i][0] + 4] == 162)  # a GTID tells its position
    low, high = ranges[first - 3][0], ranges[first][0]
    moved: Callable[[int], int] = lambda at: at if at < low else at - (high - low) if at >= high else -1  # noqa: E731
    assert _lost(data[:low] + data[high:], log, moved) == {first - 3, first - 2, first - 1}


def test_a_cut_file_shows_its_torn_event_as_far_as_there_are_whole_blocks(log: Log) -> None:
    data, plain, ranges, unveil = log
    low, high = max(ranges, key=lambda one: one[1] - one[0])
    for size in (20, 21, 36, 37, 100, high - low - 1):
        cut = low + size
        got = samples_of.plain(data[:cut], unveil)
        whole = cut - (size - 4) % 16
        assert got[:whole] == plain[:whole]
        assert got[whole:] == data[whole:cut]
    for size in range(1, 20):
        assert samples_of.plain(data[: low + size], unveil) == plain[:low] + data[low : low + size]


def test_reads_in_any_order_agree_in_a_damaged_file(log: Log) -> None:
    data, _, ranges, unveil = log
    chance = random.Random(7)
    bad = bytearray(data)
    for i in (10, 50, 51, 90):
        bad[ranges[i][0] + 9] ^= 0x41
    bad[20000:21000] = bytes(1000)
    bad[9000:9000] = chance.randbytes(333)
    whole = samples_of.plain(bad, unveil)
    source = samples_of.source(bad, unveil)
    for _ in range(300):
        at, size = chance.randrange(len(bad)), chance.choice([1, 50, 5000])
        assert read_range(source, at, size) == whole[at : at + size]


def test_behind_a_long_hole_in_a_long_file_events_are_readable_again(log: Log) -> None:
    data, plain, _, _ = log
    key, nonce = bytes(range(16)), data[280:292]
    events, at = [plain[:296]], 296
    while at < 3 << 20:
        events.append(writer.event(at, 2, bytes(at % 3000 + 1)))
        at += len(events[-1])
    long = b"".join(events)
    sealed = writer.seal_log(long, 296, key, nonce)
    low, high = 500_000, 2_500_000
    for filler in (bytes(high - low), random.Random(8).randbytes(high - low)):
        bad = sealed[:low] + filler + sealed[high:]
        got = samples_of.plain(bad, samples_of.maria(bad, b"1;" + key.hex().encode()))
        borders = [at for at, _ in writer.events(long, 296)]
        before, behind = max(at for at in borders if at <= low), min(at for at in borders if at >= high)
        assert got[:before] == long[:before]
        assert got[behind:] == long[behind:]


def test_noise_behind_a_right_head_ends_without_a_hang(log: Log) -> None:
    data, plain, ranges, unveil = log
    end = ranges[6][1]
    bad = data[:end] + random.Random(9).randbytes(1 << 20)
    assert samples_of.plain(bad, unveil) == plain[:end] + bad[end:]


def test_any_mixture_of_damage_is_read_without_an_error_and_up_to_it_rightly(log: Log) -> None:
    data, plain, ranges, unveil = log
    chance = random.Random(10)
    for _ in range(60):
        bad = bytearray(data)
        for _ in range(chance.randrange(1, 40)):
            at, size = chance.randrange(296, len(bad)), chance.choice([1, 2, 30, 500])
            match chance.randrange(5):
                case 0:
                    bad[at : at + size] = bytes(len(bad[at : at + size]))
                case 1:
                    bad[at:at] = chance.randbytes(size)
                case 2:
                    del bad[at : at + size]
                case 3:
                    bad[at : at + size] = bad[296 : 296 + size]
                case _:
                    bad[at] ^= 1 << chance.randrange(8)
        got = samples_of.plain(bad, unveil)
        first = next((i for i, (a, b) in enumerate(zip(data, bad, strict=False)) if a != b), min(len(bad), len(data)))
        before = max(end for _, end in ranges if end <= first)
        assert got[:before] == plain[:before]
        assert len(got) == len(bad)


def test_in_an_encrypted_log_of_mysql_damage_stays_where_it_is(corpus: Path) -> None:
    data, unveil = samples_of.corpus_log(corpus, MYSQL)
    plain = samples_of.plain(data, unveil)
    bad = bytearray(data)
    bad[1000] ^= 0xFF
    bad[2000:2100] = bytes(100)
    got = samples_of.plain(bad, unveil)
    assert [i for i, (a, b) in enumerate(zip(got, plain, strict=True)) if a != b and not 2000 <= i < 2100] == [1000]
