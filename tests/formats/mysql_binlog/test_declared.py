"""Names, signs and fractions of columns from the log's own CREATE and ALTER TABLE, where the maps do not give them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.export.parts import every_border_holds
from tests.formats.mysql_binlog.server import Server

OLD = "third-party-2/mariadb1000-timestamp3.000001"
TOLD = "from the log's DDL"
BACKENDS = ("python", "native")


def printed(path: Path, *more: str, code: int = 0) -> list[dict[str, Any]]:
    done = invoke("dump", "-O", "jsonl", *more, str(path))
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def rows(path: Path, *more: str) -> list[dict[str, Any]]:
    """After images of all row events."""
    found = [one["body"] for one in printed(path, *more) if "ROWS" in one["type"]]
    return [row["after"] for body in found for row in body.get("rows", ()) if "after" in row]


# -- fractions of MariaDB 10.0 -----------------------------------------------------------------------------------------


@pytest.mark.full_corpus
@pytest.mark.parametrize("backend", BACKENDS)
def test_fractions_that_only_the_create_table_tells_are_read(corpus: Path, backend: str) -> None:
    """The times of the events are those of the rows: every default is CURRENT_TIMESTAMP, the server's zone is UTC."""
    path = corpus / OLD
    found = [one for one in printed(path, "--backend", backend) if one["type"] == "WRITE_ROWS_V1"]
    digits = {"steven.t": 3, "steven.t1": 0, "steven.t2": 4, "steven.t3": 0, "steven.t5": 1, "steven.t6": 4}
    assert {one["object"] for one in found} == set(digits)
    for one in found:
        (row,) = one["body"]["rows"]
        seconds, _, fraction = row["after"]["d"].partition(".")
        assert seconds == one["time"][:19].replace("T", " ") and len(fraction) == digits[one["object"]]
    maps = [one["body"] for one in printed(path) if one["type"] == "TABLE_MAP" and one["object"] in digits]
    assert {one["declared"] for one in maps} == {TOLD} and all(one["columns"][0]["name"] == "id" for one in maps)
    assert not [f for f in binlogtool.verify([path]).findings if f.id == "payload-undecodable"]


@pytest.mark.full_corpus
def test_a_map_of_another_number_of_columns_is_none_of_the_declared_table(corpus: Path, tmp_path: Path) -> None:
    data = (corpus / OLD).read_bytes()
    path = tmp_path / "bin.000001"
    path.write_bytes(data.replace(b"key,d timestamp(3))", b"key,d int , e  int)"))
    first = next(one for one in printed(path) if one["object"] == "steven.t" and one["type"] == "TABLE_MAP")
    assert "declared" not in first["body"] and "name" not in first["body"]["columns"][0]
    report = binlogtool.verify([path])
    assert [f.offset for f in report.findings if f.id == "payload-undecodable"] == [0x71B]


@pytest.mark.full_corpus
def test_what_was_declared_before_a_damage_may_have_changed_in_it(corpus: Path, tmp_path: Path) -> None:
    data = bytearray((corpus / OLD).read_bytes())
    at = data.index(b"create table t1") - 60  # a transaction behind the one of t
    del data[at : at + 7]
    path = tmp_path / "bin.000001"
    path.write_bytes(data)
    named = {one["object"]: "declared" in one["body"] for one in printed(path, code=1) if one["type"] == "TABLE_MAP"}
    assert named["steven.t"] and not named["steven.t1"] and named["steven.t6"]


@pytest.mark.full_corpus
def test_any_part_of_a_file_is_read_as_in_the_whole(corpus: Path) -> None:
    assert every_border_holds(corpus / OLD) > 15
    whole = printed(corpus / OLD)
    for start in (0x6CA, 0x920, 0xD9F):
        assert printed(corpus / OLD, "--start-position", hex(start)) == [one for one in whole if one["offset"] >= start]


# -- a real server -----------------------------------------------------------------------------------------------------

SCRIPT = """CREATE DATABASE d; USE d;
CREATE TABLE a (i INT UNSIGNED PRIMARY KEY, `odd name` VARCHAR(9), e ENUM('x', 'y'), t TINYINT);
INSERT INTO a VALUES (4294967295, 'one', 'y', -1); UPDATE a SET t = 1;
/* a comment in front */ ALTER TABLE a ADD COLUMN f SMALLINT UNSIGNED FIRST, CHANGE t z TINYINT UNSIGNED;
TRUNCATE a; INSERT INTO a VALUES (65535, 1, 'two', 'x', 255);
RENAME TABLE a TO b; INSERT INTO b VALUES (1, 2, 'three', 'y', 3);
CREATE TABLE c AS SELECT * FROM b; DROP TABLE b;
CREATE TABLE b LIKE c; INSERT INTO b VALUES (7, 8, 'four', 'x', 9);
"""


@pytest.fixture(scope="module")
def log() -> Iterator[Path]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = ("--log-bin=bin", "--binlog-format=ROW", "--skip-networking", "--binlog-row-metadata=NO_LOG")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        assert running.run(SCRIPT.encode()) == ""
        running.ask("FLUSH BINARY LOGS")
        yield next(Path(folder).rglob("bin.000001"))


@pytest.mark.server
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_have_the_names_and_signs_that_held_when_they_were_written(log: Path, backend: str) -> None:
    first = {"i": 4294967295, "odd name": "one", "e": "y", "t": -1}
    second = {"f": 65535, "i": 1, "odd name": "two", "e": "x", "z": 255}
    third = {"f": 1, "i": 2, "odd name": "three", "e": "y", "z": 3}
    found = rows(log, "--backend", backend)
    assert [found[0], found[2], found[3]] == [first, second, third] and found[-1] == {
        **third,
        "f": 7,
        "i": 8,
        "odd name": "four",
        "e": "x",
        "z": 9,
    }
    assert every_border_holds(log) > 5
