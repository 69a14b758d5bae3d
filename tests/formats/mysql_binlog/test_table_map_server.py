"""Every type of a real MariaDB beside every other: names, character sets and values are those of the server."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.formats.mysql_binlog.server import Server

pytestmark = pytest.mark.server

TEXT = "größe"
COLUMNS: tuple[tuple[str, str, Any], ...] = (
    ("TINYINT", "-1", -1),
    ("INT UNSIGNED", "4294967295", 4294967295),
    ("BIGINT UNSIGNED", "1", 1),
    ("YEAR", "2026", 2026),
    ("DOUBLE", "0.5", 0.5),
    ("DECIMAL(8,2)", "-1.25", "-1.25"),
    ("BIT(9)", "b'101'", 5),
    ("DATE", "'2026-01-02'", "2026-01-02"),
    ("TIME(3)", "'01:02:03.5'", "01:02:03.500"),
    ("DATETIME(6)", "'2026-01-02 03:04:05.000006'", "2026-01-02 03:04:05.000006"),
    ("CHAR(9) CHARACTER SET latin1", f"'{TEXT}'", TEXT),
    ("VARCHAR(300) CHARACTER SET utf8mb4", f"'{TEXT}'", TEXT),
    ("VARCHAR(20) CHARACTER SET koi8r", "'привет'", "привет"),
    ("TEXT CHARACTER SET latin2", f"'{TEXT}'", TEXT),
    ("BLOB", "x'00ff'", b"\x00\xff"),
    ("VARBINARY(9)", "x'80'", b"\x80"),
    ("LONGTEXT CHARACTER SET utf16", f"'{TEXT}'", TEXT),
    ("ENUM('ä','b') CHARACTER SET latin1", "'ä'", "ä"),
    ("SET('ö','b') CHARACTER SET utf8mb4", "'ö,b'", ["ö", "b"]),
    ("VARCHAR(20) COMPRESSED CHARACTER SET latin1", f"'{TEXT}'", TEXT),
    ("TEXT COMPRESSED CHARACTER SET latin5", f"'{TEXT}'", TEXT),
    ("GEOMETRY", "ST_GeomFromText('POINT(1 2)')", None),
    ("JSON", """'{"a":null}'""", '{"a":null}'),
    ("INET6", "'::1'", None),
    ("UUID", "'123e4567-e89b-12d3-a456-426614174000'", None),
)
"""A type, a value as SQL, and the value as it must come out (None: its bytes are told in another test)."""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, Path]]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    options = ("--log-bin=bin", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--skip-networking")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *options) as running:
        yield running, Path(folder) / "data" / "bin.000001"


def orders() -> Iterator[list[int]]:
    """Orders of the columns, until every one stood directly before every other."""
    rng, every = random.Random(9), range(len(COLUMNS))
    missing = {(a, b) for a in every for b in every if a != b}
    while missing:
        order, left = [], set(every)
        while left:
            fresh = [one for one in left if order and (order[-1], one) in missing]
            order.append(rng.choice(fresh or sorted(left, key=lambda one: -sum((one, b) in missing for b in left))[:1]))
            left.remove(order[-1])
        missing -= set(pairwise(order))
        yield order


def test_every_type_beside_others_comes_out_as_the_server_has_it(server: tuple[Server, Path]) -> None:
    running, log = server
    script, wanted = ["SET NAMES utf8mb4; CREATE DATABASE d; USE d;"], {}
    for number, order in enumerate(orders()):
        columns = ",".join(f"c{i} {COLUMNS[i][0]}" for i in order)
        script.append(f"CREATE TABLE t{number} ({columns}) CHARACTER SET latin1;")
        script.append(f"INSERT INTO t{number} VALUES ({','.join(COLUMNS[i][1] for i in order)});")
        wanted[f"d.t{number}"] = [f"c{i}" for i in order]
    assert running.run("\n".join(script).encode()) == ""
    seen = {}
    with binlogtool.open(log) as opened:
        for record in opened.records():
            assert not record.findings, record
            if record.type.startswith("WRITE_ROWS"):
                seen[record.object] = record.body["rows"][0]["after"]
    assert {table: list(row) for table, row in seen.items()} == wanted
    values = {f"c{i}": value for i, (_, _, value) in enumerate(COLUMNS) if value is not None}
    assert values
    for table, row in seen.items():
        assert {name: row[name] for name in values} == values, table
