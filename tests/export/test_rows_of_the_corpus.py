"""Every file of the corpus as rows, big ones in parts of 64 KiB: the same as `dump` writes, in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.divide_file import divide_file
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Severity
from binlogtool.spark.session import SparkJobSession
from tests.cli.invoke import invoke
from tests.export.reading import Row, load
from tests.sampling import EXHAUSTIVE, take_sample

FOLDERS = ("drizzle", "eblob", "manticore", "mariadb-innodb-binlog", "mysql-binlog", "sphinx", "tarantool")
ENVELOPE = ("file", "offset", "size", "record", "type", "seq", "object", "origin")
MEMBERS = {*ENVELOPE, "time", "txn", "checksum", "body", "findings", "inner"}
SPLIT = 65536
BIG = (
    "drizzle/generated/segmented-nochecksum.log", "eblob/generated/api-large.binlog",
    "mariadb-innodb-binlog/generated/oob/binlog-000000.ibb", "tarantool/generated/killed/00000000000000000000.xlog",
    "mysql-binlog/generated/mysql-9.7/crash-disk-full-before/crash-bin.000001",
    "drizzle/generated/damaged/segment-missing.log",
)  # fmt: skip
"""One for each format whose samples have transactions shorter than a part; one with damage."""


def logs(folder: Path) -> Iterator[Path]:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            with binlogtool.open(path):
                yield path
        except BinlogtoolError:
            pass


def keys(path: Path) -> dict[str, str]:
    """The option that opens an encrypted log of the corpus."""
    found = [path.parent / name for name in ("keys.txt", "keyring.json") if (path.parent / name).exists()]
    return {"keyfile": str(found[0])} if found else {}


def dumped(path: Path) -> list[dict[str, Any]]:
    """What `dump` writes of a file."""
    hints = [word for name, value in keys(path).items() for word in (f"--{name}", value)]
    done = invoke("dump", "-O", "jsonl", "--on-damage", "skip", *hints, str(path))
    return [json.loads(line) for line in done.text.splitlines()]


def in_order(rows: list[Row]) -> list[Row]:
    """Records in the order of the log; Spark knows none."""
    return sorted(
        (row for row in rows if row["record"] is not None),
        key=lambda row: (row["offset"], row["record"], row["inner_offset"] or 0),
    )


def as_line(row: Row) -> dict[str, Any]:
    """A row with the members of a line of `dump`."""
    line = {name: row[name] for name in ENVELOPE}
    line["time"] = row["time"] and f"{row['time']:%Y-%m-%dT%H:%M:%S.%fZ}"
    line["txn"] = row["txn"]
    check = {name: row[f"checksum_{name}"] for name in ("algorithm", "stored", "computed", "ok")}
    line["checksum"] = None if check["algorithm"] is None else check
    line["body"] = json.loads(row["body"] or "null")
    line["findings"] = json.loads(row["findings"] or "[]")
    if row["inner_offset"] is not None:
        line["inner"] = {"offset": row["inner_offset"], "size": row["inner_size"]}
    return line | json.loads(row["extras"] or "{}")


def as_text(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose transaction is a text, as a column has one type."""
    return line | {"txn": None if line["txn"] is None else str(line["txn"])}


def troubles(path: Path) -> list[tuple[Any, ...]]:
    """The findings between the records, of one pass, that are damage of a file read alone: all but notes."""
    with binlogtool.open(path, hints=binlogtool.read_hints(**keys(path))) as log:
        told = [one.finding for one in log.blocks() if not isinstance(one, RecordBlock)]
    found = [one for one in told if one.severity is not Severity.NOTE or one.id == "encrypted"]
    return [(one.id, one.offset, one.length, one.record, one.message) for one in found]


def split_size(path: Path) -> int:
    """Small files are cut as well, smaller."""
    return SPLIT if path.stat().st_size > SPLIT else SPLIT // 16


def parts_of(path: Path) -> int:
    """So many parts are read apart."""
    with binlogtool.open(path, hints=binlogtool.read_hints(**keys(path))) as log:
        return len(divide_file(log.make_scan(log.files[0]), split_size(path)))


@pytest.mark.full
@pytest.mark.parametrize("name", FOLDERS)
def test_the_rows_of_every_file_are_the_lines_of_dump(corpus: Path, name: str) -> None:
    records = split = 0
    for path in take_sample(logs(corpus / name), 3):
        rows = load(path, splitSize=str(split_size(path)), **keys(path))
        lines = [as_text(line) for line in dumped(path)]
        assert [as_line(row) for row in in_order(rows)] == lines, path
        damage = [json.loads(row["findings"])[0] for row in rows if row["record"] is None]
        told = ("id", "offset", "length", "record", "message")
        assert [tuple(one.get(name) for name in told) for one in damage] == troubles(path), path
        records += len(lines)
        split += parts_of(path) > 1
    assert records > (300 if EXHAUSTIVE else 100) and split > 0


@pytest.mark.full
@pytest.mark.spark
def test_spark_reads_the_big_files_in_parts(corpus: Path, spark_session: SparkJobSession) -> None:
    files = [corpus / name for name in BIG]

    def rows() -> list[Row]:
        from pyspark.sql.functions import spark_partition_id

        frame = spark_session.spark.read.format("binlogtool").option("splitSize", str(SPLIT))
        made: list[Row] = (
            frame.load(list(map(str, files))).withColumn("task", spark_partition_id()).toArrow().to_pylist()
        )
        return made

    found = spark_session.run_spark_action(rows)
    tasks = {row.pop("task") for row in found}
    assert len(tasks) > len(files)
    whole = [row for path in files for row in load(path)]

    def key(row: Row) -> tuple[Any, ...]:
        return row["file"], row["offset"], row["record"] or 0, row["inner_offset"] or 0, row["findings"] or ""

    assert sorted(found, key=key) == sorted(whole, key=key)
