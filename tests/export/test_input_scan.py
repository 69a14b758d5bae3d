"""Inputs are hashed and split by tasks, whoever runs them: the manifest is as if one process did it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.errors import InputOutputError
from binlogtool.export import task_planning
from binlogtool.export.manifest import ReadRequest, TaskFile, find_parts
from binlogtool.export.run_tasks import LocalRunner
from binlogtool.export.task_planning import FileHash, hash_and_split_inputs
from binlogtool.spark.session import SparkJobSession
from binlogtool.spark.verify_and_replay_jobs import SparkJobRunner

pytestmark = pytest.mark.spark


def member(path: Path) -> TaskFile:
    return TaskFile(str(path), path.name, "auto", path.stat().st_size)


def test_a_big_input_is_converted_in_parts_and_the_manifest_accounts_for_each(
    samples: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_planning, "MIN_SPLIT_SIZE", 1024)
    path = samples / "drizzle" / "basic-checksum.log"
    done = binlogtool.convert([path], "parquet", tmp_path / "out", session=spark_session, target_file_size=1024)
    (source,) = done.inputs
    with binlogtool.open(path) as log:
        offsets = [record.offset for record in log.records()]
    assert (source.sha256, source.records) == (hashlib.sha256(path.read_bytes()).hexdigest(), len(offsets))
    assert len(done.outputs) > 1
    found = []
    for output in done.outputs:
        part = tmp_path / "out" / output.path
        assert output.sha256 == hashlib.sha256(part.read_bytes()).hexdigest()
        rows = parquet.ParquetFile(part).read()["offset"].to_pylist()
        assert len(rows) == output.rows
        found += rows
    assert sorted(found) == offsets


def test_only_files_above_the_size_are_cut(samples: Path, spark_session: SparkJobSession) -> None:
    small, big = samples / "drizzle" / "rare-statements.log", samples / "drizzle" / "basic-checksum.log"
    size = big.stat().st_size - 1
    request = ReadRequest((member(small), member(big)))
    for runner in (SparkJobRunner(session=spark_session), LocalRunner(1)):
        known = hash_and_split_inputs(runner, request, size)
        assert known.hashes == tuple(FileHash(hashlib.sha256(path.read_bytes()).hexdigest()) for path in (small, big))
        assert known.cuts == (None, find_parts(member(big), size, ReadRequest(())))
    assert hash_and_split_inputs(LocalRunner(1), request, None).cuts == (None, None)


def test_an_input_that_cannot_be_hashed_is_one_line(tmp_path: Path, spark_session: SparkJobSession) -> None:
    gone = TaskFile(str(tmp_path / "gone.log"), "gone.log", "drizzle", 10)
    for runner in (SparkJobRunner(session=spark_session), LocalRunner(1)):
        with pytest.raises(InputOutputError, match=r"gone\.log: cannot be read"):
            hash_and_split_inputs(runner, ReadRequest((gone,)), None)
