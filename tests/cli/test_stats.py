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
