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
from tests.formats.manticore.make import meta

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


OTHER_SETS = {
    "tarantool": (
        "tarantool/chain", "00000000000000000227.xlog",
        "00000000000000000227.xlog does not exist: LSN 23..33 of replica 0, 206..301 of replica 1 lost",
    ),
    "manticore": (
        "manticore/v7-rotation", "binlog.002",
        "binlog.002 is listed in binlog.meta, but missing: the server refuses to start",
    ),
    "mariadb-innodb-binlog": (
        "mariadb-innodb-binlog/dbase", "binlog-000003.ibb",
        "binlog-000003.ibb does not exist: records that begin or end in it are lost",
    ),
}  # fmt: skip
"""Sets of other servers: the folder, the file that is removed, and the sentence of `verify`."""


def unpack_set(name: str, folder: Path) -> tuple[Path, str, str]:
    """Copy a set, without compression; return its folder, the file to remove and what is to be said of it."""
    source, lost, sentence = OTHER_SETS[name]
    folder.mkdir()
    for path in (SETS.parents[1] / source).iterdir():
        data = path.read_bytes()
        (folder / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(data) if path.suffix == ".gz" else data)
    return folder, lost, sentence


READERS = (
    "dump", "dump -O jsonl", "dump -O raw", "rows", "stats", "convert --to jsonl", "convert --to csv",
    "convert --to csv --per-table",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("name", OTHER_SETS)
def test_every_reader_reports_a_missing_file_in_the_words_of_verify(name: str, command: str, tmp_path: Path) -> None:
    log, lost, sentence = unpack_set(name, tmp_path / "log")
    output, words = tmp_path / "output", command.split()
    more = ["-o", str(output), "--on-damage", "skip"] if words[0] == "convert" else []
    assert sentence not in all_text(invoke(*words, *more, "-o", str(tmp_path / "intact"), str(log)))
    (log / lost).unlink()
    assert sentence in all_text(invoke("verify", str(log)))
    if more:
        assert (invoke(*words, "-o", str(output), str(log)).code, output.exists()) == (1, False)
    result = invoke(*words, *more, str(log))
    assert (result.code, sentence in result.err + result.out.decode("utf-8", "replace")) == (0 if more else 1, True)


@pytest.mark.parametrize("level", ["record", "event", "page"])
def test_the_units_of_an_ibb_do_not_matter_to_a_missing_file(level: str, tmp_path: Path) -> None:
    log, lost, sentence = unpack_set("mariadb-innodb-binlog", tmp_path / "log")
    (log / lost).unlink()
    for words in (["dump", "--level", level], ["dump", "-O", "sql", "--on-damage", "skip"], ["rows"]):
        result = invoke(*words, str(log))
        assert result.code == 1 and "internal error" not in result.err
        assert sentence in result.err


def test_a_number_that_binlog_meta_does_not_list_is_no_hole(tmp_path: Path) -> None:
    """A server removes the logs of tables that were saved, also between others."""
    log, lost, _ = unpack_set("manticore", tmp_path / "log")
    (log / lost).unlink()
    (log / "binlog.meta").write_bytes(meta([1, 3], version=7, setting=1))
    for words in (["dump"], ["rows"], ["stats"], ["dump", str(log / "binlog.001"), str(log / "binlog.003")]):
        result = invoke(*words, *([] if words[1:] else [str(log)]))
        assert (result.code, result.err) == (0, ""), result.err


def test_snapshots_between_logs_are_no_part_of_the_chain(tmp_path: Path) -> None:
    log, _, _ = unpack_set("tarantool", tmp_path / "log")
    names = ["00000000000000000000.snap", "00000000000000000000.xlog", "00000000000000000111.xlog"]
    for order in (names, [names[1], names[0], names[2]], [names[2], names[0]]):
        assert invoke("dump", *(str(log / name) for name in order)).code == 0
    wrong = invoke("dump", str(log / names[2]), str(log / names[1]))
    assert (wrong.code, "name the files in the order of the log" in wrong.err) == (1, True)


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
