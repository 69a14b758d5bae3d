"""`convert --append` beside a real Tarantool that writes, rotates and is killed, killed itself: every row once."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.export.appending import Key, append, commit, demand_files, demand_kill, keys, run_killed
from tests.export.killing import NIGHTLY, Killer, can_trace
from tests.formats.tarantool.server import program
from tests.sampling import EXHAUSTIVE

ROUNDS = 8 if EXHAUSTIVE else 4
WRITER = """
local folder, seed, pause = arg[1], tonumber(arg[2]), tonumber(arg[3])
box.cfg{work_dir = folder, wal_dir = 'wal', memtx_dir = 'snap', vinyl_dir = 'snap', log = 'server.log',
    wal_max_size = 16384, checkpoint_count = 1000, checkpoint_interval = 0, memtx_memory = 64 * 1024 * 1024}
local one = box.schema.space.create('one', {if_not_exists = true})
one:create_index('pk', {if_not_exists = true})
local two = box.schema.space.create('two', {if_not_exists = true})
two:create_index('pk', {if_not_exists = true})
math.randomseed(seed)
io.stdout:write('ready\\n') io.stdout:flush()
while true do
    if math.random(40) == 1 then box.snapshot() end
    box.begin()
    for _ = 1, math.random(6) do
        local key, text = math.random(1000), string.rep('x', math.random(400))
        if math.random(4) == 1 then two:replace{key, text} two:update(key, {{'=', 2, 'y'}})
        elseif math.random(5) == 1 then one:delete(key)
        else one:replace{key, text} end
    end
    if math.random(10) == 1 then box.rollback() else box.commit() end
    require('fiber').sleep(pause)
end
"""
READER = """
local json, xlog, made = require('json'), require('xlog'), setmetatable({}, {__serialize = 'seq'})
for _, row in xlog.pairs(arg[1]) do table.insert(made, row.HEADER.lsn) end
io.stdout:write(json.encode(made)) os.exit(0)
"""
pytestmark = pytest.mark.skipif(program() is None, reason="no tarantool")


@contextmanager
def writing(home: Path, seed: int, pause: float = 0.002) -> Iterator[None]:
    """A server that writes without end, and is killed at the end of the block. pause: between transactions, seconds."""
    words = [str(program()), str(home / "writer.lua"), str(home), str(seed), str(pause)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=home)
    try:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n", server.stdout
        yield
    finally:
        server.kill()
        server.communicate()


def said_by_the_server(log: Path) -> list[Key]:
    """The rows of a file of the log, as Tarantool reads it itself."""
    done = subprocess.run([str(program()), "-", str(log)], input=READER.encode(), capture_output=True, check=True)
    return [(0, log.name, lsn) for lsn in json.loads(done.stdout)]


def purged(home: Path, out: Path) -> list[Key]:
    """Removes files that the output has to their end and the server does not need; what the server says of them."""
    snapshot = max(path.stem for path in (home / "snap").glob("*.snap"))
    files = sorted((home / "wal").glob("*.xlog"))
    done = {one["name"] for one in commit(out).get("inputs", ()) if one["done"] and not one["gone"]}
    made = list[Key]()
    for path, behind in itertools.pairwise(files):
        if str(path) in done and behind.stem <= snapshot:
            made += said_by_the_server(path)
            path.unlink()
    return made


@pytest.mark.full
@pytest.mark.parametrize("to", ["jsonl", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_every_row_of_a_tarantool_that_writes_rotates_and_is_killed_is_there_once(to: str, tmp_path: Path) -> None:
    chance, home, out = random.Random(to), tmp_path / "server", tmp_path / "out"
    for folder in ("wal", "snap"):
        (home / folder).mkdir(parents=True)
    (home / "writer.lua").write_text(WRITER)
    killed, said = 0, list[Key]()
    for number in range(ROUNDS):
        with writing(home, number):
            time.sleep(chance.uniform(0.1, 0.5))
            if number == ROUNDS // 2:
                killed += demand_kill(home / "wal", out, to, 0.2)
            killed += run_killed(home / "wal", out, to, chance.choice([0.2, 0.4, 0.8, 1.6, 60]))
        killed += run_killed(home / "wal", out, to, chance.choice([0.2, 0.8, 60]))
        said += purged(home, out)
    assert append(home / "wal", out, to, final=True).exit_code == 0
    said += [key for path in sorted((home / "wal").glob("*.xlog")) for key in said_by_the_server(path)]
    assert killed > 0 and len({file for _, file, _ in said}) > ROUNDS
    assert keys("tarantool", out) == said


@pytest.mark.nightly
@pytest.mark.skipif(not can_trace(), reason="no process may stop another one at its system calls here")
@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_two_hundred_kills_beside_a_tarantool_that_is_killed_itself(to: str, tmp_path: Path) -> None:
    chance, home, out = random.Random(f"{to} {NIGHTLY}"), tmp_path / "server", tmp_path / "out"
    for folder in ("wal", "snap"):
        (home / folder).mkdir(parents=True)
    (home / "writer.lua").write_text(WRITER)
    killer, said, servers = Killer(chance, to), list[Key](), 0
    while killer.kills < NIGHTLY:
        servers += 1
        with writing(home, servers, 0.05):
            if servers == 1:
                killer.through(home / "wal", tmp_path / "first")  # imports what a run needs
            for _ in range(min(10, NIGHTLY - killer.kills)):
                killer.kill(home / "wal", out, tmp_path / "trial")
                if chance.random() < 0.25:
                    killer.through(home / "wal", out)
        said += purged(home, out)
    beside = len(said)
    killer.through(home / "wal", out, final=True)
    said += [key for path in sorted((home / "wal").glob("*.xlog")) for key in said_by_the_server(path)]
    killer.demand_spread(NIGHTLY)
    demand_files(out)
    print(f"{servers} servers were killed; {len(said):,} rows, {beside:,} of them in files that were purged")
    assert beside and keys("tarantool", out) == said
