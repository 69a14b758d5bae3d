"""One running Spark for all tests that need it, an object store, and a block made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from binlogtool.core.record_and_selection_types import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import EnvelopeColumns
from tests.export.cluster import cluster
from tests.export.store import KEYS, serving


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    from binlogtool.spark.session import open_session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():  # a worker has the environment of the time at which Spark began
            patch.setenv(name, value)
        with open_session("local[2]") as session:
            yield session


class RunningCluster(NamedTuple):
    """A Spark cluster of two workers. folder: where they work."""

    folder: Path
    url: str


@pytest.fixture(scope="session")
def cluster_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster for all tests that need one; its workers have the environment of the time at which it began."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder) as url:
        yield RunningCluster(folder, url)


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A bucket `logs` on a real S3 protocol server on the loopback, which the environment names."""
    with serving() as files:
        yield files


@pytest.fixture
def block() -> RecordBlock:
    """Three records: an ordinary one, one inside a packed frame with bytes in it, one with nothing but a finding."""
    found = Finding("payload-undecodable", Severity.ERROR, 90, 10, "no msgpack", record=7)
    return RecordBlock(
        file="/data/a.xlog",
        format="tarantool",
        record=range(5, 8),
        offset=[30, 60, 90],
        size=[30, 30, 10],
        inner=[None, InnerPosition(100, 12), None],
        envelope=EnvelopeColumns(
            type=["INSERT", "REPLACE", "UPDATE"],
            seq=[1, 2, None],
            time=[1_700_000_000_000_001, None, None],
            object=["512", None, None],
            origin=[1, 2, None],
            txn=["1:1", 42, None],
        ),
        checksum=[RecordChecksum("crc32c", 0x9A, 0x9A, True), RecordChecksum("crc32c", 1, 0xFFFFFFFF, None), None],
        bodies=[{"tuple": [1, "ä"]}, {"tuple": [b"\xff\x00"]}, None],
        extras=[None, {"header": {"flags": 1}}, None],
        findings={2: (found,)},
    )
