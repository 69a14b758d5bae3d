"""`dump -O sql` against a real server: what it makes of our script is what it makes of `mariadb-binlog`'s."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

FOLDER = "mysql-binlog/generated/mariadb-10.11"
NAME = "mariadb-bin.000001"
WHOLE = (
    "big-transaction", "checksum-switch", "domains", "mixed-ddl", "row-full-types", "row-load-data",
    "row-minimal-types", "row-noblob-rowsquery", "savepoint-nontrans-row", "savepoint-nontrans-stmt", "xa",
)  # fmt: skip
WITH_SCHEMA = (
    "domains",
    "mixed-ddl",
    "row-full-types",
    "row-metadata-full",
    "row-minimal-types",
    "row-noblob-rowsquery",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder)) as running:
        yield running


@pytest.fixture
def logs(corpus: Path) -> Path:
    return corpus / FOLDER


def ours(path: Path, *options: str, code: int = 0) -> bytes:
    done = invoke("dump", "-O", "sql", *options, str(path))
    assert done.code == code, done.err
    return done.out


def theirs(path: Path, *options: str) -> bytes:
    command = ["mariadb-binlog", "--no-defaults", *options, str(path)]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def made_of(server: Server, *scripts: bytes) -> str:
    """What the server has when it has run these scripts, and nothing else."""
    server.clear()
    assert server.run(b"DROP USER IF EXISTS u1@localhost") == ""
    for script in scripts:
        assert server.run(script) == ""
    return server.content()


def created(path: Path) -> str:
    """The CREATE TABLE statements that `mariadb-binlog` printed."""
    text = gzip.decompress(path.with_name(path.name + ".txt.gz").read_bytes()).decode("utf-8", "replace")
    found = re.findall(r"^(create table [^;]*?)\n/\*!\*/;", text, re.MULTILINE | re.IGNORECASE | re.DOTALL)
    return "USE db_east1;\n" + "".join(f"{one};\n" for one in found)


@pytest.mark.parametrize("folder", WHOLE)
def test_a_server_makes_the_same_of_both_scripts(folder: str, server: Server, logs: Path) -> None:
    log = logs / folder / NAME
    expected = made_of(server, theirs(log))
    assert "CREATE TABLE" in expected
    assert made_of(server, ours(log)) == expected


@pytest.mark.parametrize("folder", WITH_SCHEMA)
def test_rows_as_statements_make_the_same_tables(folder: str, server: Server, logs: Path, tmp_path: Path) -> None:
    log, schema = logs / folder / NAME, tmp_path / "schema.sql"
    schema.write_text(created(log))
    done = invoke("dump", "-O", "sql", "--rows", "statements", "--schema", str(schema), str(log))
    script = done.out
    assert (done.code, done.err) == (0, "")
    assert re.search(rb"^INSERT INTO `db_east1`\.", script, re.MULTILINE)
    assert made_of(server, script) == made_of(server, theirs(log))


def test_all_row_events_of_a_log_with_full_metadata_are_statements(logs: Path) -> None:
    script = ours(logs / "row-metadata-full" / NAME, "--rows", "statements")
    assert script.count(b"BINLOG") == 1  # of the FORMAT_DESCRIPTION
    kinds = re.findall(rb"^(INSERT INTO|UPDATE|DELETE FROM) `", script, re.MULTILINE)
    assert {kinds.count(kind) for kind in (b"INSERT INTO", b"UPDATE", b"DELETE FROM")} == {9, 7, 8}


@pytest.mark.parametrize("folder", ["stmt", "compressed-events"])
def test_load_data_has_its_file_beside_the_script(folder: str, server: Server, logs: Path, tmp_path: Path) -> None:
    log = logs / folder / NAME
    expected = made_of(server, theirs(log))
    assert "CREATE TABLE" in expected
    assert made_of(server, ours(log, "--load-files", str(tmp_path / "files"))) == expected
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["load-000001"]


@pytest.mark.parametrize("folder", ["stmt", "compressed-events"])
def test_load_data_without_a_place_for_its_file_is_told_and_everything_else_is_the_same(
    folder: str, server: Server, logs: Path
) -> None:
    log = logs / folder / NAME
    done = invoke("dump", "-O", "sql", str(log))
    assert done.code == 1 and "LOAD DATA needs a directory" in done.err
    script = done.out
    gtid = re.findall(rb"GTID (\d+-\d+-\d+)\n", script[: script.index(b"# payload-undecodable")])[-1]
    domain, origin, number = map(int, gtid.split(b"-"))
    before = theirs(log, f"--stop-position={domain}-{origin}-{number - 1}")
    behind = theirs(log, f"--start-position={domain}-{origin}-{number}")
    expected = made_of(server, before, behind)
    assert made_of(server, script) == expected
    assert made_of(server, ours(log, "--exclude-gtids", gtid.decode())) == expected


def test_a_damaged_transaction_is_rolled_back_and_the_next_ones_are_done(
    server: Server, logs: Path, tmp_path: Path
) -> None:
    log = logs / "big-transaction" / NAME
    script = ours(log)
    rows = [int(at) for at in re.findall(rb"# at (\d+) WRITE_ROWS_V1\n", script)]
    gtid = re.findall(rb"# at \d+ GTID (\S+)\n", script[: script.index(b"# at %d WRITE" % rows[1])])[-1].decode()
    broken = bytearray(log.read_bytes())
    broken[rows[1] + 20] ^= 0x04
    damaged = tmp_path / NAME
    damaged.write_bytes(broken)
    half = ours(damaged, code=1)
    assert b"# the rest of this transaction is missing\nROLLBACK\n" in half
    counter = re.compile(r" AUTO_INCREMENT=\d+")  # what is rolled back has counted
    expected = made_of(server, ours(log, "--exclude-gtids", gtid))
    assert counter.sub("", made_of(server, half)) == counter.sub("", expected)


def test_the_rows_of_one_table_keep_their_transactions(server: Server, logs: Path) -> None:
    log = logs / "row-metadata-full" / NAME
    made_of(server, theirs(log))
    table = "db_east1.orders2_nopk"
    chosen = ours(log, "--object", table, code=1)  # statements are told: they may be about the table, too
    assert chosen.count(b"START TRANSACTION\n") == chosen.count(b"COMMIT\n") == 3
    before = server.content()
    assert server.run(f"TRUNCATE {table}".encode()) == ""
    assert server.run(chosen) == ""
    assert server.content() == before


def gtids_set(script: bytes) -> list[tuple[int, ...]]:
    """Domain, server and number of each transaction, as a session has them behind the SETs for it."""
    known = {b"domain_id": 0, b"server_id": 0}
    found = []
    for line in re.findall(rb"^(?:/\*M?!\d+ )?SET @@session\..*$", script, re.MULTILINE):
        for name, value in re.findall(rb"@@session\.(?:gtid_)?(domain_id|server_id|seq_no)=(\d+)", line):
            known[name] = int(value)
            if name == b"seq_no":
                found.append((known[b"domain_id"], known[b"server_id"], int(value)))
    return found


def test_a_script_can_set_the_gtids(server: Server, logs: Path) -> None:
    script = ours(logs / "domains" / NAME)
    assert gtids_set(script) == gtids_set(theirs(logs / "domains" / NAME))
    assert len(gtids_set(script)) > 5
    assert b"gtid" not in ours(logs / "domains" / NAME, "--without-gtids")
    made_of(server, script)


TABLES = b"""CREATE DATABASE d; USE d;
CREATE TABLE t1 (a VARCHAR(200)) CHARACTER SET utf8mb4;
CREATE TABLE t2 (a VARCHAR(200), b VARCHAR(200)) CHARACTER SET utf8mb4;
CREATE TABLE victim (a INT);
"""


@pytest.mark.full_corpus
@pytest.mark.parametrize("name", ["sql-gbk-then-utf8.000002", "sql-inject.000003"])
def test_texts_of_a_client_in_gbk_never_run(name: str, server: Server, corpus: Path) -> None:
    """The client is told of each change of the character set: nothing of a text is taken for the end of it."""
    log = corpus / "found" / "sql" / name
    server.clear()
    assert server.run(TABLES) == ""
    expected = server.run(theirs(log)), server.content()
    server.clear()
    assert server.run(TABLES) == ""
    done = server.talk(ours(log, "--format", "mysql-binlog"), "--force")
    assert (done.stderr.decode(), server.content()) == expected
    assert "CREATE TABLE `victim`" in expected[1] and expected[1].count("INSERT INTO") >= 3
