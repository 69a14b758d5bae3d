"""`--where` with scripts, against a real server: exactly the chosen rows are taken back, or written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.errors import UsageError
from binlogtool.formats.base import Hints
from binlogtool.log.select import Selection
from binlogtool.pipeline.jobs import convert
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

TABLES = (
    b"CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, state VARCHAR(9), n INT);CREATE TABLE u (id INT);"
)
ROWS = b"INSERT INTO d.t SELECT seq, IF(seq % 3 = 0, 'x', 'y'), seq FROM seq_1_to_9;"
SCHEMA = Hints(schema=TABLES.decode())
CHANGES = b"UPDATE d.t SET n = -n; INSERT INTO d.u VALUES (1),(2); DELETE FROM d.t WHERE id IN (3, 4);"
UNDO = "object = 'd.t' and before.state = 'x'"
MODES = {"full": 0, "minimal": 0, "compressed": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = ("--skip-networking", "--log-bin=bin", "--binlog-format=ROW", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        yield running


def logged(server: Server, mode: str) -> Path:
    """The log of CHANGES alone, on tables that are as they were before it."""
    server.clear()
    metadata = "FULL" if mode == "full" else "MINIMAL"
    settings = f"SET GLOBAL binlog_row_metadata={metadata}, GLOBAL log_bin_compress={MODES[mode]}"
    for script in (settings.encode() + b", GLOBAL log_bin_compress_min_len=10;", TABLES + ROWS, b"FLUSH BINARY LOGS"):
        assert server.run(script) == ""
    name = server.ask("SHOW MASTER STATUS").split("\t")[0]
    assert server.run(CHANGES + b"FLUSH BINARY LOGS") == ""
    return server.data / name


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("mode", MODES)
def test_an_undo_takes_back_the_chosen_rows_only(mode: str, rows: str, server: Server, tmp_path: Path) -> None:
    log, out = logged(server, mode), tmp_path / "undo.sql"
    hints = None if mode == "full" else SCHEMA
    done = convert([log], "sql-undo", out, selection=Selection(on_damage="stop", where=UNDO), hints=hints, rows=rows)
    assert done.complete, done.findings
    assert server.run(out.read_bytes()) == ""
    expected = [f"{n}\t{'x' if n % 3 == 0 else 'y'}\t{n if n % 3 == 0 else -n}" for n in range(1, 10) if n != 4]
    assert server.ask("SELECT * FROM d.t ORDER BY id").splitlines() == expected
    assert server.ask("SELECT COUNT(*) FROM d.u").split() == ["2"]


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("mode", MODES)
def test_a_script_has_the_chosen_rows_only(mode: str, rows: str, server: Server, tmp_path: Path) -> None:
    log, out = logged(server, mode), tmp_path / "out.sql"
    assert server.run(b"DROP DATABASE d;" + TABLES + ROWS) == ""
    chosen = Selection(on_damage="stop", where="after.n < -4 or object = 'd.u' and after.id = 2")
    done = convert([log], "sql", out, selection=chosen, hints=SCHEMA, rows=rows)
    assert done.complete, done.findings
    assert server.run(out.read_bytes()) == ""
    expected = [f"{n}\t{n if n < 5 else -n}" for n in range(1, 10)]
    assert server.ask("SELECT id, n FROM d.t ORDER BY id").splitlines() == expected
    assert server.ask("SELECT * FROM d.u").split() == ["2"]


def test_a_column_that_the_log_does_not_name_is_refused(server: Server, tmp_path: Path) -> None:
    log, out = logged(server, "minimal"), tmp_path / "undo.sql"
    result = invoke("convert", "--to", "sql-undo", "-o", str(out), "--where", UNDO, str(log))
    assert (result.code, out.exists()) == (1, False)
    assert "d.t: the log has no names of its columns, so --where finds no state; --schema FILE.sql" in result.text
    by_place = ["--where", "object = 'd.t' and before.`@2` = 'x'"]
    assert invoke("convert", "--to", "sql-undo", "-o", str(out), *by_place, str(log)).code == 0
    assert server.run(out.read_bytes()) == ""
    assert server.ask("SELECT id FROM d.t WHERE n > 0").split() == ["3", "6", "9"]


def test_what_counts_records_makes_no_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--limit counts records"):
        convert(["/nonexistent"], "sql", tmp_path / "o", selection=Selection(where="seq = 1", limit=1))
    with pytest.raises(UsageError, match="made of whole transactions"):
        convert(["/nonexistent"], "mysql-binlog", tmp_path / "o", selection=Selection(where="seq = 1"))
