"""Logs that end inside a transaction: still being written, or after a crash.

The log is of MariaDB 10.11; transaction 0-1-7795 begins at 1105, its rows end at 1324, its XID at 1355.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

LOG = Path(__file__).parent.parent / "corpus" / "mysql_binlog" / "undo" / "changed-later.000016"
ROWS_END, INSIDE_XID = 1324, 1340
IN_USE = 21
"""Offset of the byte with the flag that a server sets while it writes the file."""


@pytest.fixture(params=[ROWS_END, INSIDE_XID])
def growing(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    data = bytearray(LOG.read_bytes()[: request.param])
    data[IN_USE] |= 1
    (tmp_path / "mariadb-bin.000016").write_bytes(data)
    return str(tmp_path / "mariadb-bin.000016")


def test_a_log_that_is_written_is_no_error_and_its_rows_are_not_committed(growing: str) -> None:
    done = invoke("rows", "--object", "shop.acc", "-O", "csv", growing)
    found = [(row["txn"], row["commit"]) for row in csv.DictReader(done.text.splitlines())]
    assert found == [
        *[("0-1-7793", "false")] * 2, ("0-1-7793", "true"),
        *[("0-1-7794", "false")] * 2, ("0-1-7794", "true"),
        ("0-1-7795", "false"),
    ]  # fmt: skip
    text = "at 1,272: transaction 0-1-7795 has no end in the part read; its rows are included, with commit = false"
    assert done.code == 0 and f"{growing}: warning - incomplete-transaction: {text}\n" in done.err


def test_a_script_rolls_the_open_transaction_back_and_says_so(growing: str) -> None:
    for command in (("convert", "--to", "sql"), ("dump", "-O", "sql")):
        done = invoke(*command, growing)
        assert done.code == 0
        assert "the last transaction has no end in the part read; the script rolls it back" in done.err
        assert done.text.index("# the rest of this transaction is missing\nROLLBACK") > done.text.rindex("BINLOG '")


@pytest.mark.parametrize("envelope", ["debezium", "maxwell", "canal"])
def test_messages_of_the_open_transaction_are_named(envelope: str, growing: str) -> None:
    done = invoke("convert", "--to", "jsonl", "--envelope", envelope, growing)
    text = "mariadb-bin.000016 at 1,105: transaction 0-1-7795 has no end in the part read; its messages are included"
    assert done.code == 0 and text in done.err
    whole = invoke("convert", "--to", "jsonl", "--envelope", envelope, "--stop-position", "1105", growing)
    assert whole.code == 0 and "has no end" not in whole.err
    assert done.text.startswith(whole.text) and len(done.text) > len(whole.text)


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize("envelope", ["debezium", "maxwell", "canal"])
def test_messages_of_a_transaction_without_end_are_named_before_the_next_file(
    envelope: str, backend: str, tmp_path: Path
) -> None:
    """The server crashed in 0-1-2 and began the next file."""
    rows = [make.event(make.TABLE_MAP, table_map_body(b"\x03")), make.event(23, rows_body(1, image([bytes(4)])))]
    gtids, end = [make.event(make.GTID, make.mariadb_gtid(n)) for n in (1, 2, 3)], make.event(make.XID, bytes(8))
    (tmp_path / "bin.000001").write_bytes(make.log([gtids[0], *rows, end, gtids[1], *rows]))
    (tmp_path / "bin.000002").write_bytes(make.log([gtids[2], *rows, end]))
    (tmp_path / "schema.sql").write_text("CREATE TABLE db.t (a INT PRIMARY KEY)")
    words = ["--backend", backend, "--schema", str(tmp_path / "schema.sql"), "-o", str(tmp_path / "out")]
    files = [str(tmp_path / name) for name in ("bin.000001", "bin.000002")]
    done = invoke("convert", "--to", "jsonl", "--envelope", envelope, *words, *files)
    text = "bin.000001 at 409: transaction 0-1-2 has no end in the part read; its messages are included"
    assert (done.code, done.text.count(text)) == (0, 1), done.text + done.err
    assert len((tmp_path / "out").read_text().splitlines()) == 3


@pytest.mark.parametrize("command", ["rows", "convert --to sql", "convert --to jsonl --envelope canal"])
def test_a_whole_log_has_no_open_transaction(command: str) -> None:
    assert "no end" not in invoke(*command.split(), str(LOG)).err


def test_a_flashback_of_the_open_transaction_is_refused(growing: str) -> None:
    done = invoke("flashback", "--start-position", "834", growing)
    assert (done.code, done.text) == (5, "")
    assert "0-1-7795 is incomplete and cannot be reversed" in done.err
