"""The dry run of a replay against a real MariaDB server: what it applies, what it has then, how it recovers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

GENERATED = "mysql-binlog/generated"
OPTIONS = (
    "--log-bin=own", "--server-id=99", "--skip-networking", "--binlog-format=ROW", "--sync-binlog=0",
    "--binlog-annotate-row-events=OFF",
)  # fmt: skip

INTACT = (
    "big-transaction", "compressed-events", "domains", "mixed-ddl", "row-full-types", "row-load-data",
    "row-metadata-full", "row-minimal-types", "row-noblob-rowsquery", "savepoint-nontrans-row", "xa",
)  # fmt: skip

WITH_STATEMENTS = ("compressed",)

CONFLICTS = {
    "mariadb-11.8/crc-table-map-removed.bin": "a row that was passed over is missing later (error 1032)",
    "mariadb-11.8/crc-transaction-removed.bin": "a row of the removed transaction is missing later (error 1032)",
    "mariadb-11.8/nocrc-transaction-removed.bin": "the same",
    "mariadb-11.8/nocrc-bitflip-row-body.bin": None,
    "mariadb-11.8/nocrc-two-damages.bin": "a changed value that no checksum shows: the row is not found (error 1032)",
    "mariadb-10.11/nocrc-bitflip-row-body.bin": "the same",
}
"""Damaged files that the server stops in because of the rows that it has, which the rules do not know. None: it goes
on, with a changed value that nobody sees."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *OPTIONS) as running:
        yield running


def applied(server: Server, *logs: Path) -> str:
    """Applies logs to the server as if it were new; returns what the client complained about."""
    server.clear()
    assert not server.run(b"RESET MASTER")
    command = ["mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", *map(str, logs)]
    script = subprocess.run(command, capture_output=True, check=False, timeout=60).stdout
    return server.run(script)


def position(server: Server) -> str:
    return server.ask("SELECT @@GLOBAL.gtid_binlog_pos").strip()


def tables(server: Server) -> list[str]:
    query = (
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    )
    shown = server.ask(f"{query} AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')")
    return shown.split()


def rows(server: Server) -> dict[str, int]:
    counts = " UNION ALL ".join(f"SELECT '{name}', COUNT(*) FROM {name}" for name in tables(server))
    lines = [line.split("\t") for line in server.ask(counts).splitlines()] if counts else []
    return {name: int(count) for name, count in lines if int(count)}


def predicted_rows(replayed: Any) -> dict[str, int]:
    return {one.name: one.keys for one in replayed.objects if one.keys and one.name != "(statements)"}


def rows_as_predicted(server: Server, replayed: Any, name: str) -> bool:
    """Statements change rows that only a server knows: where there are any, only the other tables count."""
    real, predicted = rows(server), predicted_rows(replayed)
    if any(word in name for word in WITH_STATEMENTS):
        real = {table: real.get(table, 0) for table in predicted}
    return real == predicted


def damaged(corpus: Path) -> list[str]:
    cases = json.loads((corpus / GENERATED / "damaged/expected.json").read_text())
    names = [case["file"].removeprefix("damaged/") for case in cases]
    return [name for name in names if name.startswith("mariadb") and name.endswith(".bin")]


def test_a_server_ends_with_the_predicted_transactions_and_rows_of_every_damaged_log(
    server: Server, corpus: Path
) -> None:
    checked, stopped = 0, []
    for name in damaged(corpus):
        log = corpus / GENERATED / "damaged" / name
        [replayed] = binlogtool.replay([log])
        complaint = applied(server, log)
        same = position(server) == replayed.position["gtid"] and rows_as_predicted(server, replayed, name)
        refused = "ERROR 1032" in complaint or "ERROR 1146" in complaint
        assert refused == (CONFLICTS.get(name) is not None), (name, complaint)
        assert same != refused, (name, position(server), replayed.position, rows(server), predicted_rows(replayed))
        if complaint and not refused:
            assert replayed.stop is not None, (name, complaint)
            stopped.append(name)
        checked += 1
    assert checked == 48
    assert len(stopped) == 3


@pytest.mark.parametrize("version", ["mariadb-10.11", "mariadb-11.8"])
def test_a_server_ends_with_the_predicted_transactions_and_rows_of_every_intact_log(
    server: Server, corpus: Path, version: str
) -> None:
    for name in INTACT:
        log = corpus / GENERATED / version / name / "mariadb-bin.000001"
        [replayed] = binlogtool.replay([log])
        assert not applied(server, log), name
        assert position(server) == replayed.position["gtid"], name
        assert replayed.is_clean and replayed.stop is None, name
        if name != "mixed-ddl":  # its statements change the same tables as its rows
            assert rows_as_predicted(server, replayed, name), (name, rows(server), predicted_rows(replayed))


FULL_IMAGES = ("big-transaction", "compressed-events", "domains", "row-full-types", "row-metadata-full", "xa")


@pytest.mark.parametrize("name", FULL_IMAGES)
def test_the_rows_that_a_server_ends_with_have_the_predicted_digests(
    server: Server, corpus: Path, tmp_path: Path, name: str
) -> None:
    """The server itself writes the rows of its tables into a new log; their digest is the oracle."""
    log = corpus / GENERATED / "mariadb-10.11" / name / "mariadb-bin.000001"
    [replayed] = binlogtool.replay([log])
    assert not applied(server, log)
    names = "FULL" if name == "row-metadata-full" else "NO_LOG"
    assert not server.run(f"SET GLOBAL binlog_row_metadata={names}; RESET MASTER".encode())
    for table in tables(server):
        assert not server.run(rewritten(server, table).encode()), table
    [read] = binlogtool.replay([own_log(server, tmp_path)])
    wanted = {one.name: (one.keys, one.digest) for one in replayed.objects if one.keys}
    found = {one.name: (one.keys, one.digest) for one in read.objects if one.keys}
    wanted.pop("(statements)"), found.pop("(statements)")
    found = {table: found[table] for table in wanted} if name == "compressed-events" else found
    assert found == wanted and wanted


DEFINITIONS = b"""
CREATE DATABASE r; CREATE DATABASE s; CREATE DATABASE gone; USE r;
CREATE TABLE a (id int primary key, v varchar(20)) ENGINE=InnoDB;
CREATE TABLE b (x int, y varchar(9)) ENGINE=InnoDB;
INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three'); INSERT INTO b VALUES (1, 'x'), (1, 'x'), (2, 'y');
RENAME TABLE a TO moved, b TO s.`odd name`;
UPDATE moved SET v = 'TWO' WHERE id = 2; DELETE FROM s.`odd name` WHERE x = 2; INSERT INTO moved VALUES (4, 'four');
CREATE TABLE a (id int primary key, v varchar(20)) ENGINE=InnoDB; INSERT INTO a VALUES (1, 'new'), (9, 'nine');
ALTER TABLE moved ADD KEY (v), RENAME TO s.again, COMMENT 'rename to x';
UPDATE s.again SET v = CONCAT(v, '!') WHERE id < 3;
RENAME TABLE a TO t, s.again TO a, t TO s.again;
DELETE FROM a WHERE id = 1; UPDATE s.again SET v = 'ten' WHERE id = 9;
CREATE TABLE c LIKE a; INSERT INTO c SELECT * FROM a; UPDATE c SET v = 'changed' WHERE id = 3;
CREATE TABLE d AS SELECT id, v FROM a; CREATE TABLE IF NOT EXISTS a (other int);
INSERT INTO a VALUES (20, 'after'); UPDATE a SET v = 'later' WHERE id = 20;
CREATE TABLE e (id int primary key, v int); INSERT INTO e VALUES (1, 1), (2, 2); TRUNCATE TABLE e;
INSERT INTO e VALUES (2, 3); UPDATE e SET v = 4;
CREATE TABLE gone.x (id int primary key); INSERT INTO gone.x VALUES (1); RENAME TABLE gone.x TO r.kept;
CREATE TABLE gone.x (id int primary key); INSERT INTO gone.x VALUES (2), (3); DROP DATABASE gone;
CREATE TABLE f (id int); INSERT INTO f VALUES (1); CREATE OR REPLACE TABLE f (id int, w int);
INSERT INTO f VALUES (5, 6);
CREATE TABLE g (id int); INSERT INTO g VALUES (7); DROP TABLE g;
"""
"""Every statement that gives rows another name, takes them away, or makes a table of another one."""


def test_tables_that_are_renamed_copied_and_dropped_have_the_predicted_digests(server: Server, tmp_path: Path) -> None:
    server.clear()
    assert not server.run(b"SET GLOBAL binlog_row_metadata=NO_LOG; RESET MASTER")
    assert not server.run(DEFINITIONS)
    [replayed] = binlogtool.replay([own_log(server, tmp_path)])
    assert "not_comparable" not in replayed.details
    assert not server.run(b"RESET MASTER")
    for table in ("r.a", "r.c", "r.d", "r.e", "r.f", "r.kept", "s.again", "s.odd name"):
        assert not server.run(rewritten(server, table).encode()), table
    [read] = binlogtool.replay([own_log(server, tmp_path)])
    wanted, found = (
        {one.name: (one.keys, one.digest) for one in side.objects if one.keys} for side in (replayed, read)
    )
    wanted.pop("(statements)"), found.pop("(statements)")
    assert wanted == found and len(found) == 8


def test_what_cannot_be_followed_is_said(server: Server, tmp_path: Path) -> None:
    server.clear()
    assert not server.run(
        b"RESET MASTER; CREATE DATABASE r; USE r; CREATE TABLE a (id int primary key, v int);"
        b"CREATE TABLE b LIKE a; CREATE TABLE c LIKE a; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1);"
        b"ALTER TABLE a ADD COLUMN w int DEFAULT 5; ALTER TABLE c ADD COLUMN w int; INSERT INTO c VALUES (1, 1, 1);"
        b"RENAME TABLE a TO z; ALTER TABLE b DROP PRIMARY KEY; TRUNCATE TABLE b;"
        b"SET binlog_format=STATEMENT; INSERT INTO c VALUES (2, 2, 2)"
    )
    [replayed] = binlogtool.replay([own_log(server, tmp_path)])
    assert set(replayed.details["not_comparable"]) == {"r.z", "(statements)"}


def rewritten(server: Server, table: str) -> str:
    """A script that makes a table anew out of its own rows."""
    database, _, bare = table.partition(".")
    _, _, definition = server.ask(f"SHOW CREATE TABLE `{database}`.`{bare}`").partition("\t")
    where = f"table_schema = '{database}' AND table_name = '{bare}' AND extra NOT LIKE '%GENERATED%'"
    columns = server.ask(f"SELECT column_name FROM information_schema.columns WHERE {where} ORDER BY ordinal_position")
    names = ", ".join(f"`{column}`" for column in columns.split("\n") if column)
    definition = definition.rstrip("\n").replace("\\n", "\n")
    return f"""USE {database}; SET sql_log_bin=0; RENAME TABLE `{bare}` TO bt_old; SET sql_log_bin=1, sql_mode='';
    SET foreign_key_checks=0; {definition};
    INSERT INTO `{bare}` ({names}) SELECT {names} FROM bt_old; SET sql_log_bin=0; DROP TABLE bt_old;"""


def own_log(server: Server, folder: Path) -> Path:
    """A copy of the server's first log, closed."""
    assert not server.run(b"FLUSH BINARY LOGS")
    data = Path(server.ask("SELECT @@GLOBAL.datadir").strip())
    return Path(shutil.copy(data / "own.000001", folder / "own.000001"))


def test_what_the_server_has_already_is_not_applied_again(server: Server, corpus: Path) -> None:
    log = corpus / GENERATED / "mariadb-10.11/domains/mariadb-bin.000001"
    [whole] = binlogtool.replay([log])
    assert not applied(server, log)
    [again] = binlogtool.replay([log], against={"gtid": position(server)})
    assert again.decisions["applied"] == 0
    assert again.position["gtid"] == whole.position["gtid"]


@pytest.mark.parametrize("torn", [0, 40])
def test_a_server_recovers_from_a_crash_with_the_predicted_transactions(tmp_path: Path, torn: int) -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        folder = Path(name)
        with Server(folder, *OPTIONS) as server:
            assert not server.run(b"CREATE DATABASE d; CREATE TABLE d.t (a int primary key) engine=innodb")
            assert not server.run(b"".join(b"INSERT INTO d.t VALUES (%d);" % number for number in range(20)))
            server.kill()
        log = folder / "data" / "own.000001"
        os.truncate(log, log.stat().st_size - torn)
        [replayed] = binlogtool.replay([Path(shutil.copy(log, tmp_path / "own.000001"))])
        recovery = replayed.details["crash_recovery"]
        assert replayed.starts and recovery["needed"] and recovery["cut_at"] is None
        size = log.stat().st_size
        with Server(folder, *OPTIONS) as server:
            assert position(server) == recovery["gtid"]
            assert [one for one, _ in server.logs()] == ["own.000001", recovery["goes_on_in"]]
        assert log.stat().st_size == size, "MariaDB leaves the torn file as it is"
    assert recovery["gtid"] == f"0-99-{22 - (torn > 0)}"
    assert recovery["rolled_back"] == ("0-99-22" if torn else None)
    assert (recovery["torn_bytes"] > 0) == bool(torn)
