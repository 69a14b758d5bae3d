"""Logs that grow in torn pieces, runs of `convert --append` over them, and what their output says."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.export.manifest import Manifest
from tests.harness.oracle_mysql import mysql_binlog

Key = tuple[int, str, int]
"""Generation, name of the file, and the LSN (Tarantool) or the offset (MariaDB) of a record."""

LOGS = {"tarantool": "tarantool/chain/*.xlog", "mariadb": "mysql_binlog/sets/mariadb/rot-bin.00000?"}


def append(log: Path, out: Path, to: str = "jsonl", **options: Any) -> Manifest:
    """One run."""
    return binlogtool.convert(log, to, out, append=True, **options)


def run_killed(log: Path, out: Path, to: str, after: float) -> bool:
    """A run in a process that is killed after some seconds; was it? One that ends by itself has done its work."""
    words = ["convert", "--append", "--to", to, "-o", str(out), str(log)]
    with subprocess.Popen([sys.executable, "-m", "binlogtool", *words], stdout=-3, stderr=subprocess.PIPE) as process:
        try:
            said = process.communicate(timeout=after)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=120)
            return process.returncode == -signal.SIGKILL
    assert process.returncode in (0, 1) and b"Traceback" not in said, said
    return False


def demand_kill(log: Path, out: Path, to: str, after: float) -> bool:
    """As `run_killed`, until one is: where this process waited too long for its turn, the other one had ended."""
    for _ in range(20):
        if run_killed(log, out, to, after):
            return True
        after /= 2
    return False


def sources(kind: str, samples: Path) -> list[Path]:
    """The files of a log that a server wrote, in their order; of Tarantool's those that it was asked about."""
    files = sorted(samples.glob(LOGS[kind]))
    return files[:-1] if kind == "tarantool" else files


def expected(kind: str, file: Path, generation: int = 0) -> list[Key]:
    """The records of a file, as Tarantool says itself, and as a reader tells that shares nothing with the product."""
    if kind == "mariadb":
        return [(generation, file.name, frame.start) for frame in mysql_binlog(file.read_bytes()).frames]
    said = gzip.decompress((file.parents[1] / "oracle" / f"{file.name}.json.gz").read_bytes()).splitlines()
    return [(generation, file.name, json.loads(line)["HEADER"]["lsn"]) for line in said]


def commit(out: Path) -> dict[str, Any]:
    """The highest one, as other programs read it."""
    number = max((int(path.stem) for path in (out / "_binlogtool").glob("*.json")), default=0)
    made: dict[str, Any] = json.loads((out / "_binlogtool" / f"{number}.json").read_bytes()) if number else {}
    return made


def rows(out: Path) -> list[dict[str, Any]]:
    """All rows of the output: those of the files that the highest commit lists."""
    made = []
    for one in commit(out).get("outputs", ()):
        path = out / one["path"]
        if path.suffix == ".jsonl":
            made += [json.loads(line) for line in path.read_bytes().splitlines()]
        else:
            made += _READERS[path.suffix](path)
    return made


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    numbers = ("generation", "offset", "seq", "record")
    return [{**row, **{name: int(row[name]) if row[name] else None for name in numbers}} for row in found]


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    return list(parquet.read_table(path).to_pylist())


def _orc(path: Path) -> list[dict[str, Any]]:
    import pyarrow.orc as orc

    return list(orc.read_table(path).to_pylist())


def _avro(path: Path) -> list[dict[str, Any]]:
    import fastavro

    with path.open("rb") as file:
        return [row for row in fastavro.reader(file) if isinstance(row, dict)]


def _json(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


_READERS = {".parquet": _parquet, ".orc": _orc, ".avro": _avro, ".csv": _csv, ".json": _json}


def demand_files(out: Path) -> None:
    """Each file that the highest commit lists is the one that it says, and no other lies there."""
    listed = {one["path"]: one["sha256"] for one in commit(out)["outputs"]}
    there = [path for path in out.iterdir() if path.name != "_binlogtool"]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in there} == listed


def keys(kind: str, out: Path) -> list[Key]:
    """What the rows say."""
    member = "offset" if kind == "mariadb" else "seq"
    return [(row["generation"], Path(row["file"]).name, row[member]) for row in rows(out) if row["type"] != "DAMAGE"]


class Server:
    """Writes the files of a log one after the other, in pieces that are torn anywhere, and purges what is done."""

    def __init__(self, folder: Path, files: list[Path], chance: random.Random, pieces: int = 5) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._chance = folder, chance
        self._pending = list(self._steps(files, pieces))

    def _steps(self, files: list[Path], pieces: int) -> Iterator[tuple[Path, bytes]]:
        for file in files:
            data = file.read_bytes()
            cuts = sorted(self._chance.randrange(1, len(data)) for _ in range(pieces - 1))
            for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                yield self._folder / file.name, data[begin:end]

    def __bool__(self) -> bool:
        return bool(self._pending)

    def write(self) -> None:
        """The next piece."""
        path, data = self._pending.pop(0)
        with path.open("ab") as file:
            file.write(data)

    def purge(self, out: Path) -> None:
        """Removes files that the output has to their end; a server keeps its last one."""
        newest = max((path.name for path in self._folder.iterdir()), default="")
        for one in commit(out).get("inputs", ()):
            if one["done"] and Path(one["name"]).name != newest and self._chance.random() < 0.5:
                Path(one["name"]).unlink(missing_ok=True)
