"""What comes after a transaction that is taken back, on a real server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.export.manifest import Manifest
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

TABLES = b"""CREATE DATABASE d; USE d; CREATE TABLE p (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)
 ENGINE=InnoDB;
CREATE TABLE u (id INT PRIMARY KEY); INSERT INTO p VALUES (1),(2); INSERT INTO t VALUES (1,1,1,1),(2,2,2,2);
"""
CHANGE = b"USE d; UPDATE t SET n=n+10;"
REPORTED = {
    "TRUNCATE TABLE t": "TRUNCATE TABLE by transaction",
    "ALTER TABLE t ADD x INT": "ALTER TABLE by transaction",
    "DROP TABLE t": "DROP TABLE by transaction",
    "RENAME TABLE t TO t2": "RENAME TABLE by transaction",
    "SET binlog_format=STATEMENT; UPDATE t SET n=5 WHERE id=1": "d.t: UPDATE by transaction",
    "SET binlog_format=STATEMENT; UPDATE t, u SET t.n=5": "a statement that may change any table",
    "DELETE FROM p WHERE id=1": "d.t: ON DELETE CASCADE of d.p by transaction",
    "UPDATE t SET n=0 WHERE id=2": (
        "d.t: 1 row was changed again later by changes that are not selected: id=2 (UPDATE by"
    ),
    "DELETE FROM t WHERE id=2; INSERT INTO t VALUES (2,0,0,1)": "d.t: 1 row was changed again later",
    "UPDATE t SET id=9 WHERE id=2": "d.t: 1 row was changed again later",
}
"""What comes later, and what is said of it."""
HARMLESS = (
    "UPDATE t SET m=7",
    "INSERT INTO t VALUES (3,3,3,1); DELETE FROM t WHERE id=3",
    "SET binlog_format=STATEMENT; INSERT INTO u VALUES (4)",
    "CREATE TABLE v (id INT); DROP TABLE v",
    "ALTER TABLE u ADD x INT",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = (
        "--skip-networking",
        "--log-bin=bin",
        "--binlog-format=ROW",
        "--server-id=1",
        "--binlog-row-metadata=FULL",
    )
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        yield running


def undone(server: Server, later: str, out: Path) -> Manifest:
    """The undo of CHANGE as statements, chosen by its GTID, in a log that goes on."""
    server.clear()
    assert server.run(b"RESET MASTER") == ""
    assert server.run(TABLES + CHANGE) == ""
    gtid = server.gtids()
    assert server.run(f"USE d; {later}; FLUSH BINARY LOGS".encode()) == ""
    chosen = Selection(on_damage="stop", include_gtids=gtid)
    return convert([server.data / "bin.000001"], "flashback", out, selection=chosen, rows="statements")


@pytest.mark.parametrize("later", REPORTED)
def test_what_may_disturb_an_undo_is_reported(later: str, server: Server, tmp_path: Path) -> None:
    done = undone(server, later, tmp_path / "u.sql")
    assert (done.complete, done.exit_code) == (True, 1)
    assert [REPORTED[later] in one["message"] for one in done.findings].count(True) == 1, done.findings


@pytest.mark.parametrize("later", HARMLESS)
def test_what_leaves_the_rows_alone_is_not_reported(later: str, server: Server, tmp_path: Path) -> None:
    done = undone(server, later, tmp_path / "u.sql")
    assert (done.complete, done.exit_code, done.findings) == (True, 0, ())
    assert server.run((tmp_path / "u.sql").read_bytes()) == ""
    assert server.ask("SELECT id, n FROM d.t WHERE id < 3 ORDER BY id").split() == ["1", "1", "2", "2"]
