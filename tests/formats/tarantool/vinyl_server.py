"""A data directory with a busy vinyl history made by the real server, and what a start makes of a damaged one."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.formats.tarantool.server import START_SECONDS, program

WORKLOAD = """
box.cfg{work_dir = arg[1], log = '/dev/null', memtx_memory = 64 * 1024 * 1024, vinyl_memory = 4 * 1024 * 1024,
    checkpoint_interval = 0, checkpoint_count = 3}
local fiber = require('fiber')
math.randomseed(tonumber(arg[2]))
local m = box.schema.space.create('m')
m:create_index('pk')
local function make(name, secondary)
    local s = box.schema.space.create(name, {engine = 'vinyl'})
    s:create_index('pk', {run_count_per_level = 2, range_size = 16384, page_size = 1024})
    if secondary then s:create_index('sk', {parts = {2, 'string'}, unique = false, run_count_per_level = 2}) end
    return s
end
local a, b, d, t, q = make('a', true), make('b', false), make('d', true), make('t', true), make('q', false)
local function fill(s, from, to)
    box.begin()
    for i = from, to do s:replace{i, 's' .. i % 50, string.rep('x', math.random(10, 60))} end
    box.commit()
end
for i = 1, 20 do m:replace{i} end
fill(a, 1, 100) fill(b, 1, 300) fill(d, 1, 50) fill(t, 1, 60) fill(q, 1, 400)
box.snapshot()
fill(a, 50, 200) fill(b, 200, 500) fill(t, 1, 30)
box.snapshot()
d:drop() t:truncate() fill(t, 100, 130)
for i = 1, 200 do q:delete(i) end
for i = 1, 100, 3 do a:delete(i) end
box.snapshot()
fill(a, 150, 260) fill(b, 600, 700)
local e = make('e', true)
fill(e, 1, 80)
a:create_index('third', {parts = {3, 'string', 1, 'unsigned'}})
box.snapshot()
for k = 1, 3 do
    a.index.pk:compact() a.index.sk:compact() b.index.pk:compact() q.index.pk:compact() fiber.sleep(0.2)
end
fill(a, 300, 330) fill(e, 81, 90) fill(b, 100, 120) q:delete(250) q:replace{1000, 'z', 'z'}
box.snapshot()
b.index.pk:compact() a.index.pk:compact() fiber.sleep(0.3)
fill(a, 400, 420) fill(b, 701, 720) fill(t, 131, 140)
local n = make('n', true)
fill(n, 1, 25)
local x = make('x', false)
fill(x, 1, 10) x:drop()
e:truncate() fill(e, 500, 505)
b:create_index('late', {parts = {2, 'string', 1, 'unsigned'}})
for i = 21, 30 do m:replace{i} end
os.exit(0)
"""
READ = """
local json, msgpack, digest = require('json'), require('msgpack'), require('digest')
local ok, err = pcall(box.cfg, {work_dir = arg[1], log = arg[3], force_recovery = arg[2] == 'true',
    memtx_memory = 64 * 1024 * 1024, vinyl_memory = 64 * 1024 * 1024, checkpoint_interval = 0, checkpoint_count = 1000})
if not ok then io.stderr:write(tostring(err), '\\n') os.exit(1) end
local found = {}
for _, space in box.space._space:pairs() do
    local here = box.space[space[1]]
    if space[1] >= 512 and here ~= nil then
        if here.index[0] == nil then found[space[3] .. '/0'] = 'no index' end
        for n, index in pairs(here.index) do if type(n) == 'number' then
            local rows = {}
            local ok, err = pcall(function()
                for _, row in index:pairs() do table.insert(rows, digest.md5_hex(msgpack.encode(row))) end
            end)
            found[space[3] .. '/' .. n] = ok and setmetatable(rows, {__serialize = 'seq'}) or tostring(err)
        end end
    end
end
io.stdout:write(json.encode(setmetatable(found, {__serialize = 'map'})))
io.stdout:flush()
os.exit(0)
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start. error: the last words where it failed. indexes: "space/index" -> rows, or why a read fails."""

    started: bool
    error: str = ""
    indexes: dict[str, list[str] | str] = field(default_factory=dict)


def make(folder: Path, seed: int) -> Path:
    """Let the server write a directory."""
    server = program()
    assert server is not None
    folder.mkdir()
    subprocess.run([server, "-", str(folder), str(seed)], input=WORKLOAD.encode(), timeout=60, check=True)
    return folder


def start(folder: Path, *, force_recovery: bool) -> Start:
    """Start the server on a copy and read every index."""
    server = program()
    assert server is not None
    with tempfile.TemporaryDirectory() as name:
        copy, log = Path(name, "data"), Path(name, "log")
        shutil.copytree(folder, copy)
        command = [server, "-", str(copy), "true" if force_recovery else "false", str(log)]
        done = subprocess.run(command, input=READ.encode(), capture_output=True, timeout=START_SECONDS, check=False)
    if done.returncode or not done.stdout:
        return Start(False, done.stderr.decode("utf-8", "replace").strip().rpartition(" F> ")[2])
    return Start(True, "", json.loads(done.stdout))
