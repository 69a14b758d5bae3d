"""`convert` on the command line: its targets' options, what is told when nothing is written, and the progress."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from binlogtool.terminal.progress_display import ProgressDisplay
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make

LATER = Path(__file__).parent.parent / "corpus/mysql_binlog/undo/changed-later.000016"


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


def test_rows_that_a_truncate_removed_are_no_table_definition(truncated: Path, tmp_path: Path) -> None:
    """With --skip-ddl the script of a whole log is written, with status 1; one of the TRUNCATE alone is not."""
    lost = "the rows that it removed cannot be brought back from this log"
    refused = invoke("flashback", "--object", "db.t", str(truncated))
    assert (refused.code, refused.out) == (1, b"")
    assert lost in refused.err
    only = invoke("flashback", "--skip-ddl", "--object", "db.t", str(truncated))
    assert (only.code, only.out) == (2, b"")
    assert "TRUNCATE TABLE (db.t) is not reversed because of --skip-ddl; " + lost in only.err
    (tmp_path / "q.000001").write_bytes(
        LATER.read_bytes()
        + make.event(make.GTID, make.mariadb_gtid(7797, flags=1))
        + make.event(make.QUERY, make.query(b"truncate table acc", db=b"shop"))
    )
    written = invoke(
        "flashback", "--skip-ddl", "--start-position", "gtid:0-1-7793", "-o", str(tmp_path / "f.sql"),
        str(tmp_path / "q.000001"),
    )  # fmt: skip
    assert written.code == 1
    assert f"TRUNCATE TABLE (shop.acc) is not reversed because of --skip-ddl; {lost}" in written.text
    assert (tmp_path / "f.sql").exists()


def test_the_hint_does_not_name_an_option_that_was_given(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    gtid = make.event(make.GTID, make.mariadb_gtid(7, flags=1))
    log.write_bytes(make.log([gtid, make.event(make.QUERY, make.query(b"delete from t"))]))
    done = invoke("flashback", "--skip-ddl", "-o", str(tmp_path / "u.sql"), str(log))
    assert (done.code, "nothing was written" in done.text) == (1, True)
    assert "--skip-ddl" not in done.text


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
