"""Big files read in parts: the same rows, numbers and findings as in one pass."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.divide_file import FilePart, ResumePointFinder, divide_file
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.export.manifest import ReadRequest, TaskFile, can_select_records_independently, find_parts, pack_tasks
from binlogtool.format_api.format import Hints
from binlogtool.format_api.layout import Batch, to_int_list
from binlogtool.formats.binlog_events.transactions.boundaries import TransactionGroupState
from tests.export.parts import chained, every_border_holds, one_by_one
from tests.export.reading import Row, borders, facts, hints_for, load
from tests.sampling import EXHAUSTIVE, take_sample


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "drizzle/basic-checksum.log", "manticore/v16-mixed", "manticore/sphinx-mixed", "tarantool/chain",
        "eblob/api-sync.binlog", "eblob/dialect-a-instance.binlog",
    ],
)  # fmt: skip
def test_a_cut_at_any_border_of_a_sample_changes_nothing(samples: Path, name: str) -> None:
    top = samples / name
    files = [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file())
    assert sum(every_border_holds(path) for path in files if is_log(path)) >= 10


def test_an_overwrite_can_be_cut_between_its_records(samples: Path) -> None:
    path = samples / "eblob" / "instance-a.binlog"
    with binlogtool.open(path) as log:
        places, groups = borders(log), [record.txn for record in log.records()]
    inside = [place for place in places if groups[place.record] != place.record]
    assert len(inside) > 50 and len(places) == len(groups) - 1
    assert one_by_one(path, chained(inside)) == one_by_one(path, [FilePart()])
    for place in inside[::10]:
        assert one_by_one(path, [FilePart(place)]) == one_by_one(path, [FilePart()])[place.record :], place


@pytest.mark.parametrize("level", ["record", "event"])
def test_an_ibb_file_can_be_cut_between_pages(corpus: Path, level: str) -> None:
    files = sorted((corpus / "mariadb-innodb-binlog" / "generated").glob("*/binlog-*.ibb"))
    assert sum(every_border_holds(path, Hints(level=level)) for path in files) >= 20


@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-11.8"])
def test_a_relay_log_can_be_cut_though_the_form_of_its_events_changes(corpus: Path, server: str) -> None:
    files = sorted((corpus / "mysql-binlog" / "generated" / server / "relay").glob("relay.0000??"))[2:]
    turned = 0
    assert sum(map(every_border_holds, files)) > 60
    for path in files:
        with binlogtool.open(path) as log:
            first = log.files[0].layout.context.description.event
            turned += sum(place.carried["description"] != first.hex() for place in borders(log))
    assert turned > 5


@pytest.mark.full
@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-10.11", "mariadb-11.8"])
def test_an_encrypted_log_can_be_cut_when_the_key_is_there(corpus: Path, server: str) -> None:
    path = corpus / "mysql-binlog" / "generated" / server / "encrypted" / "enc-bin.000001"
    assert every_border_holds(path, hints_for(path)) > 20
    with binlogtool.open(path) as log:
        assert borders(log) == []


@pytest.mark.full
@pytest.mark.parametrize("name", ["mysql-9.7/compressed-transactions", "mariadb-11.8/compressed-events"])
def test_compressed_events_stay_whole_in_parts(corpus: Path, name: str) -> None:
    (path,) = (corpus / "mysql-binlog" / "generated" / name).glob("*.000001")
    assert every_border_holds(path) > 5


def is_log(path: Path) -> bool:
    try:
        with binlogtool.open(path):
            return True
    except BinlogtoolError:
        return False


def test_a_mysql_log_can_be_cut_between_any_two_transactions(corpus: Path) -> None:
    path = corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "row-metadata-full" / "binlog.000001"
    with binlogtool.open(path) as log:
        begins = [r.record for r in log.records() if r.type in ("GTID_LOG", "GTID_TAGGED_LOG")]
        places = borders(log)
    assert every_border_holds(path) == len(places)
    assert {place.record for place in places} >= set(begins)


NAMES = ("type_code", "body_start", "body_end", "end")


def ungrouped(log: LogReader) -> list[int]:
    """Offsets behind the events where no group is open, by the rules that all other code follows events with."""
    groups, found = TransactionGroupState(), list[int]()
    for batch in log.make_scan(log.files[0]).segments():
        assert isinstance(batch, Batch)
        columns = [to_int_list(batch.frames[name], 0, batch.frames.count) for name in NAMES]
        for code, start, stop, end in zip(*columns, strict=True):
            groups.advance_to_event(code, batch.window[start:stop])
            if not groups.is_open:
                found.append(batch.base + end)
    return found


@pytest.mark.parametrize("backend", ["python", "native"])
@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-11.8"])
def test_batches_of_any_size_find_the_borders_that_single_events_do(corpus: Path, server: str, backend: str) -> None:
    folder = corpus / "mysql-binlog" / "generated" / server
    names = ["stmt", "mixed-ddl", "row-metadata-full", "row-full-types", "compressed-*", "savepoint-nontrans-row", "xa"]
    files = [min(folder.glob(f"{name}/*.000001")) for name in names]
    count = 0
    for path in files:
        with binlogtool.open(path, backend=backend) as log:
            single = {place.offset: place for place in borders(log)}
        with binlogtool.open(path, backend=backend) as log:
            assert [*single] == [offset for offset in ungrouped(log) if offset < path.stat().st_size]
        for piece in (700, 3000, 20_000):
            with binlogtool.open(path, backend=backend) as log:
                places = [
                    one
                    for one in ResumePointFinder(log.make_scan(log.files[0]), piece).iter_resume_points()
                    if one.offset in single
                ]
            assert places == [single[place.offset] for place in places]
            count += len(places)
    assert count > 100


def test_every_entry_of_a_drizzle_log_is_a_border(samples: Path) -> None:
    with binlogtool.open(samples / "drizzle" / "basic-checksum.log") as log:
        starts = [record.offset for record in log.records()]
        assert [place.offset for place in borders(log)] == starts[1:]
        assert [place.record for place in borders(log)] == list(range(1, 67))


def test_names_and_table_maps_from_before_the_cut_are_known_behind_it(corpus: Path) -> None:
    path = corpus / "tarantool" / "generated" / "single" / "00000000000000000000.xlog"
    with binlogtool.open(path) as log:
        last = borders(log)[-1]
    assert "ops" in last.carried["names"].values()
    with binlogtool.open(path) as log:
        assert facts(log, FilePart(last)) == one_by_one(path, [FilePart()])[last.record :]


@pytest.mark.parametrize(
    "name",
    [
        "drizzle/generated/segmented.log",
        "mysql-binlog/generated/mysql-9.7/crash-disk-full-before/crash-bin.000001",
        pytest.param(
            "mysql-binlog/third-party/mariadb-test-data/std_data/mdev6020-mysql-bin.000001",
            marks=pytest.mark.full_corpus,
        ),
    ],
)
def test_splits_of_64_kib_give_the_rows_of_one_pass(corpus: Path, name: str) -> None:
    def order(row: Row) -> tuple[int, int]:
        return row["offset"], -1 if row["record"] is None else row["record"]

    path = corpus / name
    split = load(path, splitSize="64KiB")
    with binlogtool.open(path) as log:
        assert len(divide_file(log.make_scan(log.files[0]), 65536)) > 1
        records = [r.record for r in log.records()]
    assert sorted(split, key=order) == sorted(load(path), key=order)
    assert [row["record"] for row in sorted(split, key=order) if row["record"] is not None] == records


@pytest.mark.full
@pytest.mark.parametrize("name", ["drizzle", "eblob", "manticore", "mariadb-innodb-binlog", "tarantool"])
def test_damaged_files_in_parts_tell_the_same(corpus: Path, name: str) -> None:
    files = sorted(p for p in (corpus / name / "generated").rglob("*") if p.is_file() and "damaged" in str(p))[::6]
    count = sum(all_borders_at_once_hold(path) for path in files if is_log(path))
    assert (count > 0) == (name != "mariadb-innodb-binlog")  # its damaged files are too small for more than one part


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        *("drizzle", "eblob", "manticore", "sphinx", "mariadb-innodb-binlog", "tarantool"),
        pytest.param("mysql-binlog", marks=pytest.mark.full_corpus),
    ],
)
def test_all_files_of_the_corpus_in_parts_tell_the_same(corpus: Path, name: str) -> None:
    every = [path for path in sorted((corpus / name).rglob("*")) if path.is_file()]
    files = [path for path in take_sample(every, 2) if is_log(path)]
    uncut = [path for path in files if not all_borders_at_once_hold(path)]
    assert len(uncut) < len(files)
    without = [str(path.relative_to(corpus)) for path in uncut if not has_nothing_to_cut(path)]
    read = {str(path.relative_to(corpus)) for path in files}
    assert without == [one for one in WITHOUT_BORDERS if one in read]
    if EXHAUSTIVE:
        assert {one for one in WITHOUT_BORDERS if one.startswith(f"{name}/")} <= read


WITHOUT_BORDERS = [
    *(
        f"mariadb-innodb-binlog/generated/{name}.ibb"
        for name in (
            "basic/binlog-000002", "bigstate/binlog-000000", "bigstate/binlog-000001", "dbase/binlog-000003",
            "flush/binlog-000001", "restart/binlog-000000", "xa/binlog-000000", "xa/binlog-000001",
        )
    ),
    "mysql-binlog/third-party/mariadb-test-data/std_data/binlog_before_20574.bin",
]  # fmt: skip
"""Files of several pages, on each of which a state stands in the midst of another record; and an encrypted log whose
key nobody has."""


def has_nothing_to_cut(path: Path) -> bool:
    """A stream, a file whose head cannot be read, or one with a single frame before its end or its first damage."""
    with binlogtool.open(path, hints=hints_for(path)) as log:
        file = log.files[0]
        good = takewhile(lambda one: isinstance(one, Batch), log.make_scan(file, rows=False).segments())
        return file.size is None or not file.layout.readable or sum(one.frames.count for one in good) < 2


def all_borders_at_once_hold(path: Path) -> int:
    hints = hints_for(path)
    with binlogtool.open(path, hints=hints) as log:
        places = borders(log)
    places = places[:: len(places) // 40 + 1]
    with binlogtool.open(path, hints=hints) as log:
        whole = facts(log)
    assert one_by_one(path, chained(places), hints) == whole, path
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


def test_small_files_share_tasks_and_parts_of_a_big_one_are_spread(samples: Path) -> None:
    path = samples / "drizzle" / "basic-checksum.log"
    big = TaskFile(str(path), "big", "drizzle", path.stat().st_size)
    small = [TaskFile(f"/{i}", f"{i}", "drizzle", 10) for i in range(5)]
    cut = find_parts(big, 100, ReadRequest(()))
    tasks = pack_tasks([*small, big], [None] * len(small) + [cut], 4)
    assert [p.member.name for task in tasks for p in task] == [*"01234", *["big"] * len(cut)]
    assert len(cut) == 2 and [len(task) for task in tasks] == [5, 1, 1], "a half of big is more than a quarter of all"


def test_a_file_that_cannot_be_opened_is_one_task(tmp_path: Path) -> None:
    gone = TaskFile(str(tmp_path / "gone"), "gone", "drizzle", 1 << 40)
    ((piece,),) = pack_tasks([gone], [find_parts(gone, 64, ReadRequest(()))], 8)
    assert piece.part == FilePart()


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
    assert not can_select_records_independently(selection)
    assert can_select_records_independently(Selection(types=("INSERT",), start="record:5"))
