"""Statements that change rows without telling which: typed tables do not hold those changes, and say so."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body
from tests.formats.mysql_binlog.server import Server
from tests.pipeline.typed_logs import tables

WRITE, INCIDENT = 23, 26
ROWS = [
    make.event(make.TABLE_MAP, table_map_body(b"\x03")),
    make.event(WRITE, rows_body(1, image([bytes(4)]))),
    make.event(make.XID, bytes(8)),
]
UNTOLD = [
    b"INSERT INTO t VALUES (1)", b"/* app */ update t set a = 1", b"WITH x AS (SELECT 1) DELETE FROM t",
    b"REPLACE t SELECT 1", b"CALL p()", b"SELECT `db`.`f`(1)", b"LOAD DATA INFILE 'x' INTO TABLE t",
    b"CREATE TABLE t2 AS SELECT * FROM t", b"CREATE OR REPLACE TABLE t2 (a INT) select 1 as a",
]  # fmt: skip
TOLD = [
    b"CREATE TABLE t2 (a INT COMMENT 'SELECT')", b"CREATE TABLE `select` (a INT)", b"ALTER TABLE t ADD b INT",
    b"CREATE VIEW v AS SELECT 1", b"GRANT SELECT ON db.* TO x", b"SAVEPOINT `insert`",
]  # fmt: skip


def read(events: list[bytes], tmp_path: Path, backend: str) -> tuple[list[dict[str, Any]], int]:
    """The rows that belong to no table, and how many others there are."""
    log = tmp_path / "log.000001"
    gtid = [make.event(make.GTID, make.mariadb_gtid(1))]
    log.write_bytes(make.log([*gtid, *ROWS, *gtid, *events, *gtid, *ROWS]))
    found, done = tables(log, tmp_path / backend, backend=backend)
    strays = found.pop("DAMAGE", [])
    assert sum(done.finding_counts.values()) == len(strays)
    return strays, sum(map(len, found.values()))


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize("sql", UNTOLD)
def test_a_statement_that_changes_rows_is_told_with_its_place(sql: bytes, tmp_path: Path, backend: str) -> None:
    strays, count = read([make.event(make.QUERY, make.query(sql)), ROWS[2]], tmp_path, backend)
    (row,) = strays
    (finding,) = json.loads(row["findings"])
    assert (row["op"], row["txn"], row["record"], row["commit"]) == ("QUERY", "0-1-1", 6, False)
    assert finding["severity"] == "error" and "changes rows, and the log does not tell which" in finding["message"]
    assert count == 2


def test_missing_rows_are_no_success_unless_that_is_accepted(tmp_path: Path) -> None:
    log, out = tmp_path / "log.000001", str(tmp_path / "out")
    events = [make.event(make.QUERY, make.query(UNTOLD[0])), ROWS[2]]
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *ROWS, *events]))
    words = ["convert", "--to", "parquet", "--per-table", "--overwrite", "-o", out, str(log)]
    seen, accepted = invoke(*words), invoke(*words, "--on-damage", "skip")
    assert (seen.code, accepted.code) == (1, 0)
    assert "lost   1 record whose rows the log does not tell" in seen.text and "--on-damage skip accepts" in seen.text
    assert "wrote  " in seen.text and "lost   1 record" in accepted.text and "accepts" not in accepted.text


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize("sql", TOLD)
def test_other_statements_are_not(sql: bytes, tmp_path: Path, backend: str) -> None:
    assert read([make.event(make.QUERY, make.query(sql)), ROWS[2]], tmp_path, backend) == ([], 2)


@pytest.mark.parametrize("backend", ["native", "python"])
def test_events_that_a_server_lost_are_told(tmp_path: Path, backend: str) -> None:
    ((row,), _) = read([make.event(INCIDENT, b"\1\0\4lost")], tmp_path, backend)
    assert row["op"] == "INCIDENT" and "the server lost events here" in row["findings"]


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_a_mariadb_as_it_is_installed_logs_statements_and_they_are_findings() -> None:
    """Its binlog_format is MIXED: the row of UUID() is one, the others are not."""
    script = b"CREATE DATABASE w; USE w; CREATE TABLE t (a VARCHAR(40)); INSERT INTO t VALUES ('x');"
    script += b"INSERT INTO t VALUES (UUID()); UPDATE t SET a = 'y'; CREATE TABLE u SELECT * FROM t"
    options = ("--log-bin=bin", "--server-id=1", "--skip-networking")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options) as server:
        assert server.run(script) == ""
        with binlogtool.open(server.data / "bin.000001") as log:
            rows = log.rows("w.t")
            found = [row["op"] for row in rows]
    assert found == ["INSERT"]
    assert [one.finding.id for one in rows.findings] == ["payload-undecodable"] * 3
