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
    *(pytest.param(name, marks=pytest.mark.servers) for name in TREES),
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
    options = ("--skip-networking", "--skip-log-bin")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options, programs=programs) as one:
        yield one


@pytest.mark.corpus
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
