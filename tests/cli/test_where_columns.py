"""`dump --where` with a column that no table of a log has: said in one line, and no other choice is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.invoke import invoke, program

CORPUS = Path(__file__).parents[1] / "corpus"
FIRST, SECOND = (str(CORPUS / "guides" / "mariadb" / f"mariadb-bin.00000{n}") for n in (1, 2))
NAMELESS = str(CORPUS / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.000003")
XLOG = str(CORPUS / "tarantool" / "chain" / "00000000000000000227.xlog")


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv", "summary"])
def test_a_misspelt_column_is_told_with_the_near_ones(form: str) -> None:
    done = invoke("dump", "-O", form, "--where", "after.totl > 1", FIRST, SECOND)
    assert (done.code, done.out) == (2, b"")
    assert done.err == "binlogtool: --where: no table of the log has a column totl: is it total?\n"


@pytest.mark.parametrize("side", ["before", "after"])
def test_one_that_is_like_no_other_is_told_with_those_that_there_are(side: str) -> None:
    done = invoke("dump", "--where", f"{side}.xyzzy = 'a' and type = 'WRITE_ROWS_V1'", SECOND)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("binlogtool: --where: no table of the log has a column xyzzy: they have customer, ")


@pytest.mark.parametrize(
    ("condition", "log"),
    [
        ("after.total = -5", SECOND),  # of one of two tables
        ("after.pieces = -5 and after.total = 1", SECOND),  # of two tables, and no row has both
        ("before.total = 5 and type = 'NONE'", SECOND),
        ("after.`@1` = -99", NAMELESS),
        ("after.anything = 1", XLOG),  # its records have no images of rows
        ("type = 'NONE'", SECOND),
    ],
)
def test_a_condition_that_no_row_meets_is_no_error(condition: str, log: str) -> None:
    done = invoke("dump", "--where", condition, log)
    assert (done.code, done.out, done.err) == (0, b"", "")


def test_a_condition_that_is_true_without_its_unknown_column_chooses() -> None:
    done = invoke("dump", "--where", "after.typo = 1 or type = 'XID'", SECOND)
    assert done.code == 0 and done.out


def test_a_log_without_names_says_how_they_are_given() -> None:
    done = invoke("dump", "--where", "after.id = 1", NAMELESS)
    assert (done.code, done.out) == (2, b"")
    assert "no table of the log has a column id" in done.err and "--schema FILE.sql gives them" in done.err


def test_what_can_be_read_once_only_is_not_read_again() -> None:
    done = program("dump", "--where", "after.typo = 1", "-", input=Path(SECOND).read_bytes(), stdin=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
