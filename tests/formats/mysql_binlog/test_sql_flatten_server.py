"""`--transactions flatten` on MySQL 9: CREATE TABLE … SELECT is logged as CREATE TABLE … START TRANSACTION with its
rows, and a server takes nothing but these and COMMIT after it (ERROR 3977)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of
from tests.harness.mysql_writer import MYSQL, Made, begun, binlog, query, rows, table_map

FLAT = ("--transactions", "flatten", "--on-damage", "stop")
SETUP = b"""CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 1), (2, 2);
CREATE TABLE q AS SELECT * FROM t; INSERT INTO q VALUES (3, 3);
CREATE TABLE r (id INT PRIMARY KEY) SELECT id FROM t;
BEGIN; INSERT INTO t VALUES (4, 4); DELETE FROM q WHERE id=1; COMMIT;
"""


def test_a_table_that_is_made_with_its_rows_keeps_its_transaction(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    status = b"\1" + bytes(8)
    create = begun(query(b"CREATE TABLE `t` (`a` int) START TRANSACTION", b"d", status), *_rows(), number=1)
    log.write_bytes(binlog([*create, *begun(*_rows(), number=2)], MYSQL))
    made = invoke("dump", "-O", "sql", *FLAT, str(log))
    assert (made.code, made.err) == (0, "")
    assert made.text.count("COMMIT\n") == 1 and "BEGIN\n" not in made.text
    assert made.text.index("START TRANSACTION\n") < made.text.index("COMMIT\n") < made.text.rindex("BINLOG '")


def _rows() -> list[Made]:
    return [table_map(b"\3"), rows(b"\0\1\0\0\0", 1)]


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["exact", "statements"])
def test_a_flat_script_of_create_table_select_is_taken_by_mysql(how: str, tmp_path: Path) -> None:
    programs = programs_of("mysql-9")
    if programs is None:
        pytest.skip("make it with .ci/server-tree mysql-9")
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1", "--binlog-row-metadata=FULL")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    seen = "SELECT * FROM d.t; SELECT * FROM d.q; SELECT * FROM d.r"
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options, programs=programs) as one:
        assert one.run(SETUP) == ""
        expected, name = one.ask(seen), one.logs()[-1][0]
        assert one.run(b"FLUSH BINARY LOGS") == ""
        log = tmp_path / "bin.000001"
        log.write_bytes((one.data / name).read_bytes())
    made = invoke("dump", "-O", "sql", "--rows", how, *FLAT, str(log))
    assert made.code == 0, made.err
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as folder,
        Server(Path(folder), *options, programs=programs) as other,
    ):
        done = other.talk(made.out)
        assert done.stderr == b"" and other.ask(seen) == expected
