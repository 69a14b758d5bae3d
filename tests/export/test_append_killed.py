"""`convert --append`, killed anywhere while logs grow, rotate and are purged: every record is there once."""

from __future__ import annotations

import copy
import itertools
import random
import shutil
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.export.appending import LOGS, Server, append, commit, demand_files, expected, keys, rows, sources
from tests.export.ibb_writer import IbbWriter
from tests.export.killing import NIGHTLY, Killer, can_trace

pytestmark = pytest.mark.skipif(not can_trace(), reason="no process may stop another one at its system calls here")


def longer(files: list[Path], folder: Path, count: int) -> list[Path]:
    """A log of that many files with the content of these, in turn."""
    (folder / "made").mkdir()
    return [Path(shutil.copy(files[n % len(files)], folder / "made" / f"rot-bin.{n + 1:06}")) for n in range(count)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "to", "kills"),
    [
        ("tarantool", "jsonl", 10),
        ("mariadb", "parquet", 10),
        *(
            pytest.param(kind, to, NIGHTLY, marks=pytest.mark.nightly)
            for kind in LOGS
            for to in ("jsonl", "parquet", "orc", "avro", "csv", "json")
        ),
    ],
)
def test_every_record_is_there_once_whatever_is_killed(
    kind: str, to: str, kills: int, samples: Path, tmp_path: Path
) -> None:
    log, out, chance = tmp_path / "log", tmp_path / "out", random.Random(f"{kind} {to} {kills}")
    files = (
        sources(kind, samples)[:3]
        if kind == "tarantool"
        else longer(sources(kind, samples), tmp_path, max(3, kills // 8))
    )
    server, killer, purged = Server(log, files, chance, pieces=max(3, kills // len(files))), Killer(chance, to), 0
    server.write()
    append(files[0], tmp_path / "first", to)  # imports what a run needs, so that system calls are those of its work
    while killer.kills < kills:
        before = keys(kind, out)
        if not killer.kill(log, out, tmp_path / "trial") or chance.random() < 0.3:
            assert server, killer
            server.write()
        assert keys(kind, out)[: len(before)] == before
        if chance.random() < 0.1:
            killer.through(log, out)
        there = len(list(log.iterdir()))
        server.purge(out)
        purged += there - len(list(log.iterdir()))
    while server:
        server.write()
    killer.through(log, out, final=True)
    killer.demand_spread(kills)
    assert purged >= (1 if kills >= NIGHTLY else 0)
    assert keys(kind, out) == [key for file in files for key in expected(kind, file)]
    demand_files(out)


def event(code: int, body: bytes) -> bytes:
    """An event as it stands in a group of an InnoDB binlog."""
    return struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body


def pages(folder: Path, chance: random.Random, groups: int, each: int) -> Iterator[dict[str, bytes]]:
    """The files of an InnoDB binlog, after so many groups each: filled in place, at full size from the beginning on."""
    log = IbbWriter(folder, pages=6)
    for number in range(1, groups + 1):
        gtid, text = struct.pack("<QIB6x", number, 0, 12), b"d\0" + b"x" * chance.randrange(6000)
        events = [event(162, gtid), event(2, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + text), event(16, bytes(8))]
        log.group((0, 1, number), events, chance.choice([None, None, 900]))
        if number % each:
            continue
        made = copy.deepcopy(log)
        made.folder = folder / str(number)
        yield {path.name: path.read_bytes() for path in made.close()}
        shutil.rmtree(made.folder)


def fill(folder: Path, state: dict[str, bytes], purged: set[str]) -> None:
    """The files of a log as they are in a state, in place."""
    for name, data in state.items():
        if name not in purged:
            with open(folder / name, "r+b" if (folder / name).exists() else "wb") as file:
                file.write(data)


@pytest.mark.full
@pytest.mark.parametrize(
    ("to", "kills"),
    [
        ("jsonl", 8),
        pytest.param("jsonl", NIGHTLY, marks=pytest.mark.nightly),
        pytest.param("parquet", NIGHTLY, marks=pytest.mark.nightly),
    ],
)
def test_every_group_of_an_innodb_binlog_is_there_once_whatever_is_killed(to: str, kills: int, tmp_path: Path) -> None:
    log, out, chance = tmp_path / "log", tmp_path / "out", random.Random(f"{to} {kills}")
    log.mkdir()
    (tmp_path / "made").mkdir()
    each = 8 if kills == NIGHTLY else 1  # reading goes on at every other page only
    groups, killer, purged = max(120, 2 * each * kills), Killer(chance, to), set[str]()
    states = pages(tmp_path / "made", chance, groups, each)
    state = next(states)
    append(tmp_path / "made" / str(each), tmp_path / "first", to)
    while killer.kills < kills:
        fill(log, state, purged)
        if not killer.kill(log, out, tmp_path / "trial") or chance.random() < 0.3:
            state = next(states)
        if chance.random() < 0.1:
            killer.through(log, out)
        for one in commit(out).get("inputs", ()):
            if one["done"] and chance.random() < 0.5:
                purged.add(Path(one["name"]).name)
                Path(one["name"]).unlink(missing_ok=True)
    (state,) = deque(itertools.chain((state,), states), maxlen=1)  # the rest of the log
    fill(log, state, purged)
    killer.through(log, out, final=True)
    killer.demand_spread(kills)
    told = [row["seq"] for row in rows(out) if row["type"] == "COMMIT"]
    assert told == list(range(1, groups + 1)) and len(state) > 4
