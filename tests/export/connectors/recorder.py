"""Runs a connector against a real server, and keeps the log and the messages.

    python -m tests.export.connectors JARS [CONNECTOR[/SERVER[/WORKLOAD]] ...]

JARS: a folder with a folder of jars for each connector (`mvn dependency:copy-dependencies`):

    maxwell    com.zendesk:maxwell:1.22.6
    canal      com.alibaba.otter:canal.server:1.1.7
    debezium   io.debezium:debezium-embedded and -connector-mysql (3.0.8.Final; below MariaDB 2.6.2.Final)

Workloads are those of the corpus beside the record (`workload`, `more`), and of tests/workloads.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.export.connectors.doorman import Doorman
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import programs_of

HERE = Path(__file__).resolve().parent
RECORD = HERE.parents[1] / "corpus" / "mysql_binlog" / "changes"
WORKLOADS = HERE.parents[1] / "workloads"
SERVERS = ("mariadb", "mysql-9")
END = "the_end"
"""The table whose making is the last statement of each workload."""

_SECONDS = 60
_TRUE = (
    "binlog_position", "commit_info", "xoffset", "nulls", "server_id", "thread_id", "row_query", "primary_keys",
    "primary_key_columns", "ddl",
)  # fmt: skip
_NASHORN = "jdk/nashorn/api/scripting/ScriptObjectMirror"
"""A class of old Javas that Maxwell names but does not need."""


class Case(msgspec.Struct, frozen=True):
    """One run. metadata: binlog_row_metadata; Maxwell and Canal do not understand all that FULL writes."""

    connector: str
    server: str
    workload: str

    @property
    def folder(self) -> Path:
        """Where its record is."""
        return RECORD / self.connector / self.server / self.workload

    @property
    def metadata(self) -> str:
        """binlog_row_metadata."""
        return "FULL" if self.connector == "debezium" else "MINIMAL"

    @property
    def gtids(self) -> bool:
        """Does MySQL log it with GTIDs?"""
        return b"\n-- gtids: off" not in self.script()

    def script(self) -> bytes:
        """What the server runs."""
        own = RECORD / f"{self.workload}.sql"
        text = (own if own.exists() else WORKLOADS / f"{self.workload}.sql").read_bytes()
        if (
            self.connector == "maxwell" and self.server == "mariadb"
        ):  # its JSON is text, which Maxwell takes for MySQL's
            text = text.replace(b" j JSON", b" j LONGTEXT")
        if self.connector == "maxwell":  # it waits for ever behind an XA START
            text = re.sub(rb"\nXA [^\n]*", b"", text)
        if self.connector == "debezium":  # of MariaDB it does not understand this name
            text = re.sub(rb"\nCREATE TABLE auto [^\n]*", b"", text)
        return text + f"\nCREATE DATABASE zz; CREATE TABLE zz.{END} (a INT);\n".encode()


def record(case: Case, jars: Path) -> int:
    """Makes the record of a case anew; how many messages it has."""
    with tempfile.TemporaryDirectory(prefix="bt-") as name, ExitStack() as stack:
        home = Path(name)
        server = _server(home / "a", case, stack)
        door = stack.enter_context(Doorman(home / "a" / "s", new_words=server.mysql))
        run = _maxwell if case.connector == "maxwell" else _other
        lines = run(case, jars, server, door, home, stack)
        assert server.run(b"FLUSH BINARY LOGS") == ""
        case.folder.mkdir(parents=True, exist_ok=True)
        _keep(case.folder / "bin.000001.gz", (server.data / "bin.000001").read_bytes())
        _keep(case.folder / "messages.jsonl.gz", b"".join(_small(line) + b"\n" for line in lines))
        return len(lines)


def _keep(path: Path, data: bytes) -> None:
    with path.open("wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
        packed.write(data)


def _small(line: bytes) -> bytes:
    """Without the definitions of tables, which no message of ours has."""
    found = json.loads(line)
    for one in (found, found.get("value") or {}):
        for name in ("def", "tableChanges"):
            one.pop(name, None)
    if found.get("type", "").startswith("table-"):
        found.pop("old", None)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _server(folder: Path, case: Case, stack: ExitStack) -> Server:
    programs = Programs(Server.program() or "") if case.server == "mariadb" else programs_of(case.server)
    assert programs is not None and programs.server, f"{case.server} is not here"
    options = [
        "--skip-networking", "--server-id=1", "--log-bin=bin", f"--binlog-row-metadata={case.metadata}",
        "--binlog-format=ROW", "--default-time-zone=+00:00", "--character-set-server=utf8mb4",
    ]  # fmt: skip
    if programs.mysql:
        options += ["--binlog-rows-query-log-events=ON"]
        mode = "ON" if case.gtids else "OFF"
        options += [f"--gtid-mode={mode}", f"--enforce-gtid-consistency={mode}"]
    folder.mkdir()
    return stack.enter_context(Server(folder, *options, programs=programs))


def _maxwell(case: Case, jars: Path, server: Server, door: Doorman, home: Path, stack: ExitStack) -> list[bytes]:
    """Maxwell takes the definitions of tables when it starts: it does so before there are any."""
    (home / "b").mkdir()
    stack.enter_context(Server(home / "b", "--skip-networking", "--server-id=2", "--log-bin=b", "--binlog-format=ROW"))
    store = stack.enter_context(Doorman(home / "b" / "s", new_words=False))
    stub = home / "stub" / f"{_NASHORN}.java"
    stub.parent.mkdir(parents=True)
    stub.write_text("package jdk.nashorn.api.scripting; public class ScriptObjectMirror {}\n")
    subprocess.run(["javac", str(stub)], check=True, timeout=_SECONDS)
    command = ["java", "-Duser.timezone=UTC", "-cp", f"{jars}/maxwell/*:{home}/stub", "com.zendesk.maxwell.Maxwell"]
    for kind, port in (("", store.port), ("replication_", door.port), ("schema_", door.port)):
        command += [f"--{kind}host=127.0.0.1", f"--{kind}port={port}", f"--{kind}user=root", f"--{kind}password=x"]
    command += ["--producer=stdout", "--bootstrapper=none", "--replica_server_id=77"]
    command += [f"--output_{name}=true" for name in _TRUE]
    command += ["--gtid_mode=true", "--output_gtid_position=true"] if server.mysql and case.gtids else []
    with (home / "out").open("wb") as out, (home / "told").open("wb") as told:
        running = subprocess.Popen(command, stdout=out, stderr=told, cwd=home)
        try:
            _wait(running, home / "told", b"Binlog connected")
            assert server.run(case.script()) == ""
            _wait(running, home / "out", END.encode())
        finally:
            running.terminate()
            running.wait(_SECONDS)
    return [line for line in (home / "out").read_bytes().splitlines() if line.startswith(b"{") and b'"zz"' not in line]


def _wait(running: subprocess.Popen[bytes], path: Path, text: bytes) -> None:
    for _ in range(_SECONDS * 2):
        if text in path.read_bytes():
            return
        assert running.poll() is None, path.read_bytes()[-2000:]
        time.sleep(0.5)
    raise AssertionError(f"{text!r} did not come: {path.read_bytes()[-2000:]!r}")


def _other(case: Case, jars: Path, server: Server, door: Doorman, home: Path, _: ExitStack) -> list[bytes]:
    """Canal and Debezium read a log from its beginning, and are embedded."""
    assert server.run(case.script()) == ""
    name = case.connector if case.connector == "canal" or case.server != "mariadb" else "debezium-mariadb"
    source = HERE / f"{case.connector.capitalize()}.java"
    command = ["java", "-Duser.timezone=UTC", "-cp", f"{jars}/{name}/*", str(source), str(door.port), case.server]
    done = subprocess.run(command, capture_output=True, timeout=_SECONDS * 2, cwd=home)
    assert not done.returncode, done.stdout[-500:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith(b"{")]
