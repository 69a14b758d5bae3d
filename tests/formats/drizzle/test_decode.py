from __future__ import annotations

from typing import Any

import pytest

from binlogtool.findings import Finding
from binlogtool.formats.drizzle.decode import decode_timestamp_by_magnitude
from binlogtool.formats.drizzle.format import FORMAT
from binlogtool.limits import Limits
from tests.formats.drizzle.reference import Values, encode
from tests.formats.drizzle.walk import batch, pack

CONTEXT: Values = {"server_id": 3, "transaction_id": 77, "start_timestamp": 1_330_000_000_000_001, "end_timestamp": 9}
TIMES: Values = {"start_timestamp": 1, "end_timestamp": 2}


def transaction(*statements: Values, **members: Any) -> bytes:
    made: Values = {"transaction_context": CONTEXT, "statement": list(statements)} | members
    return encode("Transaction", {name: value for name, value in made.items() if value != []})


def insert(schema: bytes = b"shop", table: bytes = b"item", *values: bytes) -> Values:
    values = values or (b"1",)
    header = {
        "table_metadata": {"schema_name": schema, "table_name": table},
        "field_metadata": [{"type": 4, "name": b"c"}] * len(values),
    }
    data = {"segment_id": 1, "end_segment": 1, "record": [{"insert_value": list(values)}]}
    return {"type": 1, **TIMES, "insert_header": header, "insert_data": data}


def raw_sql(text: bytes = b"SELECT 1") -> Values:
    return {"type": 99, **TIMES, "sql": text}


def described(*messages: bytes) -> Any:
    made = batch(b"".join(map(pack, messages)))
    return FORMAT.output.decode_envelopes(None, made, 0, made.frames.count)


def body(message: bytes, kind: int = 1) -> Any:
    made = batch(pack(message, kind=kind))
    return FORMAT.output.decode_bodies(None, made, 0, 1, Limits())[0]


def test_the_envelope_of_an_insert() -> None:
    got = described(transaction(insert()))
    assert (got.type, got.seq, got.txn, got.origin) == (["INSERT"], [77], [77], [3])
    assert (got.time, got.object) == ([1_330_000_000_000_001], ["shop.item"])


def test_an_entry_with_statements_of_different_kinds_is_a_transaction() -> None:
    delete = {"type": 2, **TIMES, "delete_header": insert()["insert_header"]}
    delete["delete_header"] = {"table_metadata": {"schema_name": b"shop", "table_name": b"item"}}
    delete["delete_data"] = {"segment_id": 1, "end_segment": 1}
    got = described(transaction(insert(), insert()), transaction(insert(), delete), transaction())
    assert got.type == ["INSERT", "TRANSACTION", "TRANSACTION"]
    assert got.object == ["shop.item", "shop.item", None]


def test_the_object_is_given_only_if_all_statements_are_about_it() -> None:
    got = described(
        transaction(insert(), insert(table=b"other")),
        transaction(insert(), raw_sql()),
        transaction(insert(), {"type": 11, **TIMES}),
        transaction(insert(b"\xff")),
    )
    assert got.object == [None, None, "shop.item", "\\xff.item"]


@pytest.mark.parametrize(
    ("kind", "name", "members", "expected"),
    [
        (4, "TRUNCATE_TABLE", {"truncate_table_statement": {"table_metadata": "T"}}, "s.t"),
        (5, "CREATE_SCHEMA", {"create_schema_statement": {"schema": "S"}}, "s"),
        (6, "ALTER_SCHEMA", {"alter_schema_statement": {"before": "S", "after": "S"}}, "s"),
        (7, "DROP_SCHEMA", {"drop_schema_statement": {"schema_name": b"s"}}, "s"),
        (8, "CREATE_TABLE", {"create_table_statement": {"table": "D"}}, "s.t"),
        (9, "ALTER_TABLE", {"alter_table_statement": {"before": "D", "after": "D"}}, "s.t"),
        (10, "DROP_TABLE", {"drop_table_statement": {"table_metadata": "T"}}, "s.t"),
        (0, "ROLLBACK", {}, None),
        (98, "SET_VARIABLE", {"set_variable_statement": {"variable_metadata": "V", "variable_value": b"1"}}, None),
        (57, "57", {}, None),
    ],
)
def test_every_kind_of_statement_names_its_object(kind: int, name: str, members: Values, expected: str | None) -> None:
    engine = {"name": b"InnoDB"}
    stamps = {"creation_timestamp": 1, "update_timestamp": 1}
    parts: Values = {
        "T": {"schema_name": b"s", "table_name": b"t"},
        "S": {"name": b"s", "engine": engine, **stamps},
        "D": {"name": b"t", "engine": engine, "type": 0, "schema": b"s", **stamps},
        "V": {"type": 1, "name": b"v"},
    }
    filled = {key: {k: parts.get(str(v), v) for k, v in value.items()} for key, value in members.items()}
    got = described(transaction({"type": kind, **TIMES, **filled}))
    assert (got.type, got.object) == ([name], [expected])


def test_the_body_has_the_names_of_the_definition() -> None:
    assert body(
        transaction(insert(b"shop", b"item", b"1", "\u03a9".encode(), b"a\0b", b"\xff"), event={"type": 1})
    ) == {
        "transaction_context": {
            "server_id": 3,
            "transaction_id": 77,
            "start_timestamp": 1_330_000_000_000_001,
            "end_timestamp": 9,
        },
        "statement": [
            {
                "type": "INSERT",
                "start_timestamp": 1,
                "end_timestamp": 2,
                "insert_header": {
                    "table_metadata": {"schema_name": "shop", "table_name": "item"},
                    "field_metadata": [{"type": "INTEGER", "name": "c"}] * 4,
                },
                "insert_data": {
                    "segment_id": 1,
                    "end_segment": True,
                    "record": [{"insert_value": ["1", "\u03a9", b"a\0b", b"\xff"]}],
                },
            }
        ],
        "event": {"type": "SHUTDOWN"},
    }


def test_text_members_may_hold_a_nul_and_keep_invalid_bytes() -> None:
    assert body(transaction(raw_sql(b"a\0b")))["statement"][0]["sql"] == "a\0b"
    assert body(transaction(raw_sql(b"a\xffb")))["statement"][0]["sql"] == b"a\xffb"


def test_unknown_enum_numbers_stay_numbers() -> None:
    assert body(transaction({"type": 57, **TIMES}))["statement"][0]["type"] == 57


def test_unknown_fields_are_kept_where_they_stand() -> None:
    message = encode("TransactionContext", CONTEXT) + bytes.fromhex("a00607")
    whole = b"\x0a" + bytes([len(message)]) + message + bytes.fromhex("ba3e0161")
    got = body(whole)
    assert got["transaction_context"]["unknown_fields"] == [{"number": 100, "wire_type": 0, "value": 7}]
    assert got["unknown_fields"] == [{"number": 999, "wire_type": 2, "value": b"a"}]


def test_a_blob_entry_is_opaque() -> None:
    made = batch(pack(b"anything", kind=2))
    assert FORMAT.output.decode_bodies(None, made, 0, 1, Limits()) == [{"message": b"anything"}]
    got = FORMAT.output.decode_envelopes(None, made, 0, 1)
    assert (got.type, got.seq, got.time, got.object, got.origin, got.txn) == (["BLOB"], *[[None]] * 5)


@pytest.mark.parametrize("message", [b"\x0a\x7f", encode("Transaction", {"transaction_context": {"server_id": 1}})])
def test_a_message_that_does_not_decode_has_a_finding_for_a_body(message: bytes) -> None:
    made = batch(pack(transaction()) + pack(message))
    got = FORMAT.output.decode_bodies(None, made, 1, 2, Limits())[0]
    assert isinstance(got, Finding)
    offset = len(pack(transaction()))
    assert (got.id, got.offset, got.length, got.record) == ("payload-undecodable", offset, len(message) + 12, 1)
    assert FORMAT.output.decode_envelopes(None, made, 1, 2).type == ["TRANSACTION"]


def test_a_part_of_a_batch_can_be_described() -> None:
    made = batch(pack(transaction(insert())) + pack(transaction(raw_sql())) + pack(transaction()))
    assert FORMAT.output.decode_envelopes(None, made, 1, 2).type == ["RAW_SQL"]
    assert FORMAT.output.decode_envelopes(None, made, 1, 1).type == []
    assert len(FORMAT.output.decode_bodies(None, made, 1, 3, Limits())) == 2


@pytest.mark.parametrize(
    ("raw", "microseconds", "unit"),
    [
        (1_330_000_000_005_802, 1_330_000_000_005_802, "microseconds"),
        (17_952_327_092_852_311, 1_795_232_709_285_231, "seconds x 10^7 + nanoseconds"),
        (1_330_000_000_123_456_789, 1_330_000_000_123_456, "nanoseconds"),
        (0, 0, "microseconds"),
    ],
)
def test_the_unit_of_a_time_stamp_is_guessed_from_its_size(raw: int, microseconds: int, unit: str) -> None:
    assert decode_timestamp_by_magnitude(raw) == (microseconds, unit)


def test_the_guessed_unit_is_told() -> None:
    assert FORMAT.output.decode_extras is not None
    made = batch(pack(transaction()) + pack(b"x", kind=2))
    assert FORMAT.output.decode_extras(None, made, 0, 2) == [{"timestamp_unit": "microseconds"}, None]
