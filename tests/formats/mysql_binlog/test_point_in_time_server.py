"""Parts of a log, chosen by place, time, GTID and database: what comes out is what the server's own tool gives.

Two files of a real server, with transactions over two databases and a clock that goes back; each script is run in an
empty server of the same kind, and the rows that are there afterwards are compared.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Event, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of
from tests.formats.mysql_binlog.workloads import Pair, pair

_SCHEMA = b"".join(
    b"CREATE DATABASE %b; CREATE TABLE %b.t (v VARCHAR(20) PRIMARY KEY) ENGINE=InnoDB;\n" % (name, name)
    for name in (b"a", b"b", b"c")
)
_TIMES = (1000, 1010, 1010, 1020, 1015, 1030, 1025, 1040)
"""Seconds behind 1,700,000,000 at which the transactions of a file begin: the clock goes back twice."""

_BEGIN = 1_700_000_000


def _transactions(first: int, times: Sequence[int]) -> Iterator[str]:
    """Of three rows each, with seconds between them, in two databases."""
    for number, time in enumerate(times, first):
        database = "ab"[number % 2]
        yield f"SET timestamp={_BEGIN + time}; USE {database}; BEGIN; INSERT INTO t VALUES ('{number}-1');"
        yield f"SET timestamp={_BEGIN + time + 2}; INSERT INTO t VALUES ('{number}-2'), ('{number}-3');"
        yield f"SET timestamp={_BEGIN + time + 4}; COMMIT;"


_CROSSED = f"""SET timestamp={_BEGIN + 2000};
USE a; BEGIN; INSERT INTO a.t VALUES ('x-1'); INSERT INTO b.t VALUES ('x-2'); COMMIT;
USE b; INSERT INTO a.t VALUES ('y-1'); INSERT INTO t VALUES ('y-2');
CREATE TABLE c.gone (id INT); INSERT INTO c.gone VALUES (1); USE a; INSERT INTO t VALUES ('z-1');
USE b; BEGIN; INSERT INTO b.t VALUES ('z-2'); UPDATE a.t SET v='x-9' WHERE v='x-1'; COMMIT;
DROP TABLE c.gone; USE c; INSERT INTO t VALUES ('w-1'); INSERT INTO a.t VALUES ('w-2');
"""
"""Statements and transactions over several databases, also from the session of another one; a table comes and goes."""


@dataclass(frozen=True)
class Logs:
    """Two files, and their events; and one of `_CROSSED`. The target has the tables, without a row."""

    servers: Pair
    files: tuple[Path, Path]
    crossed: tuple[Path]
    events: tuple[list[Event], list[Event]]

    def rows(self, script: bytes) -> list[str]:
        """What the target has after a script, in its tables that were empty."""
        target = self.servers.target
        forget = b"RESET BINARY LOGS AND GTIDS" if target.mysql else b""  # MariaDB takes a GTID again
        assert target.run(b"DELETE FROM a.t; DELETE FROM b.t; DELETE FROM c.t; %b;" % forget) == ""
        target.talk(script, "--force")
        query = " UNION ALL ".join(f"SELECT CONCAT('{name}.', v) AS x FROM {name}.t" for name in "abc")
        return sorted(target.ask(query).split())

    def empty(self, gtids: str) -> None:
        """An empty target with the tables. gtids: gtid_mode of MySQL."""
        self.servers.clean(self.servers.target, gtids)
        assert self.servers.target.run(_SCHEMA) == ""

    def theirs(self, *options: str, files: Sequence[Path] = ()) -> list[str]:
        """By the server's own tool."""
        command = [self.servers.programs.binlog, "--no-defaults", *options, *map(str, files or self.files)]
        done = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, "TZ": "UTC"})
        return self.rows(done.stdout)

    def ours(self, *options: str, files: Sequence[Path] = ()) -> list[str]:
        """By us."""
        return self.rows(invoke("dump", "-O", "sql", *options, *map(str, files or self.files)).out)


def _logs(name: str, mode: str) -> Iterator[Logs]:
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
        servers = pair(name, Path(folder), stack)
        assert servers is not None
        server = servers.logging
        reset = "RESET BINARY LOGS AND GTIDS" if server.mysql else "RESET MASTER"
        first, second = ("\n".join(_transactions(n, [t + more for t in _TIMES])) for n, more in ((0, 0), (8, 30)))
        setting = f"SET GLOBAL binlog_format={mode}; "
        assert server.run(_SCHEMA + f"{setting}{reset};".encode()) == ""
        assert server.run(f"{first}\nFLUSH BINARY LOGS;\n{second}\nFLUSH BINARY LOGS;".encode()) == ""
        assert server.run(f"{_CROSSED}\nFLUSH BINARY LOGS;".encode()) == ""
        files = [Path(shutil.copy(servers.data / f"bin.00000{n}", folder)) for n in (1, 2, 3)]
        logs = Logs(
            servers, (files[0], files[1]), (files[2],), (server.events("bin.000001"), server.events("bin.000002"))
        )
        logs.empty("ON")
        yield logs


@pytest.fixture(scope="module", params=["ROW", "STATEMENT"])
def installed(request: pytest.FixtureRequest) -> Iterator[Logs]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    yield from _logs("mariadb", request.param)


@pytest.fixture(scope="module", params=[(tree, mode) for tree in TREES for mode in ("ROW", "STATEMENT")], ids="-".join)
def other(request: pytest.FixtureRequest) -> Iterator[Logs]:
    if programs_of(request.param[0]) is None:
        pytest.skip(f"make it with .ci/server-tree {request.param[0]}")
    yield from _logs(*request.param)


def _times(logs: Logs) -> None:
    """Every second of a part with the clock going back, as the beginning, and as the end."""
    for second in (1009, 1010, 1012, 1014, 1017, 1022, 1030, 1060):
        text = f"{_BEGIN + second}"
        date = subprocess.run(["date", "-u", "-d", f"@{text}", "+%F %T"], capture_output=True, text=True).stdout.strip()
        for name in ("start", "stop"):
            assert logs.ours(f"--{name}-datetime={text}") == logs.theirs(f"--{name}-datetime={date}"), (name, second)
    assert logs.ours(f"--stop-datetime={_BEGIN + 1060}") != logs.ours()
    for first, last in ((1010, 1030), (1015, 1060), (1030, 1010)):
        ours = [f"--start-datetime={_BEGIN + first}", f"--stop-datetime={_BEGIN + last}"]
        dates = (f"{datetime.fromtimestamp(_BEGIN + second, UTC):%F %T}" for second in (first, last))
        theirs = [f"--{name}-datetime={date}" for name, date in zip(("start", "stop"), dates, strict=True)]
        assert logs.ours(*ours) == logs.theirs(*theirs), (first, last)


def _places(logs: Logs) -> None:
    """Each event of two transactions in both files as the first or last one, inside of them too.

    Rows behind their TABLE_MAP: the tool gives them without it, and the server refuses them; ours come with it. A
    transaction without its GTID: the tool's has none either, which MySQL refuses while gtid_mode is ON (error 1782), so
    that its rows are lost; ours gets a new one, and brings the rows that the tool brings where gtid_mode is OFF.
    """
    options = [f"--{name}-position={event.at}" for name, event in _chosen(logs)]
    last = f"--stop-position={logs.events[0][5].at}"
    own = ["--skip-gtids"] if logs.servers.logging.mysql else []
    logs.empty("OFF")
    theirs = [logs.theirs(*own, option) for option in options]
    only = logs.theirs(*own, last, files=logs.files[:1])
    logs.empty("ON")
    for number, ((name, event), option) in enumerate(zip(_chosen(logs), options, strict=True)):
        ours = logs.ours(option)
        if name == "start" and event.type.startswith("Write_rows"):
            assert set(theirs[number]) < set(ours), event
            theirs[number] = theirs[number - 1]
        assert ours == theirs[number], (name, event)
    assert logs.ours(last, files=logs.files[:1]) == only
    begins = [event.at for event in logs.events[0] if event.type.lower().startswith("gtid")]
    both = [f"--start-position={begins[3]}", f"--stop-position={begins[6]}"]
    assert logs.ours(*both, files=logs.files[:1]) == logs.theirs(*both, files=logs.files[:1]) != []


def _chosen(logs: Logs) -> list[tuple[str, Event]]:
    return [("start", one) for one in logs.events[0][2:14]] + [("stop", one) for one in logs.events[1][2:14]]


def _databases(logs: Logs) -> None:
    assert logs.ours("--database=a") == logs.theirs("--database=a") != []
    if "STATEMENT" not in logs.servers.logging.ask("SELECT @@GLOBAL.binlog_format"):
        given = ("--rewrite=a->c", "--rewrite-db=a->c")
        rows = logs.ours(given[0])
        assert rows == logs.theirs(given[1])
        assert any(row.startswith("c.") for row in rows)


def _crossed(logs: Logs) -> None:
    """Databases go by where a statement's session is, rows by their table; both as in the tools.

    --rewrite changes no text: what names the database is left out with a word, where the tools run it in the old one.
    Together with it --database means the names of the log, as in mariadb-binlog; in mysqlbinlog it means the new ones.
    """
    mysql, files = logs.servers.logging.mysql, logs.crossed
    is_text = "STATEMENT" in logs.servers.logging.ask("SELECT @@GLOBAL.binlog_format")
    for option in [f"--database={name}" for name in "abc"]:
        assert logs.ours(option, files=files) == logs.theirs(option, files=files) != [], option
    for number in ("1", "2"):
        assert logs.ours(f"--origin={number}", files=files) == logs.theirs(f"--server-id={number}", files=files)
    if not mysql:
        both = ("--database=a", "--table=t")
        assert logs.ours(*both, files=files) == logs.theirs(*both, files=files) != []
    if is_text:
        found = invoke("dump", "-O", "sql", "--rewrite=a->c", str(files[0]))
        assert found.code == 1 and found.err.count("--rewrite does not change statement texts") == 4
        return
    if not mysql:
        assert logs.ours("--table=t", files=files) == logs.theirs("--table=t", files=files) != []
    for name in "ac":
        theirs = logs.theirs("--rewrite-db=a->c", f"--database={'c' if mysql else name}", files=files)
        ours = logs.ours("--rewrite=a->c", f"--database={name}", files=files)
        assert ours == [row for row in theirs if not mysql or (row == "c.w-1") == (name == "c")] != []


def _stop_before(logs: Logs) -> None:
    """The tools have no such option: what comes is what they give up to the place that is told."""
    for words in ("DROP TABLE c.gone", "create  table `c`.gone"):
        done = invoke("dump", "-O", "sql", f"--stop-before={words}", str(logs.crossed[0]))
        told = re.search(r"stopped before .* at bin\.000003:(\d+), GTID (\S+), time 1700002000", done.err)
        assert told is not None, done.err
        assert told[1] in {str(event.at) for event in logs.servers.logging.events("bin.000003")}
        assert logs.rows(done.out) == logs.theirs(f"--stop-position={told[1]}", files=logs.crossed) != []


def _gtids(logs: Logs) -> None:
    server = logs.servers.logging
    if server.mysql:
        own = server.ask("SELECT @@server_uuid").strip()
        for sets in (f"{own}:3-5", f"{own}:1:4:16", f"{own}:99"):
            for name in ("include-gtids", "exclude-gtids"):
                assert logs.ours(f"--{name}={sets}") == logs.theirs(f"--{name}={sets}"), (name, sets)
        return
    state = server.ask("SELECT BINLOG_GTID_POS('bin.000001', 4), BINLOG_GTID_POS('bin.000002', 4)").split("\t")
    last = int(state[1].strip().rpartition("-")[2])
    for number in (last - 7, last - 3, last + 2):
        for name in ("start", "stop"):
            gtid = f"0-1-{number}"
            theirs = logs.theirs(f"--{name}-position={gtid}")
            assert logs.ours(f"--{name}-position=gtid:{gtid}") == theirs != [], (name, gtid)


_PARTS = (_times, _places, _databases, _crossed, _stop_before, _gtids)


@pytest.mark.server
@pytest.mark.full
@pytest.mark.parametrize("part", _PARTS)
def test_a_part_of_a_log_is_what_the_server_s_tool_gives(part: object, installed: Logs) -> None:
    assert callable(part)
    part(installed)


@pytest.mark.nightly
@pytest.mark.parametrize("part", _PARTS)
def test_a_part_of_another_server_s_log_is_what_its_tool_gives(part: object, other: Logs) -> None:
    assert callable(part)
    part(other)
