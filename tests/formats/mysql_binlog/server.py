"""A real MariaDB server on a socket of its own, in a folder of its own, for as long as a test needs it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from pathlib import Path

OWN = ("information_schema", "performance_schema", "mysql", "sys")
START_SECONDS = 60


class Server:
    """`with Server(folder) as server: ...`. The folder's path must be short: it holds the socket.

    options: for the server; without them it writes no binary log and has no network.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._data, self._socket, self._log = folder / "data", folder / "s", folder / "log"
        self._options = options or ("--skip-log-bin", "--skip-networking")
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def program() -> str | None:
        """The server's program, if it is installed."""
        return shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")

    def __enter__(self) -> Server:
        program = self.program()
        assert program is not None
        user = f"--user={getpass.getuser()}"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={self._data}", user]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, capture_output=True, timeout=120)
        command = [program, "--no-defaults", f"--datadir={self._data}", f"--socket={self._socket}", user]
        command += [*self._options, "--innodb-buffer-pool-size=32M", "--event-scheduler=OFF"]
        command += ["--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M", "--pid-file=pid"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while self._client("-e", "SELECT 1").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self._log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)

    def _client(self, *arguments: str, script: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "-uroot", "--binary-mode", *arguments]
        return subprocess.run(command, input=script, capture_output=True, timeout=120, check=False)

    def run(self, script: bytes) -> str:
        """Runs a script; returns what the client complained about, and must be empty."""
        done = self._client(script=script)
        return done.stderr.decode("utf-8", "replace") or ("" if done.returncode == 0 else f"status {done.returncode}")

    def ask(self, query: str) -> str:
        """What a query gives: lines of values between tabs."""
        return self._client("-N", "-e", query).stdout.decode("utf-8", "replace")

    def databases(self) -> list[str]:
        """The databases that are not the server's own."""
        names = self._client("-N", "-e", "SHOW DATABASES").stdout.decode().split()
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
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        return done.stdout.decode("utf-8", "replace")

    def rows(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self._client("-N", "-e", f"SELECT COUNT(*) FROM {table}").stdout)
