"""A real MariaDB (or MySQL) server on a socket of its own, in a folder of its own, for as long as a test needs it."""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

OWN = ("information_schema", "performance_schema", "mysql", "sys")
START_SECONDS = 180
REDO = "--innodb-log-file-size=8M"
MARIADB = (
    "--event-scheduler=OFF", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
    "--max-allowed-packet=64M", REDO,
)  # fmt: skip
MYSQL = ("--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-redo-log-capacity=8M")


@dataclass(frozen=True, slots=True)
class Programs:
    """The server's program, its client, and its tool that prints a log. mysql: MySQL's; otherwise MariaDB's.

    install: makes a data directory; None = as the installed MariaDB does.
    """

    server: str
    client: str = "mariadb"
    binlog: str = "mariadb-binlog"
    mysql: bool = False
    install: str | None = None


class Event(NamedTuple):
    """A line of SHOW BINLOG EVENTS."""

    at: int
    type: str


class DidNotStart(Exception):
    """With the end of the server's error log."""


TRIES = 3
"""How often a data directory is made, or a dump: what a busy machine may refuse once."""


def _install(program: list[str], data: Path, environment: dict[str, str]) -> None:
    command = [program[0], "--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}", *program[1:]]
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, timeout=120, env=environment)
        if not done.returncode:
            return
        shutil.rmtree(data, ignore_errors=True)
    raise DidNotStart(f"no data directory could be made: {(done.stdout + done.stderr)[-2000:]!r}")


@cache
def _empty() -> Path:
    """The data directory of a new server, by the installed MariaDB; made once in a process, others are copies."""
    folder = Path(tempfile.mkdtemp(prefix="bt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "tmp").mkdir()
    words = ["--auth-root-authentication-method=normal", "--skip-test-db", REDO]
    _install(["mariadb-install-db", *words], folder / "data", {**os.environ, "TMPDIR": str(folder / "tmp")})
    return folder / "data"


class Server:
    """`with Server(folder) as server: ...`. The folder's path must be short: it holds the socket.

    The data directory, `data` in it, is made by the installed MariaDB, unless it is there already: a folder can be
    used again with other options. options: for the server; without them it writes no binary log and has no network.
    programs: of another server than the installed one. Its directory for temporary tables is its own: a server that
    starts removes all of them, and another one that has just made one there ends with a segmentation fault.
    """

    def __init__(self, folder: Path, *options: str, programs: Programs | None = None) -> None:
        self._data, self._socket, self._log = folder / "data", folder / "s", folder / "log"
        self._tmp = folder / "tmp"
        self._options = options or ("--skip-log-bin", "--skip-networking")
        self._programs = programs or Programs(self.program() or "mariadbd")
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def program() -> str | None:
        """The server's program, if it is installed."""
        return shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")

    def __enter__(self) -> Server:
        self._tmp.mkdir(parents=True, exist_ok=True)
        if not self._data.exists():
            self._install()
        try:
            self._start()
        except BaseException:
            self.kill()
            raise
        return self

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self._tmp)}

    def _install(self) -> None:
        if self._programs.install is None:
            shutil.copytree(_empty(), self._data)
        else:
            _install([self._programs.install], self._data, self._environment())

    def _start(self) -> None:
        command = [self._programs.server, "--no-defaults", f"--datadir={self._data}", f"--socket={self._socket}"]
        command += [f"--user={getpass.getuser()}", "--innodb-buffer-pool-size=32M", f"--pid-file={self._data}/pid"]
        command += [*(MYSQL if self._programs.mysql else MARIADB), *self._options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment()
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._socket.exists() or self._client("-e", "SELECT 1").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DidNotStart(f"the server did not start: {self.said()[-2000:]}")
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def mysql(self) -> bool:
        """Is it MySQL?"""
        return self._programs.mysql

    @property
    def data(self) -> Path:
        """Its data directory, with its logs."""
        return self._data

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def said(self) -> str:
        """What the server wrote to its error log so far."""
        return self._log.read_text("utf-8", "replace")

    def complaints(self) -> list[str]:
        """The errors of its error log, without the time."""
        return [line.split("[ERROR]")[1].strip() for line in self.said().splitlines() if "[ERROR]" in line]

    def _client(self, *arguments: str, script: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [self._programs.client, "--no-defaults", f"--socket={self._socket}", "-uroot", "--binary-mode"]
        return subprocess.run([*command, *arguments], input=script, capture_output=True, timeout=120, check=False)

    def run(self, script: bytes) -> str:
        """Runs a script; returns what the client complained about, and must be empty."""
        done = self._client(script=script)
        return done.stderr.decode("utf-8", "replace") or ("" if done.returncode == 0 else f"status {done.returncode}")

    def talk(self, script: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
        """Runs a script in a client with these options, and returns all that it says."""
        return self._client(*options, script=script)

    def ask(self, query: str) -> str:
        """What a query gives: lines of values between tabs."""
        return self._client("-N", "-e", query).stdout.decode("utf-8", "replace")

    def logs(self) -> list[tuple[str, int]]:
        """SHOW BINARY LOGS: names and sizes."""
        lines = (line.split("\t") for line in self.ask("SHOW BINARY LOGS").splitlines())
        return [(line[0], int(line[1])) for line in lines]

    def events(self, log: str) -> list[Event]:
        """SHOW BINLOG EVENTS of one of its logs; none if it cannot read one of them.

        Without those inside a compressed transaction, which MySQL shows as lines that begin where they end.
        """
        lines = [line.split("\t") for line in self.ask(f"SHOW BINLOG EVENTS IN '{log}'").splitlines()]
        lines = [line for line in lines if len(line) >= 5 and line[0] == log]
        return [Event(int(at), kind) for _, at, kind, _, end, *_ in lines if at != end]

    def gtids(self) -> str:
        """The GTIDs that it says to have: MariaDB's state of the binary log, MySQL's executed set."""
        name = "gtid_executed" if self._programs.mysql else "gtid_binlog_state"
        return self.ask(f"SELECT @@GLOBAL.{name}").strip().replace("\\n", "")

    def version(self) -> str:
        """As it tells."""
        return self.ask("SELECT VERSION()").strip()

    def databases(self) -> list[str]:
        """The databases that are not the server's own."""
        done = self._client("-N", "-e", "SHOW DATABASES")
        assert not done.returncode, (done.stderr, self.said()[-500:])
        names = done.stdout.decode().split()
        return sorted(name for name in names if name not in OWN)

    def clear(self) -> None:
        """Drops them."""
        for name in self.databases():
            assert not self.run(f"DROP DATABASE `{name}`".encode())

    def content(self) -> str:
        """Definitions and rows of every table, and the routines, triggers and events."""
        command = ["mariadb-dump", "--no-defaults", f"--socket={self._socket}", "-uroot", "--hex-blob", "--routines"]
        command += ["--triggers", "--events", "--skip-comments", "--skip-extended-insert", "--order-by-primary"]
        command += ["--databases", *self.databases()]
        for _ in range(TRIES):
            done = subprocess.run(command, capture_output=True, timeout=120)
            if not done.returncode:
                return done.stdout.decode("utf-8", "replace")
        raise AssertionError(f"no dump: {done.stderr.decode('utf-8', 'replace')}; {self.said()[-500:]}")

    def rows(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self._client("-N", "-e", f"SELECT COUNT(*) FROM {table}").stdout)
