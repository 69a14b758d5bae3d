"""A flashback of transactions that are whole, in a log that is damaged elsewhere.

crc-two-damages.bin: one bit of transaction 1-2-7 and one of 1-2-17 are flipped (the corpus' expected.json: bytes 0x4677
and 0xd0d6); all other transactions are whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.invoke import invoke

SETS = Path(__file__).parents[1] / "corpus/mysql_binlog/sets"
UNCHECKED = "later changes of the selected rows were not checked"


@pytest.fixture
def damaged(corpus: Path) -> str:
    return str(corpus / "mysql-binlog/generated/damaged/mariadb-11.8/crc-two-damages.bin")


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ("--include-gtids 1-2-3", 1),
        ("--include-gtids 1-2-5", 1),
        ("--include-gtids 1-2-6", 1),
        ("--stop-position 11911 --include-gtids 1-2-5", 1),
        ("--include-gtids 1-2-8", 1),
        ("--include-gtids 1-2-5,1-2-12", 4),
        ("--start-position gtid:1-2-4 --stop-position gtid:1-2-6", 2),
    ],
)
def test_whole_transactions_are_reversed(damaged: str, tmp_path: Path, selection: str, rows: int) -> None:
    """Each changes one row; 1-2-12 changes three. That later changes cannot be excluded is said, with status 1."""
    result = invoke("flashback", *selection.split(), "-o", str(tmp_path / "f.sql"), damaged)
    assert result.code == 1
    assert UNCHECKED in result.out.decode()
    assert f"  {rows} row change" in result.out.decode()


@pytest.mark.parametrize("gtids", ["1-2-7", "1-2-17", "1-2-3,1-2-7"])
def test_a_damaged_transaction_is_refused(damaged: str, gtids: str) -> None:
    result = invoke("flashback", "--include-gtids", gtids, damaged)
    assert (result.code, result.out) == (1, b"")
    assert "nothing was written" in result.err


def test_damage_outside_of_the_positions_does_not_stop_a_script(damaged: str) -> None:
    """Transaction 1-2-7, with the first damage, begins at 16046."""
    before = invoke("convert", "--to", "sql", "--stop-position", "16046", damaged)
    assert before.code == 0 and before.out
    assert "nothing was written" not in before.err
    inside = invoke("convert", "--to", "sql", "--stop-position", "20104", damaged)
    assert (inside.code, inside.out) == (1, b"")


def test_a_missing_file_outside_of_the_selection_is_what_was_not_checked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    for number in (3, 4, 6):
        (log / f"rot-bin.00000{number}").write_bytes((SETS / f"mariadb/rot-bin.00000{number}").read_bytes())
    result = invoke("flashback", "--include-gtids", "1-2-20", "--skip-ddl", str(log))
    assert result.code == 1
    assert result.out
    assert UNCHECKED in result.err and "rot-bin.000005 does not exist" in result.err


def test_a_transaction_without_an_end_is_no_later_change(corpus: Path, tmp_path: Path) -> None:
    """The log ends inside 1-2-15, a DELETE of id > 5; 1-2-14 deletes id 1 and 3 (`mariadb-binlog` shows both)."""
    log = str(corpus / "mysql-binlog/generated/damaged/mariadb-11.8/crc-truncated-in-transaction.bin")
    options = ("--rows", "statements", "--skip-ddl", "-o", str(tmp_path / "k.sql"), "--overwrite", log)
    until_last = invoke("flashback", "--stop-position", "gtid:1-2-14", *options)
    assert (until_last.code, "changed again" in until_last.text) == (0, False)
    before = invoke("flashback", "--stop-position", "gtid:1-2-13", *options)
    assert before.code == 1
    assert "2 rows were changed again later" in before.text
    assert "1-2-15" not in before.text
