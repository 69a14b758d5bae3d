"""`convert --append` beside real servers that write, rotate and purge, killed anywhere: every record once."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.formats.mysql_binlog.server import Server
from tests.pipeline.appending import append, commit, rows, run_killed

ROUNDS = 12
pytestmark = pytest.mark.skipif(Server.program() is None, reason="no mariadbd")


def keys(out: Path) -> list[tuple[Any, ...]]:
    """The key of each row, as another reader finds it."""
    return [
        (row["generation"], row["file"], row["record"], json.dumps(row.get("inner")))
        for row in rows(out)
        if row["type"] != "DAMAGE"
    ]


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
