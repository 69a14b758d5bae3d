"""`dump --where` with a column that no table of a log has: said in one line, and no other choice is taken for one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cli.invoke import invoke, program

CORPUS = Path(__file__).parents[1] / "corpus"
FIRST, SECOND = (str(CORPUS / "guides" / "mariadb" / f"mariadb-bin.00000{n}") for n in (1, 2))
NAMELESS = str(CORPUS / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.000003")
XLOG = str(CORPUS / "tarantool" / "chain" / "00000000000000000227.xlog")


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
def test_a_misspelt_column_is_told_with_the_near_ones(form: str) -> None:
    done = invoke("dump", "-O", form, "--where", "after.totl > 1", FIRST, SECOND)
    assert (done.code, done.out) == (2, b"")
    assert done.err == "binlogtool: --where: no table of the log has a column totl; did you mean total?\n"


@pytest.mark.parametrize("side", ["before", "after"])
def test_one_that_is_like_no_other_is_told_with_those_that_there_are(side: str) -> None:
    done = invoke("dump", "--where", f"{side}.xyzzy = 'a' and type = 'WRITE_ROWS_V1'", SECOND)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("binlogtool: --where: no table of the log has a column xyzzy; they have customer, ")


@pytest.mark.parametrize(
    ("condition", "log"),
    [
        ("after.total = -5", SECOND),  # of one of two tables
        ("after.pieces = -5 and after.total = 1", SECOND),  # of two tables, and no row has both
        ("before.total = 5 and type = 'XID'", SECOND),
        ("after.`@1` = -99", NAMELESS),
        ("after.anything = 1", XLOG),  # its records have no images of rows
        ("type = 'XID' and size = 1", SECOND),
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
    assert "no table of the log has a column id" in done.err and "supply them with --schema FILE.sql" in done.err


SAID = "--where: no table of the log has a column totl; did you mean total?"


@pytest.mark.full
@pytest.mark.parametrize("form", ["text", "jsonl", "sql"])
def test_what_can_be_read_once_only_is_told_of_while_it_is_read(form: str) -> None:
    def piped(condition: str) -> tuple[int, bytes]:
        words = ("dump", "-O", form, "--where", condition, "-")
        done = program(*words, input=Path(SECOND).read_bytes(), stdin=None)
        return done.returncode, done.stderr

    assert piped("after.totl > 1") == (2, f"binlogtool: {SAID}\n".encode())
    assert piped("before.totl > 1 and object = 'shop.none'") == (2, f"binlogtool: {SAID}\n".encode())
    assert piped("after.total = -5") == (0, b"")  # of one of two tables, and no row meets it
    assert piped("after.pieces = -5 and after.total = 1") == (0, b"")


def test_a_script_without_rows_is_refused_as_a_dump_without_records_is() -> None:
    assert invoke("dump", "-O", "sql", "--where", "after.totl > 1", SECOND)[::2] == (2, f"binlogtool: {SAID}\n")
    assert invoke("dump", "-O", "sql", "--where", "after.total = -5", SECOND)[::2] == (0, "")
    assert invoke("dump", "-O", "sql", "--where", "after.typo = 1 or object = 'shop.orders'", SECOND).code == 0


def test_counts_of_nothing_are_refused_too() -> None:
    assert invoke("stats", "--where", "after.totl > 1", SECOND)[::2] == (2, f"binlogtool: {SAID}\n")
    assert invoke("stats", "--where", "after.total = -5", SECOND).code == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "target",
    ["jsonl", "raw", "sql", "parquet --per-table", "csv --object shop.orders", "jsonl --append",
     "parquet --append", pytest.param("parquet", marks=pytest.mark.spark)],
)  # fmt: skip
def test_a_conversion_of_nothing_leaves_no_output(target: str, tmp_path: Path) -> None:
    words, out = ("convert", "--to", *target.split(), "-o"), tmp_path / "out"
    done = invoke(*words, str(out), "--where", "after.totl > 1", SECOND)
    assert (done.code, done.out, done.err) == (2, b"", f"binlogtool: {SAID}\n")
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and one.name != "lock"]
    done = invoke(*words, str(out), "--where", "after.total = -5", SECOND)
    assert (done.code, out.exists()) == ((2, False) if "sql" in target else (0, True)), done.err  # no empty script


def test_an_output_that_grows_is_not_refused_once_it_has_begun(tmp_path: Path) -> None:
    """Files that had the column may have been purged meanwhile."""
    first = tmp_path / "mariadb-bin.000001"
    first.write_bytes(Path(SECOND).read_bytes())
    words = ("convert", "--append", "--to", "jsonl", "-o", str(tmp_path / "out"), "--where", "after.total > 0")
    assert invoke(*words, str(tmp_path)).code == 0
    second = tmp_path / "mariadb-bin.000002"
    second.write_bytes(Path(NAMELESS).read_bytes())
    first.unlink()
    assert invoke(*words, str(tmp_path)).code in (0, 1)


def test_rows_of_tables_know_the_columns_that_only_statements_of_the_log_name(tmp_path: Path) -> None:
    log = str(CORPUS / "mysql_binlog" / "sets" / "mariadb")
    words = ("convert", "--to", "parquet", "--object", "db_east1.orders2_s", "-o", str(tmp_path / "out"))
    done = invoke(*words, "--where", "after.misspelt = 1", log)
    assert (done.code, done.out) == (2, b"") and "no table of the log has a column misspelt" in done.err


@pytest.mark.full
def test_who_follows_is_told_once_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "mariadb-bin.000002"
    whole = Path(SECOND).read_bytes()
    log.write_bytes(whole[:459])  # before the first table
    rest = threading.Timer(1.0, log.write_bytes, (whole,))
    rest.start()
    done = program("dump", "-F", "--poll", "20ms", "--timeout", "3s", "--where", "after.totl > 1", str(log))
    rest.join()
    told = f"binlogtool: {SAID} (so far; a later table may have it)\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (0, b"", told)


def test_who_follows_a_right_condition_is_told_nothing() -> None:
    done = program("dump", "-F", "--timeout", "1s", "--where", "after.pieces = -5", SECOND)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
