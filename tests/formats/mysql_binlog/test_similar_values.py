"""Values and files that must not be taken for others: JSON null, old logs, excerpts, labels, holes in statements."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.export.typed_columns import make_cell_converter, to_arrow_type, to_sql_type
from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.changes.row_event_table_reader import exported_type_name
from binlogtool.formats.binlog_events.values.column_types import ColumnType, TableMapColumn, get_charset_decoder
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Server
from tests.verify_bytes import verify_bytes

EAST_ASIA = ("sjis", "cp932", "gbk", "big5", "ujis", "eucjpms", "euckr", "gb2312")


def after(path: Path, table: str) -> list[dict[str, Any]]:
    """The rows that were written to a table."""
    with binlogtool.open(path) as log:
        found = [r for r in log.records() if r.type.startswith("WRITE_ROWS") and r.object == table]
        return [row["after"] for record in found for row in record.body["rows"]]


@pytest.mark.full_corpus
def test_json_null_and_sql_null_decimal_and_text_inside_json_are_told_apart(corpus: Path) -> None:
    path = corpus / "found" / "servers" / "small" / "my97.000001"
    values = [row["j"] for row in after(path, "a.n")]
    assert values == [None, {"$json": None}, 1.5, "1.50", {"$decimal": "1.50"}]
    line = invoke("dump", "-O", "jsonl", str(path)).out.decode()
    assert '{"id":1,"j":null}' in line
    assert '{"id":2,"j":{"$json":null}}' in line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"$json": None}, "null"), ("null", '"null"'), (1, "1"), ("1", '"1"'), (True, "true"), ([None], "[null]"),
        ({"$decimal": "1.50"}, '{"$decimal":"1.50"}'), ("1.50", '"1.50"'),
        ({"$date": "2026-02-03"}, '{"$date":"2026-02-03"}'), ("2026-02-03", '"2026-02-03"'),
    ],
)  # fmt: skip
def test_a_json_column_of_a_typed_table_holds_the_text_of_the_json(value: Any, text: str) -> None:
    kind = exported_type_name(TableMapColumn(ColumnType.JSON, metadata=4))
    assert make_cell_converter(kind)(value) == text
    assert (str(to_arrow_type(kind)), to_sql_type(kind)) == (
        "string",
        "string COMMENT 'json'",
    )  # Spark's workers read it


@pytest.mark.full_corpus
@pytest.mark.parametrize("name", ["mysql40-master-bin.000001", "binlog_old_version_4_1.000001"])
@pytest.mark.parametrize("command", ["verify", "dump", "truncate-to-durable"])
def test_logs_of_mysql_4_are_a_known_format_in_an_unsupported_version(corpus: Path, name: str, command: str) -> None:
    done = invoke(command, str(corpus / "third-party-2" / name))
    assert done.code == 3
    assert "only version 4 (5.0 on) is read" in done.err
    assert "DAMAGED" not in done.out.decode()


@pytest.mark.full_corpus
def test_an_excerpt_that_starts_in_the_middle_is_a_note_and_durable_to_its_end(corpus: Path) -> None:
    data = (corpus / "third-party-2" / "vector.binlog").read_bytes()
    report = verify_bytes("bin.000001", data[:0x7F] + data[0x710:])
    assert [(f.id, f.facts.get("diagnosis")) for f in report.findings] == [("gap-in-sequence", "excerpt")] * 2
    assert {f.severity for f in report.findings} == {Severity.NOTE}
    assert report.durable_end == report.size
    missing = verify_bytes("bin.000001", data[:0x9E] + data[0x710:])
    assert Severity.ERROR in {f.severity for f in missing.findings}


@pytest.mark.full_corpus
def test_a_run_of_zeros_inside_a_statement_of_a_log_without_checksums_is_a_warning(corpus: Path) -> None:
    data = bytearray((corpus / OLD_LOG).read_bytes())
    at = data.index(b"GRANT ALL") + 6
    before = [f for f in verify_bytes("b.000001", bytes(data)).findings if f.facts.get("diagnosis") == "zeros"]
    data[at : at + 8] = bytes(8)
    found = [f for f in verify_bytes("b.000001", bytes(data)).findings if f.facts.get("diagnosis") == "zeros"]
    assert before == []
    assert [(f.severity, f.facts["zeros"]) for f in found] == [(Severity.WARNING, 8)]


@pytest.mark.full_corpus
def test_labels_whose_second_byte_is_a_backslash_are_those_of_the_server(corpus: Path) -> None:
    for name in ("m118.000001", "my97.000001"):
        rows = after(corpus / "found" / "servers" / "small" / name, "a.e")
        assert [(row["e"], row["e2"], row["e3"]) for row in rows] == [("x\\", "x\\", ["a\\", "~"]), ("b", "b", ["~"])]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder, Server(Path(folder)) as running:
        yield running


@pytest.mark.server
@pytest.mark.parametrize("charset", EAST_ASIA)
def test_every_pair_of_bytes_is_the_character_that_the_server_has_or_none(server: Server, charset: str) -> None:
    """Characters of private use and those that Python's codec lacks stay bytes; none becomes another one."""
    decode = get_charset_decoder(charset)
    pairs = [struct.pack("BB", a, b) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)]
    compared = 0
    for start in range(0, len(pairs), 6000):
        part = pairs[start : start + 6000]
        values = ",".join(f"(x'{pair.hex()}')" for pair in part)
        script = "CREATE DATABASE IF NOT EXISTS t; CREATE TEMPORARY TABLE t.p (i SERIAL, b BINARY(2));"
        script += f"INSERT INTO t.p (b) VALUES {values}; SELECT HEX(b), HEX(CONVERT(b USING {charset})),"
        script += f"HEX(CONVERT(CONVERT(b USING {charset}) USING utf8mb4)) FROM t.p ORDER BY i"
        out = server._client("-N", script=script.encode()).stdout.decode()
        rows = [line.split("\t") for line in out.splitlines()]
        assert len(rows) == len(part)
        for raw, same, utf8 in rows:
            ours, theirs = decode(bytes.fromhex(raw)), bytes.fromhex(utf8).decode("utf-8", "replace")
            if raw == same and isinstance(ours, str) and "?" not in theirs and "\ufffd" not in theirs:
                assert ours == theirs, (charset, raw, json.dumps([ours, theirs]))
                compared += 1
    assert compared > 5000


# -- fractions of MariaDB before 10.1.2 --------------------------------------------------------------------------------


@pytest.mark.full_corpus
def test_rows_with_fractions_that_the_log_does_not_tell_cannot_be_decoded_which_is_no_damage(
    corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mysql-bin.000001"  # without its CREATE TABLE statements, which tell
    path.write_bytes((corpus / OLD_LOG).read_bytes().replace(b"create table", b"xreate table"))
    report = verify_bytes("mysql-bin.000001", path.read_bytes())
    told = [f for f in report.findings if f.facts.get("diagnosis") == "old-fractions"]
    assert [f.offset for f in told] == [0x71B, 0x972, 0xCC3, 0xDF1]
    assert max(f.severity for f in report.findings) is Severity.WARNING
    done = invoke("dump", "-O", "jsonl", str(path))
    assert done.code == 0, done.err
    assert done.out.count(b"cannot be decoded: the log does not record the fractional digits") == 4


OLD_LOG = "third-party-2/mariadb1000-timestamp3.000001"
OLD = ", ".join(f"{kind.lower()}{n} {kind}({n})" for kind in ("TIME", "DATETIME", "TIMESTAMP") for n in range(7))


@pytest.mark.server
def test_with_the_create_table_they_are_the_values_of_the_server(server: Server, tmp_path: Path) -> None:
    names = [column.split()[0] for column in OLD.split(", ")]
    times = ("-12:34:56.654321", "838:59:58.999999", "00:00:00.000001")
    days = ("2038-01-18 01:02:03.456789", "1999-12-31 23:59:59.999999", "2026-02-03 00:00:00.000001")
    values = [
        "(" + ",".join([str(i + 1), *[f"'{t}'"] * 7, *[f"'{d}'"] * 14]) + ")"
        for i, (t, d) in enumerate(zip(times, days, strict=True))
    ]
    create = f"CREATE TABLE d.o (id INT PRIMARY KEY, {OLD})"
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        options = ("--log-bin=bin", "--binlog-format=ROW", "--skip-networking", "--mysql56-temporal-format=OFF")
        with Server(Path(folder), *options) as running:
            script = f"SET time_zone='+00:00'; CREATE DATABASE d; {create}; INSERT INTO d.o VALUES {','.join(values)};"
            assert running.run(script.encode()) == ""
            asked = f"SET time_zone='+00:00'; SELECT {','.join(names)} FROM d.o ORDER BY id"
            theirs = [line.split("\t") for line in running.ask(asked).splitlines()]
        log, schema = tmp_path / "bin.000001", tmp_path / "schema.sql"
        log.write_bytes((Path(folder) / "data" / "bin.000001").read_bytes())
    schema.write_text(create + ";")
    done = invoke("dump", "-O", "jsonl", "--schema", str(schema), str(log))
    assert done.code == 0, done.err
    rows = [row["after"] for line in done.out.splitlines() for row in (json.loads(line)["body"] or {}).get("rows", ())]
    assert [[row[name] for name in names] for row in rows] == theirs
    assert len(theirs) == 3
    own = invoke("dump", "-O", "jsonl", str(log))  # the log itself has the CREATE TABLE
    bodies = [json.loads(line)["body"] or {} for line in own.out.splitlines()]
    assert [[row["after"][name] for name in names] for body in bodies for row in body.get("rows", ())] == theirs
