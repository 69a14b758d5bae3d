"""Generated contents of logs, with right checksums, and random damages of the files of a data directory.

Contents: requests, definitions and constraints, right and wrong ones.

`python -m tests.formats.tarantool.contents contents|damages FIRST COUNT` starts Tarantool on each, with and without
force_recovery, compares the prediction with what the server did, and prints what differs.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import binlogtool
from tests.byte_damage import change_bytes
from tests.formats.tarantool.make import END, block, row
from tests.formats.tarantool.server import Started, program, start

BASE = """
box.cfg{work_dir = arg[1], log_level = 1, wal_mode = 'write', checkpoint_count = 1}
local a = box.schema.space.create('a', {format = {{'id', 'unsigned'}, {'name', 'string'},
    {'num', 'number', is_nullable = true}}})
a:create_index('pk') a:create_index('name', {parts = {2, 'string'}})
local b = box.schema.space.create('b')
b:create_index('pk', {parts = {1, 'unsigned', 2, 'string'}})
b:create_index('third', {parts = {{3, 'integer', is_nullable = true}}, unique = true})
local c = box.schema.space.create('c', {field_count = 2})
c:create_index('pk', {type = 'hash', parts = {1, 'string'}})
local d = box.schema.space.create('d') d:create_index('pk', {parts = {1, 'scalar'}})
box.schema.space.create('empty')
for n = 1, 5 do a:insert{n, 'n' .. n, n * 1.5} b:insert{n, 'x', n} c:insert{'k' .. n, n} d:insert{n, 'v'} end
box.snapshot() os.exit(0)
"""
WRITTEN = """
box.cfg{work_dir = arg[1], log_level = 1, wal_mode = 'write', checkpoint_count = 2, checkpoint_interval = 0}
local a, c = box.space.a, box.space.c
for n = 6, 12 do a:insert{n, 'n' .. n, n * 1.5} end
box.snapshot()
for n = 6, 20 do c:insert{'k' .. n, n} end
box.begin() a:insert{13, 'n13', 1} a:update(1, {{'=', 2, 'one'}}) c:delete('k1') box.commit()
for n = 14, 30 do a:replace{n, 'n' .. n, n} end
os.exit(0)
"""
"""More writes: a second checkpoint and rows after it."""
A, B, C, D, EMPTY = 512, 513, 514, 515, 516
INSERT, REPLACE, UPDATE, DELETE, UPSERT, NOP = 2, 3, 4, 5, 9, 12
_SPACE, _INDEX, _TRUNCATE, _SCHEMA = 280, 288, 330, 272


class Request(NamedTuple):
    """A row without its place: type and body by the numbers of the protocol."""

    type: int
    body: dict[int, Any]


def base(folder: Path) -> Path:
    """A directory with a snapshot, written by the server."""
    server = program()
    assert server is not None
    subprocess.run([server, "-", str(folder)], input=BASE.encode(), check=True, timeout=60, capture_output=True)
    return folder


def written(folder: Path) -> Path:
    """A directory with two snapshots and rows after each, written by the server."""
    server = program()
    assert server is not None
    base(folder)
    subprocess.run([server, "-", str(folder)], input=WRITTEN.encode(), check=True, timeout=60, capture_output=True)
    return folder


def with_log(folder: Path, requests: list[Request], target: Path) -> Path:
    """A copy of the directory whose last log holds these requests, each a transaction of its own."""

    def blocks(lsn: int) -> bytes:
        headers = ({0: one.type, 2: 1, 3: n, 4: 1.5e9 + n} for n, one in enumerate(requests, lsn))
        return b"".join(block(row(head, one.body or None)) for head, one in zip(headers, requests, strict=True))

    return with_blocks(folder, blocks, target)


def with_blocks(folder: Path, blocks: Callable[[int], bytes], target: Path) -> Path:
    """A copy of the directory whose last log holds these blocks, made from the LSN of the first row."""
    shutil.copytree(folder, target, copy_function=shutil.copyfile)
    last = max(target.glob("*.xlog"))
    head, found, _ = last.read_bytes().partition(b"\n\n")
    vclock = next(line for line in head.split(b"\n") if line.startswith(b"VClock"))
    lsn = int(vclock.rpartition(b":")[2].strip(b" }"))
    last.write_bytes(head + found + blocks(lsn + 1) + END)
    return target


# -- generator ---------------------------------------------------------------------------------------------------------


class Generator:
    """Requests by a seed: about half of the contents have one that the server refuses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def requests(self) -> list[Request]:
        """One content."""
        makers: list[Callable[[], Request]] = [
            self.put, self.put, self.put, self.update, self.update, self.delete, self.upsert, self.nop, self.space,
            self.index, self.truncate, self.drop, self.odd, self.alter,
        ]  # fmt: skip
        return [self.random.choice(makers)() for _ in range(self.random.randint(1, 6))]

    def pick(self, *values: Any) -> Any:
        """One of these."""
        return self.random.choice(values)

    def value(self) -> Any:
        """A value of any type."""
        number = self.random.randint(-5, 10)
        return self.pick(number, abs(number), f"n{number}", number * 1.5, True, None, b"bin", [1], {"k": 1}, 2**63)

    def tuple_of(self, space: int) -> list[Any]:
        """A row, mostly one that fits."""
        n = self.random.randint(1, 9)
        rows: dict[int, list[Any]] = {
            A: [n, f"n{self.random.randint(1, 12)}", self.pick(n, n * 0.5, None)],
            B: [n, self.pick("x", "y"), self.pick(n, None, -n)],
            C: [f"k{n}", n],
            D: [self.pick(n, f"s{n}", n + 0.5, n + 0.0, True), "w"],
            EMPTY: [n],
        }
        made = rows.get(space, [n])
        if self.random.random() < 0.15:
            made[self.random.randrange(len(made))] = self.value()
        if self.random.random() < 0.08:
            made = made[: self.random.randint(0, len(made))]
        if self.random.random() < 0.08:
            made.append(self.value())
        return made

    def table(self) -> int:
        """A space, rarely one that is not there."""
        return int(self.pick(A, A, A, B, B, B, C, C, D, D, EMPTY) if self.random.random() < 0.95 else 777)

    def key(self, space: int) -> list[Any]:
        """A key of the primary index, mostly."""
        parts = {A: 1, B: 2, C: 1, D: 1}.get(space, 1)
        key = self.tuple_of(space)[:parts]
        return key if self.random.random() < 0.93 else self.pick([], [*key, 1], [None] * len(key), [[1]])

    def put(self) -> Request:
        """INSERT or REPLACE."""
        space = self.table()
        return Request(self.pick(INSERT, REPLACE, REPLACE), {0x10: space, 0x21: self.tuple_of(space)})

    def delete(self) -> Request:
        """DELETE, rarely by another index."""
        space = self.table()
        body = {0x10: space, 0x20: self.key(space)}
        if self.random.random() < 0.1:
            body[0x11] = self.random.randint(0, 3)
        return Request(DELETE, body)

    def operations(self) -> list[Any]:
        """Of an UPDATE or UPSERT."""
        made: list[Any] = []
        for _ in range(self.random.randint(0, 3)):
            name = self.pick("=", "=", "+", "-", "!", "#", ":", "&", "|", "^")
            field = self.pick(0, 1, 1, 2, 2, 2, 3, 4, -1, "num", "name", "none")
            argument = self.pick(1, 2, 2.5, "text", -1, None, self.value())
            made.append([name, field, argument] if name != ":" else [":", field, 1, 1, self.pick("x", 1)])
        if self.random.random() < 0.05:
            made.append(self.pick(["?", 1, 1], ["=", 1], [], 5, ["+", 1, 1, 1], [1, 1, 1]))
        return made

    def update(self) -> Request:
        """UPDATE."""
        space = self.table()
        return Request(UPDATE, {0x10: space, 0x20: self.key(space), 0x21: self.operations()})

    def upsert(self) -> Request:
        """UPSERT."""
        space = self.table()
        return Request(UPSERT, {0x10: space, 0x21: self.tuple_of(space), 0x28: self.operations()})

    def nop(self) -> Request:
        """NOP."""
        return Request(NOP, {})

    def space(self) -> Request:
        """A new space, often one that cannot be."""
        number = self.random.randint(600, 602)
        options = self.pick({}, {}, {"group_id": 1}, {"temporary": True}, {"future": 1}, {"group_id": 7},
                            {"is_sync": True}, {"view": True}, {"group_id": "x"})  # fmt: skip
        field = {"name": "f", "type": "unsigned"}
        form = self.pick([], [], [field], [{"type": "string"}], [{"name": "f", "type": "what"}], [field, field], [1],
                         [{**field, "is_nullable": True}], [{**field, "nullable_action": "none"}])  # fmt: skip
        engine = self.pick("memtx", "memtx", "memtx", "vinyl", "blackhole", "rocks")
        name = self.pick(f"new{number}", f"new{number}", "a", "", "line\nfeed")
        made = [number, 1, name, engine, self.pick(0, 0, 0, 1, 5), options, form]
        if self.random.random() < 0.08:
            made[self.random.randrange(len(made))] = self.value()
        return Request(self.pick(INSERT, INSERT, REPLACE), {0x10: _SPACE, 0x21: made})

    def alter(self) -> Request:
        """Another definition of a space that is there."""
        number, name = self.pick((A, "a"), (C, "c"), (EMPTY, "empty"))
        field = {"name": "id", "type": self.pick("unsigned", "string", "any", "scalar")}
        form = self.pick([], [field], [{**field, "name": "z", "is_nullable": True}])
        made = [number, 1, self.pick(name, name, "other", "b"), self.pick("memtx", "memtx", "vinyl"),
                self.pick(0, 0, 2, 3), self.pick({}, {}, {"group_id": 1}), form]  # fmt: skip
        return Request(REPLACE, {0x10: _SPACE, 0x21: made})

    def index(self) -> Request:
        """An index of a space."""
        parts = self.pick([[0, "unsigned"]], [[0, "unsigned"]], [[1, "string"]], [[2, "number"]], [[0, "what"]], [],
                          [{"field": 1, "type": "string"}], [{"field": 2, "type": "integer", "is_nullable": True}],
                          [[0, "unsigned"], [0, "unsigned"]], [{"field": 0, "odd": 1}], [[0]], [[0, "array"]],
                          [{"field": 5, "type": "unsigned"}])  # fmt: skip
        options = self.pick({"unique": True}, {"unique": True}, {"unique": False}, {}, {"what": 1}, {"unique": 1})
        space, number = self.pick(A, B, C, D, EMPTY, EMPTY, 600, 777), self.pick(0, 0, 1, 2, 5, 200)
        made = [space, number, self.pick("pk", "i", "second", ""), self.pick("tree", "tree", "hash", "rtree", "odd"),
                options, parts]  # fmt: skip
        return Request(self.pick(INSERT, INSERT, REPLACE), {0x10: _INDEX, 0x21: made})

    def truncate(self) -> Request:
        """A space is emptied."""
        return Request(REPLACE, {0x10: _TRUNCATE, 0x21: [self.pick(A, B, 600, 777, _SPACE), self.random.randint(1, 3)]})

    def drop(self) -> Request:
        """A space or an index is dropped."""
        if self.random.random() < 0.5:
            return Request(DELETE, {0x10: _SPACE, 0x20: [self.pick(A, EMPTY, EMPTY, 600, 777)]})
        return Request(DELETE, {0x10: _INDEX, 0x20: [self.pick(A, B, C, 600, _SPACE), self.pick(0, 1, 1, 2)]})

    def odd(self) -> Request:
        """A request that lacks something, or is of another type."""
        full = {0x10: self.table(), 0x20: [1], 0x21: [1, "odd"], 0x28: []}
        del full[self.pick(*full)]
        return Request(self.pick(1, INSERT, UPDATE, DELETE, UPSERT, 6, 13, 200), full)


# -- damage ------------------------------------------------------------------------------------------------------------


def damage(rng: random.Random, folder: Path) -> str:
    """Damage one or two files of a data directory; say how."""
    words = [_damage_one(rng, folder) for _ in range(1 if rng.random() < 0.85 else 2)]
    return "; ".join(words)


def _damage_one(rng: random.Random, folder: Path) -> str:
    logs, snapshots = sorted(folder.glob("*.xlog")), sorted(folder.glob("*.snap"))
    path = rng.choice([*logs, *logs[-1:] * 4, *snapshots, *snapshots[-1:]])
    if rng.random() < 0.15:
        return _damage_name(rng, path)
    content = bytearray(path.read_bytes())
    at = rng.randrange(min(len(content), 200)) if rng.random() < 0.3 else rng.randrange(len(content) or 1)
    kind, length = rng.choice(_KINDS), rng.choice((1, 4, 19, 60, 300))
    change_bytes(content, kind, at, length, rng)
    path.write_bytes(content)
    return f"{path.name} {kind} {at}+{length}"


_KINDS = ("cut", "cut", "flip", "flip", "zero", "random", "remove", "insert", "zeros-appended", "garbage-appended")


def _damage_name(rng: random.Random, path: Path) -> str:
    kind = rng.choice(("lost", "empty", "inprogress", "renamed", "short"))
    number = int(path.stem)
    if kind == "lost":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "inprogress":
        path.rename(path.with_name(f"{path.name}.inprogress"))
    elif kind == "renamed":
        path.rename(path.with_name(f"{number + rng.choice((-1, 1, 7)):020}{path.suffix}"))
    else:
        path.rename(path.with_name(f"{number}{path.suffix}"))
    return f"{path.name} {kind}"


# -- comparison --------------------------------------------------------------------------------------------------------


OPEN = "open"


def differences(folder: Path, started: Started, policy: str) -> Iterator[str]:
    """How a prediction differs from what the server did."""
    (found,) = binlogtool.replay([folder], policy=policy)
    said = found.stop.why if found.stop else ""
    if found.starts is None:
        yield f"{OPEN}: server {started.started} ({started.reason[-100:]})"
        return
    if found.starts != started.started:
        yield f"starts: tool {found.starts} ({said}), server {started.started} ({started.reason})"
        return
    if not started.started:
        crashed = said.startswith("the server crashes") and started.reason.startswith("Segmentation fault")
        if _kind(said) != _kind(started.reason) and not crashed:
            yield f"words: tool {said!r}, server {started.reason!r}"
        return
    mine = {one.name: one.keys or 0 for one in found.objects}
    unknown = {*found.unknown, *found.details.get("not_comparable", {})}
    for name, count in started.counts.items():
        if mine.get(name, 0) != count and name not in unknown:
            yield f"rows of {name}: tool {mine.get(name, 0)}, server {count}"


def _kind(text: str) -> str:
    """The kind of a message: its first words."""
    words = text.removeprefix("can't initialize storage: ").split()
    return " ".join(words[:2])


def compare(folder: Path, seeds: Iterable[int]) -> Iterator[tuple[int, str, str, bool]]:
    """For each seed and policy: seed, policy, what differs ("" = nothing), did the server start."""
    for seed in seeds:
        with tempfile.TemporaryDirectory() as name:
            made = with_log(folder, Generator(seed).requests(), Path(name, "data"))
            for policy, different, started in _compare_policies(made):
                yield seed, policy, different, started


def compare_damaged(folder: Path, numbers: Iterable[int]) -> Iterator[tuple[str, str, str, bool]]:
    """For each random damage and policy: damage, policy, what differs ("" = nothing), did the server start."""
    for number in numbers:
        with tempfile.TemporaryDirectory() as name:
            made = Path(shutil.copytree(folder, Path(name, "data"), copy_function=shutil.copyfile))
            what = damage(random.Random(f"damages {number}"), made)
            for policy, different, started in _compare_policies(made):
                yield f"{number} {what}", policy, different, started


def _compare_policies(made: Path) -> Iterator[tuple[str, str, bool]]:
    for policy, force in (("server", False), ("force", True)):
        started = start(made, force_recovery=force)
        yield policy, "; ".join(differences(made, started, policy)), started.started


def main(kind: str, first: int, count: int) -> None:
    """Print what differs, and the counts."""
    counts: Counter[str] = Counter()
    numbers = range(first, first + count)
    with tempfile.TemporaryDirectory() as name:
        make, run = (base, compare) if kind == "contents" else (written, compare_damaged)
        for what, policy, different, started in run(make(Path(name)), numbers):
            kinds = {"": "right", OPEN: "open", "words": "right, other words"}
            result = kinds.get(different.partition(":")[0], "wrong")
            counts[f"{policy}: {'starts' if started else 'stops'}, {result}"] += 1
            if different:
                print(what, policy, different, flush=True)
    for text, number in sorted(counts.items()):
        print(f"{text}: {number}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
