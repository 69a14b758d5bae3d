"""Directories of a server's log with one thing wrong, and whether the server comes up with them.

`python -m tests.formats.mysql_binlog.starts mariadb-10.11` starts the server with each variant and compares what it did
with what `diagnose` says. With `--damages 300` or `--contents 300` it does so with random changes, from `--first` on,
all made from the recorded logs. `--record` keeps what the server did: with the logs, or with more random changes.
"""

from __future__ import annotations

import argparse
import atexit
import getpass
import json
import os
import random
import shutil
import struct
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import binlogtool
from binlogtool.repair.diagnose_startup import Diagnosis
from tests.archives import extract
from tests.byte_damage import change_bytes
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import programs_of
from tests.formats.mysql_binlog.start_contents import change_content

HERE = Path(__file__).parent
LOGS, RECORDED, RANDOM = HERE / "start_logs", HERE / "recorded_starts.json", HERE / "recorded_random_starts.json"
"""Logs of each server, closed and after a kill -9; what it did with the variants, and with random changes of them."""

SERVERS = ("mariadb-10.11", "mariadb-11.8", "mysql-9")
KINDS = ("closed", "crashed")
PREPARED = "prepared"
"""Logs of a server whose engine holds the last transaction as prepared after a kill -9: the log decides on its row."""

ENGINE_FILES = ("ibdata1", "undo001", "undo002", "undo003", "ib_logfile0")
ENGINE_KINDS = ("crashed", PREPARED)
"""Of these kinds of MariaDB's logs the engine's files are recorded in `engine.tar.xz`: it may hold transactions."""

START_SECONDS = 180

INDEX, NEWEST, MIDDLE, FIRST, STATE = "bin.index", "bin.000003", "bin.000002", "bin.000001", "bin.state"
WHOLE = b"./bin.000001\n./bin.000002\n./bin.000003\n"

Change = Callable[[Path], object]


def put(name: str, data: bytes) -> Change:
    """Other content of a file, which may be new."""
    return lambda folder: (folder / name).write_bytes(data)


def cut(name: str, size: int) -> Change:
    """The first bytes of a file only; negative: so many less."""
    return lambda folder: put(name, (folder / name).read_bytes()[:size])(folder)


def poke(name: str, offset: int, data: bytes) -> Change:
    """Other bytes at a place of a file."""

    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[offset : offset + len(data)] = data
        (folder / name).write_bytes(content)

    return change


def gone(*names: str) -> Change:
    """Without files."""
    return lambda folder: [(folder / name).unlink() for name in names]


def index(text: bytes) -> Change:
    """Another index."""
    return put(INDEX, text)


def both(*changes: Change) -> Change:
    """One after the other."""
    return lambda folder: [change(folder) for change in changes]


def append(name: str, data: bytes) -> Change:
    """More bytes at the end of a file."""
    return lambda folder: put(name, (folder / name).read_bytes() + data)(folder)


def other_type(number: int) -> Change:
    """A flipped bit in the type of an event of the newest log."""

    def change(folder: Path) -> None:
        content = bytearray((folder / NEWEST).read_bytes())
        at = 4
        for _ in range(number):
            at += struct.unpack_from("<I", content, at + 9)[0]
        content[at + 4] ^= 0x40
        (folder / NEWEST).write_bytes(content)

    return change


def as_folder(name: str) -> Change:
    """A directory instead of a file."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return change


def renamed(new: str) -> Change:
    """The newest log under another name, listed so."""
    lines = b"./bin.000001\n./bin.000002\n./" + new.encode() + b"\n"
    return both(lambda folder: (folder / NEWEST).rename(folder / new), index(lines))


def absolute(names: tuple[str, ...]) -> Change:
    """Some names of the index as absolute paths."""

    def change(folder: Path) -> None:
        lines = (f"{folder}/{name}" if name in names else f"./{name}" for name in (FIRST, MIDDLE, NEWEST))
        (folder / INDEX).write_text("".join(f"{line}\n" for line in lines))

    return change


VARIANTS: dict[str, Change] = {
    "intact": lambda folder: None,
    **{f"newest-cut-{size}": cut(NEWEST, size) for size in (0, 1, 3, 4, 5, 18, 23, 60, 122, 127, 200, 253, 260, 300)},
    **{f"newest-minus-{size}": cut(NEWEST, -size) for size in (1, 5, 20, 31, 40, 100)},
    **{f"newest-event-{number}-type": other_type(number) for number in range(1, 9)},
    "newest-magic": poke(NEWEST, 0, b"XXXX"),
    "newest-magic-last": poke(NEWEST, 1, b"\0"),
    "newest-zeros": lambda folder: put(NEWEST, bytes((folder / NEWEST).stat().st_size))(folder),
    "newest-garbage": put(NEWEST, bytes(range(1, 256)) * 5),
    "newest-head-type": poke(NEWEST, 8, b"\x99"),
    "newest-head-length-0": poke(NEWEST, 13, bytes(4)),
    "newest-head-length": poke(NEWEST, 13, b"\xff\xff\xff\x7f"),
    "newest-head-checksum": poke(NEWEST, 60, b"\x99"),
    "newest-head-zeros": poke(NEWEST, 22, bytes(19)),
    "index-blank-before-middle": index(WHOLE.replace(b"./bin.000002", b" ./bin.000002")),
    "newest-zeros-behind": append(NEWEST, bytes(500)),
    "newest-garbage-behind": append(NEWEST, b"\xa5garbage" * 60),
    "newest-missing": gone(NEWEST),
    "newest-directory": as_folder(NEWEST),
    "middle-missing": gone(MIDDLE),
    "first-missing": gone(FIRST),
    "all-missing": gone(FIRST, MIDDLE, NEWEST),
    "middle-empty": put(MIDDLE, b""),
    "first-empty": put(FIRST, b""),
    "middle-magic": poke(MIDDLE, 0, b"XXXX"),
    "first-magic": poke(FIRST, 0, b"XXXX"),
    "middle-cut": cut(MIDDLE, 10),
    "first-cut": cut(FIRST, 100),
    "index-missing": gone(INDEX),
    "index-empty": index(b""),
    "index-directory": as_folder(INDEX),
    "index-unfinished": index(WHOLE[:-1]),
    "index-torn": index(WHOLE[:-4]),
    "index-torn-more": index(WHOLE[:-8]),
    "index-crlf": index(WHOLE.replace(b"\n", b"\r\n")),
    "index-crlf-last": index(WHOLE[:-1] + b"\r\n"),
    "index-crlf-first": index(WHOLE.replace(b"1\n", b"1\r\n")),
    "index-joined-last": index(b"./bin.000001\n./bin.000002./bin.000003\n"),
    "index-joined-first": index(b"./bin.000001./bin.000002\n./bin.000003\n"),
    "index-blank-middle": index(b"./bin.000001\n\n./bin.000002\n./bin.000003\n"),
    "index-blank-first": index(b"\n" + WHOLE),
    "index-blank-last": index(WHOLE + b"\n"),
    "index-double-last": index(WHOLE + b"./bin.000003\n"),
    "index-double-first": index(b"./bin.000001\n" + WHOLE),
    "index-order": index(b"./bin.000002\n./bin.000001\n./bin.000003\n"),
    "index-newest-not-last": index(b"./bin.000001\n./bin.000003\n./bin.000002\n"),
    "index-absolute": absolute((FIRST, MIDDLE, NEWEST)),
    "index-absolute-first": absolute((FIRST,)),
    "index-bare": index(WHOLE.replace(b"./", b"")),
    "index-elsewhere": index(WHOLE.replace(b"./", b"/nowhere/")),
    "index-blank-behind": index(WHOLE[:-1] + b" \n"),
    "index-blank-before": index(WHOLE.replace(b"./bin.000003", b" ./bin.000003")),
    "index-comment": index(b"# a comment\n" + WHOLE),
    "index-garbage": index(b"\0\1\2garbage\xff\n"),
    "index-garbage-last": index(WHOLE + b"garbage\n"),
    "index-nul": index(WHOLE + bytes(6)),
    "index-zeros": index(bytes(39)),
    "index-newer-missing": index(WHOLE + b"./bin.000004\n"),
    "index-lacks-newest": index(WHOLE[:26]),
    "index-lacks-middle": index(b"./bin.000001\n./bin.000003\n"),
    "index-lacks-first": index(WHOLE[13:]),
    "newer-empty": put("bin.000004", b""),
    "newer-garbage": put("bin.000004", b"not a log"),
    "newer-unlisted": lambda folder: shutil.copy(folder / NEWEST, folder / "bin.000009"),
    "purge-left": put("bin.~rec~", b"./bin.000001\n"),
    "purge-left-empty": put("bin.~rec~", b""),
    "purge-left-garbage": put("bin.~rec~", b"\xff\xfegarbage"),
    "crash-safe-left": put("bin.index_crash_safe", WHOLE),
    "crash-safe-only": both(put("bin.index_crash_safe", WHOLE), gone(INDEX)),
    "state-garbage": put(STATE, b"garbage\n"),
    "state-garbage-unfinished": put(STATE, b"\xff\xfe\0\1"),
    "state-empty": put(STATE, b""),
    "state-old": put(STATE, b"0-1-3\n"),
    "state-newer": put(STATE, b"0-1-99\n"),
    "state-mixed": put(STATE, b"0-1-15\ngarbage\n"),
    "state-unfinished": put(STATE, b"0-1-15"),
    "state-crlf": put(STATE, b"0-1-15\r\n"),
    "state-joined": put(STATE, b"0-1-150-2-3\n"),
    "state-blank-first": put(STATE, b"\n0-1-15\n"),
    "state-blank-last": put(STATE, b"0-1-15\n\n"),
    "state-space": put(STATE, b" 0-1-15 \n"),
    "state-two": put(STATE, b"0-1-15,1-1-1\n"),
    "state-double": put(STATE, b"0-1-15\n0-1-15\n"),
    "state-number-too-long": put(STATE, b"0-1-" + b"9" * 40 + b"\n"),
    "state-domain-too-large": put(STATE, b"99999999999-1-1\n"),
    "number-last": renamed("bin.2147483647"),
    "number-seven-digits": renamed("bin.1000000"),
}  # fmt: skip


def damage(rng: random.Random, folder: Path) -> str:
    """Change the newest log, the index or the state once or twice; say how."""
    said = [_damage_log(rng, folder) if rng.random() < 0.6 else _damage_text(rng, folder)]
    if rng.random() < 0.2:
        said.append(_damage_text(rng, folder))
    return "; ".join(said)


def _damage_log(rng: random.Random, folder: Path) -> str:
    name = NEWEST if rng.random() < 0.8 else rng.choice((FIRST, MIDDLE))
    path = folder / name
    content = bytearray(path.read_bytes())
    size = len(content)
    at = rng.randrange(min(size, 330)) if rng.random() < 0.5 else rng.randrange(size)
    length = rng.choice((1, 4, 19, 60, 300))
    kind = rng.choice(("cut", "flip", "zero", "random", "remove", "insert", "zeros-appended"))
    change_bytes(content, kind, at, length, rng)
    path.write_bytes(content)
    return f"{name} {kind} {at}+{length}"


def _damage_text(rng: random.Random, folder: Path) -> str:
    path = folder / (INDEX if rng.random() < 0.7 or not (folder / STATE).exists() else STATE)
    content = bytearray(path.read_bytes() or b"\n")
    at = rng.randrange(len(content))
    kind = rng.choice(("cut", "byte", "line", "remove-line", "double-line", "crlf", "join", "spaces"))
    lines = bytes(content).splitlines(keepends=True)
    number = rng.randrange(len(lines))
    if kind == "cut":
        content = content[:at]
    elif kind == "byte":
        content[at] = rng.choice(b"\0\n\r 0123456789./-x\xff")
    else:
        line = lines[number]
        lines[number : number + 1] = {
            "line": [rng.choice((b"\n", b"#x\n", b"bin.000009\n", b"./bin.000002\n", b"0-1-2\n", b"x\n")), line],
            "remove-line": [],
            "double-line": [line, line],
            "crlf": [line.replace(b"\n", b"\r\n")],
            "join": [line.rstrip(b"\n")],
            "spaces": [b" " + line if rng.random() < 0.5 else line.replace(b"\n", b" \n")],
        }[kind]
        content = bytearray(b"".join(lines))
    path.write_bytes(content)
    return f"{path.name} {kind} {at} {number}"


GENERATORS: Mapping[str, Callable[[random.Random, Path], str]] = {"damages": damage, "contents": change_content}


def kind_of(number: int) -> str:
    """The kind of logs that a random change is made to."""
    return KINDS[number % len(KINDS)]


def change(generator: str, number: int, folder: Path) -> str:
    """Make the random change of a number; say which."""
    return GENERATORS[generator](random.Random(f"{generator} {number}"), folder)


# -- the servers -------------------------------------------------------------------------------------------------------


class Did(NamedTuple):
    """Return whether the server came up, and, if it did, once more after that.

    said: its errors. gtids, rows: its GTIDs and the rows of the table after the first start; None = they were not read.
    """

    starts: tuple[bool, ...]
    said: str = ""
    gtids: str = ""
    rows: int | None = None

    @property
    def brief(self) -> str:
        """Y or n of each start."""
        return "".join("Y" if one else "n" for one in self.starts)


def programs(name: str) -> Programs | None:
    """The programs of a server; None where it is not there."""
    if name != SERVERS[0]:
        return programs_of(name)
    return None if Server.program() is None else Programs(Server.program() or "")


class Home:
    """A server's data directories, made once: with its logs closed, and after a kill -9."""

    def __init__(self, name: str, folder: Path) -> None:
        found = programs(name)
        assert found is not None
        self.name, self.folder, self.programs = name, folder, found
        small = ("--innodb-doublewrite=OFF", "--innodb-use-native-aio=OFF", "--skip-networking", "--server-id=1")
        if found.mysql:
            self.options = (*small, "--log-bin=bin", "--performance-schema=OFF", "--sync-binlog=0")
        else:
            self.options = (*small, "--log-bin=bin", "--innodb-fast-shutdown=0", "--binlog-format=ROW")

    def make(self, own_logs: bool = True) -> None:
        """Make the template of each kind; without its own logs, those that were recorded take their place."""
        for kind in KINDS:
            home = self.folder / kind
            home.mkdir(parents=True)
            with Server(home, *self.options, programs=self.programs) as server:
                script = "CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY, b VARCHAR(30)) ENGINE=InnoDB;"
                for first in (0, 5, 9):
                    script += "" if not first else "FLUSH BINARY LOGS;"
                    script += "".join(f"INSERT INTO d.t VALUES ({n}, 'row {n}');" for n in range(first, first + 4))
                assert not server.run(script.encode())
                if kind == "crashed":
                    server.kill()
            if not own_logs:
                for path in (home / "data").glob("bin.*"):
                    path.unlink()
                shutil.copytree(LOGS / self.name / kind, home / "data", dirs_exist_ok=True)

    def make_prepared(self) -> None:
        """Make the template whose engine holds transactions as prepared that are complete in the log."""
        home = self.folder / PREPARED
        home.mkdir(parents=True)
        flush = ("--innodb-flush-log-at-trx-commit=1", "--innodb-flush-log-at-timeout=2700")
        with Server(home, *self.options, *flush, programs=self.programs) as server:
            script = "CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY, b VARCHAR(30)) ENGINE=InnoDB;"
            script += "".join(f"INSERT INTO d.t VALUES ({n}, 'row {n}');" for n in range(4)) + "FLUSH BINARY LOGS;"
            script += "FLUSH BINARY LOGS;" + "".join(f"INSERT INTO d.t VALUES ({n}, 'row {n}');" for n in range(4, 8))
            assert not server.run(script.encode())
            if not self.programs.mysql:  # its engine writes a commit at once: the engine's files are those of before
                _commit_slowly(server, home)
            server.kill()

    def copy(self, kind: str) -> Path:
        """A new data directory of a kind."""
        data = self.folder / "work" / "data"
        shutil.rmtree(data.parent, ignore_errors=True)
        shutil.copytree(self.folder / kind / "data", data)
        return data

    def starts(self, data: Path) -> Did:
        """Start the server twice, each time ended by a kill."""
        first = self._start(data)
        if not first.starts[0]:
            return first
        second = self._start(data)
        return first._replace(starts=(True, second.starts[0]), said=second.said)

    def _start(self, data: Path) -> Did:
        command = [self.programs.server, "--no-defaults", f"--datadir={data}", f"--socket={data.parent}/s"]
        command += [f"--user={getpass.getuser()}", "--innodb-buffer-pool-size=8M", f"--pid-file={data}/pid"]
        command += ["--mysqlx=OFF", "--secure-file-priv=NULL"] if self.programs.mysql else []
        log = data.parent / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([*command, *self.options], stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if b"ready for connections" in log.read_bytes():
                    return Did((True,), "", *self._ask(data))
                time.sleep(0.01)
            assert process.poll() is not None, "neither up nor gone in time"
            errors = (line for line in log.read_text("utf-8", "replace").splitlines() if "ERROR" in line)
            return Did((False,), " | ".join(errors))
        finally:
            process.kill()
            process.wait()

    def _ask(self, data: Path) -> tuple[str, int | None]:
        variable = "gtid_executed" if self.programs.mysql else "gtid_binlog_state"
        command = [self.programs.client, "--no-defaults", f"--socket={data.parent}/s", "-uroot", "-N", "-B"]
        query = f"SELECT @@GLOBAL.{variable}; SELECT COUNT(*) FROM d.t"
        done = subprocess.run([*command, "-e", query], capture_output=True, timeout=120)
        lines = done.stdout.decode().replace("\\n", "").splitlines()
        if len(lines) != 2:
            return "", None
        gtids = lines[0].split(",")
        if self.programs.mysql:  # the data directory has GTIDs of its own, which are not in the recorded logs
            logs = b"".join(path.read_bytes() for path in data.glob("bin.0*"))
            gtids = [one for one in gtids if one and uuid.UUID(one.partition(":")[0]).bytes in logs]
        return ",".join(sorted(gtids)), int(lines[1])


def _commit_slowly(server: Server, home: Path) -> None:
    """Let three transactions wait between prepare and log, and put the log of afterwards to the files of then."""
    assert not server.run(b"SET GLOBAL binlog_commit_wait_count=100, GLOBAL binlog_commit_wait_usec=600000000")
    with ThreadPoolExecutor(3) as pool:
        texts = [f"INSERT INTO d.t VALUES ({n}, 'row {n}')".encode() for n in range(8, 11)]
        waiting = [pool.submit(server.run, text) for text in texts]
        while server.ask("SHOW ENGINE INNODB STATUS").count("ACTIVE (PREPARED)") < len(texts):
            assert not any(one.done() for one in waiting), [one.result() for one in waiting if one.done()]
        assert not server.run(b"FLUSH ENGINE LOGS")
        shutil.copytree(home / "data", home / "then")
        assert not server.run(b"SELECT * FROM d.t WHERE a = 8 FOR UPDATE")  # the server commits what another waits for
        assert not any(one.result() for one in waiting)
    for path in (home / "data").glob("bin.*"):
        shutil.copy(path, home / "then" / path.name)
    server.kill()
    shutil.rmtree(home / "data")
    (home / "then").rename(home / "data")


@contextmanager
def temporary_home(name: str) -> Iterator[Home]:
    """An empty home in memory, for as long as it is needed."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bt-", dir=place) as folder:
        yield Home(name, Path(folder))


@contextmanager
def home_of(name: str, own_logs: bool = True) -> Iterator[Home]:
    """A home in memory with the templates of all kinds."""
    with temporary_home(name) as home:
        home.make(own_logs)
        yield home


# -- predictions -------------------------------------------------------------------------------------------------------


class Engine(NamedTuple):
    """Rows that the engine of the `PREPARED` logs has, and the XIDs of more rows, each prepared."""

    rows: int
    prepared: frozenset[int]


class Prediction(NamedTuple):
    """Prediction of `diagnose`.

    start: "n", "Y" and whether the start after that fails, or "?" where it is open. gtids, xids: GTIDs after crash
    recovery, and the transactions that it commits if they are prepared; None where nothing is said of them.
    """

    start: str
    gtids: str | None
    xids: frozenset[int] | None = None

    def rows_with(self, engine: Engine) -> int | None:
        """Return the rows of the table after a start with the `PREPARED` logs of a server."""
        if self.xids is None or self.gtids is None or self.start not in ("YY", "Yn"):
            return None
        return engine.rows + len(engine.prepared & self.xids)

    def is_wrong_about(self, did: RecordedStart) -> bool:
        """Return whether the server did something else: other starts, or other GTIDs after crash recovery."""
        if verdict(self.start, did.starts) != "right":
            return self.start != "?"
        if self.gtids is None or did.gtids is None or self.gtids == did.gtids:
            return False  # MariaDB's state lists each server of a domain, the prediction only the last one
        return ":" in did.gtids or not set(self.gtids.split(",")) <= set(did.gtids.split(","))


def predicted(data: Path) -> str:
    """Return the prediction of the start."""
    return predict(data).start


def predict(data: Path) -> Prediction:
    """Return what `diagnose` says of a data directory."""
    (one,) = binlogtool.diagnose([data]).logs
    details = one.replays[0].details if one.replays else {}
    recovery = details.get("crash_recovery", {})
    gtids, xids = recovery.get("gtid"), recovery.get("last_xids")
    text = None if gtids is None else ",".join(sorted(str(gtids).split(",")))
    return Prediction(_start_of(one), text, None if xids is None else frozenset(xids))


ENGINES: Mapping[str, Engine] = {
    "mariadb-10.11": Engine(8, frozenset({18, 19, 20})),
    "mariadb-11.8": Engine(8, frozenset({18, 19, 20})),
    "mysql-9": Engine(7, frozenset({19})),
}
"""The engines of the recorded logs."""


def _engine_of(home: Home) -> Engine:
    """Return the engine of a new template: the transactions of its last XIDs are prepared."""
    recorded_engine, xids = ENGINES[home.name], predict(home.copy(PREPARED)).xids or frozenset()
    last_xids = sorted(xids)[-len(recorded_engine.prepared) :]
    return Engine(recorded_engine.rows, frozenset(last_xids))


def _start_of(one: Diagnosis) -> str:
    if one.start not in ("yes", "no"):
        return "?"
    last = any(found.facts.get("next_start") == "refuse" for replay in one.replays for _, found in replay.findings)
    return "n" if one.start == "no" else "Yn" if last else "YY"


def verdict(said: str, did: str) -> str:
    """right, wrong or open."""
    return "open" if said == "?" else "right" if said == did else "wrong"


def logs_of(name: str, kind: str, variant: str, folder: Path) -> Path:
    """The recorded logs of a server with a variant, as if in a data directory; no server is needed."""
    _copy_logs(name, kind, folder)
    VARIANTS[variant](folder)
    return folder


def changed_logs_of(name: str, generator: str, number: int, folder: Path) -> str:
    """Write the recorded logs of a server with the random change of a number; say which."""
    _copy_logs(name, kind_of(number), folder)
    return change(generator, number, folder)


def change_prepared(number: int, folder: Path) -> str:
    """Make the random change of a number to the `PREPARED` logs; say which."""
    return change([*GENERATORS][number % len(GENERATORS)], 200_000 + number, folder)


def prepared_logs_of(name: str, number: int, folder: Path) -> str:
    """Write the recorded `PREPARED` logs of a server with the random change of a number; say which."""
    _copy_logs(name, PREPARED, folder)
    return change_prepared(number, folder)


def _copy_logs(name: str, kind: str, folder: Path) -> None:
    shutil.copytree(LOGS / name / kind, folder)
    engine = _unpack_engines(name) / kind
    if not engine.exists():
        (folder / "ibdata1").write_bytes(bytes(100))
    else:
        for path in engine.iterdir():
            _link(path, folder / path.name)


def _link(path: Path, to: Path) -> None:
    try:
        to.hardlink_to(path)
    except OSError:
        shutil.copy(path, to)


@cache
def _unpack_engines(name: str) -> Path:
    """Unpack the engine's files of a server, once in a process; they are never written."""
    folder = Path(tempfile.mkdtemp(prefix="bt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if (LOGS / name / "engine.tar.xz").exists():
        with tarfile.open(LOGS / name / "engine.tar.xz") as archive:
            extract(archive, folder)
    return folder


def _keep_engines(home: Home) -> None:
    """Record the engine's files of the templates."""
    with tarfile.open(LOGS / home.name / "engine.tar.xz", "w:xz", preset=9) as archive:
        for kind in ENGINE_KINDS:
            for path in sorted((home.folder / kind / "data").iterdir()):
                if path.name in ENGINE_FILES:
                    archive.add(
                        path, f"{kind}/{path.name}", filter=lambda one: one.replace(uid=0, gid=0, uname="", gname="")
                    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    for name in GENERATORS:
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument(f"--{PREPARED}", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--engines", action="store_true", help="record the engine's files of MariaDB's logs")
    given = parser.parse_args()
    if given.engines:
        with temporary_home(given.server) as home:
            home.make()
            home.make_prepared()
            _keep_engines(home)
        return
    if given.prepared:
        _run_prepared(given.server, range(given.first, given.first + given.prepared), record=given.record)
        return
    counts = {name: count for name in GENERATORS if (count := getattr(given, name))}
    with home_of(given.server, own_logs=not counts) as home:
        if not counts:
            if given.record:
                _keep_logs(home)
            did = {kind: dict(_run(home, kind, VARIANTS.items())) for kind in KINDS}
            if given.record:
                _keep(RECORDED, given.server, did)
        for name, count in counts.items():
            first = given.first
            did = list(_run_random(home, name, range(first, first + count)))
            if given.record:
                before = recorded(given.server, name)[:first]
                assert len(before) == first, f"only {len(before)} are recorded"
                _keep_random(f"{given.server} {name}", [*before, *did])


class RecordedStart(NamedTuple):
    """Recorded behaviour of a server at its start.

    starts: as `Did.brief`. gtids, rows: its GTIDs, and the rows of the table, after crash recovery; None = not
    recorded.
    """

    starts: str
    gtids: str | None = None
    rows: int | None = None

    @property
    def text(self) -> str:
        """As it is recorded."""
        gtids = "" if self.gtids is None else f"={self.gtids}"
        rows = "" if self.rows is None else f"={self.rows}"
        return f"{self.starts} {gtids} {rows}".rstrip()

    @classmethod
    def parse(cls, text: str) -> RecordedStart:
        """Read what was recorded."""
        starts, gtids, rows, *_ = *text.split(" "), "", ""
        return cls(starts, gtids[1:] if gtids else None, int(rows[1:]) if rows else None)


def recorded(server: str, generator: str) -> list[RecordedStart]:
    """Return what the server did with each random change, by its number."""
    known = json.loads(RANDOM.read_text())[f"{server} {generator}"]
    outcomes = list(map(RecordedStart.parse, known["outcomes"]))
    return [outcomes[int(number)] for number in known["did"].split()]


def _keep_random(key: str, did: list[RecordedStart]) -> None:
    outcomes = [text for text, _ in Counter(one.text for one in did).most_common()]
    _keep(RANDOM, key, {"outcomes": outcomes, "did": " ".join(str(outcomes.index(one.text)) for one in did)})


def _keep(path: Path, key: str, value: object) -> None:
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {key: value}, indent=0, sort_keys=True) + "\n")


def _run_prepared(server: str, numbers: range, *, record: bool) -> None:
    with temporary_home(server) as home:
        home.make_prepared()
        engine, did, results = _engine_of(home), [], Counter[str]()
        for number in numbers:
            data = home.copy(PREPARED)
            what = change_prepared(number, data)
            said, start = predict(data), home.starts(data)
            gtids = None if home.programs.mysql or not start.starts[0] else start.gtids
            did.append(RecordedStart(start.brief, gtids, start.rows))
            if said.is_wrong_about(did[-1]) or said.rows_with(engine) not in (None, start.rows):
                print(f"{number} {what}: said {said}, {said.rows_with(engine)} rows, did {start}", flush=True)
            results[verdict(said.start, start.brief)] += 1
        print(server, PREPARED, dict(results), flush=True)
        if record:
            _keep_logs(home, (PREPARED,))
            _keep_random(f"{server} {PREPARED}", did)


def _keep_logs(home: Home, kinds: Iterable[str] = KINDS) -> None:
    for kind in kinds:
        to = LOGS / home.name / kind
        to.mkdir(parents=True, exist_ok=True)
        for path in (home.folder / kind / "data").glob("bin.*"):
            shutil.copy(path, to / path.name)


def _run(home: Home, kind: str, changes: Iterable[tuple[str, Change]]) -> Iterator[tuple[str, str]]:
    count: Counter[str] = Counter()
    for name, make_change in changes:
        data = home.copy(kind)
        make_change(data)
        yield name, _compare(home, data, f"{kind} {name}", count).brief
    print(home.name, kind, dict(count), flush=True)


def _run_random(home: Home, generator: str, numbers: range) -> Iterator[RecordedStart]:
    count: Counter[str] = Counter()
    for number in numbers:
        data, kind = home.copy(kind_of(number)), kind_of(number)
        did = _compare(home, data, f"{kind} {number}: {change(generator, number, data)}", count)
        has_gtids = kind == "crashed" and did.starts[0] and did.rows is not None
        yield RecordedStart(did.brief, did.gtids if has_gtids else None)
    print(home.name, generator, dict(count), flush=True)


def _compare(home: Home, data: Path, what: str, count: Counter[str]) -> Did:
    said, gtids, _ = predict(data)
    did = home.starts(data)
    result = verdict(said, did.brief)
    if result == "right" and did.starts[0] and gtids is not None and gtids != did.gtids:
        count["other GTIDs"] += 1
        print(f"GTIDs: {what}: said {gtids}, did {did.gtids}", flush=True)
    count[result] += 1
    if result != "right":
        print(f"{result}: {what}: said {said}, did {did.brief} {did.said[:300]}", flush=True)
    return did


if __name__ == "__main__":
    main()
