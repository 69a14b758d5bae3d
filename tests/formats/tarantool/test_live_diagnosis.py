"""`diagnose` beside a running server: rows, checkpoints, dumps and compactions go on while it reads."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from tests.formats.tarantool.server import program

pytestmark = pytest.mark.server

LOAD = """
box.cfg{work_dir = arg[1], log = '/dev/null', memtx_memory = 64 * 1024 * 1024, vinyl_memory = 4 * 1024 * 1024,
    checkpoint_interval = 0, checkpoint_count = 2, wal_max_size = 200000}
local fiber = require('fiber')
local m = box.schema.space.create('m')
m:create_index('pk')
local v = box.schema.space.create('v', {engine = 'vinyl'})
v:create_index('pk', {run_count_per_level = 2, range_size = 65536, page_size = 2048})
v:create_index('sk', {parts = {2, 'string'}, unique = false})
fiber.create(function() while true do box.snapshot() fiber.sleep(3) end end)
fiber.create(function() while true do pcall(function() v.index.pk:compact() end) fiber.sleep(1.5) end end)
local stop, i = fiber.time() + 1800, 0 -- the test kills it before
while fiber.time() < stop do
    for k = 1, 20 do
        i = i + 1
        m:replace{i % 5000, string.rep('x', math.random(10, 300))}
        v:replace{i % 3000, 's' .. i % 50, string.rep('y', math.random(10, 100))}
    end
    fiber.sleep(0.01)
end
os.exit(0)
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Path]:
    """The directory of a server under load."""
    server = program()
    if server is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    assert server is not None
    folder, script = tmp_path / "data", tmp_path / "load.lua"
    folder.mkdir()
    script.write_text(LOAD)
    running = subprocess.Popen([server, str(script), str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while len(list(folder.rglob("*.run"))) < 2:
            assert running.poll() is None and time.monotonic() < deadline, "the server writes no runs"
            time.sleep(0.1)
        yield folder
    finally:
        running.kill()
        running.wait()


def test_beside_a_server_under_load_nothing_is_wrong_and_the_server_is_named(busy: Path) -> None:
    """Not named at the moment between two files of its log, of which it has none open."""
    holders = []
    for _ in range(6):
        (found,) = binlogtool.diagnose([busy]).logs
        assert found.is_healthy, (found.start, found.incomplete_reason)
        assert found.start == ("yes" if found.unstable_reason is None else "open")
        holders.append(found.holder)
    named = [holder for holder in holders if holder is not None]
    assert named and all(holder.startswith("tarantool (process ") for holder in named)
