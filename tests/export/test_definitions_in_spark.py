"""What earlier logs say of tables is known to Spark's tasks and streams; docs/examples/delta.py keeps its table right.

Expected values are those of the server: SELECT behind the statements.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from binlogtool.export.manifest import parse_data_source_options
from binlogtool.spark.streaming import BinlogStream
from tests.export.reading import open_reader
from tests.formats.mysql_binlog.server import Server

R1 = "found-3/export/R1"
ROOT = Path(__file__).parents[2]


def reader_of(folder: Path, name: str) -> Any:
    reader: Any = open_reader({"path": str(folder), "object": name}).reader
    return reader


def batch(stream: BinlogStream, start: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    found = [row for part in stream.partitions(start, end) for one in stream.read(part) for row in one.to_pylist()]
    return found, end


@pytest.mark.full_corpus
def test_each_task_knows_the_tables_of_the_logs_before_its_own(corpus: Path) -> None:
    """The server: 200 rows, each with total 1.00."""
    fields = reader_of(corpus / R1, "t1.o").layout.fields
    assert [(field.name, field.kind) for field in fields] == [("id", "int"), ("total", "decimal(10,2)")]
    for split_size in ("1MiB", "900"):
        reader = open_reader({"path": str(corpus / R1), "object": "t1.o", "splitSize": split_size})
        found = [row for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
        after = sorted((row["after"]["id"], row["after"]["total"]) for row in found)
        assert after == [(number, Decimal("1.00")) for number in range(1, 201)]
        assert {(row["unfit"], row["findings"]) for row in found} == {(None, None)}


@pytest.mark.full_corpus
def test_a_stream_knows_the_tables_after_a_rotation_and_a_restart(corpus: Path, tmp_path: Path) -> None:
    """Each batch is that of a new reader, as after a restart from a checkpoint."""
    shutil.copy(corpus / R1 / "bin.000007", tmp_path)
    reader = reader_of(tmp_path, "t1.o")
    offset: dict[str, Any] = {"files": {}}
    taken = []
    for name in (None, "bin.000008", None):
        if name is not None:
            shutil.copy(corpus / R1 / name, tmp_path)
        request = parse_data_source_options({"path": str(tmp_path), "object": "t1.o"}, finds_files=False)
        rows, offset = batch(BinlogStream([str(tmp_path)], "auto", request, reader), offset)
        taken += rows
    assert [row["after"]["id"] for row in taken] == list(range(1, 201))
    assert {(row["after"]["total"], row["unfit"]) for row in taken} == {(Decimal("1.00"), None)}


@pytest.mark.full_corpus
def test_a_stream_that_begins_behind_the_definition_never_has_silent_nulls(corpus: Path, tmp_path: Path) -> None:
    reader = reader_of(corpus / R1, "t1.o")
    shutil.copy(corpus / R1 / "bin.000008", tmp_path)
    request = parse_data_source_options({"path": str(tmp_path), "object": "t1.o"}, finds_files=False)
    rows, _ = batch(BinlogStream([str(tmp_path)], "auto", request, reader), {"files": {}})
    assert rows[0]["unfit"] == '{"after.@1":101,"after.@2":"1.00"}'
    assert all(row["unfit"] for row in rows)


# -- delta.py ----------------------------------------------------------------------------------------------------------

BEFORE = """CREATE DATABASE t1; USE t1;
CREATE TABLE m (id INT PRIMARY KEY, a INT, b VARCHAR(9)); CREATE TABLE o (x INT);
INSERT INTO m VALUES (7, 7, 'old'), (8, 8, 'old'); FLUSH BINARY LOGS;"""
STEPS = (
    "TRUNCATE TABLE m; INSERT INTO m VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three'); INSERT INTO o VALUES (1);",
    "UPDATE m SET a = 100 WHERE id = 1; UPDATE m SET b = 'zwei' WHERE id = 2; UPDATE m SET a = NULL WHERE id = 2;",
    "DELETE FROM m WHERE id = 3; INSERT INTO m VALUES (3, 30, 'new'), (4, 4, 'four'); UPDATE m SET a = 5 WHERE id = 4;",
    "FLUSH BINARY LOGS; UPDATE m SET b = NULL WHERE id = 3; DELETE FROM m WHERE id = 1; TRUNCATE o;",
)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("delta_example", ROOT / "docs/examples/delta.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def minimal() -> Iterator[tuple[Path, set[tuple[Any, ...]]]]:
    """Logs with MINIMAL images, and the rows of the table at their end."""
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = ("--log-bin=bin", "--binlog-format=ROW", "--skip-networking", "--binlog-row-image=MINIMAL")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        assert running.run(f"{BEFORE} {' '.join(STEPS)} FLUSH BINARY LOGS;".encode()) == ""
        lines = [line.split("\t") for line in running.ask("SELECT id, a, b FROM t1.m").splitlines()]
        rows = {(int(i), None if a == "NULL" else int(a), None if b == "NULL" else b) for i, a, b in lines}
        logs = Path(folder) / "logs"
        logs.mkdir()
        for name in sorted(next(Path(folder).rglob("bin.000001")).parent.glob("bin.0*"))[:-1]:
            shutil.copy(name, logs)
        yield logs, rows


@pytest.mark.server
@pytest.mark.spark
def test_the_delta_example_ends_with_the_rows_of_the_server(minimal: Any, spark_session: Any) -> None:
    logs, expected = minimal
    delta = example()
    spark = spark_session.spark
    changes = spark.read.format("binlogtool").option("object", "t1.m").load(str(logs))
    delta.demand_certain(changes)
    rows, empties = delta.behind_the_last(changes)
    assert empties
    states = [one.asDict() for one in delta.last_states(rows, "id").collect()]
    assert {(one["id"], one["a"], one["b"]) for one in states if one["op"] != "DELETE"} == expected
    assert {one["key_of_row"]: one["op"] for one in states} == {1: "DELETE", 2: "INSERT", 3: "INSERT", 4: "INSERT"}
    later = rows.where("op = 'UPDATE' and before.id = 1")
    (state,) = [one.asDict() for one in delta.last_states(later, "id").collect()]
    assert state == {"op": "UPDATE", "key_of_row": 1, "id": None, "a": 100, "b": None} | {
        "has_id": False, "has_a": True, "has_b": False,
    }  # fmt: skip


@pytest.mark.server
@pytest.mark.spark
def test_the_delta_example_refuses_what_it_cannot_know(minimal: Any, spark_session: Any) -> None:
    logs, _ = minimal
    delta = example()
    changes = spark_session.spark.read.format("binlogtool").option("object", "t1.m").load(str(logs))
    from pyspark.sql import functions as sql

    for odd in (changes.withColumn("op", sql.lit("QUERY")), changes.withColumn("unfit", sql.lit('{"after.@1":1}'))):
        with pytest.raises(ValueError, match="the state of the table after this change is unknown"):
            delta.demand_certain(odd)
    partial = changes.where("op = 'INSERT'").withColumn("absent", sql.array(sql.lit("after.b")))
    with pytest.raises(ValueError, match="the image of a new row does not have all columns"):
        delta.last_states(partial, "id")
