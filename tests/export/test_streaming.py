"""Following logs that grow and rotate: each durable record once, also over restarts."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.spark.data_source import BinlogSource
from binlogtool.spark.session import SparkJobSession
from binlogtool.spark.streaming import BinlogStream
from tests.export.reading import Row, load
from tests.export.store import put

DRIZZLE = "drizzle/basic-checksum.log"


class Follower:
    """A query that reads a directory batch by batch. Each batch starts anew, as after a restart from a checkpoint."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = {"path": str(folder), **options}
        self.offset: dict[str, Any] = {}
        self.rows: list[Row] = []

    def reader(self) -> BinlogStream:
        source = BinlogSource(self.options)
        schema = StructType.fromDDL(source.schema()) if "object" in self.options else None
        return cast(BinlogStream, source.streamReader(schema))

    def batch(self, stream: BinlogStream | None = None) -> list[Row]:
        """stream: None = a new one, as after a restart."""
        stream = stream or self.reader()
        start = json.loads(json.dumps(self.offset)) or stream.initialOffset()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        new = [row for part in stream.partitions(start, end) for rows in stream.read(part) for row in rows.to_pylist()]
        again = [
            row for part in stream.partitions(start, end) for rows in stream.read(part) for row in rows.to_pylist()
        ]
        assert new == again, "a batch that is repeated must give the same rows"
        self.offset = end
        self.rows += new
        return new

    def batches(self, stream: BinlogStream | None = None) -> Iterator[list[Row]]:
        """Until nothing is new."""
        while True:
            before = self.offset
            rows = self.batch(stream)
            if self.offset == before:
                return
            yield rows

    @property
    def files(self) -> dict[str, Any]:
        """How far each file was read, by its name."""
        return {Path(name).name: one for name, one in self.offset["files"].items()}


def grow(follower: Follower, files: Sequence[Path], cuts: Iterable[int]) -> None:
    """Writes the files one after the other, each in steps, with a batch after each step."""
    ends = list(cuts)
    for file in files:
        data = file.read_bytes()
        for end in [*(end for end in ends if end < len(data)), len(data)]:
            (follower.folder / file.name).write_bytes(data[:end])
            follower.batch()


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r["file"], r["offset"], -1 if r["record"] is None else r["record"]))


def test_records_of_a_growing_file_come_once_and_only_when_they_are_whole(samples: Path, tmp_path: Path) -> None:
    data = (samples / DRIZZLE).read_bytes()
    with binlogtool.open(samples / DRIZZLE) as log:
        ends = [record.offset + record.size for record in log.records()]
    follower, path = Follower(tmp_path), tmp_path / "transaction.log"
    for size in (ends[0] - 1, ends[0], ends[0] + 7, ends[9] - 1, ends[9], len(data)):
        path.write_bytes(data[:size])
        follower.batch()
        assert [row["record"] for row in follower.rows] == list(range(sum(end <= size for end in ends)))
    assert follower.batch() == []
    assert follower.rows == load(tmp_path)


def test_nothing_that_breaks_off_is_told_while_the_file_may_grow(samples: Path, tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    (tmp_path / "transaction.log").write_bytes((samples / DRIZZLE).read_bytes()[:-3])
    assert "DAMAGE" not in {row["type"] for row in follower.batch()}


def test_a_damage_with_good_records_behind_it_is_told_once_and_passed(samples: Path, tmp_path: Path) -> None:
    data = bytearray((samples / DRIZZLE).read_bytes())
    with binlogtool.open(samples / DRIZZLE) as log:
        starts = [record.offset for record in log.records()]
    data[starts[20] + 12] ^= 1
    follower, path = Follower(tmp_path), tmp_path / "transaction.log"
    for size in (starts[20], starts[21] - 1, starts[40], len(data)):
        path.write_bytes(data[:size])
        follower.batch()
    assert in_order(follower.rows) == in_order(load(tmp_path))
    assert sum(row["type"] == "DAMAGE" for row in follower.rows) > 0


@pytest.mark.full
@pytest.mark.parametrize(
    "pattern",
    [
        "mysql-binlog/generated/mysql-9.7/relay/src-bin.00000?",
        "mysql-binlog/generated/mysql-9.7/row-full-types/binlog.00000?",
        "tarantool/generated/repl/a/*.xlog",
        "mariadb-innodb-binlog/generated/dbase/binlog-00000[0-2].ibb",
        "mysql-binlog/generated/mysql-9.7/relay/relay.00000[1-3]",
    ],
)
def test_rotating_logs_give_each_row_once(corpus: Path, tmp_path: Path, pattern: str) -> None:
    files = sorted(corpus.glob(pattern))[:3]
    follower, chance = Follower(tmp_path), random.Random(5)
    grow(follower, files, sorted(chance.sample(range(70_000), 12)))
    live = {str(tmp_path / name): one["offset"] for name, one in follower.files.items() if not one["done"]}
    whole = in_order(load(tmp_path))
    last = [r for r in whole if r["file"] == str(tmp_path / files[-1].name)]
    told = files[-1].name in follower.files and str(tmp_path / files[-1].name) not in live
    waiting = [] if told else [r for r in last if r["offset"] >= live.get(r["file"], 0)]
    assert in_order([*follower.rows, *waiting]) == whole
    assert {name for name, one in follower.files.items() if one["done"]} >= {f.name for f in files[:-1]}


def test_a_closed_file_is_read_to_its_end_and_its_tail_is_told(samples: Path, tmp_path: Path) -> None:
    chain = sorted((samples / "tarantool" / "chain").glob("*.xlog"))[:2]
    data = chain[0].read_bytes()
    follower = Follower(tmp_path)
    (tmp_path / chain[0].name).write_bytes(data[:-9])
    first = follower.batch()
    (tmp_path / chain[1].name).write_bytes(chain[1].read_bytes())
    later = follower.batch()
    assert {row["type"] for row in first}.isdisjoint({"DAMAGE"})
    assert [row["file"].endswith(chain[0].name) for row in later if row["type"] == "DAMAGE"] == [True]
    assert in_order([*first, *later]) == in_order(load(tmp_path))


def test_files_that_are_not_there_yet_are_waited_for(samples: Path, tmp_path: Path) -> None:
    follower = Follower(tmp_path / "later")
    assert follower.batch() == []
    (tmp_path / "later").mkdir()
    assert follower.batch() == []
    (tmp_path / "later" / "transaction.log").write_bytes((samples / DRIZZLE).read_bytes())
    assert len(follower.batch()) == 67


def test_what_came_since_the_last_batch_is_split_like_any_file(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "transaction.log").write_bytes((samples / DRIZZLE).read_bytes() * 40)
    stream = BinlogSource({"path": str(tmp_path), "splitSize": "64KiB"}).streamReader(None)
    parts = stream.partitions(stream.initialOffset(), stream.latestOffset(stream.initialOffset(), None))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert len(parts) > 3
    assert [row["record"] for row in rows] == list(range(67 * 40))


CHAIN = ("00000000000000000000.xlog", "00000000000000000111.xlog", "00000000000000000227.xlog")


@pytest.fixture
def chain(samples: Path, tmp_path: Path) -> Path:
    """Three files of one log of Tarantool."""
    (tmp_path / "chain").mkdir()
    for name in CHAIN:
        shutil.copy(samples / "tarantool" / "chain" / name, tmp_path / "chain")
    return tmp_path / "chain"


@pytest.fixture
def other(corpus: Path) -> bytes:
    """A file of another server."""
    return (corpus / "tarantool" / "generated" / "repl" / "a" / CHAIN[0]).read_bytes()


def damages(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """File and message of each DAMAGE row."""
    return [
        (Path(row["file"]).name, found["message"])
        for row in rows if row["type"] == "DAMAGE" for found in json.loads(row["findings"])
    ]  # fmt: skip


def records_of(path: Path) -> list[int]:
    with binlogtool.open(path) as log:
        return [record.offset for record in log.records()]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_limit_of_bytes_shares_a_backlog_among_batches(samples: Path, tmp_path: Path) -> None:
    data = (samples / DRIZZLE).read_bytes() * 40
    (tmp_path / "transaction.log").write_bytes(data)
    follower = Follower(tmp_path, maxBytesPerTrigger="64KiB", engine="python")
    sizes = [sum(row["size"] for row in rows) for rows in follower.batches()]
    assert sum(sizes) == len(data)
    assert all(48 << 10 < size <= 64 << 10 for size in sizes[:-1])
    assert [row["record"] for row in follower.rows] == list(range(67 * 40))


@pytest.mark.parametrize(
    "pattern",
    ["mysql-binlog/generated/mysql-9.7/relay/src-bin.00000?", "mariadb-innodb-binlog/generated/dbase/*00[0-2].ibb"],
)
def test_a_limit_that_no_transaction_fits_takes_them_whole(corpus: Path, tmp_path: Path, pattern: str) -> None:
    files = sorted(corpus.glob(pattern))
    for file in files:
        shutil.copy(file, tmp_path)
    one, all_ = Follower(tmp_path, maxBytesPerTrigger="1", engine="python"), Follower(tmp_path)
    assert [len({row["file"] for row in rows}) <= 1 for rows in one.batches()].count(False) == 0
    all_.batch()
    assert in_order(one.rows) == in_order(all_.rows)
    assert one.files.keys() == all_.files.keys() == {file.name for file in files}


def test_a_limit_of_files_takes_the_oldest_of_each_log_in_turn(chain: Path, samples: Path) -> None:
    shutil.copytree(chain, chain / "second")
    follower = Follower(chain, maxFilesPerTrigger="1")
    stream = follower.reader()
    taken = [{row["file"].removeprefix(f"{chain}/") for row in rows} for rows in follower.batches(stream)]
    assert [list(names) for names in taken] == [[f"{below}{name}"] for name in CHAIN for below in ("", "second/")]
    assert in_order(follower.rows) == in_order(load(chain))


def test_work_that_was_there_at_the_start_of_an_available_now_query_ends(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    last = (chain / CHAIN[1]).read_bytes()
    ends = [*records_of(chain / CHAIN[1]), len(last)]
    shutil.copy(chain / CHAIN[0], tmp_path / "live")
    (tmp_path / "live" / CHAIN[1]).write_bytes(last[: ends[60] + 3])
    follower = Follower(tmp_path / "live", maxFilesPerTrigger="1")
    stream = follower.reader()
    stream.prepareForTriggerAvailableNow()
    (tmp_path / "live" / CHAIN[1]).write_bytes(last)
    shutil.copy(chain / CHAIN[2], tmp_path / "live")
    assert len(list(follower.batches(stream))) == 2
    assert follower.files.keys() == set(CHAIN[:2])
    assert max(row["offset"] for row in follower.rows if row["file"].endswith(CHAIN[1])) == ends[59]
    list(follower.batches())
    assert in_order(follower.rows) == in_order(load(tmp_path / "live"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxFilesPerTrigger": "2", "maxBytesPerTrigger": "1MiB"}, "choose one"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger '0'"),
        ({"maxFilesPerTrigger": "many"}, "maxFilesPerTrigger 'many'"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger '0'"),
        ({"maxBytesPerTrigger": "much"}, "much"),
        ({"path": "/var/lib/mysql/binlog.*"}, "name the directory"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Follower(tmp_path, **options).reader()


# -- files that go, and others that come in their place ----------------------------------------------------------------


def test_finished_files_that_are_removed_are_forgotten(chain: Path) -> None:
    follower = Follower(chain)
    follower.batch()
    assert follower.files.keys() == set(CHAIN)
    (chain / CHAIN[0]).unlink()
    assert follower.batch() == []
    assert follower.files.keys() == set(CHAIN[1:])


def test_a_file_that_is_removed_before_it_was_complete_is_told_once(chain: Path) -> None:
    kept = {name: (chain / name).read_bytes() for name in CHAIN}
    for name in CHAIN[1:]:
        (chain / name).unlink()
    (chain / CHAIN[0]).write_bytes(kept[CHAIN[0]][:5000])
    follower = Follower(chain)
    first = follower.batch()
    (chain / CHAIN[0]).unlink()
    (chain / CHAIN[1]).write_bytes(kept[CHAIN[1]])
    later = follower.batch()
    assert damages(first) == []
    assert [name for name, text in damages(later) if "removed" in text] == [CHAIN[0]]
    assert len(later) == 1 + len(records_of(chain / CHAIN[1]))
    assert follower.batch() == []
    assert follower.files.keys() == {CHAIN[1]}


def test_nothing_is_forgotten_while_no_file_can_be_seen(chain: Path) -> None:
    follower = Follower(chain)
    follower.batch()
    chain.rename(chain.with_name("away"))
    assert follower.batch() == []
    chain.mkdir()
    assert follower.batch() == []
    chain.rmdir()
    chain.with_name("away").rename(chain)
    assert follower.batch() == []
    assert follower.files.keys() == set(CHAIN)


@pytest.mark.parametrize("shortened", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_another_file_of_the_same_name_is_told_and_read_from_its_start(
    chain: Path, other: bytes, shortened: bool, restarted: bool
) -> None:
    """As after RESET MASTER: a finished file and the one that grows are gone, and the first number is there again."""
    follower = Follower(chain)
    stream = None if restarted else follower.reader()
    follower.batch(stream)
    for name in CHAIN[1:]:
        (chain / name).unlink()
    longer = other + bytes(len((chain / CHAIN[0]).read_bytes()))
    (chain / CHAIN[0]).write_bytes(other if shortened else longer)
    rows = follower.batch(stream)
    assert [(name, "replaced" in text) for name, text in damages(rows)] == [(CHAIN[0], True)]
    assert [row["offset"] for row in rows if row["type"] != "DAMAGE"] == records_of(chain / CHAIN[0])
    assert follower.batch(stream) == []


def test_a_growing_file_that_is_replaced_is_told_and_read_from_its_start(chain: Path, other: bytes) -> None:
    path = chain / CHAIN[2]
    whole = path.read_bytes()
    path.write_bytes(whole[:4000])
    follower = Follower(chain)
    follower.batch()
    path.write_bytes(other)
    rows = follower.batch()
    assert [name for name, text in damages(rows) if "replaced" in text] == [CHAIN[2]]
    assert [row["offset"] for row in rows if row["type"] != "DAMAGE"] == records_of(path)


def test_a_file_that_is_replaced_between_planning_and_reading_gives_no_rows(chain: Path, other: bytes) -> None:
    follower = Follower(chain)
    stream = follower.reader()
    start = stream.initialOffset()
    shares = stream.partitions(start, stream.latestOffset(start, None))
    (chain / CHAIN[2]).write_bytes(other + other)
    rows = [row for share in shares for batch in stream.read(share) for row in batch.to_pylist()]
    assert [row["type"] for row in rows if row["file"].endswith(CHAIN[2])] == ["DAMAGE"]


def test_bytes_behind_the_end_of_a_finished_file_are_told(chain: Path) -> None:
    follower = Follower(chain)
    follower.batch()
    with (chain / CHAIN[0]).open("ab") as file:
        file.write(b"x" * 77)
    assert damages(follower.batch()) == [
        (CHAIN[0], "the file was extended by 77 bytes after a later file of the log was started; they are not read")
    ]
    assert follower.batch() == []


def test_the_flag_that_a_server_clears_when_it_closes_its_log_makes_no_other_file(
    samples: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rot-bin.000003"
    closed = bytearray((samples / "mysql_binlog" / "sets" / "mysql" / path.name).read_bytes())
    in_use = closed.copy()
    in_use[21] |= 1
    path.write_bytes(in_use[:2000])
    follower = Follower(tmp_path)
    assert follower.batch()
    path.write_bytes(closed)
    assert damages(follower.batch()) == []
    assert [row["offset"] for row in follower.rows] == records_of(path)


# -- one object --------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("mysql-binlog/generated/mysql-9.7/row-metadata-full/binlog.000001", "db_east1.orders2_all"),
        ("tarantool/generated/single/00000000000000000000.xlog", "all_types"),
    ],
)
def test_typed_rows_of_one_object_come_as_in_a_batch_query(
    spark_session: SparkJobSession, corpus: Path, tmp_path: Path, log: str, name: str
) -> None:
    path, source = tmp_path / Path(log).name, BinlogSource({"path": str(tmp_path), "object": name})
    shutil.copy(corpus / log, path)
    reader = source.reader(StructType.fromDDL(source.schema()))
    wanted = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    data, cut = path.read_bytes(), wanted[len(wanted) // 2]["offset"] + 1
    path.write_bytes(data[:cut])
    follower = Follower(tmp_path, object=name)
    stream = follower.reader()
    assert follower.batch(stream)
    path.write_bytes(data)
    assert follower.batch(stream)
    assert follower.rows == wanted


@pytest.mark.full
@pytest.mark.spark
def test_what_a_space_is_called_is_known_after_its_definition_was_removed(
    spark_session: SparkJobSession, corpus: Path, tmp_path: Path
) -> None:
    (first, second) = sorted((corpus / "tarantool" / "generated" / "rotated").glob("*.xlog"))[:2]
    shutil.copy(first, tmp_path)
    options = {"path": str(tmp_path), "object": "big"}
    follower, schema = Follower(tmp_path), StructType.fromDDL(BinlogSource(options).schema())
    follower.batch(BinlogStream.from_options(options, schema))
    shutil.copy(second, tmp_path)
    (tmp_path / first.name).unlink()
    rows = follower.batch(BinlogStream.from_options(options, schema))
    assert [row["offset"] for row in rows if row["op"] != "DAMAGE"] == records_of(tmp_path / second.name)


# -- elsewhere ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_offsets_of_logs_in_a_store_are_like_those_of_files(store: Any, chain: Path) -> None:
    kept = {name: (chain / name).read_bytes() for name in CHAIN}
    follower = Follower(Path(), path="s3://logs/growing")
    for name, size in ((CHAIN[0], 3000), (CHAIN[0], 1 << 20), (CHAIN[1], 4000), (CHAIN[1], 1 << 20), (CHAIN[2], 5000)):
        put(store, f"growing/{name}", kept[name][:size])
        assert follower.batch()
    assert follower.files.keys() == set(CHAIN)
    (chain / CHAIN[2]).write_bytes(kept[CHAIN[2]][: follower.files[CHAIN[2]]["offset"]])
    wanted = [(Path(row["file"]).name, row["record"], row["offset"], row["body"]) for row in load(chain)]
    assert [(Path(row["file"]).name, row["record"], row["offset"], row["body"]) for row in follower.rows] == wanted
    put(store, f"growing/{CHAIN[2]}", kept[CHAIN[0]])
    store.delete_file(f"logs/growing/{CHAIN[0]}")
    assert [name for name, text in damages(follower.batch()) if "replaced" in text] == [CHAIN[2]]
    assert follower.files.keys() == set(CHAIN[1:])


# -- Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_spark_reads_a_backlog_in_batches_of_the_limit(
    spark_session: SparkJobSession, samples: Path, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    data = (samples / DRIZZLE).read_bytes() * 40
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "transaction.log").write_bytes(data)
    options = {"columns": "record", "maxBytesPerTrigger": str(len(data) * 2 // 5), "engine": "python"}

    def run() -> tuple[list[int], list[int]]:
        stream = spark_session.spark.readStream.format("binlogtool").options(**options).load(str(tmp_path / "in"))
        out = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = out.trigger(**trigger).start(str(tmp_path / "out"))
        if "availableNow" in trigger:
            assert query.awaitTermination(90)
        else:
            query.processAllAvailable()
            query.stop()
        counts = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        rows = spark_session.spark.read.parquet(str(tmp_path / "out")).collect()
        return counts, sorted(row.record for row in rows)

    counts, records = spark_session.run_spark_action(run)
    assert records == list(range(67 * 40))
    assert len(counts) == 3 and max(counts) <= 67 * 40 * 2 // 5 + 67


@pytest.mark.full
@pytest.mark.spark
def test_spark_streams_a_growing_file_and_goes_on_from_its_checkpoint(
    spark_session: SparkJobSession, samples: Path, tmp_path: Path
) -> None:
    data = (samples / DRIZZLE).read_bytes()
    with binlogtool.open(samples / DRIZZLE) as log:
        ends = [record.offset + record.size for record in log.records()]
    (tmp_path / "in").mkdir()

    def run() -> int:
        stream = spark_session.spark.readStream.format("binlogtool").option("columns", "record,type")
        query = (
            stream.load(str(tmp_path / "in"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination(60)
        return spark_session.spark.read.parquet(str(tmp_path / "out")).count()

    counts = []
    for size in (ends[29] + 5, len(data)):
        (tmp_path / "in" / "transaction.log").write_bytes(data[:size])
        counts.append(spark_session.run_spark_action(run))
    assert counts == [30, 67]
