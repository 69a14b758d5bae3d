"""Whole commands on logs in an object store: the same results as on the local disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

import binlogtool
from binlogtool.core import remote_files
from binlogtool.core.remote_files import BLOCK_BYTES, RemoteSource
from binlogtool.spark.data_source import BinlogSource
from binlogtool.spark.session import SparkJobSession
from tests.cli.invoke import invoke
from tests.export.reading import load
from tests.export.store import put, with_place

DRIZZLE = "drizzle/basic-checksum.log"


@pytest.mark.full
@pytest.mark.parametrize("words", [
    ("verify",), ("verify", "-O", "json"), ("dump", "-O", "jsonl"), ("stats",), ("replay-dry-run", "-O", "json"),
    ("hexdump-annotate", "--record", "3"),
])  # fmt: skip
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_a_command_that_only_reads_says_the_same_of_a_url(
    words: tuple[str, ...], packed: str, store: Any, samples: Path, tmp_path: Path
) -> None:
    data = (samples / DRIZZLE).read_bytes()
    data = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packed](data)
    local = tmp_path / f"transaction.log{packed}"
    local.write_bytes(data)
    url = put(store, f"read/{local.name}", data)
    here, there = invoke(*words, str(local)), invoke(*words, url)
    assert there.err == here.err.replace(str(local), url) and there.code == here.code
    if packed == "" or words[0] != "replay-dry-run":  # which refuses streams, with the name in its own words
        assert there.out.replace(url.encode(), b"LOG") == here.out.replace(str(local).encode(), b"LOG")


def test_a_set_of_logs_can_be_a_url(store: Any, samples: Path) -> None:
    chain = samples / "tarantool" / "chain"
    for path in sorted(chain.glob("*.xlog")):
        put(store, f"set/{path.name}", path.read_bytes())
    put(store, "set/x.binlogtool-undo-1.xlog", b"left by a repair")
    found = binlogtool.verify(["s3://logs/set"])
    assert [file.path.rpartition("/")[2] for file in found.files] == sorted(p.name for p in chain.glob("*.xlog"))
    assert [one.path for one in found.sets] == ["s3://logs/set"]


def test_names_with_characters_of_urls_are_found(store: Any, samples: Path) -> None:
    put(store, "odd/a b%c?#ä.log", (samples / DRIZZLE).read_bytes())
    (file,) = binlogtool.verify(["s3://logs/odd"]).files
    assert file.records == 67 and file.path == "s3://logs/odd/a%20b%25c%3F%23%C3%A4.log"
    assert binlogtool.verify([file.path]).files[0].records == 67


def test_a_packed_log_that_breaks_off_is_a_finding(store: Any, samples: Path) -> None:
    cut = gzip.compress((samples / DRIZZLE).read_bytes())[:3000]
    (file,) = binlogtool.verify([put(store, "cut.log.gz", cut)]).files
    assert "compression-error" in [found.id for found in file.findings] and 0 < file.records < 67


def test_a_packed_log_is_one_part_and_has_all_rows(store: Any, samples: Path) -> None:
    data = (samples / DRIZZLE).read_bytes() * 30
    url = put(store, "whole.log.gz", gzip.compress(data, 1))
    assert [row["record"] for row in load(url, splitSize="4KiB", columns="record")] == list(range(67 * 30))


def test_a_part_fetches_its_own_bytes(store: Any, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (samples / DRIZZLE).read_bytes()
    data *= (16 << 20) // len(data)
    reader = BinlogSource({"path": put(store, "parts.log", data), "splitSize": "4MiB", "columns": "record"}).reader(
        None
    )
    parts, rows = reader.partitions(), 0
    assert len(parts) == 4
    for part in parts:
        opened: list[RemoteSource] = []
        monkeypatch.setattr(remote_files, "open_remote", lambda url, to=opened: to.append(RemoteSource(url)) or to[-1])
        rows += sum(batch.num_rows for batch in reader.read(part))
        assert sum(source.fetched for source in opened) < len(data) // 4 + (1 << 20) + 4 * BLOCK_BYTES
    assert rows == 67 * (len(data) // (samples / DRIZZLE).stat().st_size)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("to", ["parquet", "json"])
def test_a_table_of_a_remote_log_is_that_of_the_local_one(
    to: str, store: Any, samples: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    url = with_place(put(store, "table/transaction.log", (samples / DRIZZLE).read_bytes() * 3))
    (tmp_path / "transaction.log").write_bytes((samples / DRIZZLE).read_bytes() * 3)
    found = []
    for path, out in ((url, tmp_path / "there"), (str(tmp_path / "transaction.log"), tmp_path / "here")):
        done = binlogtool.convert([path], to, out, session=spark_session)
        assert done.complete and (done.rows, done.inputs[0].records) == (201, 201)
        rows = spark_session.run_spark_action(lambda o=out: spark_session.spark.read.format(to).load(str(o)).collect())  # type: ignore[misc]
        found.append(sorted((row["record"], str(row.asDict() | {"file": ""})) for row in rows))
    assert found[0] == found[1]


@pytest.mark.full
def test_lines_of_a_remote_log_are_those_of_the_local_one(store: Any, samples: Path, tmp_path: Path) -> None:
    data = (samples / DRIZZLE).read_bytes()
    log, url = samples / DRIZZLE, put(store, "lines/transaction.log.zst", zstandard.compress(data))
    for path, out in ((str(log), "here"), (url, "there")):
        done = invoke("convert", "--to", "jsonl", "-o", str(tmp_path / out), path)
        assert done.code == 0, done.err
    here, there = ([json.loads(line) for line in (tmp_path / n).read_text().splitlines()] for n in ("here", "there"))
    assert [row | {"file": ""} for row in there] == [row | {"file": ""} for row in here]
    assert {row["file"] for row in there} == {url}
