"""`convert --append` beside real servers that write, rotate and purge, killed anywhere: every record once."""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.export.appending import append, commit, demand_files, rows, run_killed
from tests.export.killing import NIGHTLY, Killer, can_trace
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of

ROUNDS = 12
pytestmark = pytest.mark.skipif(Server.program() is None, reason="no mariadbd")


def keys(out: Path) -> list[tuple[Any, ...]]:
    """The key of each row, as another reader finds it."""
    return [
        (row["generation"], row["file"], row["record"], json.dumps(row.get("inner")))
        for row in rows(out)
        if row["type"] != "DAMAGE"
    ]


@pytest.mark.full
@pytest.mark.parametrize("to", ["jsonl", "csv", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_every_event_of_a_mariadb_that_writes_rotates_and_purges_is_there_once(to: str, tmp_path: Path) -> None:
    chance, out, kept, killed = random.Random(to), tmp_path / "out", list[tuple[str, int]](), 0
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options) as server:
        assert server.run(b"CREATE DATABASE w; CREATE TABLE w.t (id INT AUTO_INCREMENT PRIMARY KEY, a TEXT)") == ""
        for number in range(ROUNDS):
            text = b"".join(
                b"INSERT INTO w.t (a) VALUES (REPEAT('x', %d));" % chance.randrange(2000) for _ in range(40)
            )
            assert server.run(text) == ""
            if number % 3 == 2:
                assert server.run(b"FLUSH BINARY LOGS") == ""
            killed += run_killed(server.data, out, to, chance.choice([0.2, 0.4, 0.8, 1.6, 60]))
            kept = _purge(server, out, kept)
        assert server.run(b"FLUSH BINARY LOGS") == ""
        assert append(server.data, out, to).exit_code == 0
        last = [one for one in server.logs() if one[0] not in dict(kept)][:-1]
        kept += [(name, len(server.events(name))) for name, _ in last]
    found = keys(out)
    assert killed > 0 and len(set(found)) == len(found)
    told = Counter(Path(file).name for _, file, *_ in found)
    assert {name: told[name] for name, _ in kept} == dict(kept) and len(kept) > 3


def _purge(server: Server, out: Path, kept: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Removes the logs that were taken to their end; what SHOW BINLOG EVENTS said of them."""
    done = [Path(one["name"]).name for one in commit(out).get("inputs", ()) if one["done"] and not one["gone"]]
    gone = [name for name in done if name not in dict(kept)]
    made = [*kept, *((name, len(server.events(name))) for name in gone)]
    if gone:
        names = [name for name, _ in server.logs()]
        behind = names[names.index(max(gone)) + 1]
        assert server.run(f"PURGE BINARY LOGS TO '{behind}'".encode()) == ""
    return made


FILL = b"""CREATE DATABASE w; CREATE TABLE w.t (id INT AUTO_INCREMENT PRIMARY KEY, a TEXT);
DELIMITER //
CREATE PROCEDURE w.fill() BEGIN
  DECLARE number INT DEFAULT 0;
  WHILE number < 100 DO
    START TRANSACTION;
    INSERT INTO w.t (a) VALUES (REPEAT('x', RAND() * 2000)), ('y');
    UPDATE w.t SET a = 'z' WHERE id = FLOOR(1 + RAND() * 1000);
    COMMIT;
    DO SLEEP(0.02);
    SET number = number + 1;
  END WHILE;
END //
DELIMITER ;
"""


@contextmanager
def filling(server: Server) -> Iterator[None]:
    """A client writes transactions without end."""
    ended = threading.Event()

    def fill() -> str:
        said = ""
        while not said and not ended.is_set():
            said = server.run(b"CALL w.fill()")
        return said

    assert server.run(FILL) == ""
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(fill)
        try:
            yield
        finally:
            ended.set()
        assert said.result() == ""


@pytest.mark.nightly
@pytest.mark.skipif(not can_trace(), reason="no process may stop another one at its system calls here")
@pytest.mark.parametrize("to", ["jsonl", "json", "avro", "parquet"])
@pytest.mark.parametrize("name", ["mariadb", pytest.param("mysql-9", marks=pytest.mark.nightly)])
def test_two_hundred_kills_beside_a_server_that_writes_rotates_and_purges(name: str, to: str, tmp_path: Path) -> None:
    programs = None if name == "mariadb" else programs_of(name)
    if programs is None and name != "mariadb":
        pytest.skip(f"no tree of {name}")
    chance, out, kept = random.Random(to), tmp_path / "out", dict[str, list[int]]()
    killer = Killer(chance, to)
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *options, programs=programs) as server:
        killer.through(server.data, tmp_path / "first")  # imports what a run needs
        with filling(server):
            while killer.kills < NIGHTLY:
                killer.kill(server.data, out, tmp_path / "trial")
                if chance.random() < 0.25:
                    killer.through(server.data, out)
                if chance.random() < 0.2:
                    assert server.run(b"FLUSH BINARY LOGS") == ""
                kept |= _purged(server, out, set(kept))
        assert server.run(b"FLUSH BINARY LOGS") == ""
        killer.through(server.data, out)
        behind = [log for log, _ in server.logs()][-1]
        purged = len(kept)
        kept |= {log: _offsets(server, log) for log, _ in server.logs() if log not in (*kept, behind)}
    killer.demand_spread(NIGHTLY)
    demand_files(out)
    found = dict[str, list[int]]()
    for row in rows(out):
        found.setdefault(Path(row["file"]).name, []).append(row["offset"])
    found.pop(behind, None)
    assert purged > 10 and found == kept and {row["generation"] for row in rows(out)} == {0}
    print(f"{purged} files were purged, {len(kept)} compared, {sum(map(len, kept.values())):,} events")


def _offsets(server: Server, log: str) -> list[int]:
    return [event.at for event in server.events(log)]


def _purged(server: Server, out: Path, known: set[str]) -> dict[str, list[int]]:
    """Removes the logs that were taken to their end; what SHOW BINLOG EVENTS said of them."""
    done = {Path(one["name"]).name for one in commit(out).get("inputs", ()) if one["done"] and not one["gone"]}
    made = {log: _offsets(server, log) for log in done - known}
    if made:
        names = [log for log, _ in server.logs()]
        assert server.run(f"PURGE BINARY LOGS TO '{names[names.index(max(made)) + 1]}'".encode()) == ""
    return made
