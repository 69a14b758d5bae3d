"""Rows of tables against servers where events alone do not say all: JSON of which parts were logged, sequences."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of

OPTIONS = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-format=ROW")


@pytest.mark.nightly
def test_json_that_an_update_left_alone_is_that_of_before(tmp_path: Path) -> None:
    programs = programs_of("mysql-9")
    if programs is None:
        pytest.skip("no tree mysql-9")
    script = """CREATE DATABASE w; USE w; CREATE TABLE t (id INT PRIMARY KEY, j JSON, v INT);
    INSERT INTO t VALUES (1, '{"a": 1, "b": "a long text that is kept"}', 1); UPDATE t SET v = 2"""
    options = (*OPTIONS, "--binlog-row-value-options=PARTIAL_JSON", "--binlog-row-metadata=FULL")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options, programs=programs) as server:
        assert server.run(script.encode()) == ""
        wanted = json.loads(server.ask("SELECT j FROM w.t"))
        log = server.data / "bin.000001"
        with binlogtool.open(log) as opened:
            (_, update), (_, change) = opened.rows("w.t"), opened.rows("w.t", image="changes")
        done = invoke("convert", "--to", "jsonl", "--envelope", "debezium", "-o", str(tmp_path / "out"), str(log))
    assert json.loads(update["j"]) == wanted and update["v"] == 2
    assert (change["changed"], change["j"]) == (["v"], None)
    assert done.code == 0
    last = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    assert json.loads(last["value"]["after"]["j"]) == wanted


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_a_sequence_that_the_log_creates_has_names_of_columns(tmp_path: Path) -> None:
    """binlog_row_metadata is NO_LOG, as it is by default: its maps name nothing."""
    script = """CREATE DATABASE w; USE w; CREATE TABLE t (id INT PRIMARY KEY); CREATE SEQUENCE s START WITH 5;
    INSERT INTO t VALUES (NEXTVAL(s)), (6)"""
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *OPTIONS) as server:
        assert server.run(script.encode()) == ""
        said = server.ask("SELECT next_not_cached_value, increment, cache_size FROM w.s").split()
        log = server.data / "bin.000001"
        done = invoke("convert", "--to", "jsonl", "--envelope", "maxwell", "-o", str(tmp_path / "out"), str(log))
        with binlogtool.open(log) as opened:
            row = list(opened.rows("w.s"))[-1]
    assert done.code == 0, done.text
    assert [str(row[name]) for name in ("next_not_cached_value", "increment", "cache_size")] == said
