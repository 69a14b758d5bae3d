"""Kernels that run as plain Python text, and the servers and clients that are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from binlogtool.core import decode_batches
from binlogtool.core.open_log import LogReader
from binlogtool.schema.backends import PythonBackend
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

INSTALLED_AND_TREES = (
    pytest.param("mariadb", marks=pytest.mark.server),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in TREES),
)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that lets the kernels write what they can, as plain Python."""

    def switched_on() -> None:
        monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
        monkeypatch.setattr(
            LogReader,
            "_make_fragment_writer",
            lambda self, file: decode_batches.SqlFragmentWriter(PythonBackend()).write_batch,
        )

    yield switched_on


@pytest.fixture(scope="module", params=INSTALLED_AND_TREES)
def programs(request: pytest.FixtureRequest) -> Programs:
    """The installed MariaDB, and the trees of other servers: a test for each."""
    own = Server.program()
    found = (Programs(own) if own else None) if request.param == "mariadb" else programs_of(request.param)
    if found is None and request.param == "mariadb" and os.environ.get("BINLOGTOOL_SERVER") == "1":
        pytest.fail("no mariadbd is installed, and BINLOGTOOL_SERVER=1 demands one")
    if found is None:
        pytest.skip(f"{request.param} is not here")
    return found
