from __future__ import annotations

import json
from datetime import UTC, datetime

from msgspec.structs import replace

from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.export import records_to_arrow
from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import EnvelopeColumns


def test_each_column_holds_what_the_block_says(block: RecordBlock) -> None:
    (batch,) = records_to_arrow.DEFAULT_LAYOUT.build_batches(block)
    assert batch.schema == records_to_arrow.SCHEMA
    first, second, third = batch.to_pylist()
    assert first == {
        "file": "/data/a.xlog", "format": "tarantool", "record": 5, "offset": 30, "size": 30,
        "inner_offset": None, "inner_size": None, "type": "INSERT", "seq": 1,
        "time": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC), "object": "512", "origin": 1, "txn": "1:1",
        "checksum_algorithm": "crc32c", "checksum_stored": "0000009a", "checksum_computed": "0000009a",
        "checksum_ok": True, "body": '{"tuple":[1,"ä"]}', "extras": None, "findings": None,
    }  # fmt: skip
    assert (second["inner_offset"], second["inner_size"], second["txn"]) == (100, 12, "42")
    assert (second["checksum_computed"], second["checksum_ok"]) == ("ffffffff", None)
    assert second["body"] == '{"tuple":[{"$bytes":"ff00"}]}'
    assert second["extras"] == '{"header":{"flags":1}}'
    assert (third["body"], third["checksum_stored"], third["checksum_ok"]) == (None, None, None)
    assert json.loads(third["findings"]) == [
        {
            "id": "payload-undecodable", "severity": "error", "offset": 90, "length": 10, "record": 7,
            "message": "no msgpack", "facts": {},
        }
    ]  # fmt: skip


def test_batches_keep_the_order_and_lose_no_record(block: RecordBlock) -> None:
    pieces = list(records_to_arrow.DEFAULT_LAYOUT.build_batches(block, max_rows=2))
    assert [piece.num_rows for piece in pieces] == [2, 1]
    assert [n for piece in pieces for n in piece["record"].to_pylist()] == [5, 6, 7]
    assert [piece["findings"].null_count for piece in pieces] == [2, 0]


def test_a_block_without_bodies_gives_null_bodies(block: RecordBlock) -> None:
    (batch,) = records_to_arrow.DEFAULT_LAYOUT.build_batches(replace(block, bodies=[], extras=None))
    assert batch["body"].null_count == batch["extras"].null_count == 3


def test_a_number_beyond_64_signed_bits_is_a_finding_and_not_another_number(block: RecordBlock) -> None:
    envelope = EnvelopeColumns(["A"] * 3, [1 << 63, -(1 << 63), None], [None] * 3, [None] * 3, [None] * 3, [None] * 3)
    (batch,) = records_to_arrow.DEFAULT_LAYOUT.build_batches(replace(block, envelope=envelope))
    assert batch["seq"].to_pylist() == [None, -(1 << 63), None]
    (found,) = json.loads(batch["findings"][0].as_py())
    assert (found["id"], found["offset"], found["record"]) == ("count-out-of-bounds", 30, 5)
    assert found["facts"] == {"column": "seq", "value": 9223372036854775808}


def test_damage_is_a_row_without_a_record_number() -> None:
    found = Finding("damaged-range", Severity.ERROR, 100, 55, "55 bytes skipped", record=3)
    (row,) = records_to_arrow.DEFAULT_LAYOUT.build_damage_batch("a.log", "drizzle", found).to_pylist()
    assert {name for name, value in row.items() if value is not None} == {
        "file", "format", "offset", "size", "type", "findings",
    }  # fmt: skip
    assert (row["type"], row["offset"], row["size"]) == ("DAMAGE", 100, 55)
    assert json.loads(row["findings"])[0]["id"] == "damaged-range"


def test_a_file_name_that_is_not_utf8_becomes_visible_text(block: RecordBlock) -> None:
    name = b"/data/\xff.xlog".decode(errors="surrogateescape")
    (batch,) = records_to_arrow.DEFAULT_LAYOUT.build_batches(replace(block, file=name))
    assert batch["file"][0].as_py() == "/data/\\xff.xlog"


def test_the_ddl_and_the_arrow_schema_name_the_same_columns() -> None:
    assert [part.split("`")[1] for part in records_to_arrow.DDL.split(", ")] == records_to_arrow.SCHEMA.names
