"""Small jobs: rows made in this process, with the same result and the same checks as on executors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from binlogtool import convert
from binlogtool.core.record_selection import Selection
from binlogtool.errors import LimitError
from binlogtool.export.manifest import ReadRequest, list_members
from binlogtool.export.output_options import TableFileOptions
from binlogtool.limits import MIB, Limits
from binlogtool.spark import write_tables
from binlogtool.spark.session import SparkJobSession

SKIP = Selection(on_damage="skip")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found = [row for path in folder.rglob("part-*.parquet") for row in parquet.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: (row["file"], row["offset"], row["record"] or -1))


def request_of(samples: Path) -> ReadRequest:
    return ReadRequest(tuple(list_members(str(samples / "drizzle" / "basic-checksum.log"), "auto")))


def said(manifest: Any, folder: Path) -> Any:
    """The manifest but for the names, sizes and hashes of the outputs."""
    kept = {**manifest, "outputs": sum(one["rows"] for one in manifest["outputs"])}
    return json.loads(json.dumps(kept).replace(str(folder), ""))


@pytest.mark.full
@pytest.mark.spark
def test_a_small_job_says_and_writes_what_executors_do(
    samples: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    paths = [samples / "drizzle" / "damaged" / "zero-hole.log", samples / "tarantool" / "chain"]
    words = ["convert", "--to", "parquet", "--on-damage", "skip", "-o", tmp_path / "here", "-O", "json", *paths]
    run = subprocess.run([sys.executable, "-m", "binlogtool", *words], capture_output=True, text=True, check=False)
    here = json.loads(run.stdout)
    there = convert(paths, "parquet", tmp_path / "there", selection=SKIP, session=spark_session).to_dict()
    assert said(here, tmp_path / "here") == said(there, tmp_path / "there")
    assert here["damage_rows"] > 0 and run.stderr == ""
    assert rows_of(tmp_path / "here") == rows_of(tmp_path / "there")
    assert len(here["outputs"]) == 1


def test_the_rows_of_a_small_job_are_counted_before_spark_gets_them(samples: Path) -> None:
    found = write_tables.build_small_job_rows(request_of(samples), None, None)
    assert found is not None
    handed = found.row_totals(TableFileOptions("parquet"))
    assert (handed.rows, handed.records, handed.damage) == (67, 67, 0)


def test_what_is_small_goes_by_bytes_and_files() -> None:
    assert write_tables.is_small_job([MIB, 2 * MIB]) and write_tables.is_small_job([])
    assert not write_tables.is_small_job([4 * MIB, 1]) and not write_tables.is_small_job([1] * 300)


def test_rows_that_need_too_much_memory_are_left_to_executors(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = write_tables.build_small_job_rows(request_of(samples), None, None)
    assert found is not None
    monkeypatch.setattr(write_tables, "MAX_OUTPUT_BYTES", found.rows.nbytes - 1)
    assert write_tables.build_small_job_rows(request_of(samples), None, None) is None


def test_a_small_job_ends_when_its_time_is_over(samples: Path, tmp_path: Path) -> None:
    log = samples / "drizzle" / "basic-checksum.log"
    with pytest.raises(LimitError, match="time"):
        convert([log], "parquet", tmp_path / "out", limits=Limits(timeout=1e-9))
    assert not list(tmp_path.iterdir())
