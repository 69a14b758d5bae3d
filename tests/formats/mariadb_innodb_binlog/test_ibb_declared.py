"""Names of columns from the log's own CREATE TABLE, for the events of groups in an InnoDB binlog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from binlogtool.format_api.format import Hints
from tests.cli.invoke import invoke
from tests.export.parts import every_border_holds
from tests.formats.mariadb_innodb_binlog.ibb_logs import copied

TOLD = "from the log's DDL"
PAGE = 16384


def events(path: Path, *options: str) -> list[dict[str, Any]]:
    done = invoke("dump", "-O", "jsonl", "--level", "event", *options, str(path))
    assert done.code in (0, 1), done.err
    return [json.loads(line) for line in done.out.splitlines()]


def named(path: Path, *options: str) -> list[bool]:
    """Of each TABLE_MAP: does the log's DDL name its columns?"""
    maps = [one["body"] for one in events(path, *options) if one["type"] == "TABLE_MAP"]
    for body in maps:
        told = [("name" in column) for column in body["columns"]]
        assert all(told) if body.get("declared") == TOLD else not any(told)
    return ["declared" in body for body in maps]


def test_rows_of_an_ibb_log_have_the_names_of_its_create_table(corpus: Path) -> None:
    path = corpus / "mariadb-innodb-binlog/generated/basic/binlog-000000.ibb"
    found = events(path)
    create = next(i for i, one in enumerate(found) if "t1" in str(one["body"].get("sql")))
    statement = found[create]["body"]["sql"]
    rows = [row for one in found[create:] if "WRITE_ROWS" in one["type"] for row in one["body"]["rows"]]
    assert rows and all(set(row["after"]) == {"a", "b", "c"} for row in rows), statement
    assert all(f"{name} " in statement for name in "abc")
    assert all(named(path))
    out = invoke("dump", "--level", "event", "-O", "jsonl", "--where", "after.a = 1", str(path)).out.splitlines()
    assert [json.loads(line)["body"]["rows"][0]["after"]["a"] for line in out] == [1]


def test_what_was_declared_before_a_damaged_page_may_have_changed_in_it(corpus: Path, tmp_path: Path) -> None:
    folder = copied(corpus / "mariadb-innodb-binlog/generated/basic", tmp_path / "log")
    path = folder / "binlog-000000.ibb"
    data = bytearray(path.read_bytes())
    places = [one["offset"] for one in events(path) if one["type"] == "TABLE_MAP"]
    page = places[len(places) // 2] // PAGE
    data[page * PAGE + 9000] ^= 255
    path.write_bytes(data)
    maps = [one for one in events(path) if one["type"] == "TABLE_MAP"]
    assumed = [one["body"].get("assumed", False) for one in maps]
    assert all(named(path)) and set(assumed) == {False, True}
    assert assumed == [one["offset"] > page * PAGE for one in maps]


def test_a_part_of_an_ibb_file_knows_what_was_declared_before_it(corpus: Path) -> None:
    """Every part has the names that the whole has: what was declared is carried to where it begins."""
    path = corpus / "mariadb-innodb-binlog/generated/basic/binlog-000000.ibb"
    assert all(named(path)) and every_border_holds(path, Hints(level="event")) >= 1
