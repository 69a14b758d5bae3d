"""Tables for an object store: all of it or nothing, `_SUCCESS` last, and nothing that exists is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.export import atomic_output
from binlogtool.export.atomic_output import stage_upload
from binlogtool.export.manifest import ProgressStep
from binlogtool.spark.session import SparkJobSession
from tests.cli.invoke import invoke
from tests.export.store import keys_below, put

FILES = {"_SUCCESS": b"", "part-0": b"rows" * 1000, "type=A%2FB/part-1": b"more", ".part-0.crc": b"local"}


def make(stage: Path) -> None:
    for name, data in FILES.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_bytes(data)


def test_a_finished_directory_appears_with_its_mark_last(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    copied = atomic_output._upload_and_yield_chunk_sizes
    monkeypatch.setattr(
        atomic_output,
        "_upload_and_yield_chunk_sizes",
        lambda path, fs, to: sent.append(path.name) or copied(path, fs, to),
    )
    steps: list[ProgressStep] = []
    with stage_upload("s3://logs/lake/rows", overwrite=False, on_step=steps.append) as stage:
        make(stage)
    assert keys_below(store, "lake/rows") == ["_SUCCESS", "part-0", "type=A%2FB/part-1"]
    assert sent == ["part-0", "part-1", "_SUCCESS"]
    assert (steps[-1].done, steps[-1].total) == (4004, 4004)
    with store.open_input_file("logs/lake/rows/type=A%2FB/part-1") as file:
        assert file.read() == b"more"
    assert not stage.parent.exists()


def test_what_exists_is_refused_and_stays(store: Any) -> None:
    for key in ("old/rows/part-0", "old/file"):
        put(store, key, b"old")
    for name in ("rows", "file"):
        with pytest.raises(RefusedError, match="exists"), stage_upload(f"s3://logs/old/{name}", overwrite=False):
            pytest.fail("the block must not run")
    with pytest.raises(UsageError, match="--overwrite"), stage_upload("s3://logs/old/rows", overwrite=True):
        pytest.fail("the block must not run")
    assert keys_below(store, "old") == ["file", "rows/part-0"]


@pytest.mark.parametrize("error", [OSError("the line is dead"), KeyboardInterrupt()])
def test_an_upload_that_fails_leaves_nothing(error: BaseException, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = atomic_output._upload_and_yield_chunk_sizes

    def failing(path: Path, fs: Any, target: str) -> Iterator[int]:
        if path.name == "part-1":
            raise error
        return copied(path, fs, target)

    monkeypatch.setattr(atomic_output, "_upload_and_yield_chunk_sizes", failing)
    put(store, "failed/other", b"stays")
    expected = InputOutputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), stage_upload("s3://logs/failed/rows", overwrite=False) as stage:
        make(stage)
    assert keys_below(store, "failed") == ["other"]


def test_what_reads_back_differently_is_not_left_there(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_output, "_hash_remote", lambda fs, name: "0" * 64)
    words = "what was read back differs from what was written"
    with pytest.raises(InputOutputError, match=words), stage_upload("s3://logs/odd", overwrite=False) as stage:
        make(stage)
    assert keys_below(store, "odd") == []


def test_nothing_is_uploaded_where_nothing_was_made(store: Any) -> None:
    with stage_upload("s3://logs/none/rows", overwrite=False):
        pass
    with pytest.raises(ValueError, match="told"), stage_upload("s3://logs/none/rows", overwrite=False) as stage:
        make(stage)
        raise ValueError("told")
    assert keys_below(store, "none") == []


def test_a_bucket_that_is_not_there_is_told_before_the_work(store: Any) -> None:
    with (
        pytest.raises(InputOutputError, match="there is no such bucket"),
        stage_upload("s3://nowhere/rows", overwrite=False),
    ):
        pytest.fail("the block must not run")


@pytest.mark.full
@pytest.mark.parametrize("to", ["jsonl", "raw", "sql", "mysql-binlog"])
def test_ordered_outputs_stay_on_the_local_disk(to: str, samples: Path) -> None:
    done = invoke("convert", "--to", to, "-o", "s3://logs/out", str(samples / "drizzle" / "basic-checksum.log"))
    assert (done.code, done.err) == (
        2, f"binlogtool: s3://logs/out: {to} can only be written to the local disk; copy it from there\n",
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.spark
def test_a_table_is_written_to_the_store(
    store: Any, samples: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    import pyarrow.parquet as parquet

    log = samples / "drizzle" / "basic-checksum.log"
    done = binlogtool.convert(
        [log], "parquet", "s3://logs/lake/table", session=spark_session, partition_by=["type"],
        manifest=tmp_path / "m.json",
    )  # fmt: skip
    assert keys_below(store, "lake/table") == sorted(["_SUCCESS", *(output.path for output in done.outputs)])
    assert parquet.read_table("logs/lake/table", filesystem=store).num_rows == 67
    damaged = tmp_path / "bad.log"
    damaged.write_bytes(log.read_bytes()[:1500] + b"\xff" + log.read_bytes()[1501:])
    stopped = binlogtool.convert([damaged], "parquet", "s3://logs/lake/bad", session=spark_session)
    assert not stopped.complete and keys_below(store, "lake/bad") == []
