"""`--where` with scripts, against a real server: exactly the chosen rows are taken back, or written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.format_api.format import Hints
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
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = ("--skip-networking", "--log-bin=bin", "--binlog-format=ROW", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        yield running


def logged(server: Server, mode: str, changes: bytes = CHANGES) -> Path:
    """The log of changes alone, on tables that are as they were before it."""
    server.clear()
    metadata = "FULL" if mode == "full" else "MINIMAL"
    settings = f"SET GLOBAL binlog_row_metadata={metadata}, GLOBAL log_bin_compress={MODES[mode]}"
    for script in (settings.encode() + b", GLOBAL log_bin_compress_min_len=10;", TABLES + ROWS, b"FLUSH BINARY LOGS"):
        assert server.run(script) == ""
    name = server.ask("SHOW MASTER STATUS").split("\t")[0]
    assert server.run(changes + b"FLUSH BINARY LOGS") == ""
    return server.data / name


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("mode", MODES)
def test_an_undo_takes_back_the_chosen_rows_only(mode: str, rows: str, server: Server, tmp_path: Path) -> None:
    log, out = logged(server, mode), tmp_path / "undo.sql"
    hints = None if mode == "full" else SCHEMA
    done = convert([log], "flashback", out, selection=Selection(on_damage="stop", where=UNDO), hints=hints, rows=rows)
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


LATER = (
    (
        "UPDATE d.t SET n = -n; UPDATE d.t SET state = 'z' WHERE id IN (3, 6);",
        "object = 'd.t' and before.n > 0",
        "d.t",
        2,
    ),
    ("DELETE FROM d.t WHERE id = 5; INSERT INTO d.t VALUES (5, 'new', 0);", "before.id = 5", "d.t", 1),
    ("INSERT INTO d.t VALUES (20, 'a', 0); DELETE FROM d.t WHERE id = 20;", "after.id = 20", "d.t", 1),
    ("UPDATE d.t SET id = 30 WHERE id = 7; UPDATE d.t SET n = 0 WHERE id = 30;", "before.id = 7", "d.t", 1),
    ("INSERT INTO d.u VALUES (1),(2); UPDATE d.u SET id = 4 WHERE id = 2;", "before.id = 7 or after.id = 2", "d.u", 1),
)
"""Changes, a condition, and how many rows of which table were changed again later by what it does not choose."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("changes", "where", "table", "rows"), LATER)
def test_an_undo_tells_of_chosen_rows_that_were_changed_later(
    changes: str, where: str, table: str, rows: int, mode: str, server: Server, tmp_path: Path
) -> None:
    log, out = logged(server, mode, changes.encode()), tmp_path / "undo.sql"
    done = convert([log], "flashback", out, selection=Selection(on_damage="stop", where=where), hints=SCHEMA)
    (found,) = done.findings
    assert (found["id"], found["severity"]) == ("changed-later", "warning")
    assert found["message"].startswith(f"{table}: {rows} row{'s were' if rows > 1 else ' was'} changed again later")
    assert f"{log.name}:" in found["message"]
    (tmp_path / "schema.sql").write_bytes(TABLES)
    words = ["-o", str(tmp_path / "again.sql"), "--where", where, "--schema", str(tmp_path / "schema.sql"), str(log)]
    said = invoke("flashback", *words)
    assert said.code == 1 and "changed again later by changes that are not selected" in said.text


@pytest.mark.parametrize("where", ["object = 'd.t'", "object = 'd.u'", "before.id = 4", "after.id > 5"])
def test_a_whole_history_is_no_reason_to_warn(where: str, server: Server, tmp_path: Path) -> None:
    changes = (
        b"UPDATE d.t SET n = 1 WHERE id = 4; UPDATE d.t SET n = 2 WHERE id = 4; UPDATE d.t SET n = 3 WHERE id = 9;"
    )
    log, out = (
        logged(server, "full", changes + b"INSERT INTO d.u VALUES (7), (7); DELETE FROM d.t WHERE id = 1;"),
        tmp_path,
    )
    done = convert([log], "flashback", out / "u", selection=Selection(on_damage="stop", where=where), hints=SCHEMA)
    assert done.complete and not done.findings


def test_a_column_that_the_log_does_not_name_is_refused(server: Server, tmp_path: Path) -> None:
    log, out = logged(server, "minimal"), tmp_path / "undo.sql"
    result = invoke("flashback", "-o", str(out), "--where", UNDO, str(log))
    assert (result.code, out.exists()) == (1, False)
    words = "d.t: the log has no column names, so --where cannot find state; add --schema FILE.sql"
    assert words in result.text
    by_place = ["--where", "object = 'd.t' and before.`@2` = 'x'"]
    assert invoke("flashback", "-o", str(out), *by_place, str(log)).code == 0
    assert server.run(out.read_bytes()) == ""
    assert server.ask("SELECT id FROM d.t WHERE n > 0").split() == ["3", "6", "9"]


def test_what_counts_records_makes_no_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--limit counts records"):
        convert(["/nonexistent"], "sql", tmp_path / "o", selection=Selection(where="seq = 1", limit=1))
    with pytest.raises(UsageError, match="whole transactions are needed for a log"):
        convert(["/nonexistent"], "mysql-binlog", tmp_path / "o", selection=Selection(where="seq = 1"))
