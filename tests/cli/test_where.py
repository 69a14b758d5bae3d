"""`--where` on the command line: what it chooses from logs of real servers, and what counts after it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cli.invoke import invoke, program

CORPUS = Path(__file__).parents[1] / "corpus"
FIRST, SECOND = (str(CORPUS / "guides" / "mariadb" / f"mariadb-bin.00000{n}") for n in (1, 2))
XLOG = str(CORPUS / "tarantool" / "chain" / "00000000000000000227.xlog")


def chosen(*args: str) -> list[str]:
    """The offsets of the records that are printed."""
    result = invoke("dump", "--fields", "offset", *args)
    assert (result.code, result.err) == (0, "")
    return [line for line in result.text.split("\n") if line and not line.startswith("#")]


@pytest.mark.parametrize(
    ("expression", "offsets"),
    [
        ("after.total > 100", [0x228]),
        ("after.total = 42", [0x582]),
        ("before.customer like 'A%'", [0x422]),
        ("object = 'shop.stock' and after.pieces < before.pieces", [0x2F0, 0x64B]),
        ("object = 'shop.stock' and after.pieces < 10", [0x64B]),
        ("type ~ '*_ROWS_*' and time < '2026-11-20T14:00:00Z'", [0x228, 0x2F0]),
        ("body.rows.after.id in (4, 5)", [0x228, 0x582]),
    ],
)
def test_rows_of_a_servers_log_are_chosen(expression: str, offsets: list[int]) -> None:
    assert chosen("--where", expression, SECOND) == [str(offset) for offset in offsets]
    assert chosen("--where", expression, "--backend", "python", SECOND) == [str(offset) for offset in offsets]


def test_rows_of_tuples_are_chosen() -> None:
    assert chosen("--where", "body.tuple[0] = 12500 or body.key[0] = 11200", XLOG) == [str(0xF9), str(0x185)]


def test_counts_and_other_choices_count_around_the_condition() -> None:
    rows = ["--where", "after.id is not null or before.id is not null", FIRST, SECOND]
    assert chosen(*rows) == [str(0x492), str(0x228), str(0x422), str(0x582)]
    assert chosen(*rows, "--skip", "1", "--limit", "2") == [str(0x228), str(0x422)]
    assert chosen(*rows, "--tail", "1") == [str(0x582)]
    assert chosen(*rows, "--type", "WRITE_ROWS_V1", "--skip", "1") == [str(0x228), str(0x582)]
    assert chosen("--where", "after.total > 100", str(Path(SECOND).parent)) == [str(0x492), str(0x228)]


def test_standard_input_is_chosen_from() -> None:
    done = program("dump", "--fields", "offset", "--where", "after.total > 100", "-", input=Path(SECOND).read_bytes(),
                   stdin=None)  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, [b"552"])


def test_a_log_that_is_followed_is_chosen_from() -> None:
    began = time.monotonic()
    assert chosen("-F", "--timeout", "3s", "-n", "2", "--where", "after.id = 4 or after.id = 5", SECOND) == [
        str(0x228),
        str(0x582),
    ]
    assert time.monotonic() - began < 120


def test_every_output_holds_the_same_records() -> None:
    choice = ["--where", "before.id = 1", SECOND]
    assert invoke("dump", "-O", "jsonl", *choice).text.count("\n") == 1
    assert '"offset":1058,' in invoke("dump", "-O", "json", *choice).text.replace(": ", ":")
    assert invoke("dump", "-O", "csv", *choice).text.count("1058,") == 1
    assert invoke("dump", "-O", "raw", *choice).out == Path(SECOND).read_bytes()[0x422 : 0x422 + 114]


def test_stats_count_what_is_chosen() -> None:
    result = invoke("stats", "-O", "csv", "--where", "after.id is not null", SECOND)
    assert [line.split(",")[1:3] for line in result.text.split()[1:]] == [["shop.orders", "1"], ["shop.orders", "1"]]


def test_a_wrong_expression_is_told_with_its_column_before_anything_is_read() -> None:
    result = invoke("dump", "--where", "after.total <", "/nonexistent")
    assert result.code == 2
    assert "--where: column 14: expected a value or a member of a record, found the end" in result.err


def test_a_script_has_the_chosen_rows_and_a_log_takes_no_condition(tmp_path: Path) -> None:
    result = invoke("dump", "-O", "sql", "--where", "after.id = 4", SECOND)
    assert (result.code, result.text.count("WRITE_ROWS_V1"), result.text.count("BINLOG '")) == (0, 1, 2)
    refused = invoke("convert", "--to", "mysql-binlog", "-o", str(tmp_path / "b"), "--where", "seq = 4", SECOND)
    assert (refused.code, "whole transactions are needed for a log" in refused.err) == (2, True)


@pytest.mark.parametrize("to", ["jsonl", "raw"])
def test_what_is_converted_holds_the_chosen_records(to: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert invoke("convert", "--to", to, "-o", str(out), "--where", "before.id = 1", SECOND).code == 0
    assert out.read_bytes() == invoke("dump", "-O", to, "--where", "before.id = 1", SECOND).out


def test_an_undo_of_one_row_of_two(tmp_path: Path) -> None:
    out = tmp_path / "out"
    choice = ["--where", "object = 'shop.orders' and before.customer = 'Ada'", "--rows", "statements"]
    assert invoke("flashback", "-o", str(out), *choice, SECOND).code == 0
    assert [line for line in out.read_text().splitlines() if "'Ada'" in line] == ["(1,'Ada',120.00,'paid')"]
    assert "'Chen'" not in out.read_text()
