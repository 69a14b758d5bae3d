"""Big files read in parts: the same rows, numbers and findings as in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError
from binlogtool.limits import Limits
from binlogtool.log.parts import Part, Place, parts
from binlogtool.log.select import Selection
from binlogtool.pipeline.splits import Member, can_split, planned
from tests.pipeline.reading import Row, borders, facts, load


def chained(places: Iterable[Place]) -> list[Part]:
    ends = [None, *places, None]
    return [Part(start, None if stop is None else stop.offset) for start, stop in pairwise(ends)]


def one_by_one(path: Path, cut: list[Part]) -> list[object]:
    made = []
    for part in cut:
        with binlogtool.open(path) as log:  # what one part learns must not help the next one
            made += facts(log, part)
    return made


def every_border_holds(path: Path) -> int:
    with binlogtool.open(path) as log:
        places = borders(log)
    with binlogtool.open(path) as log:
        whole = facts(log)
    for place in places:
        assert one_by_one(path, chained([place])) == whole, place
    assert one_by_one(path, chained(places)) == whole
    return len(places)


@pytest.mark.parametrize("name", ["drizzle/basic-checksum.log", "manticore/v16-mixed", "tarantool/chain", "eblob"])
def test_a_cut_at_any_border_of_a_sample_changes_nothing(samples: Path, name: str) -> None:
    top = samples / name
    files = [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file())
    assert sum(every_border_holds(path) for path in files if is_log(path)) >= 20


@pytest.mark.corpus
def test_an_ibb_file_can_be_cut_between_pages(corpus: Path) -> None:
    folder = corpus / "mariadb-innodb-binlog" / "generated"
    assert sum(every_border_holds(path) for path in sorted(folder.glob("*/binlog-*.ibb"))[:12]) >= 5


def is_log(path: Path) -> bool:
    try:
        with binlogtool.open(path):
            return True
    except BinlogtoolError:
        return False


@pytest.mark.corpus
def test_a_mysql_log_can_be_cut_between_any_two_transactions(corpus: Path) -> None:
    path = corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "row-metadata-full" / "binlog.000001"
    with binlogtool.open(path) as log:
        begins = [r.record for r in log.records() if r.type in ("GTID_LOG", "GTID_TAGGED_LOG")]
        places = borders(log)
    assert every_border_holds(path) == len(places)
    assert {place.record for place in places} >= set(begins)


def test_every_entry_of_a_drizzle_log_is_a_border(samples: Path) -> None:
    with binlogtool.open(samples / "drizzle" / "basic-checksum.log") as log:
        starts = [record.offset for record in log.records()]
        assert [place.offset for place in borders(log)] == starts[1:]
        assert [place.record for place in borders(log)] == list(range(1, 67))


@pytest.mark.corpus
def test_names_and_table_maps_from_before_the_cut_are_known_behind_it(corpus: Path) -> None:
    path = corpus / "tarantool" / "generated" / "single" / "00000000000000000000.xlog"
    with binlogtool.open(path) as log:
        last = borders(log)[-1]
    assert "ops" in last.carried.values()
    with binlogtool.open(path) as log:
        assert facts(log, Part(last)) == one_by_one(path, [Part()])[last.record :]


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    [
        "drizzle/generated/segmented.log",
        "mysql-binlog/generated/mysql-9.7/crash-disk-full-before/crash-bin.000001",
        "mysql-binlog/third-party/mariadb-test-data/std_data/mdev6020-mysql-bin.000001",
    ],
)
def test_splits_of_64_kib_give_the_rows_of_one_pass(corpus: Path, name: str) -> None:
    def order(row: Row) -> tuple[int, int]:
        return row["offset"], -1 if row["record"] is None else row["record"]

    path = corpus / name
    split = load(path, splitSize="64KiB")
    with binlogtool.open(path) as log:
        assert len(parts(log.scan(log.files[0]), 65536)) > 1
        records = [r.record for r in log.records()]
    assert sorted(split, key=order) == sorted(load(path), key=order)
    assert [row["record"] for row in sorted(split, key=order) if row["record"] is not None] == records


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["drizzle", "eblob", "manticore", "mariadb-innodb-binlog", "tarantool"])
def test_damaged_files_in_parts_tell_the_same(corpus: Path, name: str) -> None:
    files = sorted(p for p in (corpus / name / "generated").rglob("*") if p.is_file() and "damaged" in str(p))[::6]
    count = sum(all_borders_at_once_hold(path) for path in files)
    assert name in ("eblob", "mariadb-innodb-binlog") or count > 0


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", ["drizzle", "eblob", "manticore", "sphinx", "mariadb-innodb-binlog", "tarantool", "mysql-binlog"]
)
def test_all_files_of_the_corpus_in_parts_tell_the_same(corpus: Path, name: str) -> None:
    files = sorted(p for p in (corpus / name).rglob("*") if p.is_file())
    assert sum(all_borders_at_once_hold(path) for path in files) > 0


def all_borders_at_once_hold(path: Path) -> int:
    if not is_log(path):
        return 0
    with binlogtool.open(path) as log:
        places = borders(log)
    places = places[:: len(places) // 40 + 1]
    with binlogtool.open(path) as log:
        whole = facts(log)
    assert one_by_one(path, chained(places)) == whole, path
    return len(places)


def test_nothing_is_cut_behind_a_damage(samples: Path, tmp_path: Path) -> None:
    data = bytearray((samples / "drizzle" / "basic-checksum.log").read_bytes())
    with binlogtool.open(samples / "drizzle" / "basic-checksum.log") as log:
        starts = [record.offset for record in log.records()]
    data[starts[20] + 12] ^= 1
    path = tmp_path / "damaged.log"
    path.write_bytes(data)
    with binlogtool.open(path, format="drizzle") as log:
        assert [place.offset for place in borders(log)][-1] == starts[20]
    assert all_borders_at_once_hold(path) > 10


def test_small_files_share_tasks_and_each_part_of_a_big_one_is_one(samples: Path) -> None:
    path = samples / "drizzle" / "basic-checksum.log"
    big = Member(str(path), "big", "drizzle", path.stat().st_size)
    small = [Member(f"/{i}", f"{i}", "drizzle", 10) for i in range(5)]
    tasks = planned([*small, big], 2, 100, "auto", Limits(), None)
    assert sorted(p.member.name for task in tasks[:2] for p in task) == ["0", "1", "2", "3", "4"]
    assert [p.member.name for task in tasks[2:] for p in task] == ["big"] * (len(tasks) - 2)


def test_a_file_that_cannot_be_opened_is_one_task(tmp_path: Path) -> None:
    gone = Member(str(tmp_path / "gone"), "gone", "drizzle", 1 << 40)
    ((piece,),) = planned([gone], 8, 64, "auto", Limits(), None)
    assert piece.part == Part()


@pytest.mark.parametrize(
    "selection",
    [
        Selection(skip=1),
        Selection(limit=5),
        Selection(tail=5),
        Selection(start="gtid:a:1"),
        Selection(include_gtids="x"),
    ],
)
def test_what_depends_on_the_records_before_is_not_split(selection: Selection) -> None:
    assert not can_split(selection)
    assert can_split(Selection(types=("INSERT",), start="record:5"))
