"""`convert --append`, killed anywhere while logs grow, rotate and are purged: every record is there once."""

from __future__ import annotations

import copy
import os
import random
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.pipeline.appending import Server, append, commit, expected, keys, rows, sources
from tests.pipeline.ibb_writer import IbbWriter

PLACES = 3.8
"""A run has some thousand lines of these files; a place is a power of ten up to this, as what is first is done once."""

NEVER = 1 << 60

TRACED = ("pipeline/append.py", "pipeline/commits.py", "writers/growing.py", "pipeline/growing.py")


def killed_at(place: int, log: Path, out: Path, to: str = "jsonl") -> bool:
    """Runs in a process that is killed at a line of the code that appends; was it? (It may have come to its end.)"""
    child = os.fork()
    if not child:
        left = place

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if event == "call":
                return line if frame.f_code.co_filename.endswith(TRACED) else None
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return line

        sys.settrace(line)
        try:
            append(log, out, to)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    ("kind", "to", "tries"),
    [
        ("tarantool", "jsonl", 6),
        pytest.param("tarantool", "jsonl", 120, marks=pytest.mark.nightly),
        pytest.param("mariadb", "jsonl", 120, marks=pytest.mark.nightly),
        pytest.param("mariadb", "orc", 200, marks=pytest.mark.nightly),
        pytest.param("tarantool", "avro", 200, marks=pytest.mark.nightly),
        pytest.param("mariadb", "csv", 200, marks=pytest.mark.nightly),
        pytest.param("tarantool", "json", 200, marks=pytest.mark.nightly),
    ],
)
def test_every_record_is_there_once_whatever_is_killed(
    kind: str, to: str, tries: int, samples: Path, tmp_path: Path
) -> None:
    log, out, chance = tmp_path / "log", tmp_path / "out", random.Random(f"{kind} {tries}")
    files = sources(kind, samples)[:3]
    server, killed, commits = Server(log, files, chance, pieces=max(2, tries // 6)), 0, set[int]()
    for _ in range(tries):
        if server and chance.random() < 0.8:
            server.write()
        before = keys(kind, out)
        if any(log.iterdir()):
            killed += killed_at(chance.choice([NEVER, int(10 ** chance.uniform(0, PLACES))]), log, out, to)
        assert keys(kind, out)[: len(before)] == before
        commits.add(commit(out).get("number", 0))
        server.purge(out)
    while server:
        server.write()
    assert append(log, out, to, final=True).exit_code == 0
    assert killed >= tries // 6 and len(commits) > 1
    assert keys(kind, out) == [key for file in files for key in expected(kind, file)]
    listed = {one["path"] for one in commit(out)["outputs"]}
    assert {path.name for path in out.iterdir()} == {"_binlogtool", *listed}


GROUPS = 120


def event(code: int, body: bytes) -> bytes:
    """An event as it stands in a group of an InnoDB binlog."""
    return struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body


def pages(folder: Path, chance: random.Random) -> Iterator[dict[str, bytes]]:
    """The files of an InnoDB binlog after each group: filled in place, at their full size from the beginning on."""
    log = IbbWriter(folder, pages=6)
    for number in range(1, GROUPS + 1):
        gtid, text = struct.pack("<QIB6x", number, 0, 12), b"d\0" + b"x" * chance.randrange(6000)
        events = [event(162, gtid), event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + text), event(16, bytes(8))]
        log.group((0, 1, number), events, chance.choice([None, None, 900]))
        made = copy.deepcopy(log)
        made.folder = folder / str(number)
        yield {path.name: path.read_bytes() for path in made.close()}


@pytest.mark.parametrize("tries", [8, pytest.param(120, marks=pytest.mark.nightly)])
def test_every_group_of_an_innodb_binlog_is_there_once_whatever_is_killed(tries: int, tmp_path: Path) -> None:
    log, out, chance, killed = tmp_path / "log", tmp_path / "out", random.Random(tries), 0
    log.mkdir()
    (tmp_path / "made").mkdir()
    states = list(pages(tmp_path / "made", chance))
    seen = sorted(chance.sample(range(GROUPS - 1), tries)) if tries < GROUPS else range(GROUPS)
    purged = set[str]()
    for number in (*seen, GROUPS - 1):
        for name, data in states[number].items():
            if name not in purged:
                with open(log / name, "r+b" if (log / name).exists() else "wb") as file:
                    file.write(data)
        killed += killed_at(chance.choice([NEVER, int(10 ** chance.uniform(0, PLACES))]), log, out)
        for one in commit(out).get("inputs", ()):
            if one["done"] and chance.random() < 0.5:
                purged.add(Path(one["name"]).name)
                Path(one["name"]).unlink(missing_ok=True)
    assert append(log, out, final=True).exit_code == 0
    assert killed >= tries // 4
    told = [row["seq"] for row in rows(out) if row["type"] == "COMMIT"]
    assert told == list(range(1, GROUPS + 1)) and len(states[-1]) > 4
