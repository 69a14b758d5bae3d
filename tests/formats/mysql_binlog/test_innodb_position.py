"""`diagnose` compares the end of a binary log with the position of InnoDB's last commit, which ibdata1 holds."""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.archives import extract
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of
from tests.formats.mysql_binlog.start_contents import Log
from tests.formats.mysql_binlog.starts import PREPARED, logs_of

SAMPLE = Path(__file__).with_name("innodb_position.tar.xz")
"""MariaDB 10.11.19 after FLUSH LOGS, PURGE BINARY LOGS and a clean stop; of ibdata1 only the pages in question."""
COMMITTED = "bin.000003:2143"
"""SHOW MASTER STATUS after the last commit. The file then got a STOP event of 23 bytes."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(SAMPLE) as archive:
        extract(archive, tmp_path / "data")
    return tmp_path / "data"


def diagnosed(folder: Path) -> tuple[int, dict[str, Any], str]:
    done = invoke("diagnose", "-O", "json", str(folder))
    (log,) = json.loads(done.out)["logs"]
    return done.code, log, invoke("diagnose", str(folder)).text


def engine(log: dict[str, Any]) -> dict[str, Any]:
    (found,) = log["storage_engine"]
    return dict(found)


def test_a_clean_stop_has_lost_nothing(data: Path) -> None:
    code, log, text = diagnosed(data)
    assert code == 0 and log["well"] and text.startswith("ok ")
    assert (engine(log)["committed_to"], engine(log)["missing"], engine(log)["missing_bytes"]) == (COMMITTED, None, 0)
    assert f"engine    InnoDB has committed at least up to {COMMITTED} (its pages may be older than" in text


def test_a_log_that_ends_before_innodb_is_a_loss_of_so_many_bytes(data: Path) -> None:
    with (data / "bin.000003").open("r+b") as file:
        file.truncate(2166 - 23 - 150)
    code, log, text = diagnosed(data)
    assert code == 1 and engine(log)["missing_bytes"] >= 150
    assert "for replicas and point-in-time recovery, although InnoDB has them" in text and "RESET MASTER" not in text


@pytest.mark.parametrize("cut", [0, 50])
def test_after_a_crash_the_redo_log_is_applied(cut: int, tmp_path: Path) -> None:
    """MariaDB 10.11's engine had committed the transaction with XID 14, and had the three after it as prepared."""
    folder = logs_of("mariadb-10.11", PREPARED, "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    (last,) = (number for number in log.find(16) if log.events[number].body == struct.pack("<Q", 14))
    end = 4 + sum(23 + len(event.body) for event in log.events[: last + 1])
    if cut:
        (folder / "bin.000003").write_bytes((folder / "bin.000003").read_bytes()[: end - cut])
    _, one, text = diagnosed(folder)
    assert engine(one)["committed_to"] == f"bin.000003:{end}"
    assert engine(one)["missing_bytes"] in ((0,) if not cut else range(cut, cut + 60))
    assert f"InnoDB has committed up to bin.000003:{end}" in text and "may be older" not in text


def test_a_missing_log_is_a_loss(data: Path) -> None:
    (data / "bin.000003").unlink()
    (data / "bin.index").write_text("./bin.000002\n")
    code, log, text = diagnosed(data)
    assert code == 1 and engine(log)["missing"] == "bin.000003" and "bin.000003 is missing" in text


def test_logs_that_may_have_been_reset_are_no_alarm(data: Path) -> None:
    """RESET MASTER begins with number 1; InnoDB keeps the old position until its next commit."""
    (data / "bin.000003").unlink()
    (data / "bin.000002").rename(data / "bin.000001")
    with (data / "bin.000001").open("r+b") as file:  # only the head: no ROTATE to a log that is gone
        file.truncate(256)
    (data / "bin.index").write_text("./bin.000001\n")
    code, log, text = diagnosed(data)
    assert code == 0 and log["losses"] == [] and "no loss if the logs were reset (RESET MASTER)" in text


@pytest.mark.parametrize("fault", ["checksum", "trx_sys", "short", "zeros"])
def test_pages_that_are_not_proven_are_not_read(data: Path, fault: str) -> None:
    system = data / "ibdata1"
    content = bytearray(system.read_bytes())
    if fault == "checksum":
        at = content.find(b"./bin.000003")
        while at >= 0:
            content[at - 1] ^= 1
            at = content.find(b"./bin.000003", at + 1)
    elif fault == "trx_sys":
        content[5 * 16384 + 60] ^= 1
    system.write_bytes(content[:100] if fault == "short" else bytes(len(content)) if fault == "zeros" else content)
    code, log, text = diagnosed(data)
    assert code == 0 and COMMITTED not in text
    assert not any(one["committed_to"].startswith("bin.000003:") for one in log["storage_engine"])


OPTIONS = ("--log-bin=bin", "--server-id=1", "--skip-networking")


def filled(server: Server, first: int) -> str:
    """Some commits; the position after them, as the server says it."""
    server.run(b"CREATE DATABASE IF NOT EXISTS d; CREATE TABLE IF NOT EXISTS d.t (a INT PRIMARY KEY) ENGINE=InnoDB;")
    for number in range(first, first + 10):
        server.run(f"INSERT INTO d.t VALUES ({number});".encode())
    name, offset = server.ask("SHOW MASTER STATUS").split()[:2]
    return f"{name}:{offset}"


@pytest.mark.server
def test_mariadb_stopped_killed_and_with_a_log_cut_by_hand(tmp_path: Path) -> None:
    with Server(tmp_path / "s", *OPTIONS) as server:
        position = filled(server, 0)
    code, log, _ = diagnosed(server.data)
    assert code == 0 and engine(log)["committed_to"] == position and not engine(log)["missing_bytes"]
    cut = shutil.copytree(server.data, tmp_path / "cut")
    with (cut / "bin.000001").open("r+b") as file:
        file.truncate(int(position.partition(":")[2]) - 500)
    assert engine(diagnosed(cut)[1])["missing_bytes"] >= 500
    with Server(tmp_path / "s", *OPTIONS) as server:
        filled(server, 100)
        server.kill()
    code, log, _ = diagnosed(server.data)
    assert code == 0 and not engine(log)["missing"] and not engine(log)["missing_bytes"]


@pytest.mark.nightly
def test_mysql_stores_no_position(tmp_path: Path) -> None:
    programs = programs_of("mysql-9")
    assert programs is not None, "make the tree with .ci/server-tree mysql-9"
    with Server(tmp_path / "s", *OPTIONS, programs=programs) as server:
        server.run(b"CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (1);")
    assert (server.data / "ibdata1").exists()
    assert diagnosed(server.data)[1]["storage_engine"] == []
