"""Statements that change rows without telling which: typed tables do not hold those changes, and say so."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.format_api.format import Hints
from tests.cli.invoke import invoke
from tests.export.typed_logs import rows, tables
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body
from tests.formats.mysql_binlog.server import Server

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
    assert finding["severity"] == "error" and "changes rows; the log does not record which" in finding["message"]
    assert count == 2


def test_missing_rows_are_no_success_unless_that_is_accepted(tmp_path: Path) -> None:
    log, out = tmp_path / "log.000001", str(tmp_path / "out")
    events = [make.event(make.QUERY, make.query(UNTOLD[0])), ROWS[2]]
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *ROWS, *events]))
    words = ["convert", "--to", "parquet", "--per-table", "--overwrite", "-o", out, str(log)]
    seen, accepted = invoke(*words), invoke(*words, "--on-damage", "skip")
    assert (seen.code, accepted.code) == (1, 0)
    assert "lost   1 record whose rows are not in the log" in seen.text and "--on-damage skip accepts" in seen.text
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
    assert [one.finding.id for one in rows.findings] == ["rows-not-logged"] * 2  # u is another table


OTHERS = [
    "INSERT INTO other VALUES (1, NOW()), (2, CONCAT('t', 'u'))", "insert ignore `db`.`other` set a = 't'",
    "REPLACE INTO other SELECT a FROM t", "UPDATE other AS o SET a = 1 WHERE a IN (SELECT a FROM t)",
    "DELETE FROM db.other WHERE a = 't'", "LOAD DATA LOCAL INFILE 't' REPLACE INTO TABLE `other` (a)",
    "/* t */ DELETE FROM other", "CREATE TABLE other AS SELECT * FROM t",
]  # fmt: skip
ANY = [
    "INSERT INTO t VALUES (1)", "INSERT INTO DB.T VALUES (1)", "UPDATE t, other SET other.a = 1",
    "UPDATE other JOIN t USING (a) SET t.a = 1", "DELETE other FROM other JOIN t", "DELETE FROM other USING other, t",
    "INSERT INTO other VALUES (f(1))", "INSERT INTO other SELECT db.`f`(1)", "CALL p()", "SELECT f(1)",
    "WITH x AS (SELECT 1) DELETE FROM other", "INSERT INTO other VALUES ('" + "x" * 70_000 + "')",
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize(("sql", "missing"), [*((one, False) for one in OTHERS), *((one, True) for one in ANY)])
def test_rows_of_one_table_are_missing_where_a_statement_can_change_it(
    sql: str, missing: bool, tmp_path: Path, backend: str
) -> None:
    log = tmp_path / "log.000001"
    gtid = make.event(make.GTID, make.mariadb_gtid(1))
    made, event = (make.event(make.QUERY, make.query(one.encode())) for one in ("CREATE TABLE other (a INT)", sql))
    log.write_bytes(make.log([gtid, *ROWS, made, gtid, event, ROWS[2]]))
    name = next(iter(tables(log, tmp_path / "all", backend=backend)[0].keys() - {"DAMAGE"}))
    done = convert(
        [log], "parquet", tmp_path / "one", selection=Selection(objects=(name,), on_damage="stop"), backend=backend
    )
    assert (done.exit_code, done.details.get("untold", 0)) == (int(missing), int(missing))
    assert [row["op"] for row in rows(tmp_path / "one")] == ["INSERT"] + ["QUERY"] * missing
    told = [one for one in done.details.get("remarks", ()) if "a statement changes rows of db.other" in one]
    assert len(told) == (not missing)


@pytest.mark.parametrize("target", ["jsonl", "parquet"])
@pytest.mark.parametrize("envelope", ["debezium", "maxwell", "canal"])
@pytest.mark.parametrize(
    ("sql", "missing"), [(OTHERS[0], False), (OTHERS[-1], False), (ANY[0], True), (ANY[1], True), (ANY[-1], True)]
)
def test_messages_of_one_table_are_missing_where_a_statement_can_change_it(
    sql: str, missing: bool, envelope: str, target: str, tmp_path: Path
) -> None:
    log, schema, out = tmp_path / "log.000001", tmp_path / "schema.sql", tmp_path / "out"
    schema.write_text("CREATE TABLE db.t (a INT PRIMARY KEY);")
    gtid = make.event(make.GTID, make.mariadb_gtid(1))
    made, event = (make.event(make.QUERY, make.query(one.encode())) for one in ("CREATE TABLE other (a INT)", sql))
    log.write_bytes(make.log([gtid, *ROWS, made, gtid, event, ROWS[2]]))
    words = ("convert", "--to", target, "--envelope", envelope, "--schema", str(schema), "-o", str(out))
    one = invoke(*words, "--object", "db.t", str(log))
    assert (one.code, out.exists()) == (int(missing), not missing), one.text
    assert ("note   " in one.text and "changes rows of db.other, which is not selected" in one.text) is not missing
    whole = invoke(*words, "--overwrite", str(log))
    assert (whole.code, "the log does not record which" in whole.text) == (1, True)


def test_messages_of_one_table_need_no_names_of_the_columns_of_others(tmp_path: Path) -> None:
    log, schema, out = tmp_path / "log.000001", tmp_path / "schema.sql", tmp_path / "out"
    schema.write_text("CREATE TABLE db.other (a INT PRIMARY KEY);")
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *ROWS]))
    words = ("convert", "--to", "jsonl", "--envelope", "maxwell", "--schema", str(schema), "-o", str(out))
    assert invoke(*words, "--object", "db.t", str(log)).code == 1
    assert invoke(*words, "--object", "db.other", str(log)).code == 0


@pytest.mark.parametrize("sql", ["INSERT INTO other VALUES (1)", "UPDATE other SET a = 1"])
@pytest.mark.parametrize("before", ["CREATE VIEW other AS SELECT * FROM t", "CREATE TABLE another (a INT)"])
def test_what_may_be_a_view_can_change_any_table(tmp_path: Path, sql: str, before: str) -> None:
    log, schema = tmp_path / "log.000001", "CREATE TABLE db.other (a INT);"
    events = [make.event(make.QUERY, make.query(one.encode())) for one in (before, sql)]
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *ROWS, *events, ROWS[2]]))
    name = next(iter(tables(log, tmp_path / "all")[0].keys() - {"DAMAGE"}))
    done = convert([log], "parquet", tmp_path / "one", selection=Selection(objects=(name,), on_damage="stop"))
    assert (done.exit_code, done.details["untold"]) == (1, 1)
    hints, chosen = Hints(schema=schema), Selection(objects=(name,), on_damage="stop")
    done = convert([log], "parquet", tmp_path / "two", selection=chosen, hints=hints)
    assert (done.exit_code, done.details.get("untold", 0)) == (0, 0)


def test_a_trigger_that_the_log_defines_can_change_any_table(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    sql = [b"CREATE TRIGGER g AFTER INSERT ON other FOR EACH ROW DELETE FROM t", b"INSERT INTO other VALUES (1)"]
    events = [make.event(make.QUERY, make.query(one)) for one in sql]
    log.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *ROWS, *events, ROWS[2]]))
    name = next(iter(tables(log, tmp_path / "all")[0].keys() - {"DAMAGE"}))
    done = convert([log], "parquet", tmp_path / "one", selection=Selection(objects=(name,), on_damage="stop"))
    assert (done.exit_code, done.details["untold"]) == (1, 1)


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_of_a_mixed_log_of_a_server_the_rows_of_a_table_that_no_statement_changes_are_whole(tmp_path: Path) -> None:
    options = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-row-metadata=FULL")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options) as server:
        script = """CREATE DATABASE w; USE w; CREATE TABLE a (i INT PRIMARY KEY); CREATE TABLE b (i INT PRIMARY KEY);
        SET SESSION binlog_format = ROW; INSERT INTO a VALUES (1), (2); UPDATE a SET i = 3 WHERE i = 1;
        SET SESSION binlog_format = MIXED; INSERT INTO b VALUES (1), (2); DELETE FROM b WHERE i = 2"""
        assert server.run(script.encode()) == ""
        wanted = server.ask("SELECT i FROM w.a ORDER BY i").split()
        log = server.data / "bin.000001"
        whole = convert([log], "parquet", tmp_path / "a", selection=Selection(objects=("w.a",), on_damage="stop"))
        missing = convert([log], "parquet", tmp_path / "both", selection=Selection(objects=("w.*",), on_damage="stop"))
    assert (whole.exit_code, missing.exit_code, missing.details["untold"]) == (0, 1, 2)
    held = set()
    for row in rows(tmp_path / "a"):
        held = held - {1} if row["op"] == "UPDATE" else held
        held.add(row["i"])
    assert sorted(map(str, held)) == wanted
