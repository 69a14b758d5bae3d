"""Two real logs whose texts ran as statements once: with --force, on a real server, they drop nothing.

The server, its client and its character sets are real; the logs were written by MariaDB 10.11 for clients in gbk and
utf8mb4 (found/README.md of the corpus).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

TABLES = b"""DROP DATABASE IF EXISTS d; CREATE DATABASE d; USE d;
CREATE TABLE victim (id INT); INSERT INTO victim VALUES (1);
CREATE TABLE t1 (v VARCHAR(20) CHARACTER SET gbk);
CREATE TABLE t2 (a VARCHAR(200) CHARACTER SET utf8mb4, b VARCHAR(200) CHARACTER SET utf8mb4);
"""
ROWS = {
    "sql-gbk-then-utf8.000002": ["E4B8AD5C\tb1", "706C61696E\tb2", "E4B8AD5C5C\trow"],
    "sql-inject.000003": ["E4B8AD5C\tb1", "2024242064726F70207461626C652076696374696D20242420\tb2"],
}
GBK = "D2BB"
SERVERS = (
    pytest.param("mariadb", marks=pytest.mark.server),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in TREES),
)


@pytest.fixture(
    scope="module",
    params=SERVERS,
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    programs = Programs(Server.program() or "") if request.param == "mariadb" else programs_of(request.param)
    if programs is None or not programs.server:
        if request.param == "mariadb" and os.environ.get("BINLOGTOOL_SERVER") == "1":
            pytest.fail("no mariadbd is installed, and BINLOGTOOL_SERVER=1 demands one")
        pytest.skip(f"{request.param} is not here")
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options, programs=programs) as one:
        yield one


@pytest.mark.full_corpus
@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("options", [(), ("--without-gtids",), ("--comments",)], ids="".join)
def test_nothing_is_dropped(
    name: str, rows: str, options: tuple[str, ...], server: Server, corpus: Path, tmp_path: Path
) -> None:
    """In any way of the script; of MariaDB's variables MySQL refuses some, and with them what follows."""
    log = tmp_path / "mariadb-bin.000001"
    log.write_bytes((corpus / "found" / "sql" / name).read_bytes())
    made = invoke("dump", "-O", "sql", "--rows", rows, *options, str(log))
    assert server.run(TABLES) == ""
    server.talk(made.out, "--force")
    assert server.ask("SELECT COUNT(*) FROM d.victim").strip() == "1"
    if not server.mysql:
        assert server.ask("SELECT COUNT(*) FROM d.t2").strip() == str(len(ROWS[name]))


@pytest.mark.full_corpus
@pytest.mark.parametrize("name", ROWS)
def test_texts_stay_texts(name: str, server: Server, corpus: Path, tmp_path: Path) -> None:
    log = tmp_path / "mariadb-bin.000001"
    log.write_bytes((corpus / "found" / "sql" / name).read_bytes())
    made = invoke("dump", "-O", "sql", "--rows", "exact", str(log))
    assert made.code == 0, made.err
    assert server.run(TABLES) == ""
    done = server.talk(made.out, "--force")
    assert server.ask("SELECT COUNT(*) FROM d.victim").strip() == "1"
    if server.mysql:
        return  # it has no domains of GTIDs; what it does take must not be more than that
    assert server.ask("SELECT HEX(v) FROM d.t1").split() == [GBK]
    assert server.ask("SELECT HEX(a), b FROM d.t2").splitlines() == ROWS[name]
    assert done.stderr == b""


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("format_", ["STATEMENT", "ROW"])
def test_the_same_texts_in_a_log_of_this_server_come_back(
    format_: str, rows: str, server: Server, tmp_path: Path
) -> None:
    """A client in gbk, then one in utf8mb4, whose texts have a backslash at their end and what dropped the table."""
    own = f"SET GLOBAL binlog_format={format_}, GLOBAL binlog_row_metadata=FULL;"
    assert server.run(TABLES) == server.run(own.encode()) == server.run(b"FLUSH BINARY LOGS") == ""
    name = server.logs()[-1][0]
    in_gbk = server.talk(b"\\C gbk\nSET NAMES gbk; USE d; INSERT INTO t1 VALUES ('\xd2\xbb'), ('\xbf\x5c');\n")
    texts = (b"'\xe4\xb8\xad\\\\', 'b1'", b"' $$ drop table victim $$ ', 'b2'")
    script = b"SET NAMES utf8mb4; USE d;\n" + b"".join(b"INSERT INTO t2 VALUES (%b);\n" % text for text in texts)
    assert in_gbk.stderr == server.talk(script).stderr == b""
    seen = ("SELECT HEX(v) FROM d.t1 ORDER BY 1", "SELECT HEX(a), b FROM d.t2 ORDER BY 1", "SELECT id FROM d.victim")
    before = [server.ask(query) for query in seen]
    assert server.run(b"FLUSH BINARY LOGS") == ""
    log = tmp_path / "bin.000001"
    log.write_bytes((server.data / name).read_bytes())
    options = ["--schema", str(tmp_path / "schema.sql")] if rows == "statements" else []
    (tmp_path / "schema.sql").write_bytes(TABLES)
    made = invoke("dump", "-O", "sql", "--rows", rows, "--without-gtids", *options, str(log))
    assert made.code == 0, made.err
    assert server.run(TABLES) == ""
    assert server.talk(made.out, "--force").stderr == b""
    assert [server.ask(query) for query in seen] == before
    assert before[0].split() == ["BF5C", "D2BB"] and before[2].split() == ["1"]


@pytest.mark.parametrize(
    "inside", [b"/* a /*! b */", b"/* a /*!*/", b"/* a /* b */", b"/* a /*+ b */", b"/* ' */ -- /*! x\n", b"/*! */"]
)
def test_a_comment_does_not_swallow_what_follows(inside: bytes, server: Server, tmp_path: Path) -> None:
    """Clients find no end of a comment that has /*! or /*+ inside: a space goes into that, and all comes back."""
    assert server.run(TABLES + b"SET GLOBAL binlog_format=STATEMENT; FLUSH BINARY LOGS") == ""
    name, ended = server.logs()[-1][0], b"\n~~\n"
    rows = (b"INSERT INTO d.victim VALUES (2) " + inside, b"INSERT INTO d.victim VALUES (3)")
    assert server.talk(b"DELIMITER ~~\n" + rows[1] + ended).stderr == b""
    one = server.talk(rows[0].replace(b"\n", b" "), "--delimiter=~~", "--comments")
    assert one.stderr == b""
    assert server.run(rows[1] + b"; FLUSH BINARY LOGS") == ""
    log = tmp_path / "bin.000001"
    log.write_bytes((server.data / name).read_bytes())
    made = invoke("dump", "-O", "sql", "--without-gtids", str(log))
    assert (made.code, made.err) == (0, "")
    assert server.run(TABLES) == ""
    assert server.talk(made.out, "--force").stderr == b""
    assert server.ask("SELECT id FROM d.victim ORDER BY id").split() == ["1", "2", "3", "3"]
