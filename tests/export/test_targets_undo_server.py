"""`flashback` against a real server: after the log and its undo, all tables are what they were."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import RefusedError
from binlogtool.export.manifest import Manifest
from binlogtool.format_api.format import Hints
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

TABLES = b"""
CREATE DATABASE d1; CREATE DATABASE d2; USE d1;
CREATE TABLE keyed (id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, n BIGINT UNSIGNED, t TEXT, f DOUBLE, d DECIMAL(30,10),
    b BLOB, e ENUM('x','y','z'), s SET('p','q'), j JSON, at DATETIME(6), ts TIMESTAMP(3) NULL, bits BIT(12),
    l VARCHAR(50) CHARACTER SET latin1, g GEOMETRY, dbl DOUBLE AS (f * 2) VIRTUAL, stored DOUBLE AS (f + 1) STORED);
CREATE TABLE bare (a INT, b VARCHAR(100), c FLOAT);
CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent(id)) ENGINE=InnoDB;
CREATE TABLE isam (id INT PRIMARY KEY, v CHAR(5)) ENGINE=MyISAM;
CREATE TABLE shot (id INT PRIMARY KEY, n INT); CREATE TABLE told (id INT);
CREATE TRIGGER shoots AFTER INSERT ON shot FOR EACH ROW INSERT INTO told VALUES (NEW.id);
INSERT INTO keyed (n,t,f,d,b,e,s,j,at,ts,bits,l,g) VALUES
    (18446744073709551615,'it''s \\\\ \n\\0 end',1.0/3,-12345.678,x'00ff27','z','p,q','{"a": [1, null]}',
     '2024-02-29 23:59:59.999999','2024-01-01 00:00:00.5',b'101','\xc3\xbc',ST_GeomFromText('POINT(1 2)')),
    (NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
    (3,'',0,0,'','x','','[]','1970-01-01 00:00:01','2038-01-01 00:00:00.001',0,'',NULL);
INSERT INTO bare VALUES (1,'one',1.5),(1,'one',1.5),(2,NULL,NULL),(NULL,'x',0.1);
INSERT INTO parent VALUES (1),(2); INSERT INTO child VALUES (1,1),(2,2); INSERT INTO isam VALUES (1,'a'),(2,'b');
INSERT INTO shot VALUES (1,1);
"""
CHANGES = b"""
USE d1;
INSERT INTO keyed (n,t,l) VALUES (7,'new','\xc3\xa9'),(8,'newer','x');
UPDATE keyed SET t=CONCAT(IFNULL(t,'nil'),' changed'), f=f*2, b=x'01', e='y', bits=7, at=NULL, j='{"k":["v"]}';
START TRANSACTION; DELETE FROM keyed WHERE id=2; UPDATE bare SET c=c+1 WHERE a=1; DELETE FROM bare WHERE a=2;
INSERT INTO bare VALUES (9,'nine',9); UPDATE bare SET a=10 WHERE a=9; COMMIT;
UPDATE keyed SET id=id+1000 WHERE id<>3;
INSERT INTO parent VALUES (3); INSERT INTO child VALUES (3,3); UPDATE child SET p=3; DELETE FROM parent WHERE id<3;
UPDATE isam SET v=CONCAT(v,'!'); DELETE FROM isam WHERE id=1; INSERT INTO isam VALUES (5,'five');
SET foreign_key_checks=0; INSERT INTO child VALUES (77,4711); SET foreign_key_checks=1;
START TRANSACTION; INSERT INTO bare VALUES (70,'s',0); SAVEPOINT a; INSERT INTO bare VALUES (71,'s',0);
RELEASE SAVEPOINT a; COMMIT;
INSERT INTO shot VALUES (2,2),(3,3); UPDATE shot SET n=n+1; DELETE FROM shot WHERE id=1;
INSERT INTO d1.bare SELECT seq, REPEAT('r', 60), seq / 7 FROM seq_1_to_3000; DELETE FROM d1.bare WHERE a % 3 = 0;
"""
CHECKED = ("d1.keyed", "d1.bare", "d1.parent", "d1.child", "d1.isam", "d1.shot", "d1.told")
GENERATED = TABLES.decode()
"""No log says which columns are generated, and a statement must not set them."""

MODES = {
    "statements": "SET GLOBAL binlog_row_metadata=FULL, GLOBAL log_bin_compress=0",
    "full": "SET GLOBAL binlog_row_metadata=FULL, GLOBAL log_bin_compress=0",
    "events": "SET GLOBAL binlog_row_metadata=MINIMAL, GLOBAL log_bin_compress=0",
    "compressed": "SET GLOBAL binlog_row_metadata=MINIMAL, GLOBAL log_bin_compress=1",
}


class Logged:
    """A server with a log, and the log as a file."""

    def __init__(self, server: Server, data: Path) -> None:
        self.server, self.data = server, data

    def do(self, script: bytes) -> Path:
        """The log of just this script."""
        assert self.server.run(b"FLUSH BINARY LOGS") == ""
        name = self.server.ask("SHOW MASTER STATUS").split("\t")[0]
        assert self.server.run(script) == ""
        assert self.server.run(b"FLUSH BINARY LOGS") == ""
        return self.data / name

    def fresh(self, mode: str) -> None:
        assert self.server.run(MODES[mode].encode()) == ""
        self.server.clear()
        assert self.server.run(TABLES) == ""

    def sums(self) -> str:
        """The checksum of each table, and all its rows."""
        return self.server.ask(f"CHECKSUM TABLE {', '.join(CHECKED)} EXTENDED") + rows_of(self.server)


def rows_of(server: Server) -> str:
    """Rows in an order of their own: a table without a key has none."""
    return "\n".join("\n".join(sorted(server.ask(f"SELECT * FROM {name}").splitlines())) for name in CHECKED)


@pytest.fixture(scope="module")
def logged() -> Iterator[Logged]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = ("--skip-networking", "--log-bin=bin", "--binlog-format=ROW", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        yield Logged(running, Path(folder) / "data")


def undo(log: Path, out: Path, selection: Selection = Selection(on_damage="stop"), **more: object) -> Manifest:
    return convert([log], "flashback", out, selection=selection, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_all_tables_are_what_they_were_before(mode: str, logged: Logged, tmp_path: Path) -> None:
    logged.fresh(mode)
    before = logged.sums()
    log = logged.do(CHANGES)
    after = logged.sums()
    assert after != before
    hints = Hints(schema=GENERATED) if mode == "statements" else None
    done = undo(log, tmp_path / "undo.sql", hints=hints, rows="statements" if mode == "statements" else "exact")
    assert done.complete, done.findings
    script = (tmp_path / "undo.sql").read_bytes()
    assert (b"\nINSERT INTO `d1`.`keyed`" in script) == (mode == "statements")
    assert logged.server.run(script) == ""
    assert logged.sums() == before


def test_one_table_is_undone_and_the_others_keep_their_changes(logged: Logged, tmp_path: Path) -> None:
    logged.fresh("events")
    before = logged.server.ask("SELECT * FROM d1.isam")
    log = logged.do(CHANGES)
    others = [logged.server.ask(f"CHECKSUM TABLE {name}") for name in CHECKED if name != "d1.isam"]
    undo(log, tmp_path / "undo.sql", Selection(objects=("d1.isam",), on_damage="stop"))
    assert logged.server.run((tmp_path / "undo.sql").read_bytes()) == ""
    assert logged.server.ask("SELECT * FROM d1.isam") == before
    assert [logged.server.ask(f"CHECKSUM TABLE {name}") for name in CHECKED if name != "d1.isam"] == others


def test_the_database_can_be_another_one(logged: Logged, tmp_path: Path) -> None:
    """The log of d1 is applied to a copy, and undone there."""
    logged.fresh("events")
    log = logged.do(
        b"USE d1; INSERT INTO bare VALUES (5,'five',5); UPDATE isam SET v='new'; DELETE FROM bare WHERE a=2;"
    )
    assert logged.server.run(TABLES.replace(b"d1", b"copy").replace(b"CREATE DATABASE d2;", b"")) == ""
    before, original = rows_of_copy(logged.server), rows_of(logged.server)
    for to, same in (("sql", False), ("flashback", True)):
        convert([log], to, tmp_path / to, rewrite=["d1->copy"])
        assert logged.server.run((tmp_path / to).read_bytes()) == ""
        assert (rows_of_copy(logged.server) == before) == same
        assert (rows_of_copy(logged.server) == original) != same
        assert rows_of(logged.server) == original


def rows_of_copy(server: Server) -> str:
    names = [name.replace("d1", "copy") for name in CHECKED]
    return "\n".join("\n".join(sorted(server.ask(f"SELECT * FROM {name}").splitlines())) for name in names)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (b"USE d1; TRUNCATE TABLE bare;", "QUERY cannot be reversed: the log has TRUNCATE TABLE as a statement"),
        (b"USE d1; ALTER TABLE bare ADD COLUMN z INT;", "the log has ALTER TABLE as a statement"),
        (
            b"SET binlog_format=STATEMENT; INSERT INTO d1.bare VALUES (1,'',1);",
            "the log has INSERT INTO as a statement",
        ),
        (
            b"SET binlog_row_image=MINIMAL; UPDATE d1.isam SET v='m';",
            "UPDATE of d1.isam: 1 of 2 columns are not in the",
        ),
        (
            b"SET binlog_row_image=NOBLOB; UPDATE d1.keyed SET n=4;",
            "of 16 columns are not in the image before: binlog_row_image is not FULL",
        ),
        (b"XA START 'x'; DELETE FROM d1.bare; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';", "it is an XA transaction"),
    ],
)
def test_what_cannot_be_taken_back_is_named_and_nothing_is_written(
    script: bytes, words: str, logged: Logged, tmp_path: Path
) -> None:
    logged.fresh("events")
    log = logged.do(script)
    done = undo(log, tmp_path / "undo.sql")
    assert (done.complete, done.exit_code, done.outputs) == (False, 1, ())
    told = [str(found["message"]) for found in done.findings if found["severity"] == "error"]
    assert any(words in text for text in told), told
    assert all(text.startswith(("transaction 0-1-", "the transaction at ", "outside")) for text in told)
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_that_is_not_whole_is_refused(logged: Logged, tmp_path: Path) -> None:
    logged.fresh("events")
    log = logged.do(b"INSERT INTO d1.bare VALUES (5,'five',5); DELETE FROM d1.bare;")
    ends = [at for at, kind in events_of(logged.server, log.name) if kind == "Xid"]
    assert len(ends) == 2
    undo(log, tmp_path / "first.sql", Selection(stop=str(ends[0] + 1), on_damage="stop"))
    assert (tmp_path / "first.sql").read_bytes().count(b"START TRANSACTION") == 1
    with pytest.raises(RefusedError, match=r"transaction 0-1-\d+ is incomplete and cannot be reversed"):
        undo(log, tmp_path / "undo.sql", Selection(stop=str(ends[1]), on_damage="stop"))
    rows = [at for at, kind in events_of(logged.server, log.name) if kind == "Delete_rows_v1"]
    done = undo(log, tmp_path / "undo.sql", Selection(start=str(rows[0]), on_damage="stop"))
    assert "the beginning of its transaction is not selected" in str(done.findings[0]["message"])
    assert [path.name for path in tmp_path.iterdir()] == ["first.sql"]


def events_of(server: Server, name: str) -> list[tuple[int, str]]:
    """(position, type) of each event, as the server shows them."""
    lines = (line.split("\t") for line in server.ask(f"SHOW BINLOG EVENTS IN '{name}'").splitlines())
    return [(int(line[1]), line[2]) for line in lines]


def test_it_leaves_what_the_servers_own_flashback_leaves(logged: Logged, tmp_path: Path) -> None:
    left = []
    for ours in (True, False):
        logged.fresh("events")
        before = logged.sums()
        log = logged.do(FLASHED)
        assert logged.sums() != before
        if ours:
            assert undo(log, tmp_path / "undo.sql").complete
            script = (tmp_path / "undo.sql").read_bytes()
        else:
            command = ["mariadb-binlog", "--no-defaults", "--flashback", str(log)]
            script = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        assert logged.server.run(script) == ""
        left.append(logged.sums())
        assert left[-1] == before
    assert left[0] == left[1]


FLASHED = b"""
USE d1; INSERT INTO bare VALUES (5,'five',0.1),(6,NULL,NULL);
UPDATE bare SET c=c*3 WHERE a>1; DELETE FROM bare WHERE a=1;
UPDATE isam SET v='new'; DELETE FROM shot; INSERT INTO shot VALUES (9,9),(10,10);
UPDATE keyed SET t='changed', b=x'00', e='y'; DELETE FROM keyed WHERE id=3;
"""

DDL = b"""
USE d1; INSERT INTO isam VALUES (6,'six'); CREATE TABLE other (id INT); INSERT INTO other VALUES (1);
ALTER TABLE other ADD x INT; CREATE INDEX i ON other (x); RENAME TABLE other TO another; TRUNCATE TABLE another;
CREATE VIEW v AS SELECT * FROM isam; CREATE TRIGGER late BEFORE INSERT ON isam FOR EACH ROW SET NEW.v='T';
CREATE PROCEDURE p () SELECT 1; INSERT INTO isam VALUES (7,'seven'); UPDATE isam SET v='U'; DROP TABLE another;
DROP VIEW v; DROP PROCEDURE p; DROP TRIGGER late; CREATE DATABASE d3; DROP DATABASE d3; ANALYZE TABLE bare;
"""
ISAM = Selection(objects=("d1.isam",), on_damage="stop")


def test_definitions_of_other_tables_are_no_hindrance(logged: Logged, tmp_path: Path) -> None:
    logged.fresh("events")
    before = logged.server.ask("SELECT * FROM d1.isam")
    log = logged.do(DDL)
    done = undo(log, tmp_path / "undo.sql", ISAM)
    assert done.complete and not done.finding_counts, done.findings
    assert logged.server.run((tmp_path / "undo.sql").read_bytes()) == ""
    assert logged.server.ask("SELECT * FROM d1.isam") == before


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE isam ADD COLUMN more INT DEFAULT 4", "ALTER TABLE as a statement (d1.isam)"),
        ("CREATE INDEX late ON isam (v)", "CREATE INDEX as a statement (d1.isam)"),
        ("RENAME TABLE bare TO b2, isam TO i2, i2 TO isam, b2 TO bare", "RENAME TABLE as a statement (d1.isam)"),
        ("ALTER TABLE bare RENAME TO b2, COMMENT='isam'; ALTER TABLE b2 RENAME TO bare", None),
    ],
)
def test_a_definition_of_the_table_is_refused_by_name_or_left_with_a_line(
    statement: str, words: str | None, logged: Logged, tmp_path: Path
) -> None:
    logged.fresh("events")
    before = logged.server.ask("SELECT id, v FROM d1.isam ORDER BY id")
    log = logged.do(
        f"USE d1; DELETE FROM isam WHERE id=1; {statement}; INSERT INTO isam (id, v) VALUES (8,'8');".encode()
    )
    done = undo(log, tmp_path / "undo.sql", ISAM)
    assert done.complete == (words is None)
    if words is not None:
        assert words in str(done.findings[0]["message"])
    done = undo(log, tmp_path / "undo2.sql", ISAM, skip_ddl=True)
    assert done.complete and done.finding_counts == ({} if words is None else {"statement-left-out": 1})
    script = (tmp_path / "undo2.sql").read_bytes()
    assert (b"is not reversed because of --skip-ddl" in script) == (words is not None)
    assert logged.server.run(script) == ""
    assert logged.server.ask("SELECT id, v FROM d1.isam ORDER BY id") == before


def test_rows_of_a_system_versioned_table_lose_their_history_again(logged: Logged, tmp_path: Path) -> None:
    logged.fresh("full")
    assert logged.server.run(b"CREATE TABLE d1.v (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING;"
                             b"INSERT INTO d1.v VALUES (1,1),(2,2);") == ""  # fmt: skip
    query = "SELECT id, a, row_start, row_end FROM d1.v FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3"
    before = logged.server.ask(query)
    log = logged.do(b"UPDATE d1.v SET a=10 WHERE id=1; DELETE FROM d1.v WHERE id=2; INSERT INTO d1.v VALUES (3,3);")
    assert logged.server.ask(query) != before
    assert undo(log, tmp_path / "undo.sql").complete
    assert logged.server.run((tmp_path / "undo.sql").read_bytes()) == ""
    assert logged.server.ask(query) == before
