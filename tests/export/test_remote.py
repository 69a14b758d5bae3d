"""Logs in an object store: a real S3 protocol server on loopback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core import remote_files
from binlogtool.core.open_file import read_range
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.core.remote_files import BLOCK_BYTES, RemoteSource
from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.export.manifest import find_inputs
from binlogtool.report.verify_and_plan_text import suggest_after_verify
from binlogtool.spark.session import SparkJobSession
from tests.export.reading import load
from tests.export.store import put, with_place

DRIZZLE = "drizzle/basic-checksum.log"


def test_ranges_of_a_remote_file_are_its_bytes(store: Any) -> None:
    data = os.urandom(3 * BLOCK_BYTES + 77)
    source = RemoteSource(put(store, "ranges", data))
    for offset, size in (
        (0, 10),
        (BLOCK_BYTES - 3, 6),
        (5, BLOCK_BYTES),
        (2 * BLOCK_BYTES - 1, BLOCK_BYTES + 90),
        (len(data) - 5, 50),
    ):
        assert read_range(source, offset, size) == data[offset : offset + size]
    assert read_range(source, len(data), 5) == read_range(source, len(data) + 99, 5) == b""
    assert (source.size, source.find_change_or_cut()) == (len(data), None)
    source.close()


def test_small_reads_fetch_a_block_once(store: Any) -> None:
    source = RemoteSource(put(store, "blocks", bytes(10 * BLOCK_BYTES)))
    for offset in range(0, 2 * BLOCK_BYTES, 4096):
        read_range(source, offset, 4096)
    assert source.fetched == 2 * BLOCK_BYTES
    source.close()


def test_a_file_that_is_replaced_or_removed_is_noticed(store: Any) -> None:
    url = put(store, "changing", b"x" * 100)
    source = RemoteSource(url)
    put(store, "changing", b"x" * 101)
    found = source.find_change_or_cut()
    assert found is not None and found.facts["size_after"] == 101
    store.delete_file("logs/changing")
    gone = source.find_change_or_cut()
    assert gone is not None and "removed" in gone.message
    source.close()


def test_a_remote_log_has_the_rows_of_the_local_one(store: Any, samples: Path) -> None:
    data = (samples / DRIZZLE).read_bytes() * 30
    local = samples.parent / "corpus" / DRIZZLE
    url = put(store, "rows/transaction.log", data)
    found = load(url, splitSize="64KiB")
    assert [row["record"] for row in sorted(found, key=lambda row: row["offset"])] == list(range(67 * 30))
    first = sorted(found, key=lambda row: row["offset"])[:67]
    assert [row | {"file": str(local)} for row in first] == [row | {"file": str(local)} for row in load(local)]


def test_the_files_below_a_remote_directory_are_found_like_local_ones(store: Any, samples: Path) -> None:
    for path in sorted((samples / "tarantool" / "chain").glob("*.xlog")):
        put(store, f"tt/data/{path.name}", path.read_bytes())
    put(store, "tt/notes.txt", b"no log")
    local = find_inputs([samples / "tarantool" / "chain"], "auto")
    found = find_inputs(["s3://logs/tt"], "auto")
    assert [(i.format, i.size, i.sha256) for i in found] == [
        (i.format, i.size, i.sha256) for i in local if i.path.endswith(".xlog")
    ]
    assert found[0].path.startswith("s3://logs/tt/data/")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[RemoteSource]:
    """Every file that is opened."""
    made: list[RemoteSource] = []

    def watched(url: str) -> RemoteSource:
        made.append(RemoteSource(url))
        return made[-1]

    monkeypatch.setattr(remote_files, "open_remote", watched)
    return made


def test_a_limited_read_fetches_a_part_of_a_big_file(store: Any, samples: Path, opened: list[RemoteSource]) -> None:
    data = (samples / DRIZZLE).read_bytes()
    data *= (24 << 20) // len(data)
    url = put(store, "big/transaction.log", data)
    with binlogtool.open(url, backend="python") as log:
        assert sum(1 for _ in log.records(selection=Selection(limit=5))) == 5
    assert sum(source.fetched for source in opened) < len(data) // 8


def test_convert_takes_urls(store: Any, samples: Path, tmp_path: Path) -> None:
    data = (samples / DRIZZLE).read_bytes()
    url = put(store, "convert/transaction.log", data)
    done = binlogtool.convert([url], "raw", tmp_path / "out.raw")
    assert (tmp_path / "out.raw").read_bytes() == data
    assert [(i.path, i.size, i.records) for i in done.inputs] == [(url, len(data), 67)]
    with pytest.raises(RefusedError):
        binlogtool.convert([url], "raw", tmp_path / "out.raw")


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("s3://logs/nothing/here", InputOutputError, "no such file"),
        ("nonsense://x/y", UsageError, "nonsense"),
        ("s3:///x", UsageError, "the bucket is missing"),
        ("s3://logs/x?colour=red", UsageError, "'colour' is none of endpoint_override"),
        ("s3://key:secret@logs/x", UsageError, "^s3://logs/x: credentials in a URL would appear in outputs"),
    ],
)
def test_a_url_that_leads_nowhere_is_one_line(store: Any, url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        find_inputs([url], "auto")
    assert "\n" not in str(caught.value)


def test_a_file_url_is_the_file(samples: Path) -> None:
    path = samples / DRIZZLE
    assert load(path.as_uri(), columns="record,type,body") == load(path, columns="record,type,body")


@pytest.mark.full
@pytest.mark.spark
def test_executors_read_the_store_themselves(store: Any, spark_session: SparkJobSession, samples: Path) -> None:
    url = put(store, "spark/transaction.log", (samples / DRIZZLE).read_bytes() * 3)
    place = with_place(url)

    def read() -> int:
        reader = spark_session.spark.read.format("binlogtool").option("splitSize", "64KiB")
        return int(reader.option("columns", "record").load(place).count())

    assert spark_session.run_spark_action(read) == 201


@pytest.mark.full
def test_a_log_in_a_store_is_not_repaired_and_verify_does_not_propose_it(store: Any, samples: Path) -> None:
    data = (samples / DRIZZLE).read_bytes()
    url = put(store, "torn/transaction.log", data[:-5])
    with pytest.raises(UsageError, match="local files only"):
        binlogtool.plan_truncate(url)
    report = binlogtool.verify([url])
    assert [one.id for one in report.files[0].findings] == ["torn-tail"]
    assert suggest_after_verify(report) is None
