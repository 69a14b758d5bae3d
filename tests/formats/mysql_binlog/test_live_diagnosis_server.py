"""`diagnose` beside a running server: commits, XA transactions and rotations go on while it reads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import binlogtool
from binlogtool.report.diagnosis_and_replay import render_diagnosis_text
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.starts import SERVERS, Home, programs
from tests.sampling import EXHAUSTIVE

LOOKS = 20 if EXHAUSTIVE else 6
TABLE = b"CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(300)) ENGINE=InnoDB;"


class Writer(threading.Thread):
    """Commits rows and XA transactions, and rotates the log, about three times a second."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server, self.ended, self.batches = server, threading.Event(), 0

    def run(self) -> None:
        while not self.ended.wait(0.25):
            name = b"'x%d'" % self.batches
            script = b"INSERT INTO d.t (b) VALUES (REPEAT('x', 200));" * 40
            script += b"FLUSH BINARY LOGS;" if self.batches % 2 else b""
            script += b"XA START %b; INSERT INTO d.t (b) VALUES ('y'); XA END %b; XA PREPARE %b;" % (name, name, name)
            self.server.run(script + b"XA COMMIT %b;" % name)
            self.batches += 1


def _alarms(server: str, folder: Path) -> list[str]:
    if programs(server) is None:
        pytest.skip(f"{server} is not there")
    home = Home(server, folder)
    (folder / "live").mkdir()
    found: list[str] = []
    with Server(folder / "live", *home.options, programs=home.programs) as running:
        assert not running.run(TABLE)
        writer = Writer(running)
        writer.start()
        try:
            looks = 0
            while looks < LOOKS or writer.batches <= 5:
                looks += 1
                looked = binlogtool.diagnose([folder / "live/data"])
                if looked.failures or not all(one.is_healthy for one in looked.logs):
                    found += render_diagnosis_text(looked)
                time.sleep(0.05)
        finally:
            writer.ended.set()
            writer.join()
    return found


@pytest.mark.server
def test_nothing_is_wrong_beside_a_running_mariadb(tmp_path: Path) -> None:
    assert _alarms("mariadb-10.11", tmp_path) == []


@pytest.mark.nightly
@pytest.mark.parametrize("server", SERVERS[1:])
def test_nothing_is_wrong_beside_running_servers_of_other_versions(server: str, tmp_path: Path) -> None:
    assert _alarms(server, tmp_path) == []
