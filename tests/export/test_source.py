from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlogtool.export.manifest import ReadRequest, TaskFile, group_files
from binlogtool.export.read_members import read_member
from binlogtool.spark.data_source import BinlogSource
from binlogtool.spark.session import SparkJobSession


def member(name: str, size: int) -> TaskFile:
    return TaskFile(f"/logs/{name}", name, "drizzle", size)


def test_small_files_share_partitions_balanced_by_bytes_and_each_file_is_in_one() -> None:
    files = [member("a", 10), member("b", 1000), member("c", 10), member("d", 500), member("e", 490)]
    groups = group_files(files, 2)
    assert [[m.name for m in group] for group in groups] == [["a", "d", "e"], ["b", "c"]]


def test_there_are_never_more_partitions_than_files() -> None:
    assert [len(group) for group in group_files([member("a", 0), member("b", 0)], 8)] == [1, 1]
    assert group_files([], 8) == []


def test_a_thousand_empty_files_are_spread_evenly() -> None:
    assert [len(group) for group in group_files([member(str(i), 0) for i in range(1000)], 8)] == [125] * 8


def test_a_file_that_went_away_is_a_damage_row(tmp_path: Path) -> None:
    gone = TaskFile(str(tmp_path / "gone.log"), "gone.log", "drizzle", 5)
    (batch,) = read_member(gone, ReadRequest((gone,)))
    (row,) = batch.to_pylist()
    assert (row["file"], row["type"], row["record"]) == ("gone.log", "DAMAGE", None)
    (found,) = json.loads(row["findings"])
    assert (found["id"], found["severity"]) == ("changed-while-read", "error")


@pytest.mark.spark
def test_the_data_source_loads_a_path_by_itself(spark_session: SparkJobSession, samples: Path) -> None:
    def names() -> list[str]:
        frame = spark_session.spark.read.format(BinlogSource.name()).load(
            str(samples / "drizzle" / "basic-checksum.log")
        )
        assert frame.where("type != 'DAMAGE'").count() == 67
        return list(frame.columns)

    assert spark_session.run(names)[:4] == ["file", "format", "record", "offset"]
