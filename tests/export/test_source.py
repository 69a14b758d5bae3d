from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.datasource import Filter, In

from binlogtool.export.manifest import ReadRequest, TaskFile
from binlogtool.export.read_rows_of_one_file import read_file_rows
from binlogtool.spark.data_source import BinlogReader, BinlogSource, PushdownReader
from binlogtool.spark.session import SparkJobSession


def member(name: str, size: int) -> TaskFile:
    return TaskFile(f"/logs/{name}", name, "drizzle", size)


def share_names(files: list[TaskFile], groups: int) -> list[list[str]]:
    partitions = BinlogReader(ReadRequest(tuple(files), groups)).partitions()
    return [[piece.member.name for piece in one.pieces] for one in partitions]


def test_small_files_share_partitions_balanced_by_bytes_and_each_file_is_in_one() -> None:
    """In the order of the request: the first half of the 2,010 bytes ends within b."""
    files = [member("a", 10), member("b", 900), member("c", 10), member("d", 600), member("e", 490)]
    assert share_names(files, 2) == [["a", "b", "c"], ["d", "e"]]


def test_there_are_never_more_partitions_than_files() -> None:
    assert share_names([member("a", 5), member("b", 5)], 8) == [["a"], ["b"]]
    assert share_names([], 8) == []


def test_a_thousand_equal_files_are_spread_evenly() -> None:
    assert [len(names) for names in share_names([member(str(i), 1) for i in range(1000)], 8)] == [125] * 8


def test_a_file_that_went_away_is_a_damage_row(tmp_path: Path) -> None:
    gone = TaskFile(str(tmp_path / "gone.log"), "gone.log", "drizzle", 5)
    (batch,) = read_file_rows(gone, ReadRequest((gone,)))
    (row,) = batch.to_pylist()
    assert (row["file"], row["type"], row["record"]) == ("gone.log", "DAMAGE", None)
    (found,) = json.loads(row["findings"])
    assert (found["id"], found["severity"]) == ("changed-while-read", "error")


@pytest.mark.spark
def test_a_missing_file_between_others_is_a_damage_row(samples: Path, tmp_path: Path) -> None:
    """One row before those of the file that follows the hole; a filter on files makes no hole."""
    folder = shutil.copytree(samples / "tarantool" / "chain", tmp_path / "log")

    def damage(*filters: Filter) -> list[tuple[str, str]]:
        reader = BinlogSource({"path": str(folder), "pushdown": "true"}).reader(None)
        assert isinstance(reader, PushdownReader)
        list(reader.pushFilters([*filters]))
        batches = (batch for part in reader.partitions() for batch in reader.read(part))
        rows = (row for batch in batches for row in batch.to_pylist() if row["type"] == "DAMAGE")
        return [(Path(row["file"]).name, finding["id"]) for row in rows for finding in json.loads(row["findings"])]

    others = [str(path) for path in folder.iterdir() if path.name != "00000000000000000227.xlog"]
    assert damage() == damage(In(("file",), tuple(others))) == []
    (folder / "00000000000000000227.xlog").unlink()
    assert damage() == [("00000000000000000334.xlog", "missing-member")]


def test_the_data_source_loads_a_path_by_itself(spark_session: SparkJobSession, samples: Path) -> None:
    def names() -> list[str]:
        frame = spark_session.spark.read.format(BinlogSource.name()).load(
            str(samples / "drizzle" / "basic-checksum.log")
        )
        assert frame.where("type != 'DAMAGE'").count() == 67
        return list(frame.columns)

    assert spark_session.run_spark_action(names)[:4] == ["file", "format", "record", "offset"]
