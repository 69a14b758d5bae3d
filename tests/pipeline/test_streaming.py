"""Following logs that grow and rotate: each durable record once, also over restarts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.pipeline.session import Session
from binlogtool.pipeline.source import BinlogSource
from tests.pipeline.reading import Row, load

DRIZZLE = "drizzle/basic-checksum.log"


class Follower:
    """A query that reads a directory batch by batch. Each batch starts anew, as after a restart from a checkpoint."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = options
        self.offset: dict[str, Any] = {}
        self.rows: list[Row] = []

    def batch(self) -> list[Row]:
        stream = BinlogSource({"path": str(self.folder), **self.options}).streamReader(None)
        start = json.loads(json.dumps(self.offset)) or stream.initialOffset()
        end = stream.latestOffset(start, None)
        new = [row for part in stream.partitions(start, end) for rows in stream.read(part) for row in rows.to_pylist()]
        again = [
            row for part in stream.partitions(start, end) for rows in stream.read(part) for row in rows.to_pylist()
        ]
        assert new == again, "a batch that is repeated must give the same rows"
        self.offset = end
        self.rows += new
        return new


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


@pytest.mark.corpus
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
    live = {name: one["offset"] for name, one in follower.offset.items() if not one["done"]}
    whole = in_order(load(tmp_path))
    waiting = [r for r in whole if r["file"].endswith(files[-1].name) and r["offset"] >= live.get(r["file"], 0)]
    assert in_order([*follower.rows, *waiting]) == whole
    assert {Path(name).name for name, one in follower.offset.items() if one["done"]} >= {f.name for f in files[:-1]}


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
    parts = stream.partitions({}, stream.latestOffset({}, None))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert len(parts) > 3
    assert [row["record"] for row in rows] == list(range(67 * 40))


@pytest.mark.spark
def test_spark_streams_a_growing_file_and_goes_on_from_its_checkpoint(
    spark_session: Session, samples: Path, tmp_path: Path
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
        counts.append(spark_session.run(run))
    assert counts == [30, 67]
