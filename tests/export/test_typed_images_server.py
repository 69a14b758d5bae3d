"""Images of rows of tables against SELECT: what the servers have is what their changes add up to, row after row."""

from __future__ import annotations

import datetime
import decimal
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

STEPS = 60
TABLES = {
    "k": ("id", "t", "n", "d", "at", "b", "e", "s"),
    "c": ("x", "y", "v", "b"),
    "u": ("a", "b", "s"),
}
KEYS = {"k": ("id",), "c": ("y", "x"), "u": ("a",)}
DEFAULTS = {"k": {"e": "b"}, "c": {"v": 7}, "u": {}}
HEX = {"t", "b", "s", "y"}
SCHEMA = """CREATE DATABASE w; USE w;
CREATE TABLE k (id INT PRIMARY KEY, t VARCHAR(40) CHARACTER SET utf8mb4, n BIGINT UNSIGNED, d DECIMAL(12,3),
 at DATETIME(6), b BLOB, e ENUM('a', 'b', 'c') DEFAULT 'b', s TEXT CHARACTER SET utf8mb4);
CREATE TABLE c (x INT, y VARCHAR(8), v INT DEFAULT 7, b MEDIUMBLOB, PRIMARY KEY (y, x));
CREATE TABLE u (a INT NOT NULL, b VARBINARY(20), s TEXT CHARACTER SET utf8mb4, UNIQUE KEY (a));
"""
VALUES = {
    "t": ("NULL", "'one'", "'zwölf'", "''"), "n": ("NULL", "0", "18446744073709551615"), "d": ("NULL", "-1.5", "0"),
    "at": ("NULL", "'2026-02-28 23:59:59.000001'"), "e": ("NULL", "'a'", "'c'"), "v": ("NULL", "1", "-2147483648"),
    "b": ("NULL", "x'00ff'", "''", "REPEAT('b', 17)"), "s": ("NULL", "''", "'日本'", "REPEAT('s', 12)"),
}  # fmt: skip
COLUMNS = {"k": ("t", "n", "d", "at", "b", "e", "s"), "c": ("v", "b"), "u": ("b", "s")}
NEW_KEY = {"k": "id = {0}", "c": "x = {0}, y = 'm{0}'", "u": "a = {0}"}
OLD_KEY = {"k": "id = {0}", "c": "x = {0}", "u": "a = {0}"}


def workload(seed: int) -> str:
    """Statements that insert, change (also keys, also to the same value) and delete; keys are numbers."""
    rng, there, made = random.Random(seed), {name: list[int]() for name in TABLES}, []
    for number in range(STEPS):
        name, dice = rng.choice(list(TABLES)), rng.random()
        columns = rng.sample(COLUMNS[name], rng.randint(0, len(COLUMNS[name])))
        pairs = ", ".join(f"{one} = {rng.choice(VALUES[one])}" for one in columns)
        if dice < 0.4 or not there[name]:
            keys = {"k": f"id = {number}", "c": f"x = {number}, y = 'y{number % 3}'", "u": f"a = {number}"}[name]
            made.append(f"INSERT INTO {name} SET {', '.join(filter(None, (keys, pairs)))};")
            there[name].append(number)
            continue
        own = rng.choice(there[name])
        where = "WHERE " + OLD_KEY[name].format(own)
        if dice < 0.5:
            made.append(f"DELETE FROM {name} {where};")
            there[name].remove(own)
        elif dice < 0.65:
            made.append(f"UPDATE {name} SET {NEW_KEY[name].format(number + 1000)} {where};")
            there[name].remove(own)
            there[name].append(number + 1000)
        elif pairs:
            made.append(f"UPDATE {name} SET {pairs} {where if dice < 0.9 else ''};")
    return "\n".join(made)


def as_selected(name: str, value: Any) -> str:
    """A value as the query of `selected` gives it."""
    if value is None:
        return "NULL"
    if name in HEX:
        return (value if isinstance(value, bytes) else value.encode()).hex().upper()
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


def selected(server: Server, table: str) -> list[list[str]]:
    shown = ", ".join(f"HEX({one})" if one in HEX else one for one in TABLES[table])
    return sorted(line.split("\t") for line in server.ask(f"SELECT {shown} FROM w.{table}").splitlines())


def lines(table: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    return sorted([as_selected(name, row[name]) for name in TABLES[table]] for row in rows)


State = dict[tuple[Any, ...], dict[str, Any]]


def rebuilt(
    table: str, image: str, log: binlogtool.Log, last: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows before the `last` ones were deleted, by one image; the old key of an UPDATE is that of the image before.

    And these last ones as the image before has them, with what it lacks."""
    state, names = State(), TABLES[table]
    made, old = list(log.rows(f"w.{table}", image=image)), list(log.rows(f"w.{table}", image="before"))
    assert [(row["record"], row["row"]) for row in made] == [(row["record"], row["row"]) for row in old]
    assert [row["op"] for row in made[len(made) - last :]] == ["DELETE"] * last
    for row, before in list(zip(made, old, strict=True))[: len(made) - last]:
        gone = tuple(before[name] for name in KEYS[table])
        lacks = {path.partition(".")[2] for path in row["absent"] or () if path.startswith("after.")}
        if row["op"] == "DELETE":
            was, short = state.pop(gone), {path.partition(".")[2] for path in before["absent"] or ()}
            assert {name: before[name] for name in names if name not in short} == {
                name: was[name] for name in names if name not in short
            }
            continue
        kept = state.pop(gone) if row["op"] == "UPDATE" else {name: DEFAULTS[table].get(name) for name in names}
        told = [name for name in names if name not in lacks]
        if image == "changes" and row["op"] == "UPDATE":
            told = row["changed"]
        new = kept | {name: row[name] for name in told}
        state[tuple(new[name] for name in KEYS[table])] = new
    return list(state.values()), old[len(old) - last :]


def images_add_up(programs: Programs | None, image: str, metadata: str, seed: int) -> None:
    """Held against SELECT. None: the installed server."""
    options = (
        "--log-bin=bin", "--server-id=1", "--skip-networking", f"--binlog-row-metadata={metadata}",
        "--binlog-format=ROW", f"--binlog-row-image={image}",
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as home,
        Server(Path(home), *options, programs=programs) as server,
    ):
        assert server.run((SCHEMA + workload(seed)).encode()) == ""
        wanted = {table: selected(server, table) for table in TABLES}
        assert server.run(b"USE w; DELETE FROM k; DELETE FROM c; DELETE FROM u") == ""
        with binlogtool.open(server.data / "bin.000001") as log:
            for table, rows in wanted.items():
                for shown in ("after", "changes"):
                    found, gone = rebuilt(table, shown, log, len(rows))
                    assert lines(table, found) == rows, (table, shown)
                    short = {path.partition(".")[2] for row in gone for path in row["absent"] or ()}
                    whole = [{name: None if name in short else row[name] for name in row} for row in found]
                    assert lines(table, gone) == lines(table, whole), (table, "before")
                    assert not {name for name in KEYS[table] if name in short}


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
@pytest.mark.parametrize(("image", "metadata"), [("FULL", "NO_LOG"), ("MINIMAL", "FULL"), ("NOBLOB", "MINIMAL")])
def test_images_of_mariadb_add_up_to_its_rows(image: str, metadata: str) -> None:
    images_add_up(None, image, metadata, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB", "FULL_NODUP"])
@pytest.mark.parametrize("tree", TREES)
def test_images_of_other_servers_add_up_to_their_rows(tree: str, image: str, seed: int) -> None:
    programs = programs_of(tree)
    if programs is None:
        pytest.skip(f"no tree {tree}")
    if programs.mysql and image == "FULL_NODUP":
        pytest.skip("MySQL has no such images")
    images_add_up(programs, image, "FULL" if seed % 2 else "MINIMAL", seed)
