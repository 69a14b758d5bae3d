"""`stats --by transaction` and `stats --rows`."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.cli.invoke import ROOT, invoke

MARIADB = str(ROOT / "tests" / "corpus" / "guides" / "mariadb")
DRIZZLE = str(ROOT / "tests" / "corpus" / "drizzle" / "basic-checksum.log")
"""Rows as in the statements that `mariadb-binlog -v` prints for these files."""


def test_the_transactions_with_most_rows_come_first() -> None:
    found = json.loads(invoke("stats", "-O", "json", "--by", "transaction", "--top", "2", MARIADB).out)
    assert found["transactions"] == 8
    assert [(one["transaction"], one["rows"], one["tables"]) for one in found["most"]["rows"]] == [
        ("0-1-7", 4, {"shop.orders": 4}),
        ("0-1-4", 3, {"shop.orders": 3}),
    ]
    first = found["most"]["bytes"][0]
    assert (first["transaction"], first["offset"], first["records"]) == ("0-1-8", 1203, 8)
    assert (first["first_time"], first["seconds"]) == ("2026-11-20T14:06:45.000000Z", 0)


def test_the_text_names_the_position_of_each_transaction() -> None:
    text = invoke("stats", "--by", "transaction", "--top", "1", MARIADB).text
    assert text.startswith("8 transactions\n")
    assert "0-1-7" in text and "mariadb-bin.000002:882" in text and "shop.orders (4)" in text
    assert "longest: all durations are below the log's resolution of 1 s" in text


def test_rows_are_counted_by_table_and_kind() -> None:
    found = json.loads(invoke("stats", "-O", "json", "--rows", MARIADB).out)
    rows = {one["name"]: (one["inserted"], one["updated"], one["deleted"]) for one in found["groups"]}
    assert rows == {None: (0, 0, 0), "shop.orders": (5, 0, 4), "shop.stock": (2, 2, 0)}


def test_the_groups_after_the_first_ones_are_one() -> None:
    whole = json.loads(invoke("stats", "-O", "json", DRIZZLE).out)
    found = json.loads(invoke("stats", "-O", "json", "--top", "1", DRIZZLE).out)
    assert [one["name"] for one in found["groups"]] == ["shop1.item", "(others)"]
    for figure in ("records", "bytes"):
        assert sum(one[figure] for one in found["groups"]) == sum(one[figure] for one in whole["groups"])
        assert sum(one[figure] for one in found["over_time"]) == sum(one[figure] for one in whole["over_time"])


def test_transactions_as_csv() -> None:
    out = invoke("stats", "-O", "csv", "--by", "transaction", "--top", "1", MARIADB).text
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(one["most"], one["transaction"]) for one in rows] == [
        ("bytes", "0-1-8"), ("rows", "0-1-7"),
    ]  # fmt: skip


@pytest.mark.parametrize("words", [("--chart", "x.svg"), ("--bucket", "1h")])
def test_transactions_have_no_time_steps(words: tuple[str, str]) -> None:
    done = invoke("stats", "--by", "transaction", *words, MARIADB)
    assert done.code == 2 and "no time steps" in done.err
