"""`convert --envelope`: messages about changes, held against those of the real connectors (the corpus tells how)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from binlogtool.formats.mysql_binlog.codes import EventType
from tests.cli.invoke import Result, invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

CHANGES = Path(__file__).resolve().parents[1] / "corpus/mysql_binlog/changes"
SERVERS = ("mysql-9", "mariadb")


def written(tmp_path: Path, log: Path, *more: str, code: int = 0) -> list[dict[str, Any]]:
    output = tmp_path / "out.jsonl"
    done = convert(output, log, *more)
    assert done.code == code, done.text
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def convert(output: Path, log: Path, *more: str, envelope: str = "debezium") -> Result:
    return invoke("convert", "--to", "jsonl", "--envelope", envelope, *more, "-o", str(output), str(log))


def connector(server: str) -> list[dict[str, Any]]:
    """The messages of Debezium."""
    lines = gzip.decompress((CHANGES / server / "debezium.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def _comparable(message: dict[str, Any], name: str) -> str:
    """Without what no log has or the page tells to differ; JSON documents by what they mean."""
    value = message["value"]
    if value is not None:
        source = value["source"]
        del source["version"], source["connector"]
        if value["op"] == "t":
            source["ts_us"], source["ts_ns"] = source["ts_ms"] * 1000, source["ts_ms"] * 1_000_000
        for image in (value["before"], value["after"]):
            if image and image.get("j") is not None:
                image["j"] = json.loads(image["j"])
            if image and image.get("bo") is not None and name == "connector":
                image["bo"] = int(image["bo"])
    return json.dumps({"headers": {}} | message, sort_keys=True)


@pytest.mark.parametrize("server", SERVERS)
def test_every_message_is_the_one_of_debezium(server: str, tmp_path: Path) -> None:
    own = written(tmp_path, CHANGES / server / "bin.000001", "--source-name", "shop1")
    real = connector(server)
    assert len(own) == len(real) == 38
    for one, other in zip(own, real, strict=True):
        assert _comparable(one, "own") == _comparable(other, "connector")


def test_members_stand_in_the_order_that_the_connector_has(tmp_path: Path) -> None:
    first = written(tmp_path, CHANGES / "mysql-9/bin.000001", "--source-name", "x")[0]
    real = connector("mysql-9")[0]
    assert list(first["value"]) == list(real["value"])
    assert list(first["value"]["source"]) == list(real["value"]["source"])
    assert list(first["value"]["after"]) == list(real["value"]["after"])


def test_options_change_how_values_are_written(tmp_path: Path) -> None:
    options = ("--decimals", "string", "--times", "connect", "--unsigned-bigint", "precise", "--no-tombstones")
    made = written(tmp_path, CHANGES / "mariadb/bin.000001", *options)
    row = made[0]["value"]["after"]
    assert (row["price"], row["t"], row["at"]) == ("3.50", -45296789, 1709208000123)
    assert row["n"] == "AP//////////"  # 2**64 - 1 with a byte for the sign
    assert all(one["value"] for one in made)
    assert "name" not in made[0]["value"]["source"]
    made = written(tmp_path, CHANGES / "mariadb/bin.000001", "--decimals", "double", "--overwrite")
    assert made[0]["value"]["after"]["price"] == 3.5


def test_tables_can_be_chosen(tmp_path: Path) -> None:
    made = written(tmp_path, CHANGES / "mariadb/bin.000001", "--object", "shop.p*")
    real = [m for m in connector("mariadb") if m["key"] and set(m["key"]) == {"a", "b"}]
    assert [m["key"] for m in made] == [m["key"] for m in real]


def test_columns_without_names_are_refused_and_a_schema_names_them(tmp_path: Path) -> None:
    table = make.event(EventType.TABLE_MAP, table_map_body(bytes([3, 3])))
    images = image([(1).to_bytes(4, "little"), (2).to_bytes(4, "little")])
    rows = make.event(EventType.WRITE_ROWS_V1, rows_body(2, images))
    log = tmp_path / "bin.000001"
    log.write_bytes(
        make.log([make.event(EventType.GTID, make.mariadb_gtid(7)), table, rows, make.event(EventType.XID, bytes(8))])
    )
    done = convert(tmp_path / "out.jsonl", log)
    assert done.code == 1 and "the names of its columns are not known" in done.text
    assert not (tmp_path / "out.jsonl").exists()
    done = convert(tmp_path / "out.jsonl", log, "--on-damage", "skip")
    assert done.code == 0 and "the names of its columns are not known" in done.text
    assert not (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "s.sql").write_text("CREATE TABLE db.t (a INT, id INT PRIMARY KEY);")
    (one,) = written(tmp_path, log, "--schema", str(tmp_path / "s.sql"), "--overwrite")
    assert one["key"] == {"id": 2} and one["value"]["after"] == {"a": 1, "id": 2}


def test_behind_a_lost_beginning_nothing_is_said_of_the_transaction(tmp_path: Path) -> None:
    data = bytearray((CHANGES / "mariadb/bin.000001").read_bytes())
    at = data.index(b"UPDATE orders SET price") - 30  # the GTID of that transaction ends before
    data[at - 10] ^= 0xFF
    log = tmp_path / "bin.000001"
    log.write_bytes(data)
    made = written(tmp_path, log, "--on-damage", "skip")
    whole = written(tmp_path, CHANGES / "mariadb/bin.000001", "--overwrite")
    assert len(made) == len(whole)
    changed = [one["value"] for one, other in zip(made, whole, strict=True) if one != other]
    assert len(changed) == 4 and all(one["op"] in "ud" for one in changed)
    assert all(one["transaction"] is None and one["source"]["gtid"] is None for one in changed)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--limit", "3"), "--limit chooses single records"),
        (("--type", "XID"), "--type chooses single records"),
        (("--on-damage", "salvage"), "salvage"),
    ],
)
def test_what_chooses_single_records_is_refused(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = convert(tmp_path / "out", CHANGES / "mariadb/bin.000001", *words)
    assert done.code == 2 and text in done.err and not (tmp_path / "out").exists()


def test_options_of_messages_without_messages_are_refused(tmp_path: Path) -> None:
    log = str(CHANGES / "mariadb/bin.000001")
    for words in (("--to", "raw", "--envelope", "debezium"), ("--to", "jsonl", "--decimals", "string")):
        done = invoke("convert", *words, "-o", str(tmp_path / "out"), log)
        assert done.code == 2 and "envelope" in done.err
    tarantool = next((CHANGES.parents[1] / "tarantool").rglob("*.xlog"))
    done = convert(tmp_path / "out", tarantool)
    assert done.code == 2 and "tell no changes of tables" in done.err
