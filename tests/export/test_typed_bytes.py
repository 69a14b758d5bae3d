"""Bytes in rows of tables: they are what a SELECT gives, held against servers and against what is written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlogtool
from binlogtool.formats.binlog_events.changes.row_event_table_reader import exported_type_name
from binlogtool.formats.binlog_events.values.column_types import ColumnType, LogicalType, TableMapColumn
from tests.cli.invoke import invoke
from tests.export.typed_logs import rows, tables
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, optional, rows_body, sized, table_map_body
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

WRITE, UPDATE = 23, 24
STRING, VARCHAR = b"\xfe", b"\x0f"
DEFAULT_CHARSET, BINARY_COLLATION = 2, 63
MOST, ROWS = 255, 3000


def log_of_bytes(names: bytes = b"") -> Iterator[bytes]:
    """BINARY(4), BINARY(255) and VARBINARY(8): the servers leave out zero bytes at the end of the first two."""
    metadata = b"\xfe\x04" + b"\xfe\xff" + b"\x08\x00"
    more = optional(DEFAULT_CHARSET, bytes([BINARY_COLLATION])) + names
    yield make.event(make.GTID, make.mariadb_gtid(1))
    table = make.event(make.TABLE_MAP, table_map_body(STRING + STRING + VARCHAR, metadata, more))
    images = [image([sized(b"ab"), b"\x00", sized(b"v\x00")]), image([sized(b"abcd"), None, sized(b"")])]
    yield table + make.event(WRITE, rows_body(3, b"".join(images * ROWS)))
    yield table + make.event(UPDATE, rows_body(3, images[0] + images[1], [[True] * 3] * 2))
    yield make.event(make.XID, bytes(8))


@pytest.mark.parametrize("backend", ["native", "python"])
def test_a_binary_has_the_zero_bytes_that_a_log_leaves_out(tmp_path: Path, backend: str) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(log_of_bytes()))
    found, _ = tables(log, tmp_path / "out", image="both", backend=backend)
    short = {"@1": b"ab\0\0", "@2": bytes(MOST), "@3": b"v\0"}
    whole = {"@1": b"abcd", "@2": None, "@3": b""}
    made = [(row["before"], row["after"]) for row in found["db.t"]]
    assert made == [(None, short), (None, whole)] * ROWS + [(short, whole)]


NAMES = optional(4, sized(b"a") + sized(b"b") + sized(b"c"))


@pytest.mark.parametrize(("envelope", "image"), [("debezium", "after"), ("maxwell", "data")])
def test_messages_as_tables_have_them_too(tmp_path: Path, envelope: str, image: str) -> None:
    log, out = tmp_path / "log.000001", tmp_path / "out"
    log.write_bytes(make.log(log_of_bytes(NAMES)))
    done = invoke("convert", "--to", "parquet", "--envelope", envelope, "--object", "db.t", "-o", str(out), str(log))
    assert done.code == 0, done.err
    assert rows(out)[0][image] == {"a": b"ab\0\0", "b": bytes(MOST), "c": b"v\0"}


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (TableMapColumn(ColumnType.BLOB_COMPRESSED, 2, charset="binary"), "binary"),
        (TableMapColumn(ColumnType.BLOB_COMPRESSED, 2), "binary"),
        (TableMapColumn(ColumnType.BLOB_COMPRESSED, 2, charset="latin1"), "string"),
        (TableMapColumn(ColumnType.VARCHAR_COMPRESSED, 99, charset="binary"), "binary"),
        (TableMapColumn(ColumnType.VARCHAR_COMPRESSED, 99, charset="utf8mb4"), "string"),
        (TableMapColumn(ColumnType.VARCHAR, 12, charset="binary", logical=LogicalType.VECTOR), "array<double>"),
        (TableMapColumn(ColumnType.STRING, 16, charset="binary", logical=LogicalType.UUID), "string"),
    ],
)
def test_what_mariadb_stores_as_something_else_has_the_type_of_what_it_is(column: TableMapColumn, kind: str) -> None:
    assert exported_type_name(column) == kind


def is_as_selected(programs: Programs | None, definition: str, rows: str, columns: tuple[str, ...]) -> None:
    """The rows of a table, by the log, are what SELECT HEX gives. None: the installed server."""
    options = (
        "--log-bin=bin",
        "--server-id=1",
        "--skip-networking",
        "--binlog-row-metadata=FULL",
        "--binlog-format=ROW",
    )
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as home,
        Server(Path(home), *options, programs=programs) as server,
    ):
        script = (
            f"CREATE DATABASE w; USE w; CREATE TABLE t (id INT PRIMARY KEY, {definition}); INSERT INTO t VALUES {rows}"
        )
        assert server.run(script.encode()) == ""
        wanted = [
            [None if value == "NULL" else bytes.fromhex(value) for value in line.split("\t")]
            for line in server.ask(f"SELECT {', '.join(f'HEX({one})' for one in columns)} FROM w.t ORDER BY id").split(
                "\n"
            )[:-1]
        ]
        with binlogtool.open(server.data / "bin.000001") as log:
            found = list(log.rows("w.t", columns=[*columns, "unfit"]))
    assert [[row[one] for one in columns] for row in found] == wanted
    assert {row["unfit"] for row in found} == {None}


@pytest.mark.server
@pytest.mark.skipif(Server.program() is None, reason="no mariadbd")
def test_bytes_of_mariadb_are_those_of_a_select() -> None:
    definition = "a BINARY(16), b VARBINARY(9), c BLOB COMPRESSED, d VARBINARY(99) COMPRESSED, e LONGBLOB COMPRESSED"
    rows = "(1, 0xFF00, 0xFF00, REPEAT(0xFF00, 900), REPEAT(0xFE, 90), 0x00), (2, '', '', '', '', '')"
    rows += ", (3, NULL, NULL, NULL, NULL, NULL)"
    is_as_selected(None, definition, rows, ("a", "b", "c", "d", "e"))


@pytest.mark.nightly
@pytest.mark.parametrize("tree", TREES)
def test_bytes_of_other_servers_are_those_of_a_select(tree: str) -> None:
    programs = programs_of(tree)
    if programs is None:
        pytest.skip(f"no tree {tree}")
    rows = "(1, 0xFF00, 0xFF00, 0x00), (2, '', '', ''), (3, 0x00FF, NULL, 0xFEFF)"
    is_as_selected(programs, "a BINARY(16), b VARBINARY(9), c BLOB", rows, ("a", "b", "c"))
