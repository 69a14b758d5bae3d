"""`convert --merge`: the last row of each key. Against servers: test_current_rows_server.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.export.last_row_per_key import RowLink, link_partial_row
from tests.cli.invoke import Result, invoke
from tests.export import typed_logs
from tests.harness.mysql_writer import MARIADB, Made, binlog, query, rows, table_map, transaction

pytest.importorskip("pyarrow")
TWO = table_map(b"\3\3")
CREATE = query(b"create table d.t (a int primary key, b int)")


def int32(*values: int) -> bytes:
    return b"\0" + b"".join(value.to_bytes(4, "little") for value in values)


def write_log(folder: Path, *events: Made) -> Path:
    path = folder / "log.000001"
    path.write_bytes(binlog(list(events), MARIADB))
    return path


def merge(log: Path, folder: Path, *more: str, to: str = "parquet") -> Result:
    return invoke("convert", "--merge", "--to", to, *more, "-o", str(folder / "out"), str(log))


def current(folder: Path) -> list[tuple[int, int]]:
    return [(row["a"], row["b"]) for row in typed_logs.rows(folder)]


def insert(*images: bytes, number: int = 1) -> list[Made]:
    return transaction(TWO, rows(b"".join(images), 2), number=number)


def update(before: bytes, after: bytes, number: int) -> list[Made]:
    return transaction(TWO, rows(before + after, 2, code=31), number=number)


def test_the_last_row_of_each_key_is_left(tmp_path: Path) -> None:
    first = insert(int32(1, 10), int32(2, 20), int32(3, 30))
    changes = [
        *update(int32(1, 10), int32(1, 11), 2), *update(int32(2, 20), int32(5, 21), 3),
        *transaction(TWO, rows(int32(3, 30), 2, code=32), number=4),
    ]  # fmt: skip
    done = merge(write_log(tmp_path, CREATE, *first, *changes), tmp_path)
    assert done.code == 0, done.text
    assert "6 changed rows read; current rows decoded: 2; counted in the output: 2" in done.text
    assert current(tmp_path / "out/d.t") == [(1, 11), (5, 21)]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        (b"truncate d.t", []),
        (b"drop table d.t", None),
        (b"drop database d", None),
        (b"create table d.u (x int)", [(1, 10)]),
    ],
)
def test_statements_empty_the_table(statement: bytes, left: list[tuple[int, int]] | None, tmp_path: Path) -> None:
    log = write_log(tmp_path, CREATE, *insert(int32(1, 10)), query(statement), *transaction(number=2))
    done = merge(log, tmp_path)
    assert done.code == 0, done.text
    assert (current(tmp_path / "out/d.t") if (tmp_path / "out/d.t").is_dir() else None) == left


def test_a_renamed_table_keeps_its_rows(tmp_path: Path) -> None:
    renamed = query(b"rename table d.t to d.u")
    log = write_log(tmp_path, CREATE, *insert(int32(1, 10)), renamed, *transaction(
        table_map(b"\3\3", name=b"u"), rows(int32(2, 20), 2), number=2))  # fmt: skip
    assert merge(log, tmp_path).code == 0
    assert current(tmp_path / "out/d.u") == [(1, 10), (2, 20)] and not (tmp_path / "out/d.t").exists()
    alone = merge(log, tmp_path / "out", "--object", "d.u")
    assert "d.u was d.t before, which is not selected: its rows from then are left out" in alone.text
    assert current(tmp_path / "out/out") == [(2, 20)]


def test_an_added_column_has_no_value_in_older_rows(tmp_path: Path) -> None:
    """Rows from before an ALTER TABLE list it as absent: the log does not contain their values."""
    one = query(b"create table d.t (a int primary key)")
    old = transaction(table_map(b"\3"), rows(b"\0\1\0\0\0" + b"\0\2\0\0\0"))
    log = write_log(tmp_path, one, *old, query(b"alter table d.t add b int"), *insert(int32(3, 30), number=2))
    done = merge(log, tmp_path)
    assert "the column b (int) is new; columns without a value are in `absent`" in done.text
    found = typed_logs.rows(tmp_path / "out/d.t")
    assert [(row["a"], row["b"], row["absent"]) for row in found] == [
        (1, None, ["after.b"]), (2, None, ["after.b"]), (3, 30, None),
    ]  # fmt: skip


def test_a_table_without_key_is_refused(tmp_path: Path) -> None:
    done = merge(write_log(tmp_path, query(b"create table d.t (a int, b int)"), *insert(int32(1, 10))), tmp_path)
    assert done.code == 2 and "d.t has no key in what was read" in done.err and not (tmp_path / "out").exists()


def test_a_key_that_changes_while_there_are_rows_is_refused(tmp_path: Path) -> None:
    altered = query(b"alter table d.t drop primary key, add primary key (b)")
    log = write_log(tmp_path, CREATE, *insert(int32(1, 10)), altered, *insert(int32(2, 20), number=2))
    done = merge(log, tmp_path)
    assert done.code == 2 and "the key of d.t changes while it has rows: (a) and (b)" in done.err


def test_keys_that_do_not_fit_into_memory_end_with_status_6(tmp_path: Path) -> None:
    count = 48_000
    events = [
        insert(*(int32(n, n) for n in range(first, first + 8_000)), number=first + 1)
        for first in range(0, count, 8_000)
    ]
    log = write_log(tmp_path, CREATE, *(one for event in events for one in event))
    done = merge(log, tmp_path, "--max-memory", "16MiB")
    assert done.code == 6 and "rows need more than half of --max-memory (16 MiB)" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--to", "jsonl"), "--merge is for tables"),
        (("--where", "after.a = 1"), "cannot be combined with --where"),
        (("--limit", "1"), "cannot be combined with --limit"),
        (("--envelope", "debezium"), "cannot be combined with --envelope"),
        (("--append",), "cannot be combined with --merge"),
        (("--jobs", "2"), "--merge runs in this process"),
    ],
)
def test_other_options_are_refused(options: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = merge(write_log(tmp_path, CREATE, *insert(int32(1, 10))), tmp_path, *options)
    assert done.code == 2 and text in done.err


def test_only_images_with_needed_columns_are_kept() -> None:
    """Each kept row has a column that all later ones lack."""
    first = link_partial_row(7, 9, frozenset("ab"))
    assert first == (RowLink(7, frozenset()), RowLink(9, frozenset("ab")))
    assert link_partial_row(first, 12, frozenset("a")) == (RowLink(7, frozenset()), RowLink(12, frozenset("a")))
    assert link_partial_row(None, 3, frozenset("a")) == (RowLink(3, frozenset("a")),)
