"""`convert --envelope`: change messages, held against those of the real connectors (the corpus tells how)."""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.formats.binlog_events.wire_format import EventType
from tests.cli.invoke import invoke
from tests.export.ibb_writer import IbbWriter
from tests.export.messages import CHANGES, convert, written
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

SERVERS = ("mysql-9", "mariadb")


def connector(server: str) -> list[dict[str, Any]]:
    """The messages of Debezium."""
    lines = gzip.decompress((CHANGES / server / "debezium.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def changes_only(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those about the begin and the end of transactions."""
    return [one for one in messages if "status" not in (one["value"] or {})]


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
    switches = ("--provide-transaction-metadata", "--include-query")
    own = changes_only(written(tmp_path, CHANGES / server / "bin.000001", "--source-name", "shop1", *switches))
    real = connector(server)
    assert len(own) == len(real) == 38
    for one, other in zip(own, real, strict=True):
        assert _comparable(one, "own") == _comparable(other, "connector")


def as_ibb(log: Path, folder: Path) -> None:
    """The transactions of a MariaDB log as files of InnoDB: without checksums and places."""
    data, at, groups = log.read_bytes(), 4, list[tuple[int, list[bytes]]]()
    while at < len(data):
        code, size = data[at + 4], int.from_bytes(data[at + 9 : at + 13], "little")
        event = data[at : at + 9] + (size - 4).to_bytes(4, "little") + bytes(4) + data[at + 17 : at + size - 4]
        if code == EventType.GTID:
            groups.append((int.from_bytes(event[19:27], "little"), []))
        if groups and code not in (EventType.ROTATE, EventType.STOP):
            groups[-1][1].append(event)
        at += size
    writer = IbbWriter(folder)
    for number, events in groups:
        writer.group((0, 1, number), events)
    writer.close()


@pytest.mark.parametrize("envelope", ["debezium", "maxwell", "canal"])
def test_an_ibb_log_tells_the_same_changes(envelope: str, tmp_path: Path) -> None:
    as_ibb(CHANGES / "mariadb/bin.000001", tmp_path / "ibb")
    made = written(tmp_path, tmp_path / "ibb", envelope=envelope)
    usual = written(tmp_path, CHANGES / "mariadb/bin.000001", "--overwrite", envelope=envelope)
    for one in (*made, *usual):
        one.pop("position", None)
        if one.get("value"):
            del one["value"]["source"]["file"], one["value"]["source"]["pos"]
    assert made == usual


def test_members_stand_in_the_order_that_the_connector_has(tmp_path: Path) -> None:
    first = written(tmp_path, CHANGES / "mysql-9/bin.000001", "--source-name", "x")[0]
    real = connector("mysql-9")[0]
    assert list(first["value"]) == list(real["value"])
    assert list(first["value"]["source"]) == list(real["value"]["source"])
    assert list(first["value"]["after"]) == list(real["value"]["after"])


def inserted_and_updated(folder: Path, ddl: str, types: bytes, metadata: bytes, rows: list[bytes]) -> tuple[str, ...]:
    """A log of two transactions, an insert of the first row, an update of it to the second one; how to convert it."""
    at = 1449786310
    body = table_map_body(types, metadata, database=b"test")
    events = []
    for number, (kind, images, columns) in enumerate(
        [(EventType.WRITE_ROWS_V1, rows[0], 1), (EventType.UPDATE_ROWS_V1, rows[0] + rows[1], 2)]
    ):
        changes = rows_body(len(types), images, [[True] * len(types)] * columns)
        events.append(make.event(EventType.GTID, make.mariadb_gtid(number + 1), time=at))
        events += [make.event(EventType.TABLE_MAP, body, time=at), make.event(kind, changes, time=at)]
        events.append(make.event(EventType.XID, (940752 + number).to_bytes(8, "little"), time=at))
    (folder / "bin.000001").write_bytes(make.log(events))
    (folder / "s.sql").write_text(ddl)
    return ("--schema", str(folder / "s.sql"))


def test_the_example_of_maxwells_page(tmp_path: Path) -> None:
    texts = [b"Stanislaw Lem", b"firebus!  firebus!"]
    rows = [image([(1).to_bytes(4, "little"), bytes([len(one)]) + one]) for one in texts]
    ddl = "CREATE TABLE test.t (id INT, daemon VARCHAR(60))"
    options = inserted_and_updated(tmp_path, ddl, bytes([3, 15]), b"\xf0\0", rows)
    first, second = written(tmp_path, tmp_path / "bin.000001", *options, envelope="maxwell")
    added = ("position", "gtid", "server_id", "primary_key", "primary_key_columns")
    common = {"database": "test", "table": "t", "ts": 1449786310, "commit": True}
    assert {name: v for name, v in first.items() if name not in added} == {
        **common, "type": "insert", "xid": 940752, "data": {"id": 1, "daemon": "Stanislaw Lem"},
    }  # fmt: skip
    assert {name: v for name, v in second.items() if name not in added} == {
        **common, "type": "update", "xid": 940753, "data": {"id": 1, "daemon": "firebus!  firebus!"},
        "old": {"daemon": "Stanislaw Lem"},
    }  # fmt: skip


def test_the_example_of_canals_update(tmp_path: Path) -> None:
    def row(weight: float) -> bytes:
        return image([(111).to_bytes(4, "little"), b"\7scooter", struct.pack("<f", weight)])

    ddl = "CREATE TABLE test.t (id INT PRIMARY KEY, name VARCHAR(60), weight FLOAT)"
    options = inserted_and_updated(tmp_path, ddl, bytes([3, 15, 4]), b"\xf0\0\4", [row(5.15), row(5.18)])
    _, second = written(tmp_path, tmp_path / "bin.000001", *options, envelope="canal")
    assert second == {
        "data": [{"id": "111", "name": "scooter", "weight": "5.18"}],
        "database": "test",
        "es": 1449786310000,
        "gtid": "",
        "isDdl": False,
        "mysqlType": {"id": "int", "name": "varchar", "weight": "float"},
        "old": [{"weight": "5.15"}],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "name": 12, "weight": 7},
        "table": "t",
        "type": "UPDATE",
    }


@pytest.mark.parametrize("server", SERVERS)
def test_all_envelopes_have_the_rows_that_debezium_has(server: str, tmp_path: Path) -> None:
    """Of a key that changes Debezium makes two messages, the others an update."""
    real = [m["value"] for m in connector(server) if m["value"] and m["value"]["op"] in "cud"]
    moved = sum("__debezium.oldkey" in m["headers"] for m in connector(server))
    log = CHANGES / server / "bin.000001"
    maxwell = written(tmp_path, log, envelope="maxwell")
    rows = [one for one in maxwell if "data" in one]
    assert len(rows) == len(real) - moved
    by_transaction = Counter(value["source"]["gtid"] for value in real)
    assert Counter(one["gtid"] for one in rows if one.get("commit")) == Counter(list(by_transaction))
    assert all("xid" in one for one in rows)
    assert {one["type"] for one in maxwell} >= {"database-create", "table-create", "table-alter", "table-drop"}
    canal = written(tmp_path, log, "--overwrite", envelope="canal")
    assert sum(len(one["data"] or ()) for one in canal if not one["isDdl"]) == len(rows)
    assert [one["type"] for one in canal if one["isDdl"]] == (
        ["QUERY", *["CREATE"] * 3, "ALTER", "CREATE", "TRUNCATE", "ERASE", "CREATE"]
    )


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
    assert done.code == 1 and "its column names are unknown; give its CREATE TABLE with --schema FILE.sql" in done.text
    assert not (tmp_path / "out.jsonl").exists()
    done = convert(tmp_path / "out.jsonl", log, "--on-damage", "skip")
    assert done.code == 0 and "its column names are unknown; give its CREATE TABLE with --schema FILE.sql" in done.text
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
    switch = "--provide-transaction-metadata"
    made = changes_only(written(tmp_path, log, "--on-damage", "skip", switch))
    whole = changes_only(written(tmp_path, CHANGES / "mariadb/bin.000001", "--overwrite", switch))
    assert len(made) == len(whole)
    changed = [one["value"] for one, other in zip(made, whole, strict=True) if one != other]
    assert len(changed) == 4 and all(one["op"] in "ud" for one in changed)
    assert all(one["transaction"] is None and one["source"]["gtid"] is None for one in changed)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--limit", "3"), "--limit selects single records"),
        (("--type", "XID"), "--type selects single records"),
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
    assert done.code == 2 and "have no row changes" in done.err


def test_copies_of_a_log_are_named(tmp_path: Path) -> None:
    """The transactions of a copy repeat those of the first file, which is damage; the message says why."""
    source = CHANGES / "mysql-9/bin.000001"
    copies = [tmp_path / f"bin.{number:06}" for number in (1, 2, 3)]
    for path in copies:
        path.write_bytes(source.read_bytes())
    done = invoke("convert", "--to", "jsonl", "--envelope", "debezium", "-o", str(tmp_path / "out"), *map(str, copies))
    assert done.code == 1 and not (tmp_path / "out").exists()
    assert (
        f"note   {copies[1]} is a copy of {copies[0]}: its records are read twice; name only one of them" in done.text
    )
