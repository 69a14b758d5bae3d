"""Some transactions of real servers taken back, beside later changes: a small part of `undo_round_trips`."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of
from tests.formats.mysql_binlog.undo_round_trips import BAD, trips
from tests.formats.mysql_binlog.workloads import pair

SEEDS = range(1, 15)


def found(name: str) -> list[tuple[int, str, str]]:
    """What is wrong; there must be trips that are exact, and others whose later changes are reported."""
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, ExitStack() as stack:
        servers = pair(name, Path(folder), stack)
        assert servers is not None
        made = trips(servers, SEEDS)
    assert {"exact", "reported"} <= {one.outcome for one in made}
    return [(one.seed, one.outcome, one.detail) for one in made if one.outcome in BAD]


@pytest.mark.server
def test_an_undo_of_some_transactions_is_exact_or_reports_later_changes() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    assert found("mariadb") == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in TREES if "mysql" in name or "mariadb" in name])
def test_an_undo_on_other_servers_is_exact_or_reports_later_changes(name: str) -> None:
    if programs_of(name) is None:
        pytest.skip(f"make it with .ci/server-tree {name}")
    assert found(name) == []
