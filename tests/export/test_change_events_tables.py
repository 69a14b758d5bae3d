"""Messages about changes as tables: what other readers find in them is what the lines of jsonl say."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from binlogtool.export.atomic_output import TABLES_FILE
from tests.cli.invoke import Result, invoke
from tests.export.messages import CHANGES, written

pytest.importorskip("pyarrow")
LOG = CHANGES / "mysql-9/bin.000001"
ENVELOPES = ("debezium", "maxwell", "canal")
FORMATS = ("parquet", "orc", "avro", "csv", "json")


def made(folder: Path, to: str, *more: str, envelope: str = "debezium", log: Path = LOG) -> Result:
    return invoke("convert", "--to", to, "--envelope", envelope, *more, "-o", str(folder), str(log))


def rows(folder: Path, to: str) -> list[dict[str, Any]]:
    """By DuckDB, Arrow's ORC, fastavro, and Python's own readers."""
    return [row for path in sorted(folder.glob(f"part-*.{to}*")) for row in _READERS[to](path)]


def count(folder: Path, to: str) -> int:
    """Arrow's reader of ORC has no times before 1677, but counts them."""
    if to != "orc":
        return len(rows(folder, to))
    from pyarrow import orc

    return sum(orc.ORCFile(path).nrows for path in folder.glob("part-*"))


def _parquet(path: Path) -> list[dict[str, Any]]:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _orc(path: Path) -> list[dict[str, Any]]:
    from pyarrow import orc

    return list(orc.ORCFile(path).read().to_pylist())


def _avro(path: Path) -> list[dict[str, Any]]:
    import fastavro

    with path.open("rb") as file:
        return [row for row in fastavro.reader(file) if isinstance(row, dict)]


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _json(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


_READERS = {"parquet": _parquet, "orc": _orc, "avro": _avro, "csv": _csv, "json": _json}


def expected(message: dict[str, Any], envelope: str) -> Iterator[tuple[str, Any]]:
    """Members of a line that are columns; what is not of one shape is JSON."""
    if envelope == "debezium":
        value = message["value"]
        message = {**{n: v for n, v in message.items() if n != "value"}, **value}
    yield from message.items()


def _same(cell: Any, value: Any, to: str) -> bool:
    if to == "csv":
        cell = None if cell == "" else cell
        if isinstance(value, bool | int):
            return str(cell).lower() == str(value).lower()
    if isinstance(cell, str) and not isinstance(value, str):
        cell = json.loads(cell, parse_float=Decimal)
        value = json.loads(json.dumps(value), parse_float=Decimal)
    if isinstance(cell, dict) and isinstance(value, dict):
        return all(cell[name] == value.get(name) for name in cell)
    return bool(cell == value or (to == "csv" and value == "" and cell is None))


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("to", [pytest.param(to, marks=[pytest.mark.full] * (to == "parquet")) for to in FORMATS])
def test_each_message_is_a_row_whose_columns_are_its_members(to: str, envelope: str, tmp_path: Path) -> None:
    done = made(tmp_path / "out", to, envelope=envelope)
    assert done.code == 0, done.text + done.err
    more = ("--no-tombstones",) if envelope == "debezium" else ()
    lines = written(tmp_path, LOG, *more, envelope=envelope)
    found = rows(tmp_path / "out", to)
    assert len(found) == len(lines) > 30
    for row, line in zip(found, lines, strict=True):
        told = dict(expected(line, envelope))
        assert set(told) <= set(row)
        for name, cell in row.items():
            assert _same(cell, told.get(name), to), (name, cell, told.get(name))


@pytest.mark.full
def test_images_of_one_table_have_its_columns_with_their_types(tmp_path: Path) -> None:
    done = made(tmp_path / "out", "parquet", "--object", "shop.orders")
    assert done.code == 0, done.text + done.err
    found = rows(tmp_path / "out", "parquet")
    lines = [m["value"] for m in written(tmp_path, LOG, "--object", "shop.orders", "--no-tombstones")]
    assert [row["op"] for row in found] == [line["op"] for line in lines]
    first = found[0]["after"]
    assert (first["id"], first["price"], first["n"], first["s"]) == (1, Decimal("3.50"), 2**64 - 1, ["a", "c"])
    assert str(first["at"]) == "2024-02-29 12:00:00.123456" and first["data"] == b"\x00\xff\x10"
    assert found[-1]["after"]["extra"] == 4 and found[-1]["after"]["bl"] is None  # behind an ALTER TABLE
    assert [row["before"] is None for row in found] == [line["before"] is None for line in lines]
    assert all(row["unfit"] is None and row["absent"] is None for row in found)


@pytest.mark.full
@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("to", FORMATS)
def test_each_table_has_its_directory(to: str, envelope: str, tmp_path: Path) -> None:
    done = made(tmp_path / "out", to, "--per-table", envelope=envelope)
    assert done.code == 0, done.text + done.err
    tables = json.loads((tmp_path / "out" / TABLES_FILE).read_text())["tables"]
    assert [one["name"] for one in tables] == ["shop.orders", "shop.keyless", "shop.pair", "shop.z", "shop.more"]
    for one in tables:
        assert count(tmp_path / "out" / one["directory"], to) == one["rows"] > 0


@pytest.mark.parametrize("to", [to for to in FORMATS if to != "csv"])
def test_an_emptied_table_has_no_images(to: str, tmp_path: Path) -> None:
    """Debezium's message of a TRUNCATE."""
    assert made(tmp_path / "out", to, "--per-table", envelope="debezium").code == 0
    (emptied,) = [row for row in rows(tmp_path / "out/shop.keyless", to) if row["op"] == "t"]
    assert emptied["before"] is None and emptied["after"] is None


def test_maxwell_says_which_columns_changed_and_canal_has_texts(tmp_path: Path) -> None:
    assert made(tmp_path / "m", "parquet", "--object", "shop.pair", envelope="maxwell").code == 0
    changed = [(row["changed"], row["old"]) for row in rows(tmp_path / "m", "parquet") if row["type"] == "update"]
    assert changed == [
        (["c"], {"a": None, "b": None, "c": 1}),
        (["c"], {"a": None, "b": None, "c": 2}),
        (["a"], {"a": 2, "b": None, "c": None}),
    ]
    assert made(tmp_path / "c", "parquet", "--object", "shop.pair", envelope="canal").code == 0
    first = next(row for row in rows(tmp_path / "c", "parquet") if row["type"] == "INSERT")
    assert first["data"] == [{"a": "1", "b": "x", "c": "1"}, {"a": "2", "b": "y", "c": "2"}] and first["old"] is None


def test_what_is_not_for_messages_is_refused(tmp_path: Path) -> None:
    for words, text in [
        (("--partition-by", "op"), "--partition-by"),
        (("--image", "after"), "--image"),
        (("--limit", "3"), "--limit"),
        (("--object", "shop.nothing"), "no change of such a table"),
        (("--master", "nowhere"), "--master"),
    ]:
        done = made(tmp_path / "out", "parquet", *words)
        assert done.code == 2 and text in done.err, done.err
        assert not (tmp_path / "out").exists()


def test_damage_stops_a_table_of_messages(tmp_path: Path) -> None:
    data = bytearray(LOG.read_bytes())
    data[5000] ^= 0xFF
    log = tmp_path / "bin.000001"
    log.write_bytes(data)
    done = made(tmp_path / "out", "parquet", log=log)
    assert done.code == 1 and not (tmp_path / "out").exists()
    done = made(tmp_path / "out", "parquet", "--on-damage", "skip", log=log)
    assert done.code == 0 and 0 < len(rows(tmp_path / "out", "parquet")) < 32


def test_a_log_without_changes_makes_a_table_without_rows(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(LOG.read_bytes()[:200])
    done = made(tmp_path / "out", "parquet", "--on-damage", "skip", log=log)
    assert done.code == 0 and rows(tmp_path / "out", "parquet") == []


def test_tables_have_no_messages_about_transactions_and_statements(tmp_path: Path) -> None:
    """Debezium sends BEGIN, END and schema changes to topics of their own."""
    done = made(tmp_path / "out", "json", "--provide-transaction-metadata")
    assert done.code == 0, done.text + done.err
    lines = [m["value"] for m in written(tmp_path, LOG, "--no-tombstones", "--provide-transaction-metadata")]
    changes = [line["transaction"] for line in lines if "op" in line]
    assert [row["transaction"] for row in rows(tmp_path / "out", "json")] == changes != [None] * len(changes)
    refused = made(tmp_path / "none", "json", "--schema-messages")
    assert refused.code == 2 and "--schema-messages" in refused.text + refused.err
