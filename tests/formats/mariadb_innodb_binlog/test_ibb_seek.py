"""Selection by GTID reads what can hold the wanted groups, and finds the same as a look at everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.format_api.format import GtidSelection
from binlogtool.formats.binlog_events.gtid.gtid_sets import GTID_PARSERS
from binlogtool.formats.mariadb_innodb_binlog.decode import find_selected_parts
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog.ibb_make import Maker, group
from tests.sampling import take_sample

P = 16384
INTERVAL = 8
COUNT = 40_000
"""Groups of about 200 bytes: 8 MiB in files of 2 MiB."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = Maker(page_size=P, file_pages=128, interval=INTERVAL)
    for number in range(1, COUNT + 1):
        domain, server = (3, 99) if number % 50 == 0 else (0, 11)
        maker.commit(group(number, 60, domain, server), (domain, server, number))
    return logs.written(tmp_path_factory.mktemp("seek") / "log", maker.done())


def parts(log: Path, demand: GtidSelection) -> dict[str, list[tuple[int, int]] | None]:
    """What is to be read of each file."""
    with binlogtool.open(log, format=logs.FORMAT) as opened:
        return {Path(file.path).name: find_selected_parts(file.layout.context, demand) for file in opened.files}


def size_of(found: dict[str, list[tuple[int, int]] | None]) -> int:
    assert all(one is not None for one in found.values())
    return sum(end - start for one in found.values() for start, end in one or ())


@pytest.mark.parametrize("number", [1, 2, 777, 20_001, 39_999])
def test_one_gtid_needs_one_interval_of_one_file(log: Path, number: int) -> None:
    found = parts(log, GtidSelection(None, None, f"0-11-{number}"))
    assert 0 < size_of(found) <= (INTERVAL + 1) * P
    assert sum(bool(one) for one in found.values()) == 1
    (record,) = logs.records(log, include_gtids=f"0-11-{number}")
    assert record.txn == f"0-11-{number}"


def test_two_far_gtids_need_two_intervals(log: Path) -> None:
    found = parts(log, GtidSelection(None, None, "0-11-5,0-11-39001"))
    assert size_of(found) <= 2 * (INTERVAL + 1) * P
    assert [one.txn for one in logs.records(log, include_gtids="0-11-5,0-11-39001")] == ["0-11-5", "0-11-39001"]


def test_a_gtid_that_is_not_there_needs_little(log: Path) -> None:
    assert size_of(parts(log, GtidSelection(None, None, "8-8-8"))) <= (INTERVAL + 1) * P
    assert logs.records(log, include_gtids="8-8-8") == []


@pytest.mark.full
@pytest.mark.parametrize(
    "selection",
    [
        {"start": "gtid:0-11-39000,3-99-39000"},
        {"start": "gtid:0-11-39990"},  # the whole of domain 3 is behind it
        {"stop": "gtid:0-11-100"},
        {"start": "gtid:0-11-20000,3-99-20000", "stop": "gtid:0-11-20010"},
        {"include_gtids": "0-11-19990..20010"},
        {"include_gtids": "3-99"},
        {"include_gtids": "3", "start": "gtid:3-99-39000"},
    ],
)
def test_what_is_selected_is_what_a_look_at_every_record_finds(log: Path, selection: dict[str, str]) -> None:
    wanted: list[Any] = []
    if "start" in selection:
        wanted.append(GTID_PARSERS.parse_after(selection["start"].removeprefix("gtid:")))
    if "stop" in selection:
        wanted.append(GTID_PARSERS.parse_until(selection["stop"].removeprefix("gtid:")))
    if "include_gtids" in selection:
        wanted.append(GTID_PARSERS.parse_set(selection["include_gtids"]))
    every = [one.txn for one in logs.records(log) if one.txn is not None]
    expected = [txn for txn in every if all(rule(txn) for rule in wanted)]
    assert [one.txn for one in logs.records(log, **selection) if one.txn] == expected
    assert len(every) == COUNT and expected


@pytest.mark.full
def test_events_of_a_selected_group_are_whole_also_at_the_border_of_a_part(log: Path) -> None:
    for number in take_sample(range(3000, 3120), 3):
        if number % 50:
            events = logs.records(log, "event", include_gtids=f"0-11-{number}")
            assert [one.type for one in events] == ["GTID", "QUERY", "XID"]


@pytest.mark.full
def test_a_damaged_state_costs_reading_not_groups(log: Path, tmp_path: Path) -> None:
    folder = logs.copied(log, tmp_path / "log")
    path = folder / "binlog-000001.ibb"
    data = bytearray(path.read_bytes())
    for page in range(INTERVAL, 128, INTERVAL):
        data[page * P + 1] ^= 1
    path.write_bytes(data)
    with binlogtool.open(path, format=logs.FORMAT) as opened:
        numbers = [int(one.txn.rpartition("-")[2]) for one in opened.records() if isinstance(one.txn, str)]
    wanted = [number for number in numbers if number % 50][1000:1010]
    for number in wanted:
        assert [one.txn for one in logs.records(folder, include_gtids=f"0-11-{number}")] == [f"0-11-{number}"]


def test_without_states_or_with_a_damaged_header_everything_is_read(log: Path, tmp_path: Path) -> None:
    folder = logs.copied(log, tmp_path / "log")
    path = folder / "binlog-000000.ibb"
    data = bytearray(path.read_bytes())
    data[100] ^= 3  # one bit alone would be put right
    path.write_bytes(data)
    assert parts(folder, GtidSelection(None, None, "0-11-5"))["binlog-000000.ibb"] is None
    assert [one.txn for one in logs.records(folder, include_gtids="0-11-5")] == ["0-11-5"]


@pytest.mark.full
def test_a_gtid_in_a_set_of_a_gib_reads_less_than_a_hundredth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from binlogtool.core import open_file as open_file_module

    folder = tmp_path / "log"
    folder.mkdir()
    maker = Maker(file_pages=16384, interval=128)
    number = 0
    while maker.number < 4:
        number += 1
        maker.commit(group(number, 3000), (0, 11, number))
        for done in [one for one in maker.files if one < maker.number]:
            (folder / f"binlog-{done:06d}.ibb").write_bytes(maker.files.pop(done))
    logs.written(folder, maker.done())
    total = sum(path.stat().st_size for path in folder.iterdir())
    read = 0
    real = os.preadv

    def counted(fd: int, buffers: Any, offset: int) -> int:
        nonlocal read
        got = real(fd, buffers, offset)
        read += got
        return got

    monkeypatch.setattr(open_file_module.os, "preadv", counted)
    for wanted in (1, number // 2, number):
        read = 0
        (record,) = logs.records(folder, include_gtids=f"0-11-{wanted}")
        assert record.txn == f"0-11-{wanted}"
        assert read < 0.01 * (1 << 30) <= 0.01 * total
