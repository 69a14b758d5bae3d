"""`flashback` against servers of other versions, MySQL with gtid_mode=ON: `pytest -m nightly`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.format_api.format import Hints
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_state import State, differences, state_of
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

pytestmark = pytest.mark.nightly

TABLES = b"""
CREATE DATABASE d1; USE d1;
CREATE TABLE keyed (id INT PRIMARY KEY AUTO_INCREMENT, n BIGINT UNSIGNED, t TEXT, f FLOAT, j JSON, b BIT(9),
    virt DOUBLE AS (f * 2) VIRTUAL, `stored` DOUBLE AS (f + 1) STORED, hidden INT DEFAULT 3 INVISIBLE);
CREATE TABLE bare (a INT, b VARCHAR(20)); CREATE TABLE told (id INT);
CREATE TABLE shot (id INT PRIMARY KEY, n INT);
CREATE TRIGGER shoots AFTER INSERT ON shot FOR EACH ROW INSERT INTO told VALUES (NEW.id);
CREATE TRIGGER turns BEFORE UPDATE ON shot FOR EACH ROW SET NEW.n=NEW.n+1;
INSERT INTO keyed (n,t,f,j,b) VALUES (18446744073709551615,'x',0.1,'{"a": [1, 2.5, null]}',257),
    (NULL,NULL,NULL,NULL,NULL);
INSERT INTO bare VALUES (1,'one'),(1,'one'),(2,NULL); INSERT INTO shot VALUES (1,1),(2,2);
"""
CHANGES = b"""
USE d1; INSERT INTO keyed (n,t,f) VALUES (1,'new',1e30);
UPDATE keyed SET f=f*3, j='[]', b=1, hidden=9; DELETE FROM keyed WHERE id=2;
CREATE TABLE other (id INT); INSERT INTO other VALUES (1); ALTER TABLE other ADD x INT; DROP TABLE other;
START TRANSACTION; INSERT INTO bare VALUES (3,'three');
 DELETE FROM bare WHERE a=1 LIMIT 1; UPDATE bare SET b='z'; COMMIT;
INSERT INTO shot VALUES (3,3); UPDATE shot SET n=10; DELETE FROM shot WHERE id=1;
"""
OWN = Selection(objects=("d1.keyed", "d1.bare", "d1.shot", "d1.told"), on_damage="stop")


@pytest.fixture(scope="module", params=TREES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    programs = programs_of(request.param)
    if programs is None:
        pytest.skip(f"make it with .ci/server-tree {request.param}")
    options = ["--skip-networking", "--log-bin=bin", "--server-id=1", "--log-bin-trust-function-creators=1"]
    options += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"] if programs.mysql else ["--binlog-format=ROW"]
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options, programs=programs) as one:
        yield one


def state(server: Server) -> State:
    """What it has, but for the counters, which no undo turns back."""
    return {
        name: [re.sub(r" AUTO_INCREMENT=\d+", "", line) for line in lines] for name, lines in state_of(server).items()
    }


@pytest.mark.parametrize(("metadata", "rows"), [("MINIMAL", "exact"), ("FULL", "exact"), ("FULL", "statements")])
def test_all_tables_are_what_they_were_before(metadata: str, rows: str, server: Server, tmp_path: Path) -> None:
    assert server.run(f"SET GLOBAL binlog_row_metadata={metadata}".encode()) == ""
    server.clear()
    assert server.run(TABLES) == ""
    before = state(server)
    assert server.run(b"FLUSH BINARY LOGS") == ""
    name = server.logs()[-1][0]
    assert server.run(CHANGES) == ""
    assert server.run(b"FLUSH BINARY LOGS") == ""
    assert differences(before, state(server))
    hints = Hints(schema=TABLES.decode()) if rows == "statements" else None
    log, script = [server.data / name], tmp_path / "undo.sql"
    done = convert(log, "flashback", script, selection=OWN, rows=rows, hints=hints)
    if not server.mysql and hints is None:  # its images lack the virtual column
        assert not done.complete and all("--schema" in one["message"] for one in done.findings)
        assert not script.exists()
        done = convert(log, "flashback", script, selection=OWN, rows=rows, hints=Hints(schema=TABLES.decode()))
    assert done.complete, done.findings
    assert server.run((tmp_path / "undo.sql").read_bytes()) == ""
    assert differences(before, state(server)) == []
