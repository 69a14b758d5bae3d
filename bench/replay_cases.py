"""replay-dry-run against the servers themselves: a recovery by Tarantool, and a binary log applied by MariaDB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import binlogtool
from bench import mysql_log
from bench.cases import TOOL, Case, Figure, Result, Setting, Skipped
from bench.measure import Series, cpu_of_child, rounds

TARANTOOL = "tarantool"
TOOL_OF_MARIADB = "mariadb-binlog"
ROWS = 2_000_000
"""Rows that the Tarantool server writes at full size: half of them stand in its snapshot, half in its logs."""

BINLOG_MIB = 24
DRY_RUN = [*TOOL, "replay-dry-run"]

CONFIGURE = "box.cfg{work_dir=arg[1], memtx_memory=3*2^30, wal_mode='write', checkpoint_count=1, log_level=1}\n"
WRITE = (
    CONFIGURE
    + """
local count, half = tonumber(arg[2]), tonumber(arg[2]) / 2
local space = box.schema.space.create('account')
space:create_index('primary')
local function write(number)
    if number % 20 == 19 then
        space:update({number - 7}, {{'+', 2, 1}, {'=', 3, 'changed'}})
    elseif number % 20 == 18 then
        space:delete({number - 11})
    else
        space:replace({number, number * 3, 'user ' .. number, number % 2 == 0, number * 1.5})
    end
end
for first = 0, count - 1, 100 do
    if first >= half and first - half < 100 then box.snapshot() end
    box.begin()
    for number = first, math.min(first + 100, count) - 1 do write(number) end
    box.commit()
end
os.exit(0)
"""
)
RECOVER = CONFIGURE + "os.exit(box.space.account and box.space.account:len() > 0 and 0 or 1)\n"


def replay(setting: Setting) -> Result:
    """replay-dry-run with and without the digest of the state, against the server's own work; whole processes."""
    yield from tarantool(setting)
    yield from mariadb(setting)


def tarantool(setting: Setting) -> Result:
    """A data directory that a server has written: its own recovery against the dry run."""
    if not shutil.which(TARANTOOL):
        yield Skipped("replay-dry-run against Tarantool's recovery", f"{TARANTOOL} is not installed")
        return
    folder = setting.directory / "instance"
    folder.mkdir()
    write, recover = setting.directory / "write.lua", setting.directory / "recover.lua"
    write.write_text(WRITE)
    recover.write_text(RECOVER)
    rows = max(int(ROWS * setting.scale), 20_000)
    subprocess.run([TARANTOOL, str(write), str(folder), str(rows)], check=True, timeout=1800, stderr=subprocess.DEVNULL)
    (found,) = binlogtool.replay([folder], digest=False)
    assert found.starts and found.is_clean, found
    records = sum(found.decisions.values())
    seen = rounds(
        setting.rounds,
        server=cpu_of_child([TARANTOOL, str(recover), str(folder)]),
        digest=cpu_of_child([*DRY_RUN, str(folder)]),
        plain=cpu_of_child([*DRY_RUN, "--no-digest", str(folder)]),
    )
    yield from compared(
        f"tarantool, {records:,} rows", "the server's recovery", records, seen, {"digest": 6.0, "plain": 3.0}
    )


def mariadb(setting: Setting) -> Result:
    """A binary log of small transactions: applied through the server's own tools against the dry run."""
    if not (mysql_log.installed() and shutil.which(TOOL_OF_MARIADB)):
        yield Skipped("replay-dry-run against MariaDB", "no MariaDB server is installed")
        return
    folder = setting.directory / "binlog"
    folder.mkdir()
    made = mysql_log.small(folder, setting.size(BINLOG_MIB))
    seen = rounds(
        setting.rounds,
        digest=cpu_of_child([*DRY_RUN, str(made.path)]),
        plain=cpu_of_child([*DRY_RUN, "--no-digest", str(made.path)]),
    )
    applied = Series(tuple(applied_by_server(setting.directory, made.path) for _ in range(setting.rounds)))
    title = f"mariadb, {made.rows:,} rows in {made.events:,} events"
    peer = f"{TOOL_OF_MARIADB} | {mysql_log.CLIENT}"
    yield from compared(title, peer, made.events, {**seen, "server": applied}, {"digest": 0.5, "plain": 0.5})


def compared(title: str, peer: str, records: int, seen: dict[str, Series], most: dict[str, float]) -> Result:
    """most: how many times the CPU of the peer may be used."""
    yield Figure(f"{title}: {peer}", seen["server"], "s CPU")
    for name, how in (("digest", "with the digest"), ("plain", "--no-digest")):
        yield Figure(f"{title}: replay-dry-run {how}", seen[name], "s CPU")
        yield Figure(f"{title}: the same", seen[name].inverse(records / 1e3), "k records/s")
        ratio = seen[name].over(seen["server"])
        yield Figure(f"{title}: CPU over that of {peer}", ratio, "x", most[name], at_least=False)


def applied_by_server(directory: Path, log: Path) -> float:
    """Seconds of CPU that a new server, the tool and the client take to apply a log of `bench.mysql_log`."""
    with tempfile.TemporaryDirectory(prefix="applying-", dir=directory) as home, mysql_log.server(Path(home)) as run:
        run(f"create database bench; use bench; {mysql_log.TABLE}{mysql_log.FILL}")
        (pid,) = (Path(home) / "data").glob("*.pid")
        server = cpu_of_process(int(pid.read_text()))
        before, children = server(), os.times()
        pipe(log, Path(home) / "socket")
        after = os.times()
        used = server() - before
        used += after.children_user + after.children_system - children.children_user - children.children_system
        run("shutdown;")
    return used


def pipe(log: Path, socket: Path) -> None:
    """mariadb-binlog | mariadb"""
    me = ["-uroot"] if os.geteuid() == 0 else []
    tool = subprocess.Popen([TOOL_OF_MARIADB, "--no-defaults", "--disable-log-bin", str(log)], stdout=subprocess.PIPE)
    client = [mysql_log.CLIENT, "--no-defaults", *me, f"--socket={socket}", "--binary-mode"]
    subprocess.run(client, stdin=tool.stdout, check=True, timeout=1800)
    if tool.wait(60):
        raise RuntimeError(f"{TOOL_OF_MARIADB} ended with {tool.returncode}")


def cpu_of_process(pid: int) -> Callable[[], float]:
    """What a running process has used so far."""

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return used


CASES: dict[str, Case] = {"replay": replay} if sys.platform == "linux" else {}
