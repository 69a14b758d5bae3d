"""Rows that a foreign key changes without an event: a note, once for each table; held against servers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import ROWS_DIVERGE
from binlogtool.formats.binlog_events.ddl.parse_ddl import parse_ddl
from binlogtool.formats.binlog_events.ddl.table_dependencies import ForeignKeys
from tests.cli.invoke import invoke
from tests.export.typed_logs import tables
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

SCHEMA = """CREATE DATABASE w; USE w; CREATE TABLE p (id INT PRIMARY KEY, v INT);
CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE g (id INT PRIMARY KEY, c INT, CONSTRAINT x FOREIGN KEY (c) REFERENCES w.c (id) ON DELETE SET NULL);
CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT);
INSERT INTO p VALUES (1, 1), (2, 2), (3, 3); INSERT INTO c VALUES (10, 1), (20, 2), (30, 3);
INSERT INTO g SELECT id + 100, id FROM c; INSERT INTO r VALUES (5, 3); UPDATE p SET v = 7 WHERE id = 2;
SET foreign_key_checks = 0; DELETE FROM p WHERE id = 3; INSERT INTO p VALUES (3, 3); SET foreign_key_checks = 1;
"""
CHANGES = "UPDATE p SET id = 9 WHERE id = 2; DELETE FROM p WHERE id IN (1, 9)"


def told(log: Path, folder: Path) -> list[str]:
    """The tables of the notes, by either engine."""
    made = []
    folder.mkdir()
    for backend in ("native", "python"):
        found, done = tables(log, folder / backend, backend=backend)
        made.append([f["facts"]["table"] for f in done.findings if f["id"] == ROWS_DIVERGE])
        assert done.exit_code == 0 and "DAMAGE" not in found
    assert made[0] == made[1]
    return made[0]


def is_told_where_rows_are_missing(programs: Programs | None, folder: Path, *options: str) -> tuple[bool, list[str]]:
    """Do rows of c that the server has not any more stand in the log as if it had? And of which tables is it said."""
    options = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-row-metadata=FULL", *options)
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as home,
        Server(Path(home), "--binlog-format=ROW", *options, programs=programs) as server,
    ):
        assert server.run(SCHEMA.encode()) == ""
        log = server.data / "bin.000001"
        assert told(log, folder / "before") == []
        assert server.run(f"USE w; {CHANGES}".encode()) == ""
        there = {int(one) for one in server.ask("SELECT id FROM w.c").split()}
        assert there == {30} and server.ask("SELECT c FROM w.g WHERE id = 110") == "NULL\n"
        with binlogtool.open(log) as opened:
            held = set[int]()
            for row in opened.rows("w.c"):
                (held.discard if row["op"] == "DELETE" else held.add)(row["id"])
        names = told(log, folder / "after")
        out, words = folder / "out", ("convert", "--to", "jsonl", "--envelope", "maxwell", "-o")
        seen = invoke(*words, str(out), "--object", "w.c", str(log))
        assert seen.code == 0 and (f"note   {log}  {ROWS_DIVERGE}: rows of w.c may change" in seen.text) is bool(names)
        assert ROWS_DIVERGE not in invoke(*words, str(out), "--overwrite", "--object", "w.r", str(log)).text
        return held != there, names


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_mariadb_logs_no_rows_of_cascades_and_that_is_told(tmp_path: Path) -> None:
    assert is_told_where_rows_are_missing(None, tmp_path) == (True, ["w.c", "w.g"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tree", "option", "missing"),
    [("mariadb-11.8", "--sync-binlog=0", True), ("mysql-9", "--innodb-native-foreign-keys=ON", True),
     ("mysql-9", "--innodb-native-foreign-keys=OFF", False)],
)  # fmt: skip
def test_of_other_servers_it_is_told_where_rows_are_missing(
    tree: str, option: str, missing: bool, tmp_path: Path
) -> None:
    assert tree in TREES
    programs = programs_of(tree)
    if programs is None:
        pytest.skip(f"no tree {tree}")
    assert is_told_where_rows_are_missing(programs, tmp_path, option) == (missing, ["w.c", "w.g"] if missing else [])


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
         [("d.c", "d.p", "CASCADE", "")]),
        ("CREATE TABLE c (p INT REFERENCES `o`.p (id) ON UPDATE SET NULL)", [("d.c", "o.p", "", "SET NULL")]),
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) ENGINE=MyISAM", []),
        ("CREATE TABLE c (p INT, t TEXT COMMENT 'REFERENCES p (id) ON DELETE CASCADE')", []),
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET DEFAULT)", [("d.c", "d.p", "", "")]),
        ("ALTER TABLE c ADD q INT, ADD FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL",
         [("d.c", "d.p", "SET NULL", "CASCADE")]),
    ],
)  # fmt: skip
def test_keys_are_those_of_the_statement(sql: str, wanted: list[tuple[str, ...]]) -> None:
    found = ForeignKeys()
    found.apply_statement(parse_ddl(sql, "d"))
    assert [(key.child, key.parent, key.on_delete, key.on_update) for key in found.keys] == wanted


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE c DROP FOREIGN KEY f", "ALTER TABLE d.c DROP CONSTRAINT F", "DROP TABLE x, c",
            "DROP DATABASE d", "CREATE OR REPLACE TABLE c (p INT)", "ALTER TABLE c DROP FOREIGN KEY IF EXISTS f"],
)  # fmt: skip
def test_a_key_goes_with_its_statement(sql: str) -> None:
    found = ForeignKeys()
    found.apply_statement(
        parse_ddl("CREATE TABLE c (p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)", "d")
    )
    assert len(found.keys) == 1 and [key.child for key, _ in found.iter_cascading_keys("d.p", None)] == ["d.c"]
    found.apply_statement(parse_ddl(sql, "d"))
    assert not found.keys


def test_keys_go_on_from_table_to_table_as_far_as_their_actions_do() -> None:
    found = ForeignKeys()
    for name, of, actions in (
        ("b", "a", "ON DELETE CASCADE"), ("c", "b", "ON DELETE SET NULL"), ("e", "c", "ON DELETE CASCADE"),
        ("f", "c", "ON UPDATE CASCADE"), ("a", "f", "ON UPDATE CASCADE ON DELETE CASCADE"),
    ):  # fmt: skip
        found.apply_statement(
            parse_ddl(f"CREATE TABLE {name} (k INT, FOREIGN KEY (k) REFERENCES {of} (k) {actions})", "d")
        )
    assert [key.child for key, _ in found.iter_cascading_keys("d.a", None)] == ["d.b", "d.c", "d.f", "d.a"]
    assert [key.child for key, _ in found.iter_cascading_keys("d.a", frozenset({"k"}))] == []
    assert [key.child for key, _ in found.iter_cascading_keys("d.c", frozenset({"other"}))] == []


def test_a_statement_of_the_user_without_a_database_is_one_of_any() -> None:
    found = ForeignKeys()
    found.apply_statement(parse_ddl("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)", ""))
    assert [(key.child, action) for key, action in found.iter_cascading_keys("d.p", None)] == [
        ("d.c", "ON DELETE CASCADE")
    ]


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [("DELETE FROM p", True), ("/* a */ replace into p values (1)", True), ("UPDATE p SET id = 2", False),
     ("INSERT INTO p VALUES (1)", False)],
)  # fmt: skip
def test_a_statement_on_a_parent_is_told_like_its_rows(sql: str, wanted: bool, tmp_path: Path) -> None:
    log, out, schema = tmp_path / "log.000001", str(tmp_path / "out"), tmp_path / "schema.sql"
    schema.write_text(
        "USE db; CREATE TABLE p (id INT PRIMARY KEY);"
        "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE)"
    )
    gtid = make.event(make.GTID, make.mariadb_gtid(1))
    events = [make.event(make.TABLE_MAP, table_map_body(b"\x03")), make.event(23, rows_body(1, image([bytes(4)])))]
    statement = make.event(make.QUERY, make.query(sql.encode()))
    log.write_bytes(make.log([gtid, *events, make.event(make.XID, bytes(8)), gtid, statement]))
    words = ("--object", "db.t", "--schema", str(schema), "--overwrite", "-o", out, str(log))
    for target in (("json",), ("jsonl", "--envelope", "canal")):
        done = invoke("convert", "--to", *target, *words)
        assert (done.code, f"{ROWS_DIVERGE}: rows of db.t may change" in done.text) == (0, wanted), done.text + done.err


@pytest.mark.parametrize(
    ("code", "flags", "key", "wanted"),
    [
        (25, 0, "ON DELETE CASCADE", "ON DELETE CASCADE"), (25, 0, "ON DELETE SET NULL", "ON DELETE SET NULL"),
        (25, 0, "ON DELETE RESTRICT", None), (25, 0, "ON UPDATE CASCADE", None), (23, 0, "ON DELETE CASCADE", None),
        (25, 2, "ON DELETE CASCADE", None), (25, 16, "ON DELETE CASCADE", None),
    ],
)  # fmt: skip
def test_a_flashback_reports_rows_that_a_foreign_key_may_have_changed(
    code: int, flags: int, key: str, wanted: str | None, tmp_path: Path
) -> None:
    """2: foreign_key_checks was off; 16: MySQL followed the key in SQL, so that its rows are in the log."""
    log, out, schema = tmp_path / "log.000001", str(tmp_path / "out"), tmp_path / "schema.sql"
    schema.write_text(
        "USE db; CREATE TABLE t (a INT PRIMARY KEY);"
        f"CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES t (a) {key})"
    )
    gtid, table = make.event(make.GTID, make.mariadb_gtid(1)), make.event(make.TABLE_MAP, table_map_body(b"\x03"))
    rows = make.event(code, rows_body(1, image([bytes(4)]), flags=flags))
    log.write_bytes(make.log([gtid, table, rows, make.event(make.XID, bytes(8))]))
    done = invoke("flashback", "--schema", str(schema), "-o", out, str(log))
    text = f"not-reversible: transaction 0-1-1: rows of db.c may have changed by its foreign key to db.t ({wanted}); "
    assert (done.code, text in done.text) == ((0, False) if wanted is None else (1, True)), done.text + done.err
    assert Path(out).read_bytes().count(b"BINLOG") > 0


def test_a_table_that_only_statements_change_is_no_table_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    statement = make.event(make.QUERY, make.query(b"INSERT INTO t VALUES (1)"))
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), statement]))
    done = invoke(
        "convert", "--to", "json", "--object", "db.t", "--on-damage", "skip", "-o", str(tmp_path / "out"), str(log)
    )
    assert (
        done.code == 2
        and "it has none (because of binlog_format it also lacks the rows that 1 statement changed)" in done.err
    )


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
@pytest.mark.parametrize("rows", ["exact", "statements"])
def test_a_flashback_does_not_restore_rows_of_cascades_and_says_so(rows: str, tmp_path: Path) -> None:
    options = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-format=ROW")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options) as server:
        assert server.run(SCHEMA.encode()) == ""
        here = int(server.logs()[-1][1])
        assert server.run(b"USE w; DELETE FROM p WHERE id = 1") == ""
        words = ("flashback", "--rows", rows, "-j", str(here), "-o", str(tmp_path / "out"))
        done = invoke(*words, str(server.data / "bin.000001"))
        assert done.code == 1 and [
            f"not-reversible: transaction {server.gtids()}: rows of w.{child} may have changed by its foreign key to "
            f"w.{parent} ({action}); no event records which, so the script does not restore them" in done.text
            for child, parent, action in (("c", "p", "ON DELETE CASCADE"), ("g", "c", "ON DELETE SET NULL"))
        ] == [True, True], done.text  # fmt: skip
        assert server.run((tmp_path / "out").read_bytes()) == ""
        assert server.ask("SELECT id FROM w.p ORDER BY id").split() == ["1", "2", "3"]
        assert server.ask("SELECT id FROM w.c ORDER BY id").split() == ["20", "30"]


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_rows_that_were_rolled_back_are_told_with_their_transaction(tmp_path: Path) -> None:
    """MariaDB logs a rollback where a statement that cannot be taken back is in the transaction; of XA each part."""
    script = """CREATE DATABASE w; USE w; CREATE TABLE t (id INT PRIMARY KEY);
    XA START 'y'; INSERT INTO t VALUES (2); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y';
    BEGIN; INSERT INTO t VALUES (3); CREATE TEMPORARY TABLE q (i INT); ROLLBACK;
    XA START 'z'; INSERT INTO t VALUES (4); XA END 'z'; XA PREPARE 'z'; XA COMMIT 'z'; INSERT INTO t VALUES (5)"""
    options = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-row-metadata=FULL")
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as home,
        Server(Path(home), "--binlog-format=ROW", *options) as server,
    ):
        assert server.run(script.encode()) == ""
        assert server.ask("SELECT id FROM w.t").split() == ["4", "5"]
        log = server.data / "bin.000001"
        for backend in ("native", "python"):
            found, done = tables(log, tmp_path / backend, backend=backend)
            told = [f["message"].partition(": ")[2] for f in done.findings if f["id"] == ROWS_DIVERGE]
            assert told == [
                "XA ROLLBACK X'79',X'',1: the transaction was rolled back, but the log still has its prepared rows",
                "this transaction was rolled back, but the log still has its rows",
            ]
            assert {row["id"]: row["commit"] for row in found["w.t"]} == {2: True, 3: False, 4: True, 5: True}
            assert done.exit_code == 0 and "DAMAGE" not in found
        seen = invoke("convert", "--to", "jsonl", "--envelope", "canal", "-o", str(tmp_path / "out"), str(log))
        assert seen.code == 0 and seen.text.count(f"{ROWS_DIVERGE}: ") == 2
