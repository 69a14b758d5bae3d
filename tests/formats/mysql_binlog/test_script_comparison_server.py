"""What docs/sql.md says that our scripts bring and those of the servers' own tools do not is so (see `beyond`)."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.formats.mysql_binlog.script_comparison import CASES, counted, line, shown
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of
from tests.formats.mysql_binlog.workloads import pair

FLIPPED = "a bit of a value is flipped"
"""The servers' own tools bring the wrong value and do not report it; ours reports the event and leaves it out."""


def _hold(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
        servers = pair(name, Path(folder), stack)
        assert servers is not None
        for case in [case for case in CASES if name in case.servers]:
            found = counted(servers, case)
            assert line(name, case.name, found) in shown()
            theirs, ours = found["theirs"], found["ours"]
            assert ours.wrong == 0
            assert (ours.status, ours.told) == ((0, False) if ours.brought == ours.of else (1, True))
            if case.name == FLIPPED:
                assert (theirs.wrong, theirs.told, ours.brought) == (1, False, theirs.brought - 1)
            else:
                assert ours.brought > theirs.brought


@pytest.mark.server
@pytest.mark.full
def test_the_installed_server_says_what_the_document_says() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    _hold("mariadb")


@pytest.mark.nightly
def test_mysql_says_what_the_document_says() -> None:
    if programs_of("mysql-9") is None:
        pytest.skip("make it with .ci/server-tree mysql-9")
    _hold("mysql-9")


def test_the_document_has_each_case_once() -> None:
    assert [row.split(" | ")[:2] for row in shown()] == [
        [f"| {case.name}", server] for server in ("mariadb", "mysql-9") for case in CASES if server in case.servers
    ]
