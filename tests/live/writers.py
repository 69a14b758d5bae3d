"""Real servers that write, rotate, purge and collect for as long as a test needs them."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.formats.mysql_binlog.server import Server
from tests.formats.tarantool.server import program as tarantool

WRITE = """
box.cfg{work_dir = arg[1], log = 'server.log', memtx_memory = 64 * 1024 * 1024, vinyl_memory = 2 * 1024 * 1024,
    checkpoint_count = 1, checkpoint_interval = 0, wal_max_size = 256 * 1024, vinyl_run_count_per_level = 2}
local fiber = require('fiber')
local m = box.schema.space.create('mem', {if_not_exists = true})
m:create_index('pk', {if_not_exists = true})
local v = box.schema.space.create('vin', {engine = 'vinyl', if_not_exists = true})
v:create_index('pk', {if_not_exists = true, page_size = 1024, range_size = 1024 * 1024})
local stop, taking, n = false, false, 0
fiber.create(function()
    while not stop do
        fiber.sleep(0.7)
        taking = not stop
        if taking then pcall(box.snapshot) end
        taking = false
    end
end)
local fio, till = require('fio'), fiber.time() + tonumber(arg[2])
while fiber.time() < till and not (n % 100 == 0 and fio.path.exists(arg[3])) do
    n = n + 1
    m:replace{n % 5000, n, 'memory', ('x'):rep(n % 200)}
    v:replace{n % 3000, n, ('y'):rep(n % 300)}
    if n % 7 == 0 then v:delete{(n * 3) % 3000} end
    if n % 97 == 0 then v:upsert({n % 3000, 0}, {{'+', 2, 1}}) end
    if n % 5 == 0 then fiber.sleep(0.001) end
end
stop = true
while taking do fiber.sleep(0.01) end
print(n, m:count(), v:count())
io.stdout:flush()
os.exit(0)
"""

SETUP = b"CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE=InnoDB;\n"
BINLOG = (
    "--log-bin=bin", "--skip-networking", "--server-id=1", "--max-binlog-size=16384", "--sync-binlog=0",
    "--binlog-format=ROW",
)  # fmt: skip


class Tarantool:
    """A server that fills a space in memory and one on disk, and takes a snapshot every 0.7 s, of which it keeps one.

    folder: its data directory. seconds: the longest that it writes. end: ends it; returns what it said: rows written,
    and rows in both.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        server = tarantool()
        assert server is not None
        self._end = folder.with_name("end")
        words = [server, "-", str(folder), str(seconds), str(self._end)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(WRITE.encode())
        self._process.stdin.close()
        self._process.stdin = None

    def end(self) -> tuple[int, ...]:
        self._end.touch()
        out, err = self._process.communicate(timeout=180)
        assert self._process.returncode == 0, err.decode()
        return tuple(map(int, out.split()))

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


class Writing:
    """Writes into a MariaDB server in a thread of its own, rotates its log often, and purges all but the last files.

    `purged` counts the files that it let the server remove; `wrong` is what the client complained about.
    """

    def __init__(self, server: Server, *, keep: int = 3) -> None:
        self._server, self._keep = server, keep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.purged = 0
        self.wrong = ""

    def _write(self) -> None:
        insert = b"INSERT INTO d.t (v) VALUES (REPEAT('a', 100)), (REPEAT('b', 500));\n"
        while not self._stop.is_set():
            script = insert * 20 + b"FLUSH BINARY LOGS;\n" + insert * 5
            logs = [name for name, _ in self._server.logs()]
            if len(logs) > self._keep:
                self.purged += len(logs) - self._keep
                script += f"PURGE BINARY LOGS TO '{logs[-self._keep]}';\n".encode()
            self.wrong = self.wrong or self._server.run(script)

    def __enter__(self) -> Self:
        assert not self._server.run(b"" if self._server.ask("SHOW DATABASES LIKE 'd'") else SETUP)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Writes no more."""
        self._stop.set()
        self._thread.join(120)
