"""Workloads (tests/workloads/*.sql) through two servers: one logs them, the other one gets a script of the log.

    python -m tests.formats.mysql_binlog.workloads [--record] [-v] [SERVER[:WORKLOAD[/MODE],...] ...]

SERVER: mariadb (the installed one), or a tree of `.ci/server-tree`. A workload's head says which servers it is for and
in which modes of logging it runs; a line `-- new session` begins another one. What the second server has is compared
with what the first one has; the script of the server's own tool is the control.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_state import State, accounts, differences, state_of
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

FOLDER = Path(__file__).resolve().parents[2] / "workloads"
_USUAL = {"binlog_format": "'ROW'", "binlog_row_image": "'FULL'", "binlog_row_metadata": "'MINIMAL'"}
_OWN: Mapping[bool, Mapping[str, str]] = {
    True: {
        "binlog_row_value_options": "''",
        "binlog_transaction_compression": "OFF",
        "binlog_rows_query_log_events": "OFF",
    },
    False: {"log_bin_compress": "OFF", "log_bin_compress_min_len": "256", "binlog_annotate_row_events": "ON"},
}
"""What only MySQL (True) or MariaDB has."""
MODES: Mapping[str, Mapping[str, str]] = {
    "row": {},
    "full": {"binlog_row_metadata": "'FULL'"},
    "minimal-image": {"binlog_row_image": "'MINIMAL'"},
    "noblob-image": {"binlog_row_image": "'NOBLOB'"},
    "statement": {"binlog_format": "'STATEMENT'"},
    "mixed": {"binlog_format": "'MIXED'"},
    "partial-json": {"binlog_row_value_options": "'PARTIAL_JSON'", "binlog_row_image": "'MINIMAL'"},
    "partial-json-full": {"binlog_row_value_options": "'PARTIAL_JSON'", "binlog_row_metadata": "'FULL'"},
    "compressed": {"binlog_transaction_compression": "ON", "log_bin_compress": "ON", "log_bin_compress_min_len": "10"},
    "rows-query": {"binlog_rows_query_log_events": "ON", "binlog_annotate_row_events": "OFF"},
}
"""Global variables for each mode, over the usual ones; those that a server does not have are left out."""
GTID_STEPS = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@dataclass(frozen=True)
class Workload:
    """A file. servers: "mariadb", "mysql", "mariadb>=11.8", "mariadb<11". gtids: may MySQL log it with gtid_mode=ON?

    target: a global variable that the server that gets the scripts has otherwise than the one that logs.
    """

    name: str
    servers: tuple[str, ...]
    modes: tuple[str, ...]
    gtids: bool
    sessions: tuple[bytes, ...]
    target: str = ""


@dataclass(frozen=True)
class Run:
    """One script in one server. errors: what the client said; differences: what is not as in the server that logged."""

    way: str
    errors: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    status: int = 0
    told: str = ""
    script: str = ""


def workloads() -> list[Workload]:
    """All of them."""
    return [_read(path) for path in sorted(FOLDER.glob("*.sql"))]


def _read(path: Path) -> Workload:
    text = path.read_bytes()
    head = dict(re.findall(r"^-- (\w+): (.*)$", text[:300].decode("utf-8", "replace"), re.MULTILINE))
    servers, modes = (tuple(head[name].split()) for name in ("servers", "modes"))
    sessions = tuple(text.split(b"-- new session\n"))
    return Workload(path.stem, servers, modes, head.get("gtids") != "off", sessions, head.get("target", ""))


def is_for(load: Workload, server: str) -> bool:
    """server: "mariadb" is 10.11, else the name of a tree."""
    kind = server.split("-")[0]
    own = "mariadb>=11.8" if server == "mariadb-11.8" else f"{server}<11"
    return kind in load.servers or own in load.servers


def normal(script: bytes, folder: Path) -> str:
    """The hash of a script without its comments, and whatever the order of the variables in one SET.

    folder: where the files are that it loads; it is no part of it.
    """
    text = script.replace(str(folder).encode(), b"FOLDER")
    kept = [_in_order(line) for line in text.split(b"\n") if not line.startswith(b"#")]
    return hashlib.sha256(b"\n".join(kept)).hexdigest()


def _in_order(line: bytes) -> bytes:
    return b"SET " + b", ".join(sorted(line[4:].split(b", "))) if line.startswith(b"SET ") else line


class Pair:
    """The server that logs, and those that get scripts: by name, MySQL with gtid_mode ON and OFF."""

    def __init__(self, home: Path, name: str, programs: Programs, stack: ExitStack) -> None:
        self.home, self.name, self.programs = home, name, programs
        self.data = home / "a" / "data"
        self.logging = stack.enter_context(Server(self._folder("a"), *self._options(), programs=programs))
        self.target = stack.enter_context(Server(self._folder("b"), *self._options(), programs=programs))
        self.gtids: dict[Server, str] = {}
        self.log = home
        self.identities: dict[str, str] = {}

    def _folder(self, name: str) -> Path:
        folder = self.home / name
        folder.mkdir()
        return folder

    def _options(self) -> list[str]:
        options = ["--skip-networking", "--server-id=1", "--log-bin=bin", "--secure-file-priv=", "--local-infile=1"]
        options += ["--log-bin-trust-function-creators=1", "--character-set-server=utf8mb4"]
        if self.programs.mysql:
            return [*options, "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-transaction-compression=OFF"]
        return [*options, "--system-versioning-alter-history=KEEP"]  # no log says it

    @property
    def ways(self) -> list[str]:
        """The names of the targets: how they are set."""
        return ["gtid_mode=ON", "gtid_mode=OFF"] if self.programs.mysql else ["plain"]

    def _set_gtids(self, server: Server, wanted: str) -> None:
        now = self.gtids.get(server, "ON")
        if not self.programs.mysql or now == wanted:
            return
        steps = GTID_STEPS if wanted == "ON" else GTID_STEPS[::-1]
        first = "" if wanted == "OFF" else "SET GLOBAL enforce_gtid_consistency=ON;"
        script = first + "".join(f"SET GLOBAL gtid_mode={step};" for step in steps[1:])
        script += "SET GLOBAL enforce_gtid_consistency=OFF;" if wanted == "OFF" else ""
        assert server.run(script.encode()) == ""
        self.gtids[server] = wanted

    def clean(self, server: Server, gtids: str = "ON") -> None:
        """Nothing in it, and a log that begins."""
        self._set_gtids(server, gtids)
        done = server.talk(b"SELECT HEX(schema_name) FROM information_schema.schemata", "-N", "-B")
        names = [bytes.fromhex(line) for line in done.stdout.decode().split()]
        own = (b"information_schema", b"performance_schema", b"mysql", b"sys")
        script = b"".join(b"DROP DATABASE `" + n.replace(b"`", b"``") + b"`;\n" for n in names if n not in own)
        for account, is_role in accounts(server):
            script += b"DROP ROLE " * is_role + b"DROP USER " * (not is_role) + account + b";\n"
        script += b"RESET BINARY LOGS AND GTIDS;" if self.programs.mysql else b"RESET MASTER;"
        script += b"" if self.programs.mysql else b"SET GLOBAL gtid_slave_pos='';"
        told = server.run(b"SET SQL_LOG_BIN=0; SET foreign_key_checks=0;\n" + script)
        assert told == "", told

    def logged(self, load: Workload, mode: str, folder: Path) -> tuple[Path, State]:
        """The log of a workload, and what the server has then."""
        self.clean(self.logging, "ON" if load.gtids else "OFF")
        foreign = _OWN[not self.programs.mysql]
        wanted = {**_USUAL, **_OWN[self.programs.mysql], **MODES[mode]}
        wanted = {name: value for name, value in wanted.items() if name not in foreign}
        assert self.logging.run(("SET GLOBAL " + ", GLOBAL ".join(map("=".join, wanted.items()))).encode()) == ""
        files = folder / "files"
        files.mkdir()
        files.chmod(0o777)
        for session in load.sessions:
            text = session.replace(b"@FOLDER@", str(files).encode())
            done = self.logging.talk(text, "--default-character-set=utf8mb4", "--local-infile=1")
            assert not done.returncode, (load.name, mode, done.stderr)
        shutil.rmtree(files)
        state = state_of(self.logging)
        self.identities[""] = self.logging.gtids()
        assert self.logging.run(b"FLUSH BINARY LOGS") == ""
        return Path(shutil.copy(self.data / "bin.000001", folder / "bin.000001")), state

    def replay(self, made: Made, target: str, expected: State) -> Run:
        """Runs a script, errors and all, in an empty server."""
        self.clean(self.target, "OFF" if target == "gtid_mode=OFF" else "ON")
        done = self.target.talk(made.script, "--force", "--local-infile=1")
        errors = done.stderr.decode("utf-8", "replace").splitlines()
        found = differences(expected, state_of(self.target))
        gtids = self.target.gtids()
        if made.way == "control":
            self.identities[target] = gtids if not errors else self.identities[""]
        elif made.way == "exact" and target != "gtid_mode=OFF" and gtids != self.identities[target]:
            found.append(f"GTIDs: {self.identities[target]} / {gtids}")
        return Run(f"{made.way} {target}", errors, found, made.status, made.told, made.hash)

    def control(self, log: Path, target: str) -> Made:
        """The script of the server's own tool."""
        load = tempfile.mkdtemp(prefix="load-", dir=log.parent)
        options = [f"--local-load={load}"]
        if self.programs.mysql and target == "gtid_mode=OFF":
            options.append("--skip-gtids")
        command = [self.programs.binlog, "--no-defaults", *options, str(log)]
        return Made("control", subprocess.run(command, capture_output=True, timeout=120).stdout)

    def runs(self, load: Workload, mode: str) -> Iterator[Run]:
        """Of one workload: the control and our scripts, in each target. `log` is the log."""
        folder = Path(tempfile.mkdtemp(dir=self.home))
        self.log, expected = self.logged(load, mode, folder)
        with self._set(load.target):
            for target in self.ways:
                yield self.replay(self.control(self.log, target), target, expected)
                for way in ways_of(mode):
                    yield self.replay(ours(self.log, way, target), target, expected)

    @contextmanager
    def _set(self, variable: str) -> Iterator[None]:
        if variable:
            assert self.target.run(f"SET GLOBAL {variable}".encode()) == ""
        yield
        if variable:
            assert self.target.run(f"SET GLOBAL {variable.partition('=')[0]}=DEFAULT".encode()) == ""


@dataclass(frozen=True)
class Made:
    """A script, and the end of the program that made it."""

    way: str
    script: bytes
    status: int = 0
    told: str = ""
    hash: str = ""


def ours(log: Path, way: str, target: str) -> Made:
    """Our script of a log. way: "exact" or "statements"."""
    load = Path(tempfile.mkdtemp(prefix="load-", dir=log.parent))
    gtids = ["--without-gtids"] if target == "gtid_mode=OFF" else []
    done = invoke("dump", "-O", "sql", "--rows", way, "--load-files", str(load), *gtids, str(log))
    return Made(way, done.out, done.code, done.err[-2000:], normal(done.out, load))


def ways_of(mode: str) -> list[str]:
    """The ways in which our script is made: as statements where the log says what its columns are called."""
    return ["exact", "statements"] if mode.endswith("full") else ["exact"]


def faults(runs: Sequence[Run]) -> list[str]:
    """What is wrong with ours where nothing is wrong with the control."""
    found = []
    for run in runs:
        way, target = run.way.split(" ", 1)
        control = next(one for one in runs if one.way == f"control {target}")
        if way == "control" or control.errors or control.differences:
            continue
        if run.errors or run.differences or run.status > (way == "statements"):
            found.append(f"{run.way}: status {run.status} {run.told} {run.errors[:5]} {run.differences[:5]}")
    return found


def pair(name: str, home: Path, stack: ExitStack) -> Pair | None:
    """The servers of this name; None if they are not installed."""
    programs = programs_of(name) if name in TREES else Programs(Server.program() or "")
    return None if programs is None or not programs.server else Pair(home, name, programs, stack)


def main() -> None:
    """Runs what is asked for, and prints a table."""
    parser = argparse.ArgumentParser(description="Workloads through two servers.")
    parser.add_argument("wanted", nargs="*", default=["mariadb", *TREES])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_args()
    for one in given.wanted:
        name, _, chosen = one.partition(":")
        with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
            servers = pair(name, Path(folder), stack)
            assert servers is not None, f"{name} is not here"
            record = Recorded() if given.record else None
            entries = dict(_all(servers, name, chosen, record, verbose=given.v))
            if record is not None:
                record.write(name, servers.logging.version(), entries)


def cases(server: str) -> list[tuple[Workload, str]]:
    """The workloads for a server, in each of their modes."""
    return [(load, mode) for load in workloads() if is_for(load, server) for mode in load.modes]


def _all(
    servers: Pair, name: str, chosen: str, record: Recorded | None, *, verbose: bool
) -> Iterator[tuple[str, dict[str, object]]]:
    for load, mode in cases(name):
        case = f"{load.name}/{mode}"
        if chosen and not {load.name, case} & set(chosen.split(",")):
            continue
        runs = []
        for run in servers.runs(load, mode):
            runs.append(run)
            counts = f"status {run.status} errors {len(run.errors):3} differences {len(run.differences):3}"
            print(f"{name:12} {case:28} {run.way:24} {counts}", flush=True)
            for text in (*run.errors[:8], *run.differences[:8], *run.told.splitlines()[:8]) if verbose else ():
                print("      ", text[:300], flush=True)
        if record is not None:
            record.keep(name, case, servers.log)
        yield case, {"runs": [_counted(run) for run in runs]}


def _counted(run: Run) -> dict[str, object]:
    """What is kept of a run."""
    found = {"way": run.way, "errors": len(run.errors), "differences": len(run.differences)}
    return found if run.way.startswith("control") else {**found, "status": run.status, "script": run.script}


class Recorded:
    """The record: logs that the real servers wrote, and what our scripts of them did, as JSON beside them."""

    folder = FOLDER.parent / "corpus" / "mysql_binlog" / "workloads"

    def read(self) -> dict[str, dict[str, Any]]:
        """By server: its version, and its cases."""
        path = self.folder / "record.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}

    def write(self, name: str, version: str, entries: Mapping[str, object]) -> None:
        """These cases of one server; others are kept."""
        before = self.read()
        known = {**before.get(name, {"cases": {}})["cases"], **entries}
        order = [f"{load.name}/{mode}" for load, mode in cases(name)]
        record = {**before, name: {"version": version, "cases": {one: known[one] for one in order if one in known}}}
        (self.folder / "record.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    def keep(self, name: str, case: str, log: Path) -> None:
        """Packs a log."""
        path = self.folder / name / (case.replace("/", ".") + ".000001.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(log.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    main()
