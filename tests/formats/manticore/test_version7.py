"""Version 7: what verify, dump and a replay say of logs of a real Manticore 2.8.2, against its own words."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.formats.manticore.replay.replayer import read_saved_tid
from tests.formats.manticore import version7
from tests.formats.manticore.old_damages import CASES
from tests.formats.manticore.server_log import STATS, compare, replay

EVERY = (*version7.DATASETS, "v7-flushed")


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(version7.RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", EVERY)
def test_real_logs_are_whole_and_nothing_is_said_of_best_effort(name: str) -> None:
    report = binlogtool.verify([version7.SAMPLES / name])
    told = [one for one in report.findings if one.severity >= Severity.WARNING or one.id == "unsupported-version"]
    assert not told
    assert report.status == "clean"


@pytest.mark.parametrize("name", version7.DATASETS)
def test_transactions_of_each_kind_are_as_many_as_the_server_counted(name: str) -> None:
    log = recorded()["datasets"][name]["server_replay"]["log"]
    theirs: Counter[str] = Counter()
    for line in log:
        theirs.update({kind: int(count) for count, kind in STATS.findall(line)})
        theirs["rows"] += sum(map(int, re.findall(r"(\d+) rows", line)))
    kinds = {"COMMIT": "commits", "UPDATE_ATTRS": "updates", "RECONFIGURE": "reconfigure", "PQ_ADD": "pq-add",
             "PQ_DELETE": "pq-delete"}  # fmt: skip
    ours: Counter[str] = Counter()
    with binlogtool.open([version7.SAMPLES / name]) as opened:
        for record in opened.records():
            if kind := kinds.get(record.type):
                ours[kind] += 1
                ours["rows"] += record.body["payload"].get("rows", 0) if kind == "commits" else 0
    assert +ours == +theirs
    assert theirs["commits"] > 3


@pytest.mark.parametrize("name", version7.DATASETS)
def test_healthy_logs_are_replayed_as_the_server_did(name: str) -> None:
    says = recorded()["datasets"][name]["server_replay"]
    result = compare(version7.SAMPLES / name, says, {}, "server")
    warned = sum("unexpected tid" in line for line in says["log"])
    assert sum(one["unexpected_tids"] for one in result.details["files"]) == warned
    keys = {one.name: one.keys for one in result.objects}
    for index in ("rt", "other"):
        assert keys.get(index, 0) == says["results"][f"SELECT COUNT(*) FROM {index}"][0][0]


def test_a_setting_that_the_server_does_not_count_gives_its_one_warning() -> None:
    lines = recorded()["datasets"]["v7-reconfigure"]["server_replay"]["log"]
    assert sum("unexpected tid" in line for line in lines) == 1


@pytest.mark.full
@pytest.mark.parametrize("policy", ["server", "force"])
@pytest.mark.parametrize("name", CASES)
def test_each_damage_ends_as_with_the_server(name: str, policy: str, tmp_path: Path) -> None:
    (case,) = (one for one in recorded()["damaged"] if one["name"] == name)
    says = case["server_says" if policy == "server" else "server_says_with_flags"]
    folder = version7.written(tmp_path / name, dict(version7.cases())[name])
    result = compare(folder, says, {}, policy)
    if not says["server_started"]:
        return
    keys = {one.name: one.keys for one in result.objects}
    for index in ("rt", "other"):
        assert (keys.get(index) or 0) == says["results"][f"SELECT COUNT(*) FROM {index}"][0][0]


def test_what_tables_have_saved_stands_in_their_own_files() -> None:
    """The server's next start with these files said: rt from tid 2 to 3, pq from 3 to 4, other from 0 to 1."""
    folder = version7.SAMPLES / "v7-flushed"
    saved = {name: read_saved_tid(name, (folder / name).read_bytes()) for name in ("rt.meta", "pq.meta")}
    assert saved == {"rt.meta": {"tables": {"rt": 2}}, "pq.meta": {"tables": {"pq": 3}}}
    result = replay(folder, against={"tables": {"rt": 2, "pq": 3}})
    assert result.details["files"][0]["recovered"] == {"rt": [2, 3], "other": [0, 1], "pq": [3, 4]}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["v7-mixed", "v7-reconfigure", "v7-rotation"])
def test_the_server_still_says_what_was_recorded(name: str) -> None:
    searchd = version7.tree()
    if searchd is None:
        if os.environ.get("BINLOGTOOL_SERVER") == "1":
            pytest.fail("BINLOGTOOL_SERVER=1, and there is no tree manticore-2.8")
        pytest.skip("there is no tree manticore-2.8")
    assert version7.says(searchd)(version7.SAMPLES / name, False) == recorded()["datasets"][name]["server_replay"]
