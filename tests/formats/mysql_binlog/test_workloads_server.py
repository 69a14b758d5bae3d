"""Workloads through two servers (see `workloads`): ours has no differences where the server's own tool has none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of
from tests.formats.mysql_binlog.workloads import Pair, Workload, cases, faults, pair
from tests.sampling import take_sample

BEYOND = ("names/row", "names/full", "session/statement")
"""What the installed server's own tool does not get right: names with newlines, numbers with all their digits."""


def _servers(name: str) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
        found = pair(name, Path(folder), stack)
        assert found is not None
        yield found


@pytest.fixture(scope="module")
def installed() -> Iterator[Pair]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    yield from _servers("mariadb")


@pytest.fixture(scope="module", params=TREES)
def other(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if programs_of(request.param) is None:
        pytest.skip(f"make it with .ci/server-tree {request.param}")
    yield from _servers(request.param)


@pytest.mark.server
@pytest.mark.parametrize(("load", "mode"), take_sample(cases("mariadb"), 4), ids=lambda one: getattr(one, "name", one))
def test_a_script_makes_what_the_log_holds(load: Workload, mode: str, installed: Pair) -> None:
    runs = list(installed.runs(load, mode))
    assert faults(runs) == []
    if f"{load.name}/{mode}" in BEYOND:
        assert all(not one.differences and not one.errors for one in runs if not one.way.startswith("control"))


@pytest.mark.nightly
def test_scripts_of_all_workloads_make_what_the_logs_hold(other: Pair) -> None:
    found = {f"{load.name}/{mode}": faults(list(other.runs(load, mode))) for load, mode in cases(other.name)}
    assert {case: one for case, one in found.items() if one} == {}
    assert len(found) > 40
