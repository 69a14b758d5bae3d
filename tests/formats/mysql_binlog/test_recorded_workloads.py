"""What scripts of real servers' logs did in real servers, as recorded by `workloads --record`, is what is made today.

A script that is another one than the recorded has to be proven again: run `.ci/server-tree mysql-9 mariadb-11.8` and
`python -m tests.formats.mysql_binlog.workloads --record mariadb mysql-9 mariadb-11.8`.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.formats.mysql_binlog.workloads import Recorded, cases, ours

SERVERS = ("mariadb", "mysql-9", "mariadb-11.8")


@pytest.fixture(scope="module")
def record() -> dict[str, dict[str, Any]]:
    return Recorded().read()


@pytest.mark.full
@pytest.mark.parametrize("server", SERVERS)
def test_the_scripts_of_today_are_those_that_were_proven(
    server: str, record: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    other = []
    for case, entry in record[server]["cases"].items():
        log = tmp_path / case.replace("/", "-") / "bin.000001"
        log.parent.mkdir()
        log.write_bytes(
            gzip.decompress((Recorded.folder / server / f"{case.replace('/', '.')}.000001.gz").read_bytes())
        )
        for run in entry["runs"]:
            way, target = run["way"].split(" ", 1)
            if way != "control":
                made = ours(log, way, target)
                other += [] if (made.hash, made.status) == (run["script"], run["status"]) else [f"{case} {run['way']}"]
    assert other == []


@pytest.mark.parametrize("server", SERVERS)
def test_every_workload_was_proven_without_a_difference(server: str, record: dict[str, dict[str, Any]]) -> None:
    entries = record[server]["cases"]
    assert list(entries) == [f"{load.name}/{mode}" for load, mode in cases(server)]
    beyond = set()
    for case, entry in entries.items():
        clean = {run["way"].split(" ", 1)[1] for run in entry["runs"] if run["errors"] == run["differences"] == 0
                 and run["way"].startswith("control")}  # fmt: skip
        for run in entry["runs"]:
            way, target = run["way"].split(" ", 1)
            if way != "control" and target in clean:
                assert (run["errors"], run["differences"]) == (0, 0), (case, run)
                # 1: of some rows no statement can be written, which is reported; see the hash of the script
                assert run["status"] in ((0, 1) if way == "statements" else (0,)), (case, run)
            elif way != "control" and (run["errors"], run["differences"]) == (0, 0):
                beyond.add(case)
    assert {"names/row", "names/full", "session/statement"} <= beyond
    print(f"\n{record[server]['version']}: {len(entries)} workloads; where only ours is right: {sorted(beyond)}")
