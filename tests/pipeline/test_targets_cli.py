"""`convert` on the command line: its targets' options, what is told when nothing is written, and the progress."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from binlogtool.terminal.progress import ProgressDisplay
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make


@pytest.fixture
def truncated(tmp_path: Path) -> Path:
    """A log whose only transaction is a TRUNCATE."""
    gtid = make.event(make.GTID, make.mariadb_gtid(7, flags=1))
    path = tmp_path / "bin.000001"
    path.write_bytes(make.log([gtid, make.event(make.QUERY, make.query(b"truncate table t"))]))
    return path


def test_what_an_undo_cannot_take_back_is_named(truncated: Path, tmp_path: Path) -> None:
    done = invoke("flashback", "-o", str(tmp_path / "u.sql"), str(truncated))
    assert done.code == 1
    assert "transaction 0-1-7: QUERY cannot be reversed: the log has TRUNCATE TABLE as a statement" in done.text
    assert "nothing was written: some changes cannot be reversed" in done.text
    left_out = ("--exclude-gtids", "0-1-7", "-o", str(tmp_path / "u.sql"), str(truncated))
    nothing = invoke("flashback", *left_out)
    assert (nothing.code, (tmp_path / "u.sql").exists()) == (2, False)
    assert "the selection has no row changes to reverse" in nothing.err


def test_the_account_has_the_hash_of_the_output(truncated: Path, tmp_path: Path) -> None:
    import hashlib

    done = invoke("convert", "--to", "sql", "-O", "json", "-o", str(tmp_path / "s.sql"), str(truncated))
    (output,) = json.loads(done.out)["outputs"]
    assert output["sha256"] == hashlib.sha256((tmp_path / "s.sql").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "parquet", "--compression", "lzo"),
        ("--to", "csv", "--partition-by", "type,body"),
        ("--to", "raw", "--csv-safe"),
        ("--to", "jsonl", "--rewrite", "a->b"),
        ("--to", "sql", "--rewrite", "a"),
        ("--to", "mysql-binlog", "--compression", "zstd"),
    ],
)
def test_an_option_of_another_target_is_one_line(words: tuple[str, ...], truncated: Path, tmp_path: Path) -> None:
    done = invoke("convert", *words, "-o", str(tmp_path / "out"), str(truncated))
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, b"")
    assert not (tmp_path / "out").exists()


def test_a_log_without_statements_is_refused_for_a_script(samples: Path, tmp_path: Path) -> None:
    log = samples / "drizzle" / "basic-checksum.log"
    for command in (("convert", "--to", "sql"), ("flashback",)):
        done = invoke(*command, "-o", str(tmp_path / "out"), str(log))
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "cannot be written as statements" in done.err
    assert list(tmp_path.iterdir()) == []


def test_progress_says_how_long_the_stage_still_needs(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        progress = ProgressDisplay()
        progress.handle_sigusr1()
        began = time.monotonic()
        progress.update_stage("convert: reading back", 0, total=4000)
        time.sleep(0.3)
        progress.update_stage("convert: reading back", 1000, total=4000)
        os.kill(os.getpid(), signal.SIGUSR1)
        took = time.monotonic() - began
        said = capsys.readouterr().err
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said.startswith("binlogtool: convert: reading back: 1000 B of 3.9 KiB, ") and " KiB/s, 25 %, " in said
    assert 1 <= int(said.split(", ")[-1].split(" ")[0]) <= 3 * took + 1  # three times as much is left
