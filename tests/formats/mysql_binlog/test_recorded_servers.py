"""W7, the recorded part: what newer servers had of repaired logs is what is predicted for these logs today.

The record was made by `newer_servers.py` with the real servers that it names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.formats.mysql_binlog.newer_servers import cases
from tests.formats.mysql_binlog.repaired import Case, gtids_of, plan_of, predicted, put, told

MARIADB, MYSQL = "MariaDB 11.8.6-MariaDB-0+deb13u1 from Debian-log", "MySQL 9.7.4-2"


@pytest.fixture
def record(samples: Path) -> dict[str, list[dict[str, Any]]]:
    value = json.loads((samples / "mysql_binlog/repaired-on-newer-servers.json").read_text("utf-8"))
    assert isinstance(value, dict)
    return value


def today(case: Case, folder: Path) -> dict[str, Any]:
    """What is predicted of a repaired log now, as the record has it."""
    path = put(case, folder)
    plan = plan_of(path)
    events = predicted(path, plan)
    if plan.changes:
        binlogtool.apply_plan(plan)
    size = path.stat().st_size
    return {"started": True, "size": size, "complaints": [], **told(events), "gtids": gtids_of(path)}


@pytest.mark.full
@pytest.mark.parametrize("server", [MARIADB, pytest.param(MYSQL, marks=pytest.mark.full_corpus)])
def test_newer_servers_had_exactly_what_is_predicted_today(
    corpus: Path, tmp_path: Path, record: dict[str, list[dict[str, Any]]], server: str
) -> None:
    entries = {one["case"]: one for one in record[server]}
    chosen = cases(corpus, mysql=server == MYSQL)
    for number, case in enumerate(chosen):
        assert today(case, tmp_path / str(number)) == entries[case.name]["repaired"], case.name
    print(f"\nW7: {server} started on {len(chosen)} repaired logs and had exactly the predicted events")
    assert [case.name for case in chosen] == list(entries)
    assert len(chosen) == {MARIADB: 41, MYSQL: 35}[server]


@pytest.mark.parametrize("server", [MARIADB, MYSQL])
def test_their_tools_read_every_repaired_log_to_its_end(record: dict[str, list[dict[str, Any]]], server: str) -> None:
    assert {one["case"] for one in record[server] if one["tool"] != {"exit": 0, "complaints": []}} == set()
    assert len(record[server]) >= 35


@pytest.mark.full_corpus
def test_where_mysql_alone_cuts_a_damaged_log_is_where_the_repair_cuts_it(
    corpus: Path, record: dict[str, list[dict[str, Any]]]
) -> None:
    """But behind a compressed transaction that nothing can decompress: it cannot show its log any more."""
    sources = {case.name: case.source.stat().st_size for case in cases(corpus, mysql=True)}
    alone = {one["case"]: one["damaged"] for one in record[MYSQL]}
    repaired = {one["case"]: one["repaired"]["size"] for one in record[MYSQL]}
    cut = [name for name, value in alone.items() if value["started"] and value["size"] < sources[name]]
    elsewhere = [name for name in cut if alone[name]["size"] != repaired[name]]
    assert elsewhere == [f"damaged/mysql-9.7/compressed-body-bitflip{end}.bin" for end in ("", "-crc-fixed")]
    assert {alone[name]["events"] for name in elsewhere} == {0}
    assert len(cut) == 21


def test_mysql_starts_on_the_repaired_logs_on_which_it_alone_did_not(record: dict[str, list[dict[str, Any]]]) -> None:
    refused = [one for one in record[MYSQL] if not one["damaged"]["started"]]
    assert all(one["repaired"]["started"] for one in refused)
    assert len(refused) == 7
