"""Transaction logs made statement by statement."""

from __future__ import annotations

from typing import Any

from tests.formats.drizzle.reference import Values, encode
from tests.formats.drizzle.walk import pack

TIMES: Values = {"start_timestamp": 1, "end_timestamp": 2}
TABLE: Values = {"schema_name": b"s", "table_name": b"t"}
FIELD: Values = {"type": 4, "name": b"c"}


def message(number: int, *statements: Values, segment: int | None = 1, end: int | None = 1, **members: Any) -> bytes:
    made: Values = {
        "transaction_context": {"server_id": 1, "transaction_id": number, **TIMES},
        "statement": list(statements),
        "segment_id": segment,
        "end_segment": end,
    } | members
    return encode("Transaction", {k: v for k, v in made.items() if v not in ([], None)})


def insert(part: int = 1, end: int = 1, table: bytes = b"t", values: int = 1, nulls: int = 0) -> Values:
    header = {"table_metadata": {"schema_name": b"s", "table_name": table}, "field_metadata": [FIELD]}
    record = {"insert_value": [b"1"] * values, "is_null": [0] * nulls}
    return {
        "type": 1,
        **TIMES,
        "insert_header": header,
        "insert_data": {"segment_id": part, "end_segment": end, "record": [record]},
    }


def update(keys: int = 1, after: int = 1, nulls: int = 1) -> Values:
    header = {"table_metadata": TABLE, "key_field_metadata": [FIELD], "set_field_metadata": [FIELD]}
    record = {"key_value": [b"1"] * keys, "after_value": [b"2"] * after, "is_null": [0] * nulls}
    data = {"segment_id": 1, "end_segment": 1, "record": [record]}
    return {"type": 3, **TIMES, "update_header": header, "update_data": data}


def delete(keys: int = 1) -> Values:
    header = {"table_metadata": TABLE, "key_field_metadata": [FIELD]}
    data = {"segment_id": 1, "end_segment": 1, "record": [{"key_value": [b"1"] * keys}]}
    return {"type": 2, **TIMES, "delete_header": header, "delete_data": data}


ROLLBACK: Values = {"type": 0, **TIMES}
ROLLBACK_STATEMENT: Values = {"type": 11, **TIMES}
STARTUP: Values = {"type": 0}


def log(*messages: bytes) -> bytes:
    return b"".join(map(pack, messages))
