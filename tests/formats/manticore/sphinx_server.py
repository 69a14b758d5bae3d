"""A real searchd (Sphinx 2.2, Manticore 2.8), started once on a copy of a binlog directory: what it says and holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 30
_READY = "accepting connections"


@dataclass(frozen=True, slots=True)
class Started:
    """How one start went. reason: the server's last words, where it did not start; log: all that it said.

    rows: of each index, every row by its id, as text. tids: of each index, the last transaction that was replayed.
    """

    started: bool
    reason: str
    log: str
    rows: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    tids: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each index."""
        return {name: len(rows) for name, rows in self.rows.items()}


def program() -> str | None:
    """The installed server's program, if it and a client that speaks its protocol are there."""
    return shutil.which("searchd") if shutil.which("mariadb") else None


def start(
    binlog: Path | None, configuration: str, *, flags: Sequence[str] = (), statements: Sequence[str] = (),
    keep: Path | None = None, server: str | None = None,
) -> Started:  # fmt: skip
    """Starts the server with empty indexes on a copy of `binlog` (None: without a log), reads every row and kills it.

    configuration: with <DIR> where its directory must be named; it listens only on a socket in there. statements: to
    be carried out before the rows are read. keep: where the log is copied to that the killed server left. server: its
    program, if it is not the installed one.
    """
    server = server or program()
    assert server is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        (folder / "binlog").mkdir()
        for path in binlog.glob("binlog.*") if binlog else ():
            if path.is_dir():
                (folder / "binlog" / path.name).mkdir()
            else:
                shutil.copyfile(path, folder / "binlog" / path.name, follow_symlinks=False)
        text = re.sub(r"(?m)^ *listen=.*$", f" listen={folder}/socket:mysql41", configuration)
        (folder / "conf").write_text(text.replace("<DIR>", str(folder)))
        command = [server, "--config", str(folder / "conf"), "--nodetach", *flags]
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=folder)
        try:
            return _asked(process, folder, re.findall(r"(?m)^ *index +(\w+)", text), statements)
        finally:
            process.kill()
            process.wait(10)
            if keep is not None:
                shutil.copytree(folder / "binlog", keep, ignore=shutil.ignore_patterns("*.lock"))


def _asked(process: subprocess.Popen[bytes], folder: Path, indexes: list[str], statements: Sequence[str]) -> Started:
    deadline = time.monotonic() + START_SECONDS
    while _READY not in (log := _said(folder)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if _READY not in log:
        ended = process.poll() is not None
        log = _said(folder)
        fatal = re.findall(r"(?m)^FATAL: (?!last message).*$", log)
        return Started(False, fatal[-1] if fatal else "it ended" if ended else "no answer", log)
    for statement in [";\n".join(statements)] if statements else ():
        _client(folder, statement)
    everything = "SELECT * FROM {} ORDER BY id ASC LIMIT 100000 OPTION max_matches=100000"
    rows = {
        name: tuple(tuple(line.split("\t")) for line in _client(folder, everything.format(name)).split("\n")[:-1])
        for name in indexes
    }
    tids = re.findall(r"binlog: index (\w+): recovered from tid \d+ to tid (\d+)", log)
    return Started(True, "", log, rows, {name: int(tid) for name, tid in tids})


def _said(folder: Path) -> str:
    return (folder / "said").read_text("utf-8", "replace")


def _client(folder: Path, script: str) -> str:
    command = ["mariadb", "--no-defaults", "--skip-ssl", f"--socket={folder}/socket", "-N", "--batch"]
    done = subprocess.run(command, input=script.encode(), capture_output=True, timeout=60, check=True)
    return done.stdout.decode("utf-8", "replace")
