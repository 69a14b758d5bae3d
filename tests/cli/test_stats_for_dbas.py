"""`stats` answers what a DBA asks. The statements of the guides' log are in tests/corpus/guides/README.md."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.invoke import invoke

GUIDE = str(Path(__file__).parents[1] / "corpus/guides/mariadb")


def test_csv_has_the_rows_of_each_table_and_minute() -> None:
    """At 14:05 the wrong DELETE removes four orders; at 14:06 one order is inserted and one stock updated."""
    text = invoke("stats", "--rows", "--bucket", "1m", "-O", "csv", GUIDE).out.decode()
    rows = {(one["time"][11:16], one["object"]): one for one in csv.DictReader(text.splitlines()) if one["object"]}
    changes = {key: (one["inserted"], one["updated"], one["deleted"]) for key, one in rows.items()}
    assert changes["14:05", "shop.orders"] == ("0", "0", "4")
    assert changes["14:06", "shop.orders"] == ("1", "0", "0")
    assert changes["14:06", "shop.stock"] == ("0", "1", "0")


def test_rows_of_all_steps_add_up_to_those_of_the_table() -> None:
    document = json.loads(invoke("stats", "--rows", "--bucket", "1m", "-O", "json", GUIDE).out)
    sums: Counter[tuple[str, str]] = Counter()
    for cell in document["over_time"]:
        for kind in ("inserted", "updated", "deleted"):
            sums[cell["name"], kind] += cell[kind]
    for group in document["groups"]:
        assert all(group[kind] == sums[group["name"], kind] for kind in ("inserted", "updated", "deleted"))
    assert sums["shop.orders", "deleted"] == 4 and sums["shop.stock", "updated"] == 2


def test_each_step_names_a_table_although_most_records_have_none() -> None:
    plain = invoke("stats", "--bucket", "1h", GUIDE).out.decode()
    assert [line.split()[-1] for line in plain.splitlines() if line.startswith("2026-11-20T14")] == ["shop.orders"]
    ranked = invoke("stats", "--rows", "--bucket", "1h", GUIDE).out.decode()
    assert "most rows (object)" in ranked
    line = next(line for line in ranked.splitlines() if line.startswith("2026-11-20T14"))
    assert line.split()[-2:] == ["6", "shop.orders"]


def test_durations_below_the_resolution_of_the_log_are_said_to_be_so() -> None:
    assert (
        "longest: all durations are below the log's resolution of 1 s"
        in invoke("stats", "--by", "transaction", GUIDE).out.decode()
    )
    lines = invoke("stats", "--by", "transaction", "-O", "csv", GUIDE).out.decode().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"bytes", "rows"}


def test_bytes_of_compressed_transactions_are_labelled_as_unpacked(corpus: Path) -> None:
    log = str(corpus / "mysql-binlog/generated/mysql-9.7/compressed-transactions")
    assert "bytes (unpacked)" in invoke("stats", "--by", "transaction", log).out.decode()
    assert json.loads(invoke("stats", "--by", "transaction", "-O", "json", log).out)["unpacked"] is True
    assert "unpacked" not in invoke("stats", "--by", "transaction", GUIDE).out.decode()


@pytest.mark.parametrize("name", ["chart.png", "chart", "chart.pdf"])
def test_a_chart_is_not_written_under_the_name_of_another_kind(tmp_path: Path, name: str) -> None:
    result = invoke("stats", "--chart", str(tmp_path / name), GUIDE)
    assert (result.code, list(tmp_path.iterdir())) == (2, [])
    assert ".svg or .html" in result.err


def test_a_limit_of_records_is_no_limit_of_the_list() -> None:
    text = "--limit counts the records that are read; --top N limits the list"
    assert text in invoke("stats", "--by", "transaction", "-n", "5", GUIDE).err
    assert text not in invoke("stats", "--by", "transaction", "--top", "5", GUIDE).err


def test_transactions_of_one_record_have_no_duration() -> None:
    torn = str(Path(GUIDE).parent / "tarantool-torn")
    assert (
        "longest: the records of each transaction have the same time\n"
        in invoke("stats", "--by", "transaction", torn).text
    )
