"""Typed rows of a real MariaDB's log against SELECT: many tables, unknown columns, partial images, compression."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest

from binlogtool.core.record_and_selection_types import Selection
from tests.export.typed_logs import tables
from tests.formats.mysql_binlog.server import Server
from tests.sampling import EXHAUSTIVE

COUNT = 280 if EXHAUSTIVE else 100
"""Tables of the same form: more than files that are open at once."""
TABLE = (
    "(id INT PRIMARY KEY, u BINARY(16), name VARCHAR(300) CHARACTER SET utf8mb4, total DECIMAL(10,2), "
    "at DATETIME(3), kind ENUM('a', 'b'))"
)


def insert(first: int) -> str:
    """A row in each table; half of the values of BINARY columns are no UTF-8."""
    rows = [
        f"INSERT INTO t{n} VALUES ({first + n}, UNHEX(MD5('{first}-{n}')), REPEAT('zwölf {n} ', 20), {first + n}.25, "
        f"'2026-01-01 00:00:00.125' + INTERVAL {n} SECOND, 'b');"
        for n in range(COUNT)
    ]
    return "\n".join(rows)


def read_sums(server: Server) -> dict[str, tuple[int, str, str, str]]:
    """Count, sum, and hashes of the values of each table, by the server."""
    values = "COUNT(*), SUM(total), MAX(at), MD5(GROUP_CONCAT(HEX(u) ORDER BY id))"
    query = " UNION ALL ".join(f"SELECT 'w.t{n}', {values} FROM w.t{n}" for n in range(COUNT))
    lines = server.ask(f"SET SESSION group_concat_max_len = 1000000; {query}").splitlines()
    return {line.split("\t")[0]: tuple(line.split("\t")[1:]) for line in lines}  # type: ignore[misc]


def fold(rows: list[dict[str, Any]], state: dict[int, dict[str, Any]], names: list[str]) -> dict[int, dict[str, Any]]:
    """Apply the changes of a table. names: its columns, in order."""
    for row in rows:
        before, after = row["before"], row["after"]
        lacking, unfit = row["absent"] or (), row["unfit"] or ""
        if after is None:
            state.pop(before[names[0]])
            continue
        old = state.pop(before[names[0]]) if before is not None else {}
        new = {name: after[name] for name in names if f"after.{name}" not in lacking}
        if f"after.{names[1]}" in unfit:
            new[names[1]] = bytes.fromhex(unfit.partition('"$bytes":"')[2].partition('"')[0])
        state[(old | new)[names[0]]] = old | new
    return state


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
@pytest.mark.parametrize(
    "options",
    [
        ("--binlog-row-metadata=NO_LOG",),
        ("--binlog-row-image=MINIMAL", "--binlog-row-metadata=FULL"),
        ("--log-bin-compress=1", "--log-bin-compress-min-len=64", "--binlog-row-metadata=FULL"),
    ],
    ids=["unknown columns", "minimal images", "compressed events"],
)
def test_rows_of_many_tables_add_up_to_those_of_the_server(options: tuple[str, ...]) -> None:
    """The log with the rows does not define the tables; the second half is also read alone, from a GTID on."""
    started = ("--log-bin=bin", "--server-id=1", "--binlog-format=ROW", "--skip-networking", *options)
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *started) as server:
        made = "".join(f"CREATE TABLE t{n} {TABLE};\n" for n in range(COUNT))
        assert server.run(f"CREATE DATABASE w; USE w;\n{made}FLUSH BINARY LOGS;".encode()) == ""
        assert server.run(f"USE w;\n{insert(1000)}".encode()) == ""
        middle = server.gtids()
        changes = "".join(f"UPDATE t{n} SET total = total + 1 WHERE id = {1000 + n};\n" for n in range(0, COUNT, 3))
        removed = "".join(f"DELETE FROM t{n} WHERE id = {1000 + n};\n" for n in range(1, COUNT, 3))
        assert server.run(f"USE w;\n{insert(5000)}{changes}{removed}".encode()) == ""
        sums = read_sums(server)
        log = server.data / "bin.000002"
        found, done = tables(log, Path(home) / "whole", image="both", backend="native")
        parts = [
            tables(log, Path(home) / name, image="both", backend="native", selection=selection)[0]
            for name, selection in (
                ("first", Selection(stop=f"gtid:{middle}")),
                ("second", Selection(start=f"gtid:{middle}")),
            )
        ]
    assert len(sums) == COUNT and done.rows == 2 * COUNT + len(range(0, COUNT, 3)) + len(range(1, COUNT, 3))
    assert "general_rows" not in done.details
    for number in range(COUNT):
        rows = found[f"w.t{number}"]
        assert rows == [row for part in parts for row in part.get(f"w.t{number}", [])]
        names = list(rows[0]["after"])
        state = fold(rows, {}, names)
        count, total, latest, digest = sums[f"w.t{number}"]
        held = list(state.values())
        assert (str(len(held)), str(sum(row[names[3]] for row in held))) == (count, total)
        assert max(row[names[4]] for row in held).isoformat(" ", "milliseconds") == latest
        ids = [state[key][names[1]] for key in sorted(state)]
        texts = [(one.encode() if isinstance(one, str) else one).ljust(16, b"\0").hex().upper() for one in ids]
        assert hashlib.md5(",".join(texts).encode()).hexdigest() == digest
        assert all(row[names[2]] == f"zwölf {number} " * 20 for row in held)
