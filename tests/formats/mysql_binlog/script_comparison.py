"""What our scripts bring and those of the servers' own tools do not: one table, made by real servers.

    python -m tests.formats.mysql_binlog.script_comparison [--write] [SERVER ...]

A server logs, and what it has then is counted in lines: databases, definitions, rows. The script of its own tool, and
ours, are run with --force in an empty server of the same kind, and what is there then is counted again. --write puts
the table into docs/sql.md.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.cli.invoke import invoke
from tests.export import classic_binlog as classic
from tests.export.ibb_writer import IbbWriter
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_state import State, state_of
from tests.formats.mysql_binlog.workloads import FOLDER, Pair, cases, pair

DOCUMENT = FOLDER.parents[1] / "docs" / "sql.md"
SERVERS = ("mariadb", "mysql-9")
MARK = "beyond"
KEY = "1;" + "0123456789abcdef" * 4

SHOP = b"".join(
    (
        b"CREATE DATABASE shop; USE shop; CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(40));\n",
        *(
            b"BEGIN; INSERT INTO orders VALUES (%d, 'item %d'), (%d, 'more'); COMMIT;\n" % (n, n, n + 100)
            for n in range(20)
        ),
    )
)


@dataclass(frozen=True)
class Case:
    """One row of the table. log: makes the log, and says what the server has; options: for each tool."""

    name: str
    servers: tuple[str, ...]
    log: Callable[[Pair, Path], tuple[Path, State]]
    options: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Counted:
    """Lines of the server's state that a script brought, of all; wrong: lines that the server never had. status: of the
    tool; told: did it say something on stderr?"""

    brought: int
    of: int
    wrong: int
    status: int
    told: bool


def shop(servers: Pair, folder: Path) -> tuple[Path, State]:
    """A log with 20 transactions of 2 rows each."""
    server = servers.logging
    servers.clean(server)
    metadata = b"SET GLOBAL binlog_format='ROW', GLOBAL binlog_row_image='FULL', GLOBAL binlog_row_metadata='MINIMAL'"
    assert server.run(metadata) == server.run(SHOP) == ""
    state, log = state_of(server), server.data / "bin.000001"
    assert server.run(b"FLUSH BINARY LOGS") == ""
    copy = folder / "bin.000001"
    copy.write_bytes(log.read_bytes())
    return copy, state


def _changed(at: bytes, distance: int, change: bytes) -> Callable[[Pair, Path], tuple[Path, State]]:
    """The shop's log with other bytes at that distance from the first ones like `at`."""

    def made(servers: Pair, folder: Path) -> tuple[Path, State]:
        log, state = shop(servers, folder)
        data = bytearray(log.read_bytes())
        place = data.rindex(at) + distance
        data[place : place + len(change)] = change
        log.write_bytes(data)
        return log, state

    return made


def encrypted(servers: Pair, folder: Path) -> tuple[Path, State]:
    """The log of a server that encrypts it; the key is in a file beside it, and no server runs any more."""
    (folder / "keys").write_text(KEY + "\n")
    home = folder / "e"
    home.mkdir()
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1", "--binlog-format=ROW", "--encrypt-binlog=ON")
    plugin = ("--plugin-load-add=file_key_management", f"--file-key-management-filename={folder / 'keys'}")
    with Server(home, *options, *plugin, programs=servers.programs) as server:
        assert server.run(SHOP) == ""
        return server.data / "bin.000001", state_of(server)


def ibb(servers: Pair, folder: Path) -> tuple[Path, State]:
    """The same events in the pages of an InnoDB binlog (MariaDB 12.3), as its specification says."""
    log, state = shop(servers, folder)
    writer = IbbWriter(folder / "ibb", pages=8, interval=2)
    for group in classic.groups(classic.events(log)):
        domain, origin, seq = map(int, group.gtid.split("-"))
        writer.group((domain, origin, seq), [event.bare() for event in group.events], None, 0)
    writer.close()
    return folder / "ibb", state


def large(servers: Pair, folder: Path) -> tuple[Path, State]:
    """A row of 20 MiB."""
    text = b"CREATE DATABASE w; USE w; CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB); INSERT INTO t VALUES (1, '"
    servers.clean(servers.logging)
    script = b"SET binlog_format=ROW;" + text + b"x" * (20 << 20) + b"');"
    assert servers.logging.talk(script, "--max-allowed-packet=64M").returncode == 0
    state = state_of(servers.logging)
    assert servers.logging.run(b"FLUSH BINARY LOGS") == ""
    return servers.data / "bin.000001", state


def workload(name: str, mode: str) -> Callable[[Pair, Path], tuple[Path, State]]:
    """The log of a file of tests/workloads."""

    def made(servers: Pair, folder: Path) -> tuple[Path, State]:
        (load,) = (one for one, other in cases(servers.name) if (one.name, other) == (name, mode))
        return servers.logged(load, mode, folder)

    return made


_KEYFILE = {"ours": ("--keyfile", "FOLDER/keys")}
CASES = (
    Case("the head of an event is zeros", SERVERS, _changed(b"item 9", -36, bytes(16)), {}),
    Case("a bit of a value is flipped", SERVERS, _changed(b"item 9", 5, b"8"), {}),
    Case("the log is encrypted, and its server is gone", ("mariadb",), encrypted, _KEYFILE),
    Case("the log is an InnoDB binlog (`.ibb`)", ("mariadb",), ibb, {}),
    Case("a row of 20 MiB, servers as they are delivered", ("mariadb",), large, {}),
    Case("names with newlines and quotation marks", SERVERS, workload("names", "row"), {}),
    Case("user variables with all digits of their numbers", SERVERS, workload("session", "statement"), {}),
    Case("LOAD DATA in a log of statements", ("mysql-9",), workload("load-data", "statement"), {}),
)


def counted(servers: Pair, case: Case) -> dict[str, Counted]:
    """What the scripts of both tools bring."""
    folder = Path(tempfile.mkdtemp(dir=servers.home))
    log, state = case.log(servers, folder)
    loads = (folder / "theirs", folder / "ours")
    for one in loads:
        one.mkdir()
    files = [log] if log.is_file() else sorted(log.iterdir())
    command = [servers.programs.binlog, "--no-defaults", f"--local-load={loads[0]}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, timeout=120)
    more = [text.replace("FOLDER", str(folder)) for text in case.options.get("ours", ())]
    own = invoke("dump", "-O", "sql", "--load-files", str(loads[1]), *more, str(log))
    return {
        "theirs": _brought(servers, done.stdout, state, done.returncode, bool(done.stderr)),
        "ours": _brought(servers, own.out, state, own.code, bool(own.err)),
    }


def _brought(servers: Pair, script: bytes, state: State, status: int, told: bool) -> Counted:
    servers.clean(servers.target)
    packet = 64 if servers.programs.mysql else 16  # as servers are delivered
    assert servers.target.run(f"SET GLOBAL max_allowed_packet={packet}*1024*1024".encode()) == ""
    servers.target.talk(script, "--force", "--local-infile=1")
    assert servers.target.run(b"SET GLOBAL max_allowed_packet=64*1024*1024") == ""
    wanted, found = (
        Counter((name, line) for name, lines in one.items() for line in lines)
        for one in (state, state_of(servers.target))
    )
    return Counted((wanted & found).total(), wanted.total(), (found - wanted).total(), status, told)


def rows(servers: Pair) -> Iterator[tuple[str, Mapping[str, Counted]]]:
    """Each case of a server."""
    for case in CASES:
        if servers.name in case.servers:
            yield case.name, counted(servers, case)


def line(server: str, name: str, found: Mapping[str, Counted]) -> str:
    """A row of the table."""
    return f"| {name} | {server} | {_words(found['theirs'])} | {_words(found['ours'])} |"


def _words(one: Counted) -> str:
    wrong = f", {one.wrong} wrong" if one.wrong else ""
    return f"{one.brought} of {one.of}{wrong}; status {one.status}, {'reported' if one.told else 'silent'}"


def shown() -> list[str]:
    """The rows of the table in the document."""
    text = DOCUMENT.read_text("utf-8").partition(f"<!-- {MARK} -->\n")[2].partition(f"<!-- /{MARK} -->")[0]
    return text.splitlines()[2:]


def write(lines: Sequence[str]) -> None:
    """Puts them there."""
    before, _, rest = DOCUMENT.read_text("utf-8").partition(f"<!-- {MARK} -->\n")
    behind = rest.partition(f"<!-- /{MARK} -->")[2]
    head = ("| the log | server | its own tool | binlogtool |", "|---|---|---|---|")
    table = "\n".join((*head, *lines))
    DOCUMENT.write_text(f"{before}<!-- {MARK} -->\n{table}\n<!-- /{MARK} -->{behind}", "utf-8")


def main() -> None:
    """Runs all cases, and prints the table or writes it."""
    parser = argparse.ArgumentParser(description="What scripts bring, counted by real servers.")
    parser.add_argument("servers", nargs="*", default=[*SERVERS])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = []
    for name in given.servers:
        with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
            servers = pair(name, Path(folder), stack)
            assert servers is not None, f"{name} is not here"
            for case, found in rows(servers):
                lines.append(line(name, case, found))
                print(lines[-1], flush=True)
    if given.write:
        write(lines)


if __name__ == "__main__":
    main()
