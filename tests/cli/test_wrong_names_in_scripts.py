"""A script for a server is refused where a mistyped database or GTID would make it change more than was meant.

The log of the guides has the database `shop` and the transactions 0-1-1 to 0-1-8; 0-1-7 is the wrong DELETE.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.invoke import invoke

GUIDE = str(Path(__file__).parents[1] / "corpus/guides/mariadb")


@pytest.mark.parametrize("command", ["convert --to sql", "dump -O sql", "flashback --include-gtids 0-1-7"])
@pytest.mark.parametrize("name", ["shopp", "Shop"])
def test_a_rewrite_of_a_database_that_the_log_lacks_is_refused(command: str, name: str) -> None:
    result = invoke(*command.split(), "--rows", "statements", "--rewrite", f"{name}->old", GUIDE)
    assert (result.code, result.out) == (2, b"")
    assert f"the log has no database {name}; did you mean shop?" in result.err


def test_a_rewrite_of_a_database_of_the_log_is_applied() -> None:
    result = invoke("flashback", "--include-gtids", "0-1-7", "--rows", "statements", "--rewrite", "shop->old", GUIDE)
    assert (result.code, result.err) == (0, "")
    assert b"`old`.`orders`" in result.out and b"`shop`" not in result.out


@pytest.mark.parametrize("command", ["convert --to sql", "dump -O sql"])
@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("--stop-position gtid:0-1-99", "--stop-position gtid:0-1-99: the log does not contain this GTID"),
        ("--exclude-gtids 0-1-77", "--exclude-gtids 0-1-77: the log has no such transaction"),
        ("--include-gtids 0-1-99", "--include-gtids 0-1-99: the log has no such transaction"),
        ("--start-position gtid:7-1-2", "--start-position gtid:7-1-2: the log has no such source"),
    ],
)
def test_a_bound_that_the_log_lacks_is_refused(command: str, selection: str, message: str) -> None:
    result = invoke(*command.split(), *selection.split(), GUIDE)
    assert (result.code, result.out) == (2, b"")
    assert message in result.err


def test_a_binary_log_is_not_written_up_to_a_gtid_that_the_log_lacks(tmp_path: Path) -> None:
    output = tmp_path / "copy"
    result = invoke("convert", "--to", "mysql-binlog", "-o", str(output), "--stop-position", "gtid:0-1-99", GUIDE)
    assert result.code == 2
    assert "the log does not contain this GTID" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "selection",
    [
        "--stop-position gtid:0-1-6",
        "--exclude-gtids 0-1-7",
        "--start-position gtid:0-1-2",
        "--start-position gtid:0-1-2,7-1-1",
        "--stop-position gtid:0-1-6,7-1-1",
    ],
)
def test_positions_of_which_the_log_has_a_part_are_accepted(selection: str) -> None:
    """A position of a server with several domains can name one that wrote nothing to this log."""
    result = invoke("convert", "--to", "sql", *selection.split(), GUIDE)
    assert result.code == 0
    assert result.out
