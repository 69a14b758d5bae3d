"""Selections that match nothing, or name what the log does not have.

The log is of MariaDB 10.11: transactions 0-1-7792 to 0-1-7796 with one table, shop.acc (`mariadb-binlog` shows them).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke, program

LOG = str(Path(__file__).parent.parent / "corpus" / "mysql_binlog" / "undo" / "changed-later.000016")
MISSPELT = [
    (("--object", "shop.accs"), "--object shop.accs: the log has no such object; did you mean shop.acc?"),
    (("--object", "Shop.Acc"), "did you mean shop.acc?"),
    (("--database", "shp"), "(--database shp): the log has no such database; did you mean shop.*?"),
    (("--include-gtids", "0-1-99999"), "the log has no such transaction; it has 0-1-7792 to 0-1-7796"),
    (
        ("--include-gtids", "0-2-7795"),
        "0-2-7795: the log has no such transaction; it has 0-1-7792 to 0-1-7796; did you mean 0-1-7795?",
    ),
    (("--xid", "0-1-77"), "--xid 0-1-77: the log has no such transaction; it has 0-1-7792 to 0-1-7796"),
    (("--origin", "7"), "--origin 7: no record of the log has this origin; the log has 1"),
    (("--type", "INSERT"), "--type INSERT: mysql-binlog has no such record type"),
    (("--type", "WRITE_ROW"), "--type WRITE_ROW: unknown record type; did you mean WRITE_ROWS"),
]
NO_CHOICE = ("flashback", "--type")
"""A flashback chooses no types."""
COMMANDS = {to: ("convert", "--to", to) for to in ("jsonl", "raw", "sql")} | {"flashback": ("flashback",)}


@pytest.mark.parametrize(("selection", "text"), MISSPELT)
@pytest.mark.parametrize("command", [("dump",), ("dump", "-O", "jsonl"), ("dump", "-O", "table"), ("stats",)])
def test_what_the_log_does_not_have_is_an_error_with_near_names(
    command: tuple[str, ...], selection: tuple[str, ...], text: str
) -> None:
    done = invoke(*command, *selection, LOG)
    assert (done.code, done.text) == (2, "")
    assert text in done.err


@pytest.mark.parametrize(
    ("where", "texts"),
    [
        (
            "object = 'shop.accs'",
            ["object = 'shop.accs': no record of the log has this object; did you mean shop.acc?"],
        ),
        (
            "object in ('a.b', 'shop.acc') and size > 9999",
            ["object = 'a.b': no record of the log has this object; it has"],
        ),
        ("size < 4 or after.id > 99", []),
        ("object = 'shop.acc' and after.id > 99", []),
        ("not object = 'shop.acc' and size < 4", []),
        (
            "not object = 'x' and type = 'WRITE_ROW_V1'",
            ["type = 'WRITE_ROW_V1': no record of the log has this type; did"],
        ),
    ],
)
@pytest.mark.parametrize("command", [("dump",), ("dump", "-O", "jsonl"), ("stats",), ("rows", "-O", "jsonl")])
def test_a_condition_that_names_what_the_log_does_not_have_is_explained(
    command: tuple[str, ...], where: str, texts: list[str]
) -> None:
    done = invoke(*command, "--where", where, LOG)
    assert (done.code, '"record"' in done.text) == (0, False), done.text
    assert [line for line in done.err.splitlines() if "no record of the log has" in line] == [
        line for text in texts for line in done.err.splitlines() if f"--where {text}" in line
    ]
    assert done.err.count("no record of the log has") == len(texts), done.err


@pytest.mark.parametrize(
    ("to", "selection", "text"),
    [(to, *one) for to in COMMANDS for one in MISSPELT if (to, one[0][0]) != NO_CHOICE],
)
def test_nothing_is_converted_for_a_misspelt_name(
    to: str, selection: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    done = invoke(*COMMANDS[to], "-o", str(tmp_path / "o"), *selection, LOG)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert text in done.err


@pytest.mark.parametrize(
    ("selection", "status", "text"),
    [
        (("--start-position", "gtid:5-1-7795"), 0, "gtid:5-1-7795: the log has no such source; it has 0-1-7792 to"),
        (("--start-position", "gtid:0-9-3"), 0, ""),
        (("--stop-position", "gtid:0-1-7794"), 0, ""),
        (
            ("--stop-position", "gtid:0-1-7999"),
            0,
            "gtid:0-1-7999: the log does not contain this GTID; it has 0-1-7792 to 0-1-7796",
        ),
        (
            ("--stop-position", "gtid:7-1-7795"),
            2,
            "the log does not contain this GTID; it has 0-1-7792 to 0-1-7796; did you mean 0-1-",
        ),
        (("--exclude-gtids", "0-1-7794"), 0, ""),
        (
            ("--exclude-gtids", "0-1-7749"),
            0,
            "--exclude-gtids 0-1-7749: the log has no such transaction; it has 0-1-77",
        ),
    ],
)
def test_a_position_or_exclusion_that_the_log_does_not_have_is_reported(
    selection: tuple[str, ...], status: int, text: str
) -> None:
    done = invoke("dump", *selection, LOG)
    assert done.code == status
    assert (text in done.err) if text else (done.err == "")


def test_a_transaction_that_the_log_does_not_have_makes_no_log(tmp_path: Path) -> None:
    done = invoke("convert", "--to", "mysql-binlog", "-o", str(tmp_path / "o"), "--include-gtids", "0-1-9", LOG)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert "--include-gtids 0-1-9: the log has no such transaction" in done.err


def test_a_type_of_the_format_that_the_log_lacks_is_an_empty_result_with_a_line() -> None:
    done = invoke("dump", "--type", "DELETE_ROWS_V2", LOG)
    assert (done.code, done.text) == (0, "")
    assert "--type DELETE_ROWS_V2: the log has no record of this type; it has ANNOTATE_ROWS" in done.err


def test_an_empty_range_of_times_is_an_empty_result_with_a_line() -> None:
    done = invoke("dump", "--start-datetime", "2090-01-01", LOG)
    assert (done.code, done.text) == (0, "")
    span = "2026-11-27T12:52:42Z to 2026-11-27T12:52:42Z"
    assert f"the selection contains no record of the log, which goes from {span}" in done.err


@pytest.mark.parametrize("option", ["-n", "--tail"])
def test_no_records_on_request_need_no_message(option: str) -> None:
    assert invoke("dump", option, "0", LOG) == (0, b"", "")


def test_one_of_several_names_that_is_misspelt_is_reported() -> None:
    done = invoke("dump", "--object", "shop.acc", "--object", "shop.x", "--fields", "type", LOG)
    assert (done.code, done.text.count("\n")) == (0, 9)  # with CREATE TABLE
    assert "--object shop.x: the log has no such object; did you mean shop.acc?" in done.err
    both = invoke("dump", "--include-gtids", "0-1-7794,0-1-9", "--fields", "type", LOG)
    assert (both.code, both.text.count("\n")) == (0, 5)
    assert "--include-gtids 0-1-9: the log has no such transaction" in both.err


def test_a_name_that_one_of_several_files_has_is_none_that_is_missing(tmp_path: Path) -> None:
    other = Path(LOG).parent / "one-column.000001"
    done = invoke("dump", "--object", "shop.acc", "--fields", "type", str(other), LOG)
    assert done.code == 0 and done.err.count("\n") == 1 and "there are several logs here" in done.err


def test_a_stream_says_what_it_does_not_have() -> None:
    with Path(LOG).open("rb") as log:
        done = program("dump", "--object", "shop.accs", "-", stdin=log)
    assert done.returncode == 2
    assert b"did you mean shop.acc?" in done.stderr


def test_a_field_that_no_record_has_is_reported() -> None:
    some = invoke("dump", "--fields", "type,body.sqll", LOG)
    assert (some.code, some.text.count("\n")) == (0, 27)
    assert "--fields body.sqll: no selected record has this member; did you mean body.sql" in some.err
    assert invoke("dump", "--fields", "body.sqll", LOG).code == 2
    assert invoke("dump", "--fields", "body.sql", LOG).err == ""


@pytest.mark.parametrize("name", ["WRITE_ROWS", "write_rows", "Write_rows_v1", "WRITE_ROWS_V1"])
def test_a_type_stands_for_all_its_versions_in_any_case(name: str) -> None:
    assert invoke("dump", "--type", name, "--fields", "offset,type", LOG).text == "743\tWRITE_ROWS_V1\n"


@pytest.mark.parametrize("rows", ["exact", "statements"])
def test_an_undo_of_nothing_writes_no_script(rows: str, tmp_path: Path) -> None:
    choices = [("--start-position", "gtid:0-1-7796"), ("--stop-position", "400"), ("--start-datetime", "2090-01-01")]
    for choice in choices:
        done = invoke("flashback", "--rows", rows, "-o", str(tmp_path / "o"), *choice, LOG)
        assert (done.code, list(tmp_path.iterdir())) == (2, [])
        assert "the selection has no row changes to reverse; nothing was written" in done.err


def test_an_undo_counts_changes_of_rows(tmp_path: Path) -> None:
    """Transaction 0-1-7794 is `update shop.acc set bal=0` of three rows."""
    chosen = ("--include-gtids", "0-1-7794")
    done = invoke("flashback", "-o", str(tmp_path / "o"), *chosen, LOG)
    assert "  3 row changes  1 file" in done.text
    chosen = ("--start-position", "gtid:0-1-7793", "--where", "after.id = 2", "--schema", _schema(tmp_path))
    script = invoke("convert", "--to", "sql", "-o", str(tmp_path / "s"), *chosen, LOG)
    assert "  2 row changes  1 file" in script.text


def _schema(folder: Path) -> str:
    path = folder / "schema.sql"
    path.write_text("CREATE TABLE shop.acc (id INT PRIMARY KEY, bal INT)")
    return str(path)


@pytest.mark.parametrize(
    ("chosen", "split"),
    [
        (("--stop-position", "1074"), ["0-1-7794"]),
        (("--type", "WRITE_ROWS"), ["0-1-7793"]),
        (("--stop-position", "1105"), []),
        (("--start-position", "986"), []),
        (("--include-gtids", "0-1-7794"), []),
    ],
)
def test_a_script_says_that_its_selection_splits_a_transaction(
    chosen: tuple[str, ...], split: list[str], tmp_path: Path
) -> None:
    """Offset 1074 is the XID of 0-1-7794, 986 its one event with rows."""
    done = invoke("convert", "--to", "sql", "-o", str(tmp_path / "o"), *chosen, LOG)
    said = r"1 transaction is selected only in part \(first: (\d+-\d+-\d+)\)"
    assert (done.code, re.findall(said, done.text)) == (0, split)


def test_several_types_in_one_option_are_refused_with_the_right_spelling() -> None:
    done = invoke("dump", "--type", "XID,GTID", str(ROOT / "tests" / "corpus" / "guides" / "mariadb"))
    assert done.code == 2 and "--type XID,GTID: one record type for each option; repeat --type" in done.err


def test_a_binary_file_as_schema_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin\0\0\0")
    done = invoke("rows", "--schema", str(path), str(ROOT / "tests" / "corpus" / "guides" / "mariadb"))
    assert done.code == 2 and f"--schema {path}: the file has zero bytes" in done.err


@pytest.mark.parametrize("command", [("dump",), ("rows", "--object", "shop.acc"), ("convert", "--to", "sql")])
def test_a_schema_without_a_table_of_the_log_is_reported_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    near, far, right = (tmp_path / name for name in ("near.sql", "far.sql", "right.sql"))
    near.write_text("CREATE TABLE `shop`.`accs` (id int);")
    far.write_text("CREATE TABLE x.y (id int); CREATE TABLE x.z (id int);")
    right.write_text("USE shop; CREATE TABLE acc (id int, amount int);")
    done = invoke(*command, "--schema", str(near), LOG)
    assert done.code == 0
    assert "--schema: its only table is not in the log; shop.accs: did you mean shop.acc?\n" in done.err
    done = invoke(*command, "--schema", str(far), LOG)
    assert "--schema: none of its 2 tables is in the log; it defines x.y, x.z, the log has shop.acc\n" in done.err
    assert "in the log" not in invoke(*command, "--schema", str(far), "--schema", str(right), LOG).err


def test_schema_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sql", tmp_path / "new.sql"
    old.write_text("USE shop;\nCREATE TABLE acc (id int, amount int);\n")
    new.write_text("CREATE TABLE shop.acc (id int);\n")
    done = invoke("rows", "--object", "shop.acc", "--schema", str(old), "--schema", str(new), LOG)
    assert (done.code, done.text) == (2, "")
    assert f"{old} line 2 and {new} line 1 define the table shop.acc differently" in done.err
