"""A record that a crash left unfinished: a note in the last file of a log, damage in one behind which others follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo

from binlogtool.export.incremental_positions import log_key, sequence_numbers
from binlogtool.spark.data_source import BinlogSource, PushdownReader
from tests.export.reading import Row, load

FIRST, SECOND, THIRD = (f"{number:020}.xlog" for number in (0, 111, 227))
TORN = 9
HEAD_OF_XLOG = b"\n\n"


@pytest.fixture
def log(samples: Path, tmp_path: Path) -> Path:
    """A log whose first file, the only one so far, broke off."""
    data = (samples / "tarantool" / "chain" / FIRST).read_bytes()
    (tmp_path / FIRST).write_bytes(data[:-TORN])
    return tmp_path


def told(rows: list[Row]) -> list[str]:
    return [Path(row["file"]).name for row in rows if row["type"] == "DAMAGE"]


def test_the_last_file_of_a_log_may_break_off(log: Path) -> None:
    assert told(load(log)) == []


def test_a_file_with_a_written_one_behind_it_may_not(log: Path, samples: Path) -> None:
    shutil.copy(samples / "tarantool" / "chain" / SECOND, log)
    assert told(load(log)) == [FIRST]


def test_a_file_in_which_nothing_stands_yet_closes_none(log: Path, samples: Path) -> None:
    data = (samples / "tarantool" / "chain" / SECOND).read_bytes()
    (log / SECOND).write_bytes(data[: data.index(HEAD_OF_XLOG) + len(HEAD_OF_XLOG)])
    assert told(load(log)) == []
    shutil.copy(samples / "tarantool" / "chain" / THIRD, log)
    assert told(load(log)) == [FIRST]


def test_files_of_another_log_close_none(log: Path, samples: Path) -> None:
    (log / "other").mkdir()
    shutil.copy(samples / "tarantool" / "chain" / SECOND, log / "other")
    assert told(load(log / FIRST) + load(log / "other")) == []
    rows = load("", paths=f'["{log / FIRST}", "{log / "other" / SECOND}"]')
    assert told(rows) == [] and {Path(row["file"]).name for row in rows} == {FIRST, SECOND}


def test_conditions_that_leave_files_out_change_nothing(log: Path, samples: Path) -> None:
    shutil.copy(samples / "tarantool" / "chain" / SECOND, log)
    reader = BinlogSource({"path": str(log), "pushdown": "true"}).reader(None)
    assert isinstance(reader, PushdownReader)
    reader.pushFilters([EqualTo(("file",), str(log / FIRST))])
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert told(rows) == [FIRST] and {row["file"] for row in rows} == {str(log / FIRST)}


def test_files_of_one_log_differ_in_numbers_only() -> None:
    assert log_key("/a/binlog.000009") == log_key("/a/binlog.000010") != log_key("/b/binlog.000010")
    assert sequence_numbers("/7/binlog.000009") < sequence_numbers("/7/binlog.000010")
