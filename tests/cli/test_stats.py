"""`stats`: rows changed in logs whose records are groups of events."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.invoke import invoke

MEMBERS = {"WRITE_ROWS_V1": "inserted", "UPDATE_ROWS_V1": "updated", "DELETE_ROWS_V1": "deleted"}


@pytest.mark.full
def test_rows_of_an_innodb_binlog_are_those_of_its_events(corpus: Path) -> None:
    """Counted in the JSON lines of the events, which other code makes."""
    log = str(corpus / "mariadb-innodb-binlog" / "generated" / "basic")
    expected: Counter[tuple[str, str]] = Counter()
    for line in invoke("dump", "--level", "event", "-O", "jsonl", log).text.splitlines():
        record = json.loads(line)
        if kind := MEMBERS.get(record["type"].replace("_COMPRESSED", "")):
            expected[record["object"], kind] += len(record["body"]["rows"])
    groups = json.loads(invoke("stats", "--rows", "-O", "json", log).text)["groups"]
    found = {(one["name"], kind): one[kind] for one in groups for kind in MEMBERS.values()}
    assert sum(expected.values()) > 50
    assert {key: count for key, count in found.items() if count} == dict(expected)


def test_rows_of_manticore_are_documents_not_transactions(corpus: Path) -> None:
    """The documents that the commits insert, as the reference scan counts them (`rows` in expected.jsonl)."""
    log = str(corpus / "manticore" / "generated" / "v16" / "common-mixed-kill9")
    groups = json.loads(invoke("stats", "--rows", "-O", "json", log).text)["groups"]
    inserted = {one["name"]: one["inserted"] for one in groups}
    assert {name: inserted[name] for name in ("rt_main", "rt_crc", "rt_long")} == {
        "rt_main": 8,
        "rt_crc": 4,
        "rt_long": 3,
    }
