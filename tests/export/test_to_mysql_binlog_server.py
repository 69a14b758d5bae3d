"""Converted logs against real servers: replayed, and sent to a replica by a server that has them as its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.export import classic_binlog as classic
from tests.export.ibb_writer import IbbWriter
from tests.formats.mysql_binlog.server import DidNotStart, Server

pytestmark = pytest.mark.server

WORKLOAD = b"""
CREATE DATABASE shop;
USE shop;
CREATE TABLE item (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(80), price DECIMAL(10,2), at DATETIME(3),
    doc LONGBLOB) ENGINE=InnoDB;
CREATE TABLE counter (name VARCHAR(20) PRIMARY KEY, n BIGINT) ENGINE=MyISAM;
CREATE TABLE nokey (a INT, b TEXT, c DOUBLE) ENGINE=InnoDB;
INSERT INTO counter VALUES ('sold', 0), ('seen', 0);
INSERT INTO item (name, price, at) VALUES ('nail', 0.05, NOW(3)), ('hammer', 12.40, NOW(3)), ('\xc3\xa4xe', 30, NOW(3));
BEGIN; UPDATE item SET price = price * 1.1; DELETE FROM item WHERE name = 'nail'; COMMIT;
INSERT INTO nokey SELECT seq, REPEAT(CHAR(65 + seq % 26), seq % 300), seq / 7 FROM seq_1_to_4000;
UPDATE nokey SET b = UPPER(REVERSE(b)), c = c + 1 WHERE a % 3 = 0;
BEGIN; INSERT INTO item (name, doc) SELECT seq, RANDOM_BYTES(900) FROM seq_1_to_600; SAVEPOINT s;
DELETE FROM item; ROLLBACK TO s; UPDATE counter SET n = n + 600; COMMIT;
SET SESSION binlog_format = STATEMENT;
SET @price = 7.5; INSERT INTO item (name, price) VALUES ('saw', @price), ('file', RAND(3));
UPDATE counter SET n = n * 2 WHERE name = 'seen';
SET SESSION binlog_format = ROW;
SET SESSION gtid_domain_id = 4;
CREATE TABLE other (x JSON, y POINT, z SET('a','b','c'), e ENUM('x','y')) ENGINE=InnoDB;
INSERT INTO other VALUES ('{"a": [1, 2.5, null]}', POINT(1, 2), 'a,c', 'y'), (NULL, NULL, '', 'x');
SET SESSION server_id = 9;
INSERT INTO other SELECT * FROM other;
SET SESSION gtid_domain_id = 0;
SET GLOBAL log_bin_compress = ON; SET GLOBAL log_bin_compress_min_len = 10;
INSERT INTO nokey SELECT seq, REPEAT('long', 50), 0 FROM seq_1_to_200;
SET GLOBAL log_bin_compress = OFF;
CREATE VIEW cheap AS SELECT name, price FROM item WHERE price < 10;
CREATE TRIGGER sell AFTER INSERT ON other FOR EACH ROW UPDATE counter SET n = n + 1 WHERE name = 'sold';
INSERT INTO other (z, e) VALUES ('b', 'x');
XA START 'one'; INSERT INTO nokey VALUES (-1, 'xa', 0); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
ALTER TABLE nokey ADD COLUMN d INT DEFAULT 5, ADD INDEX (a);
DELETE FROM nokey WHERE a BETWEEN 100 AND 900;
CREATE TABLE gone (a INT); DROP TABLE gone;
"""


@dataclass
class Source:
    """A server's work: its tables, and its binary log as files of an InnoDB binlog."""

    content: str
    checksums: str
    ibb: Path
    gtids: list[str]


def checksums(server: Server) -> str:
    return server.ask("CHECKSUM TABLE shop.item, shop.counter, shop.nokey, shop.other EXTENDED")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def source(home: Path) -> Source:
    """MariaDB 10.11 works, and its event groups are put into pages, large ones out of band."""
    place = home / "a"
    place.mkdir()
    options = ("--log-bin=log", "--server-id=7", "--binlog-format=ROW", "--skip-networking", "--gtid-strict-mode=ON")
    with Server(place, *options, "--binlog-row-event-max-size=8192") as server:
        assert server.run(WORKLOAD) == ""
        content, sums = server.content(), checksums(server)
    groups = [one for path in sorted((place / "data").glob("log.0*")) for one in classic.groups(classic.events(path))]
    log = IbbWriter(home / "ibb", pages=8, interval=2)
    for number, group in enumerate(groups):
        domain, origin, seq = map(int, group.gtid.split("-"))
        events = [event.bare() for event in group.events]
        whole = sum(map(len, events))
        piece = None if whole < 4000 else (1000, 8000, 30_000)[number % 3]
        log.group((domain, origin, seq), events, piece, 0 if number % 2 or len(events) < 4 else 2)
    log.close()
    return Source(content, sums, home / "ibb", [group.gtid for group in groups])


@pytest.fixture(scope="module")
def converted(source: Source, home: Path) -> Path:
    done = binlogtool.convert([source.ibb], "mysql-binlog", f"{home}/new/", max_binlog_size=200_000)
    assert done.complete and done.rows == len(source.gtids)
    assert len(done.outputs) > 3
    assert len(list(source.ibb.iterdir())) > 5
    return home / "new"


def test_a_replay_makes_the_tables_of_the_source(source: Source, converted: Path, home: Path) -> None:
    files = sorted(converted.glob("binlog.0*"))
    command = ["mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", *map(str, files)]
    script = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert script.stderr == b""
    place = home / "b"
    place.mkdir()
    with Server(place) as server:
        assert server.run(script.stdout) == ""
        assert checksums(server) == source.checksums
        assert server.content() == source.content


def test_a_script_of_the_pages_makes_the_tables_of_the_source(source: Source, home: Path) -> None:
    done = invoke("dump", "-O", "sql", str(source.ibb))
    assert (done.code, done.err) == (0, "")
    place = home / "e"
    place.mkdir()
    with Server(place) as server:
        assert server.run(done.out) == ""
        assert checksums(server) == source.checksums
        assert server.content() == source.content


def test_a_server_sends_the_files_as_its_own_log_to_a_replica(source: Source, converted: Path, home: Path) -> None:
    logs = home / "logs"
    shutil.copytree(converted, logs)
    index = logs / "binlog.index"
    index.write_text(index.read_text().replace("./", f"{logs}/"))
    for name in ("c", "d"):
        (home / name).mkdir()
    with (
        start_on_free_port(home / "c", f"--log-bin={logs}/binlog", "--server-id=50") as (sender, port),
        Server(home / "d", "--skip-log-bin", "--server-id=60", "--skip-networking") as replica,
    ):
        user = b"SET sql_log_bin=0; CREATE USER r@'127.0.0.1'; GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1';"
        assert sender.run(user) == ""
        source_of = f"MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='r', MASTER_USE_GTID=slave_pos"
        assert replica.run(f"CHANGE MASTER TO {source_of}; START SLAVE;".encode()) == ""
        last = {gtid.split("-")[0]: gtid for gtid in source.gtids}
        assert wait_for_gtids(replica, set(last.values())), replica.ask("SHOW SLAVE STATUS")
        assert set(sender.ask("SELECT @@gtid_binlog_pos").strip().split(",")) == set(last.values())
        assert checksums(replica) == source.checksums
        assert replica.content() == source.content


def wait_for_gtids(replica: Server, gtids: set[str]) -> bool:
    """Wait until the replica has executed everything up to these GTIDs; False after three minutes."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if set(replica.ask("SELECT @@gtid_slave_pos").strip().split(",")) == gtids:
            return True
        time.sleep(0.2)
    return False


@contextmanager
def start_on_free_port(folder: Path, *options: str) -> Iterator[tuple[Server, int]]:
    """Start a server on a free port; on another one if a process takes the port before the server does."""
    with ExitStack() as stack:
        for attempt in range(5):
            port = find_free_port()
            network = ("--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve")
            try:
                server = stack.enter_context(Server(folder, *options, *network))
            except DidNotStart as error:
                if attempt == 4 or "Bind on TCP/IP port" not in str(error):
                    raise
            else:
                yield server, port
                return


def find_free_port() -> int:
    """Return a TCP port on which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
