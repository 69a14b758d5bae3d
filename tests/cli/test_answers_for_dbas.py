"""Questions and mistakes of a DBA at the guides' log (its statements: tests/corpus/guides/README.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlogtool.cli import dump
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import LimitError
from tests.cli.invoke import invoke

GUIDE = str(Path(__file__).parents[1] / "corpus/guides/mariadb")
SECOND = f"{GUIDE}/mariadb-bin.000002"
UUID = "4806e0cc-e55c-11f1-8d64-02fc00000001"


# -- rows ------------------------------------------------------------------------------------------------------------


def test_the_transaction_of_each_row_is_in_the_text() -> None:
    lines = invoke("rows", "--object", "shop.orders", "--ascii", GUIDE).out.decode().splitlines()
    deleted = [line for line in lines if "DELETE" in line]
    assert len(deleted) == 4
    assert all(line.split("|")[1].strip() == "0-1-7" for line in deleted)


def test_a_table_without_its_database_is_found_by_the_suggestion() -> None:
    result = invoke("rows", "--object", "orders", GUIDE)
    assert result.code == 2
    assert "did you mean shop.orders?" in result.err


@pytest.mark.parametrize("selection", ["--start-datetime 2030-01-01", "--stop-position mariadb-bin.000001:330"])
def test_only_the_named_table_is_reported_as_empty(selection: str) -> None:
    result = invoke("rows", "--object", "shop.orders", *selection.split(), GUIDE)
    assert "shop.orders" in result.err
    assert "shop.stock" not in result.err


# -- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["rows", "dump", "convert --to sql"])
@pytest.mark.parametrize(
    "selection",
    [
        "--start-position 2000 --stop-position 1000",
        "--start-position mariadb-bin.000002:1203 --stop-position mariadb-bin.000002:0x158",
    ],
)
def test_a_start_after_the_stop_is_refused(command: str, selection: str) -> None:
    result = invoke(*command.split(), *selection.split(), SECOND)
    assert (result.code, result.out) == (2, b"")
    assert "is after --stop-position" in result.err


@pytest.mark.parametrize(
    "selection",
    [
        "--start-position mariadb-bin.000002:4 --stop-position mariadb-bin.000001:900",
        "--start-position gtid:0-1-7 --stop-position gtid:0-1-6",
        "--start-datetime 2026-11-20T15:00:00Z --stop-datetime 2026-11-20T14:00:00Z",
    ],
)
def test_a_start_in_a_later_file_transaction_or_time_is_refused(selection: str) -> None:
    result = invoke("dump", *selection.split(), GUIDE)
    assert (result.code, result.out) == (2, b"")
    assert "nothing is selected" in result.err


@pytest.mark.parametrize(
    "selection",
    [
        "--start-position gtid:0-1-6 --stop-position gtid:0-1-7",
        "--start-position mariadb-bin.000001:1295 --stop-position mariadb-bin.000002:882",
        "--start-position 1000 --stop-position 900",
        "--start-position end-100 --stop-position end",
    ],
)
def test_a_start_before_the_stop_is_accepted(selection: str) -> None:
    """A plain offset counts in the first file for the start and in the last for the stop."""
    result = invoke("dump", *selection.split(), GUIDE)
    assert result.code == 0
    assert result.out


@pytest.mark.parametrize("option", ["--start-position", "--stop-position"])
@pytest.mark.parametrize("gtid", ["0-1-6", f"{UUID}:7", "0-1-6,1-1-3"])
def test_a_gtid_without_its_prefix_is_recognised(option: str, gtid: str) -> None:
    result = invoke("dump", option, gtid, GUIDE)
    assert (result.code, result.out) == (2, b"")
    assert f"did you mean gtid:{gtid}?" in result.err


@pytest.mark.parametrize("command", ["dump", "dump -O sql", "convert --to sql"])
def test_a_position_inside_an_event_is_noted(command: str) -> None:
    """The GTID event of 0-1-7 is at 882 and ends at 924."""
    inside = invoke(*command.split(), "--stop-position", "mariadb-bin.000002:900", GUIDE)
    assert inside.code == 0
    assert "it is inside the record from 882 to 924, which is selected" in inside.err
    for boundary in ("882", "924"):
        assert "inside" not in invoke(*command.split(), "--stop-position", f"mariadb-bin.000002:{boundary}", GUIDE).err
    start = invoke("dump", "--start-position", "mariadb-bin.000002:900", GUIDE)
    assert "--start-position 900: no record begins there" in start.err


# -- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "option", "verb"),
    [
        ("dump", "--start-datetime", "begins"),
        ("rows --object db_east1.orders2_nopk", "--start-datetime", "begins"),
        ("dump", "--stop-datetime", "ends"),
        ("convert --to sql", "--stop-datetime", "ends"),
    ],
)
def test_a_fraction_of_a_second_is_explained(corpus: Path, command: str, option: str, verb: str) -> None:
    """The events of the log have the times 03:42:20 and 03:42:21 (`mysqlbinlog`)."""
    log = str(corpus / "mysql-binlog/generated/mysql-9.7/compressed-transactions/binlog.000001")
    result = invoke(*command.split(), option, "2026-11-21T03:42:20.59Z", log)
    text = f"{option}: the times of the events are whole seconds, those of commits have fractions; the selection {verb}"
    assert result.err.count(f"{text} at 2026-11-21T03:42:21Z") == 1
    assert option not in invoke(*command.split(), option, "2026-11-21T03:42:20Z", log).err


# -- statements that name a table ------------------------------------------------------------------------------------


@pytest.fixture
def mixed(corpus: Path) -> str:
    """A log in which db_east1.orders2_z is made by RENAME TABLE, emptied and dropped, without a row of that name."""
    return str(corpus / "mysql-binlog/generated/mariadb-11.8/mixed-ddl/mariadb-bin.000001")


def test_dump_of_a_table_shows_the_statements_that_name_it(mixed: str, corpus: Path) -> None:
    result = invoke("dump", "--object", "db_east1.orders2_z", "--fields", "body.sql", mixed)
    assert [line.split()[0].lower() for line in result.text.splitlines()] == ["rename", "truncate", "drop"]
    statements = str(corpus / "mysql-binlog/generated/mysql-9.7/stmt/binlog.000001")
    logged = invoke("dump", "--object", "db_east1.orders2", statements)
    assert (logged.code, logged.err) == (0, "")
    assert "insert into orders2 (v) values (77)" in logged.text
    excluded = invoke("dump", "--database", "db_east1", "--exclude-object", "*.orders2", statements)
    assert "into orders2 (" not in excluded.text


def test_rows_and_stats_name_the_statements_that_change_a_table(mixed: str) -> None:
    for command in ("rows", "stats"):
        result = invoke(command, "--object", "db_east1.orders2_z", mixed)
        assert (
            f"2 statements change db_east1.orders2_z without row events: TRUNCATE at 0x0000102c in {mixed}"
            in result.err
        )
        positions = ("--start-position", "0x1000", "--stop-position", "0x1100")
        first = invoke(command, *positions, "--object", "db_east1.orders2_z", mixed)
        assert "1 statement changes db_east1.orders2_z" in first.err


# -- flashback -------------------------------------------------------------------------------------------------------


def test_a_later_change_is_named_at_the_beginning_of_the_script() -> None:
    """0-1-6 inserts Dana; 0-1-7 deletes her, and is not reversed."""
    result = invoke("flashback", "--include-gtids", "0-1-6", "--object", "shop.orders", "--rows", "statements", GUIDE)
    first = result.out.decode().splitlines()[0]
    assert result.code == 1
    assert first.startswith("# changed-later: shop.orders: 1 row was changed again later")
    assert "0-1-7" in first


def test_a_script_without_later_changes_has_no_such_comment() -> None:
    result = invoke("flashback", "--include-gtids", "0-1-7", "--rows", "statements", GUIDE)
    assert (result.code, b"changed-later" in result.out) == (0, False)


def test_rows_can_be_matched_by_all_columns() -> None:
    words = ("flashback", "--include-gtids", "0-1-6", "--rows", "statements")
    by_key, by_all = (invoke(*words, *more, GUIDE).out.decode() for more in ((), ("--match-all-columns",)))
    assert "DELETE FROM `shop`.`orders` WHERE `id` <=> 4 LIMIT 1" in by_key
    [deletion] = [line for line in by_all.splitlines() if line.startswith("DELETE")]
    assert all(text in deletion for text in ("`id` <=> 4", "'Dana'", "`total` <=> 300.00", "'open'"))
    [update] = [line for line in by_all.splitlines() if line.startswith("UPDATE")]
    assert "`pieces` <=> 11" in update.partition("WHERE")[2]


def test_matching_by_all_columns_needs_statements() -> None:
    result = invoke("flashback", "--include-gtids", "0-1-6", "--match-all-columns", GUIDE)
    assert result.code == 2
    assert "--rows statements" in result.err


def test_virtual_columns_of_mariadb_are_no_reason_in_a_log_of_mysql(corpus: Path) -> None:
    log = corpus / "mysql-binlog/generated/mysql-9.7/row-minimal-types"
    text = invoke("flashback", str(log)).err
    assert "binlog_row_image is not FULL" in text
    assert "MariaDB" not in text


# -- follow ----------------------------------------------------------------------------------------------------------


class FakeFollower:
    """A follower whose only check yields these parts; each takes one second."""

    unknown_column = None

    def __init__(self, clock: list[float], parts: list[str]) -> None:
        self.clock, self.parts = clock, parts

    def __enter__(self) -> FakeFollower:
        return self

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> Iterator[str]:
        while self.parts:
            self.clock[0] += 1
            yield self.parts.pop(0)


def follow_with_timeout(monkeypatch: pytest.MonkeyPatch, parts: list[str], timeout: float) -> tuple[list[str], Any]:
    clock = [0.0]
    monkeypatch.setattr(dump, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(dump.binlogtool, "follow", lambda *_, **__: FakeFollower(clock, parts))
    settings = SimpleNamespace(timeout=timeout, make_read_options=lambda hints: {})
    run: Any = SimpleNamespace(settings=settings, status=0, progress=SimpleNamespace(records=1))
    out: Any = SimpleNamespace(
        sleep_unless_reader_closes=lambda seconds: clock.__setitem__(0, clock[0] + seconds + 0.1)
    )
    options = dump.FollowOptions("full", False, 1.0, None)
    printed: list[str] = []
    try:
        for part in dump.follow_logs(run, [], Selection(), options, out):
            printed.append(str(part))
            clock[0] += 0.6  # a loaded machine is slow to print
    except LimitError:
        pass
    return printed, run


def test_a_timeout_while_the_last_part_is_printed_is_no_partial_output(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, run = follow_with_timeout(monkeypatch, ["a", "b"], 3.0)
    assert (printed, run.status) == (["a", "b"], 0)


def test_a_timeout_with_parts_left_is_a_partial_output(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, run = follow_with_timeout(monkeypatch, ["a", "b", "c"], 2.0)
    assert (printed, run.status) == (["a"], 6)


def test_a_table_cannot_grow() -> None:
    result = invoke("dump", "-F", "-O", "table", SECOND)
    assert (result.code, result.out) == (2, b"")
