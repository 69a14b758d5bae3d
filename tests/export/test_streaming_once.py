"""Exactly once: the driver of a query is killed again and again while logs grow, are torn and rotate."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as parquet
import pytest

import binlogtool
from tests.export import following
from tests.sampling import EXHAUSTIVE

LOGS = {
    "tarantool": "tarantool/generated/chain/*.xlog",
    "mysql": "mysql-binlog/generated/mysql-9.7/relay/src-bin.00000?",
    "ibb": "mariadb-innodb-binlog/generated/dbase/*.ibb",
}
KILLS = 3 if EXHAUSTIVE else 1
PATIENCE_S = 240.0
Record = tuple[str, int | None, int, str]


class Servers:
    """Writes the files of each log one after the other, in pieces that are torn anywhere."""

    def __init__(self, folder: Path, corpus: Path, chance: random.Random) -> None:
        self.files = {name: sorted(corpus.glob(pattern)) for name, pattern in LOGS.items()}
        self._chance = chance
        self._pending = {name: list(self._steps(folder / name, files)) for name, files in self.files.items()}

    def _steps(self, folder: Path, files: list[Path]) -> Iterator[tuple[Path, bytes]]:
        folder.mkdir(parents=True)
        for file in files:
            data, at = file.read_bytes(), 0
            while at < len(data):
                end = at + self._chance.randrange(1, len(data) // 8 + 9)
                yield folder / file.name, data[at:end]
                at = end

    @property
    def left(self) -> int:
        return sum(map(len, self._pending.values()))

    def write(self) -> None:
        """The next piece of one of the logs."""
        name = self._chance.choice([name for name, steps in self._pending.items() if steps])
        path, data = self._pending[name].pop(0)
        with path.open("ab") as file:
            file.write(data)


@contextmanager
def driver(how: str, *paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program `following` with all its processes, which end with the block."""
    words = [sys.executable, following.__file__, how, *map(str, paths)]
    left = paths[0].with_name("left")  # what a killed session cannot remove
    left.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(left), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(words, start_new_session=True, env=env)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def batches(checkpoint: Path, kind: str) -> int:
    return sum(path.name.isdigit() for path in (checkpoint / kind).glob("*"))


def write_until_a_batch_is_under_way(servers: Servers, checkpoint: Path) -> None:
    """Pieces while the query runs, until it has committed two batches more and has planned another one."""
    before, end = batches(checkpoint, "commits"), time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end, "the query does not get on"
        done = batches(checkpoint, "commits")
        if done >= before + 2 and (batches(checkpoint, "offsets") > done or not servers.left):
            return
        if done > before and servers.left:
            servers.write()
        time.sleep(0.2)


def committed(folder: Path) -> Iterator[Path]:
    """The files of a streaming sink that other readers may read: the rule of docs/scale.md."""
    lists = sorted((folder / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem))
    packed = [path for path in lists if path.suffix == ".compact"][-1:]
    for one in packed + [path for path in lists if not packed or int(path.stem) > int(packed[0].stem)]:
        for line in one.read_text().splitlines()[1:]:  # the first one is the version
            entry = json.loads(line)
            if entry["action"] == "add":
                yield Path(urlsplit(entry["path"]).path)


def records_of(path: Path) -> list[Record]:
    with binlogtool.open(path) as log:
        return [(path.name, record.record, record.offset, record.type) for record in log.records()]


@pytest.mark.full
@pytest.mark.spark(alone=True)
def test_each_record_is_in_the_sink_once_although_the_driver_is_killed(corpus: Path, tmp_path: Path) -> None:
    chance = random.Random(8)
    servers = Servers(tmp_path / "in", corpus, chance)
    paths = (tmp_path / "in", tmp_path / "checkpoint", tmp_path / "out")
    for _ in range(KILLS):
        for _ in range(6):  # also while no driver runs
            servers.write()
        with driver("on", *paths):
            write_until_a_batch_is_under_way(servers, paths[1])
            time.sleep(chance.uniform(0, 1))
    while servers.left:
        servers.write()
    with driver("once", *paths) as last:
        assert last.wait(PATIENCE_S) == 0

    found = [row for path in committed(paths[2]) for row in parquet.read_table(path).to_pylist()]
    rows = sorted((*Path(row["file"]).parts[-2:], row["record"], row["offset"], row["type"]) for row in found)
    for name, files in servers.files.items():
        wanted = [(name, *record) for file in files for record in records_of(paths[0] / name / file.name)]
        of_log = [row for row in rows if row[0] == name]
        if name == "ibb":  # what stands behind the last border of pages waits: here in files 2 to 5
            assert len(of_log) >= sum(row[1] < files[2].name for row in wanted)
            wanted = wanted[: len(of_log)]
        assert of_log == wanted, name
