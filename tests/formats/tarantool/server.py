"""A real Tarantool server, started once on a copy of a data directory: what it says, and what it then holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 120
SCRIPT = """
local json, msgpack = require('json'), require('msgpack')
local ok, err = pcall(box.cfg, {work_dir = arg[1], log = 'started.log', force_recovery = arg[2] == 'true',
    memtx_memory = 64 * 1024 * 1024, vinyl_memory = 8 * 1024 * 1024, checkpoint_interval = 0, checkpoint_count = 1000,
    replication_synchro_quorum = 1})
if not ok then io.stderr:write(tostring(err), '\\n') os.exit(1) end
assert(loadstring(arg[3]))()
local rows, vclock, unreadable = {}, {}, {}
for _, space in box.space._space:pairs() do
    local here = box.space[space[1]]
    if space[1] >= 512 and here ~= nil and here.index[0] ~= nil then
        local found = {}
        local ok, err = pcall(function()
            for _, row in here:pairs() do
                table.insert(found, (msgpack.encode(row):gsub('.', function(c) return ('%02x'):format(c:byte()) end)))
            end
        end)
        if ok then rows[space[3]] = setmetatable(found, json.array_mt or {__serialize = 'seq'})
        else unreadable[space[3]] = tostring(err) end
    end
end
for replica, lsn in pairs(box.info.vclock) do vclock[tostring(replica)] = lsn end
local function map(of) return setmetatable(of, {__serialize = 'map'}) end
io.stdout:write(json.encode{rows = map(rows), vclock = map(vclock), unreadable = map(unreadable)})
io.stdout:flush()
os.exit(0)
"""


@dataclass(frozen=True, slots=True)
class Started:
    """How one start went. reason: the server's last words, where it did not start; log: its whole log.

    rows: of each space that is not the server's own, the MessagePack bytes of each row in the order of the primary
    index. vclock: LSN by replica. unreadable: spaces of which not every row can be read, and why.
    """

    started: bool
    reason: str
    log: str
    rows: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    vclock: Mapping[int, int] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each space."""
        return {name: len(rows) for name, rows in self.rows.items()}


def program() -> str | None:
    """The server's program, if it is installed."""
    return shutil.which("tarantool")


def start(folder: Path, *, force_recovery: bool = False, write: str = "", in_place: bool = False) -> Started:
    """Starts the server on a copy of `folder`, reads every row and stops it; it listens nowhere.

    write: a program in Lua to run before the rows are read. in_place: on `folder` itself, which stays as the server
    leaves it.
    """
    if in_place:
        return _started(folder, force_recovery, write)
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(folder, copy := Path(name, "data"), copy_function=shutil.copyfile)
        for path in (copy, *(p for p in copy.rglob("*") if p.is_dir())):
            path.chmod(0o755)
        return _started(copy, force_recovery, write)


def _started(folder: Path, force_recovery: bool, write: str) -> Started:
    server = program()
    assert server is not None
    log = folder / "started.log"
    log.unlink(missing_ok=True)
    command = [server, "-", str(folder), "true" if force_recovery else "false", write]
    try:
        done = subprocess.run(command, input=SCRIPT.encode(), capture_output=True, timeout=START_SECONDS, check=False)
        output, reason, status = done.stdout, done.stderr.decode("utf-8", "replace").strip(), done.returncode
    except subprocess.TimeoutExpired:
        output, reason, status = b"", f"no answer after {START_SECONDS} s", -1
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    if status or not output:
        return Started(False, reason.rpartition(" F> ")[2], text)
    value = json.loads(output)
    rows = {name: tuple(bytes.fromhex(row) for row in rows) for name, rows in value["rows"].items()}
    vclock = {int(replica): lsn for replica, lsn in value["vclock"].items()}
    return Started(True, reason, text, rows, vclock, value["unreadable"])
