"""`convert --merge` of a real MariaDB's log against SELECT."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.export.test_typed_images_server import DEFAULTS, SCHEMA, TABLES, lines, selected, workload
from tests.export.typed_logs import rows
from tests.formats.mysql_binlog.server import Server

pytestmark = [pytest.mark.server, pytest.mark.skipif(Server.program() is None, reason="no mariadbd")]
OPTIONS = ("--log-bin=bin", "--server-id=1", "--skip-networking", "--binlog-format=ROW")
STATEMENTS = b"""CREATE DATABASE w; USE w;
CREATE TABLE moved (id INT PRIMARY KEY, s TEXT CHARACTER SET utf8mb4);
CREATE TABLE swapped (id INT PRIMARY KEY, s INT);
INSERT INTO moved VALUES (1, 'one'), (2, 'two'); INSERT INTO swapped VALUES (5, 50);
RENAME TABLE moved TO between_, swapped TO moved, between_ TO swapped;
INSERT INTO moved VALUES (6, 60); INSERT INTO swapped VALUES (3, 'three'); UPDATE swapped SET s = 'zwei' WHERE id = 2;
CREATE TABLE emptied (id INT PRIMARY KEY); INSERT INTO emptied VALUES (1), (2); TRUNCATE emptied;
INSERT INTO emptied VALUES (7);
CREATE TABLE dropped (id INT PRIMARY KEY); INSERT INTO dropped VALUES (1); DROP TABLE dropped;
CREATE TABLE anew (id INT PRIMARY KEY); INSERT INTO anew VALUES (1); DROP TABLE anew;
CREATE TABLE anew (id VARCHAR(9) CHARACTER SET utf8mb4 PRIMARY KEY, q INT); INSERT INTO anew VALUES ('x', 1);
CREATE DATABASE gone; CREATE TABLE gone.t (a INT PRIMARY KEY); INSERT INTO gone.t VALUES (1); DROP DATABASE gone;
CREATE TABLE altered (id INT PRIMARY KEY, a INT, old INT); INSERT INTO altered VALUES (1, 1, 1), (2, 2, 2);
FLUSH BINARY LOGS;
ALTER TABLE altered ADD z INT, DROP old; UPDATE altered SET z = 5 WHERE id = 2; INSERT INTO altered VALUES (3, 3, 3);
DELETE FROM altered WHERE id = 1; UPDATE altered SET id = 9, a = NULL WHERE id = 3;
"""


@pytest.mark.parametrize(
    ("image", "metadata", "seed"),
    [("FULL", "NO_LOG", 1), ("MINIMAL", "FULL", 2), ("NOBLOB", "MINIMAL", 3), ("MINIMAL", "NO_LOG", 4)],
)
def test_the_rows_of_the_server_are_the_output(image: str, metadata: str, seed: int) -> None:
    """Columns that MINIMAL images of an INSERT lack have the default of the server, which no log contains."""
    images = (f"--binlog-row-image={image}", f"--binlog-row-metadata={metadata}")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *OPTIONS, *images) as server:
        schema = SCHEMA.replace("UNIQUE KEY (a)", "PRIMARY KEY (a)")
        assert server.run((schema + workload(seed)).encode()) == ""
        for table in TABLES:
            out = Path(home) / table
            done = binlogtool.convert([server.data / "bin.000001"], "parquet", out, merge=True,
                                      selection=binlogtool.Selection(objects=(f"w.{table}",)))  # fmt: skip
            found = rows(out)
            if image == "FULL":
                assert not any(row["absent"] for row in found)
            for row in found:
                row |= {path[6:]: DEFAULTS[table].get(path[6:]) for path in row["absent"] or ()}
            assert lines(table, found) == selected(server, table) and done.rows == len(found) > 1


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_statements_about_tables_are_applied(image: str) -> None:
    images = (f"--binlog-row-image={image}", "--binlog-row-metadata=NO_LOG")
    with tempfile.TemporaryDirectory(prefix="bt-") as home, Server(Path(home), *OPTIONS, *images) as server:
        assert server.run(STATEMENTS) == ""
        names = server.ask("SELECT table_name FROM information_schema.tables WHERE table_schema = 'w'").split()
        logs = [str(server.data / name) for name in ("bin.000001", "bin.000002")]
        done = invoke("convert", "--merge", "--to", "parquet", "-o", f"{home}/out", *logs)
        assert done.code == 0, done.text
        assert sorted(path.name for path in Path(home, "out").iterdir() if path.is_dir()) == sorted(
            f"w.{n}" for n in names
        )
        for name in names:
            columns = [line.split("\t")[0] for line in server.ask(f"DESCRIBE w.{name}").splitlines()]
            found = sorted(["NULL" if row[one] is None else str(row[one]) for one in columns]
                           for row in rows(Path(home, "out", f"w.{name}")))  # fmt: skip
            assert found == sorted(line.split("\t") for line in server.ask(f"SELECT * FROM w.{name}").splitlines()), (
                name
            )
        assert "the column z (int) is new" in done.text
