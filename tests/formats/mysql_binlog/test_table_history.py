"""One history of table definitions: --schema is its beginning, the log's DDL changes it, every reader asks it.

Expected values are those of the server: SELECT, and information_schema.columns behind each statement.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import ddl_sequences
from tests.formats.mysql_binlog.server import Server

FOUND = "found-3"
OPTIONS = ("--log-bin=bin", "--binlog-format=ROW", "--skip-networking", "--binlog-row-metadata=NO_LOG")
SCHEMA = "create table d.q (id int primary key, a int, b int);"


def dumped(*words: str) -> list[dict[str, Any]]:
    done = invoke("dump", "-O", "jsonl", *words)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def images(*words: str) -> list[dict[str, Any]]:
    """The inserted rows."""
    records = [one["body"] for one in dumped(*words) if one["type"].startswith("WRITE_ROWS")]
    return [row["after"] for body in records for row in body["rows"]]


@pytest.mark.full_corpus
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("set-statement-ddl/bin.000001", {"a": 10, "id": 20}),
        ("set-statement-ddl/bin.000002", {"id": 10, "zz": 20}),
        ("set-statement-ddl/bin.000003", {"x": 10, "y": 20}),
        ("swap-columns/mysql.000001", {"a": 10, "id": 20}),
        ("lower-case-table-names/mariadb.000001", {"A": 10, "id": 20}),
    ],
)
def test_rows_have_the_names_that_their_server_says(corpus: Path, name: str, row: dict[str, int]) -> None:
    assert [tuple(one.items()) for one in images(str(corpus / FOUND / name))] == [tuple(row.items())]


@pytest.mark.full_corpus
def test_the_second_file_of_a_log_knows_the_statements_of_the_first(corpus: Path, tmp_path: Path) -> None:
    """The server: 200 rows, each with total 1.00."""
    folder = str(corpus / FOUND / "export" / "R1")
    expected = [{"id": n, "total": "1.00"} for n in range(1, 201)]
    assert images(folder) == expected
    assert images("--start-position", "bin.000008:4", folder) == expected[100:]


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swapped() -> Iterator[tuple[Path, list[tuple[int, int, int]]]]:
    """Two logs that begin behind the CREATE TABLE: a row, a swap of two columns, a row; in the next one another row.
    And what the server has: (id, a, b)."""
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *OPTIONS) as running:
        assert running.run(f"CREATE DATABASE d; {SCHEMA} RESET MASTER;".encode()) == ""
        script = """USE d; INSERT INTO q VALUES (1, 10, 20); ALTER TABLE q CHANGE a b INT, CHANGE b a INT;
        INSERT INTO q VALUES (2, 30, 40); FLUSH BINARY LOGS; INSERT INTO q VALUES (3, 50, 60); FLUSH BINARY LOGS;"""
        assert running.run(script.encode()) == ""
        lines = running.ask("SELECT id, a, b FROM d.q ORDER BY id").splitlines()
        rows = [tuple(map(int, line.split("\t"))) for line in lines]
        yield next(Path(folder).rglob("bin.000001")).parent, rows  # type: ignore[misc]


def logs(folder: Path) -> list[str]:
    return [str(folder / name) for name in ("bin.000001", "bin.000002")]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "schema.sql"
    path.write_text(SCHEMA)
    return str(path)


@pytest.mark.server
def test_the_logs_alter_changes_what_schema_says(swapped: Any, schema: str) -> None:
    folder, rows = swapped
    assert rows == [(1, 20, 10), (2, 40, 30), (3, 60, 50)], "the values of the first row moved with the names"
    found = images("--schema", schema, *logs(folder))
    assert [(one["id"], one["a"], one["b"]) for one in found] == [(1, 10, 20), *rows[1:]]


@pytest.mark.server
def test_typed_rows_and_messages_follow_the_logs_alter(swapped: Any, schema: str, tmp_path: Path) -> None:
    folder, rows = swapped
    expected = [(1, 10, 20), *rows[1:]]
    out = tmp_path / "messages.jsonl"
    done = invoke(
        "convert", "--to", "jsonl", "--envelope", "maxwell", "--schema", schema, "-o", str(out), *logs(folder)
    )
    assert done.code == 0, done.err
    messages = [json.loads(line) for line in out.read_text().splitlines()]
    data = [one["data"] for one in messages if one["type"] == "insert"]
    assert [(one["id"], one["a"], one["b"]) for one in data] == expected
    with binlogtool.open(logs(folder), hints=binlogtool.read_hints(schema=schema)) as log:
        table = pa.table(log.rows("d.q"))
    assert list(zip(*(table.column(name).to_pylist() for name in ("id", "a", "b")), strict=True)) == expected


@pytest.mark.server
def test_a_script_of_statements_follows_the_logs_alter(swapped: Any, schema: str, tmp_path: Path) -> None:
    """Run on the server behind --schema's CREATE TABLE, it makes the rows that the server has."""
    folder, rows = swapped
    out = tmp_path / "x.sql"
    done = invoke("convert", "--to", "sql", "--rows", "statements", "--schema", schema, "-o", str(out), *logs(folder))
    assert done.code == 0, done.err
    with tempfile.TemporaryDirectory(prefix="bt-") as place, Server(Path(place)) as running:
        assert running.run(f"CREATE DATABASE d; {SCHEMA}".encode()) == ""
        assert running.run(out.read_bytes()) == ""
        lines = running.ask("SELECT id, a, b FROM d.q ORDER BY id").splitlines()
        assert [tuple(map(int, line.split("\t"))) for line in lines] == rows


@pytest.mark.server
def test_a_schema_that_does_not_fit_is_reported(swapped: Any, tmp_path: Path) -> None:
    folder, _ = swapped
    other = tmp_path / "other.sql"
    other.write_text("create table d.q (id int, a int);")
    log, said = logs(folder)[0], "--schema gives d.q 2 columns, the log 3"
    assert images("--schema", str(other), log)[0] == {"@1": 1, "@2": 10, "@3": 20}
    notes = [note for record in dumped("--schema", str(other), log) for note in record["findings"]]
    altered = "an ALTER TABLE in the log does not fit the table's definition: there is no column b"
    first = "--schema must define it as it was before the first log"
    uncertain = f"the names of the columns of d.q are not certain: {altered}; {first}"
    assert [(note["id"], note["message"]) for note in notes] == [("meta-mismatch", said), ("meta-mismatch", uncertain)]
    report = binlogtool.verify([log], hints=binlogtool.read_hints(schema=str(other)))
    assert [one.message for one in report.findings] == [said]
    words = ["-O", "json", "--object", "d.q", "--to", "csv", "--schema", str(other), "-o", str(tmp_path / "x")]
    done = invoke("convert", *words, log)
    assert done.code == 0
    assert f"WRITE_ROWS_V1: {said}".encode() in done.out


TWO_PHASES = Path(__file__).parents[2] / "corpus" / "mysql_binlog" / "two-phase-alter.000001"
"""MariaDB 11.8 with binlog_alter_two_phase: an ALTER TABLE that renames a column, and one, rolled back, that exchanges
two names."""


def test_an_alter_in_two_phases_changes_names_once_and_only_if_it_commits() -> None:
    names = [tuple(row) for row in images(str(TWO_PHASES))]
    assert names == [("id", "a", "b"), ("id", "a", "b"), ("id", "c", "b"), ("id", "c", "b")]


@pytest.mark.parametrize(
    ("gtids", "status"), [("0-1-10", 0), ("0-1-8,0-1-9,0-1-10", 0), ("0-1-5", 2), ("0-1-6,0-1-7", 1)]
)
def test_a_flashback_reverses_rows_behind_an_alter_that_was_rolled_back(
    gtids: str, status: int, tmp_path: Path
) -> None:
    """0-1-8 is a START ALTER, 0-1-9 its ROLLBACK ALTER; 0-1-5 begins the ALTER that 0-1-6 commits:
    nothing is to be reversed."""
    out = tmp_path / "out.sql"
    done = invoke("flashback", "--include-gtids", gtids, "-o", str(out), str(TWO_PHASES))
    assert (done.code, out.exists()) == (status, status == 0), done.text + done.err
    assert ("QUERY cannot be reversed: the log has ALTER TABLE" in done.text) == ("0-1-6" in gtids)


@pytest.mark.server
@pytest.mark.parametrize("options", [(), ("--binlog-alter-two-phase=1",)])
def test_no_random_sequence_of_ddl_gives_a_wrong_name(options: tuple[str, ...]) -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    answer = ddl_sequences.run(2026, 12, None, 16, *options)
    assert answer.wrong == []
    assert answer.right > 300
    assert answer.unknown <= answer.right // 50, answer.unknown_after


@pytest.mark.server
def test_no_random_sequence_of_ddl_gives_a_wrong_name_where_case_makes_no_difference() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    answer = ddl_sequences.run(2026, 8, None, 16, "--lower-case-table-names=1", capitals=True)
    assert answer.wrong == []
    assert answer.right > 150


@pytest.mark.nightly
@pytest.mark.parametrize("tree", ["mysql-9", "mariadb-11.8"])
def test_no_random_sequence_of_ddl_gives_a_wrong_name_on_newer_servers(tree: str) -> None:
    answer = ddl_sequences.run(2026, 12, tree)
    assert answer.wrong == []
    assert answer.right > 300
    assert answer.unknown <= answer.right // 50, answer.unknown_after


@pytest.mark.server
def test_comments_that_the_server_does_not_execute_say_nothing() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    script = """CREATE DATABASE d; USE d; CREATE TABLE t (a INT, b INT);
    ALTER TABLE t /*!999999 RENAME COLUMN a TO x, */ /*!80023 RENAME COLUMN b TO y, */ COMMENT 'z';
    ALTER TABLE t /*!50000 ADD c INT, */ /*M!100000 ADD d INT, */ COMMENT '/*!999999 ';
    INSERT INTO t VALUES (1, 2, 3, 4);"""
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *OPTIONS) as running:
        assert running.run(script.encode()) == ""
        where = "WHERE table_schema = 'd' ORDER BY ordinal_position"
        names = running.ask(f"SELECT column_name FROM information_schema.columns {where}").split()
        running.ask("FLUSH BINARY LOGS")
        (row,) = images(str(next(Path(folder).rglob("bin.000001"))))
    assert list(row) == names == ["a", "b", "c", "d"]


@pytest.mark.server
def test_schema_as_it_was_when_the_log_began_gives_every_name() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    answer = ddl_sequences.run_behind(2026, 8, None, schema=True)
    assert answer.wrong == []
    assert answer.right > 100
    assert answer.unknown == 0, answer.unknown_after


@pytest.mark.server
def test_no_name_is_wrong_where_the_first_definitions_are_not_in_the_log() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    answer = ddl_sequences.run_behind(2027, 8, None, schema=False)
    assert answer.wrong == []
    assert answer.unknown > 50, "else nothing was asked"


SPECIAL = {
    "versioned": "CREATE TABLE t (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS "
    "AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)) WITH SYSTEM VERSIONING; SET system_versioning_alter_history=KEEP; "
    "ALTER TABLE t ADD b INT",
    "becomes_versioned": "CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN s TIMESTAMP(6) GENERATED ALWAYS "
    "AS ROW START, ADD COLUMN e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, ADD PERIOD FOR SYSTEM_TIME(s, e), "
    "ADD SYSTEM VERSIONING, ADD z INT FIRST",
    "parted": "CREATE TABLE u (id INT, a INT) PARTITION BY RANGE(id) (PARTITION p0 VALUES LESS THAN (10), PARTITION "
    "p1 VALUES LESS THAN MAXVALUE); ALTER TABLE u CONVERT PARTITION p0 TO TABLE t",
    "digits": "CREATE TABLE 1t (1a INT, `2` INT, b$ INT); ALTER TABLE 1t CHANGE 1a 2a INT; RENAME TABLE 1t TO t",
    "letters": "CREATE TABLE t (`имя` INT, b INT); ALTER TABLE t CHANGE имя `b` INT, CHANGE b имя INT",
    "prepared": "CREATE TABLE t (a INT, b INT); PREPARE p FROM 'ALTER TABLE t CHANGE a b INT, CHANGE b a INT'; "
    "EXECUTE p; EXECUTE IMMEDIATE 'ALTER TABLE t ADD c INT FIRST'",
    "comment": f"CREATE TABLE t (a INT, b INT); /* {'x' * 5000} */ ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
    "variables": f"CREATE TABLE t (a INT, b INT); SET STATEMENT sql_mode='{'NO_ZERO_DATE,' * 500}NO_ZERO_DATE' FOR "
    "ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
    "temporary": "CREATE TABLE t (a VARCHAR(40), b VARCHAR(40)); SET SESSION binlog_format=MIXED; CREATE "
    "TEMPORARY TABLE t (x INT, y INT); ALTER TABLE t ADD z INT FIRST, CHANGE x a INT; DROP TABLE t; "
    "SET SESSION binlog_format=ROW",
    "no_blanks": "CREATE TABLE`t`(`a`INT,`b``c`INT); ALTER TABLE`no_blanks`.`t`CHANGE`a`x INT",
    "not_null": "CREATE TABLE t (a INT CHECK (a IS NOT NULL OR 1), b DECIMAL DEFAULT 1, c DEC(5), PRIMARY KEY (b)); "
    "ALTER TABLE t DROP PRIMARY KEY",
}
UNCERTAIN = {
    "hidden_hash": "CREATE TABLE t (a INT, b TEXT, UNIQUE(b))",
    "oracle_types": "SET sql_mode=ORACLE; CREATE TABLE t (a NUMBER(5), b VARCHAR2(10), c DATE); SET sql_mode=''",
}


@pytest.mark.server
def test_columns_of_special_statements_are_those_of_the_server() -> None:
    """Where the log's statements cannot be brought together with its rows, there are no names, and the reason."""
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *OPTIONS) as running:
        expected = {}
        for name, sql in {**SPECIAL, **UNCERTAIN}.items():
            said = running.run(f"CREATE DATABASE {name}; USE {name}; {sql}; INSERT INTO t () VALUES ();".encode())
            assert said == "", name
            where = f"WHERE table_schema = '{name}' AND table_name = 't' ORDER BY ordinal_position"
            expected[name] = running.ask(f"SELECT column_name FROM information_schema.columns {where}").split("\n")[:-1]
        running.ask("FLUSH BINARY LOGS")
        records = dumped(str(next(Path(folder).rglob("bin.000001"))))
    found = {one["object"].split(".")[0]: one["body"]["rows"][0]["after"] for one in records if "WRITE" in one["type"]}
    notes = {
        one["object"].split(".")[0] for one in records for note in one["findings"] if note["id"] == "meta-mismatch"
    }
    assert {name: list(found[name]) for name in SPECIAL} == {name: expected[name] for name in SPECIAL}
    assert [next(iter(found[name])) for name in UNCERTAIN] == ["@1"] * len(UNCERTAIN)
    assert notes == set(UNCERTAIN)


@pytest.mark.server
def test_verify_follows_the_statements_through_the_files_of_a_log(tmp_path: Path) -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder), *OPTIONS) as running:
        script = f"""CREATE DATABASE d; {SCHEMA} RESET MASTER; USE d; INSERT INTO q VALUES (1, 2, 3);
        ALTER TABLE q ADD c INT; FLUSH BINARY LOGS; INSERT INTO q VALUES (2, 3, 4, 5); FLUSH BINARY LOGS;"""
        assert running.run(script.encode()) == ""
        for name in ("bin.000001", "bin.000002"):
            shutil.copy(next(Path(folder).rglob(name)), tmp_path)
    report = binlogtool.verify([tmp_path], hints=binlogtool.Hints(schema=SCHEMA))
    assert "meta-mismatch" not in [one.id for one in report.findings]


# -- after a skipped part of the log -----------------------------------------------------------------------------------

ROW_LOG = Path(__file__).parents[2] / "corpus/mysql_binlog/workloads/mysql-9/transactions.row.000001.gz"
"""Of MySQL 9 without names in its TABLE_MAPs: CREATE TABLE t (id INT PRIMARY KEY, v INT), the same for m, then rows."""
END_OF_SECOND_INSERT = 0x5B0
"""Offset inside the COMMIT after the first row of m."""
ASSUMED = "the names of the columns of {} are assumed: a part of the log before this was skipped"


def damaged_rows(tmp_path: Path) -> str:
    data = bytearray(gzip.decompress(ROW_LOG.read_bytes()))
    data[END_OF_SECOND_INSERT] ^= 0xFF
    (tmp_path / "bin.000001").write_bytes(data)
    return str(tmp_path / "bin.000001")


@pytest.mark.parametrize("backend", ["python", "native"])
def test_names_are_assumed_after_damage_and_each_table_says_so_once(tmp_path: Path, backend: str) -> None:
    done = invoke("dump", "-O", "jsonl", "--backend", backend, damaged_rows(tmp_path))
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    rows = [row for one in found if "ROWS" in one["type"] for row in one["body"]["rows"]]
    assert {tuple(image) for row in rows for image in row.values()} == {("id", "v")}
    maps = [one for one in found if one["type"] == "TABLE_MAP"]
    assert {one["body"].get("assumed", False) for one in maps if one["offset"] < END_OF_SECOND_INSERT} == {False}
    assert {one["body"].get("assumed", False) for one in maps if one["offset"] > END_OF_SECOND_INSERT} == {True}
    texts = [text["message"] for one in maps for text in one["findings"]]
    assert [text.partition(", which")[0] for text in texts] == [ASSUMED.format("w.t"), ASSUMED.format("w.m")]


@pytest.mark.parametrize("command", [("rows",), ("convert", "--to", "jsonl", "--envelope", "maxwell")])
def test_rows_and_messages_after_damage_say_that_names_are_assumed(command: tuple[str, ...], tmp_path: Path) -> None:
    skip = () if command == ("rows",) else ("--on-damage", "skip")
    done = invoke(*command, *skip, damaged_rows(tmp_path))
    assert '"@1"' not in done.text and " @1 " not in done.text
    assert [ASSUMED.format(table) in done.err for table in ("w.t", "w.m")] == [True, True]


def test_statements_are_not_made_from_assumed_names(tmp_path: Path) -> None:
    done = invoke("convert", "--to", "sql", "--rows", "statements", "--on-damage", "skip", damaged_rows(tmp_path))
    assert done.text.count("INSERT INTO `w`.`t`") == 2 and done.text.count("INSERT INTO `w`.`m`") == 1
    assert done.text.count("BINLOG '") > 4


def test_names_from_the_file_before_a_missing_one_are_assumed(tmp_path: Path) -> None:
    data = gzip.decompress(ROW_LOG.read_bytes())
    (tmp_path / "bin.000001").write_bytes(data)
    (tmp_path / "bin.000003").write_bytes(data[:0x7F] + data[0x302:])  # FORMAT_DESCRIPTION, and what follows the DDL
    done = invoke("rows", "--object", "w.m", "-O", "csv", str(tmp_path))
    assert done.code == 1
    table = list(csv.DictReader(done.text.splitlines()))
    first = [(row["op"], row["id"], row["v"]) for row in table if row["file"].endswith("bin.000003")][:3]
    assert first == [("INSERT", "1", "4"), ("INSERT", "2", "6"), ("INSERT", "3", "7")]
    assert [ASSUMED.format("w.m") in row["findings"] for row in table] == [False] * 7 + [True] + [False] * 6
    assert done.err.count(ASSUMED.format("w.m")) == 1
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.move(tmp_path / "bin.000003", lone)
    assert "@1" in invoke("rows", "--object", "w.m", "-O", "csv", str(lone)).text
