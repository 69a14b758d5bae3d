"""A log set with a missing file or exchanged names: every reader says so, if its selection is concerned.

The sets are those that the servers wrote; the transactions of each file are in tests/corpus/mysql_binlog/sets/README.md
and in the files' own lists of GTIDs. A file is removed, or two names are exchanged, as an operator would do it.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, Result, invoke

SETS = Path(__file__).parents[1] / "corpus/mysql_binlog/sets"
LOST = "transactions lost: 1-2-30 to 1-2-36"


def all_text(result: Result) -> str:
    return result.err + result.out.decode()


def copy_set(tmp_path: Path, server: str = "mariadb") -> Path:
    return Path(shutil.copytree(SETS / server, tmp_path / "log", dirs_exist_ok=True))


@pytest.fixture
def holed(tmp_path: Path) -> Path:
    """The log without rot-bin.000005, which has the transactions 30 to 36."""
    log = copy_set(tmp_path)
    (log / "rot-bin.000005").unlink()
    return log


@pytest.fixture
def exchanged(tmp_path: Path) -> Path:
    """The log with the names of rot-bin.000003 (transactions 16 to 22) and rot-bin.000004 (23 to 29) exchanged."""
    log = copy_set(tmp_path)
    (log / "rot-bin.000003").rename(log / "third")
    (log / "rot-bin.000004").rename(log / "rot-bin.000003")
    (log / "third").rename(log / "rot-bin.000004")
    return log


@pytest.mark.parametrize(
    "command", ["dump", "rows", "stats", "convert --to sql", "convert --to jsonl", "dump -O sql", "flashback"]
)
@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_no_command_finds_a_hole_in_an_intact_log(server: str, command: str) -> None:
    result = invoke(*command.split(), str(SETS / server))
    assert "missing" not in result.err and "exchanged" not in result.err and "ROTATE" not in result.err


@pytest.mark.parametrize(
    "command", ["dump", "dump -O jsonl", "dump -O sql", "rows", "rows -O jsonl", "stats", "stats --by transaction"]
)
def test_readers_report_a_missing_file(holed: Path, command: str) -> None:
    result = invoke(*command.split(), str(holed))
    assert result.code == 1
    assert result.err.count(LOST) == 1
    assert "rot-bin.000005 does not exist" in result.err


@pytest.mark.parametrize("to", ["sql", "jsonl", "raw", "parquet", "parquet --object db_east1.orders2_s"])
def test_conversions_refuse_a_missing_file_unless_damage_is_skipped(holed: Path, tmp_path: Path, to: str) -> None:
    output = tmp_path / "output"
    refused = invoke("convert", "--to", *to.split(), "-o", str(output), str(holed))
    assert refused.code == 1
    assert LOST in all_text(refused)
    assert not output.exists()
    written = invoke("convert", "--to", *to.split(), "--on-damage", "skip", "-o", str(output), str(holed))
    assert written.code == 0
    assert "\nlost " in all_text(written) and LOST in all_text(written)


def test_a_script_written_without_the_missing_file_says_so(holed: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.sql"
    assert invoke("convert", "--to", "sql", "--on-damage", "skip", "-o", str(output), str(holed)).code == 0
    comments = [line for line in output.read_text().splitlines() if line.startswith("# left out here")]
    assert len(comments) == 1 and LOST in comments[0]


def test_a_missing_file_of_mysql_names_the_lost_transactions(tmp_path: Path) -> None:
    log = copy_set(tmp_path, "mysql")
    (log / "rot-bin.000004").unlink()
    result = invoke("convert", "--to", "sql", str(log))
    assert (result.code, result.out) == (1, b"")
    assert "rot-bin.000004 does not exist" in result.err
    assert ":27-34" in result.err


@pytest.mark.parametrize(
    ("selection", "is_concerned"),
    [
        ("--start-position gtid:1-2-16 --stop-position gtid:1-2-40", True),
        ("--stop-position gtid:1-2-32", True),
        ("--stop-position gtid:1-2-29", False),
        ("--start-position gtid:1-2-36", False),
        ("--start-position gtid:1-2-35", True),
        ("--include-gtids 1-2-20", False),
        ("--include-gtids 1-2-20,1-2-44", False),
        ("--stop-position rot-bin.000004:1000", False),
        ("--start-position rot-bin.000006:4", False),
        ("--start-position rot-bin.000004:256", True),
    ],
)
def test_a_hole_matters_only_where_the_selection_covers_it(holed: Path, selection: str, is_concerned: bool) -> None:
    for command in ("convert --to sql", "dump"):
        result = invoke(*command.split(), *selection.split(), str(holed))
        assert (result.code, LOST in result.err) == (int(is_concerned), is_concerned), (command, result.err)


def test_a_limit_that_ends_before_the_hole_is_not_concerned(holed: Path) -> None:
    result = invoke("dump", "-n", "20", str(holed))
    assert (result.code, result.err) == (0, "")


def test_exchanged_files_are_not_replayed(exchanged: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.sql"
    result = invoke("convert", "--to", "sql", "-o", str(output), str(exchanged))
    assert result.code == 1
    assert "rot-bin.000003" in all_text(result) and "ends with a ROTATE to rot-bin.000005" in all_text(result)
    assert not output.exists()
    for command in ("rows", "dump", "flashback --object db_east1.orders2_s --start-position gtid:1-2-17"):
        result = invoke(*command.split(), str(exchanged))
        assert result.code == 1, command
        assert "ROTATE to rot-bin.000005" in result.err, command


def test_one_transaction_of_exchanged_files_can_be_read(exchanged: Path) -> None:
    for command in ("convert --to sql", "dump"):
        result = invoke(*command.split(), "--include-gtids", "1-2-20", str(exchanged))
        assert (result.code, "ROTATE" in result.err) == (0, False)
        both = invoke(*command.split(), "--include-gtids", "1-2-20,1-2-25", str(exchanged))
        assert (both.code, "ROTATE" in both.err) == (1, True)


def test_named_files_in_the_wrong_order_are_reported() -> None:
    names = [str(SETS / "mariadb" / name) for name in ("rot-bin.000004", "rot-bin.000003")]
    result = invoke("convert", "--to", "sql", *names)
    assert (result.code, result.out) == (1, b"")
    assert "rot-bin.000003 is older than rot-bin.000004" in result.err


def test_a_file_that_exists_but_is_not_named_is_a_warning() -> None:
    names = [str(SETS / "mariadb" / name) for name in ("rot-bin.000004", "rot-bin.000006")]
    result = invoke("dump", *names)
    assert result.code == 0
    assert "rot-bin.000005 exists before this file and was not named" in result.err


def test_logs_of_two_servers_are_not_one_log(tmp_path: Path) -> None:
    for folder, name in (("a", "rot-bin.000003"), ("b", "rot-bin.000006")):
        (tmp_path / folder).mkdir()
        shutil.copy(SETS / "mariadb" / name, tmp_path / folder)
    result = invoke("dump", str(tmp_path / "a/rot-bin.000003"), str(tmp_path / "b/rot-bin.000006"))
    assert (result.code, result.err) == (0, "")


def test_renamed_logs_are_read_without_a_finding(tmp_path: Path) -> None:
    for number in range(3, 9):
        shutil.copy(SETS / "mariadb" / f"rot-bin.00000{number}", tmp_path / f"saved.00000{number}")
    result = invoke("convert", "--to", "jsonl", str(tmp_path))
    assert (result.code, result.err) == (0, "")


# -- logs of several servers in one directory --------------------------------------------------------------------------

OTHER = ROOT / "tests" / "corpus" / "mysql_binlog" / "undo" / "changed-later.000016"
MYSQL = ROOT / "tests" / "corpus" / "mysql_binlog" / "workloads" / "mysql-9" / "transactions.row.000001.gz"
TABLES = "convert --per-table --to csv -o {}/o"
SEVERAL = "there are several logs here (mariadb-bin, other-bin): name the files of one log"
WRITERS = "it was written by MySQL with server id 1, mariadb-bin.000002 by MariaDB with server id 1"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("other-bin.000016", OTHER.read_bytes(), SEVERAL),
        ("mariadb-bin.000003", gzip.decompress(MYSQL.read_bytes()), WRITERS),
    ],
)
@pytest.mark.parametrize(
    "command", ["verify", "dump", "rows", "convert --to sql", "convert --per-table --to csv -o {}/o"]
)
def test_logs_of_two_servers_in_one_directory_are_named(
    command: str, name: str, data: bytes, text: str, tmp_path: Path
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for number in (1, 2):
        shutil.copy(ROOT / "tests" / "corpus" / "guides" / "mariadb" / f"mariadb-bin.00000{number}", folder)
    (folder / name).write_bytes(data)
    done = invoke(*command.format(tmp_path).split(), str(folder))
    assert done.code == 0 and (done.text + done.err).count(text) == 1
