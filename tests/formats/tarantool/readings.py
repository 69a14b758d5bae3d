"""Records in the words of the server, and in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.core.record_and_selection_types import Record, RecordBlock
from tests.formats.tarantool import oracle


def ours(path: Path, backend: str = "auto", *, raw: bool = False) -> list[Record]:
    with binlogtool.open(path, format="tarantool", backend=backend) as log:
        return [record for block in log.blocks(raw=raw) if isinstance(block, RecordBlock) for record in block]


def as_printed(record: Record) -> dict[str, Any]:
    """A record of ours in the shape of the oracle."""
    names = oracle.NUMBERED.get(record.type, oracle.BODY_KEYS)
    body = {names.get(k, k): oracle.comparable(v) for k, v in record.body.items() if k not in ("record", "fields")}
    header = (record.extras or {})["header"]
    return {
        "type": oracle.TYPE_NUMBERS.get(record.type, record.type),
        "lsn": record.seq,
        "replica_id": record.origin,
        "tsn": header.get("tsn"),
        "timestamp": oracle.number(header["timestamp"]) if "timestamp" in header else None,
        "group_id": header.get("group_id"),
        "body": body,
    }


def as_expected(row: dict[str, Any]) -> dict[str, Any]:
    header, body = row["HEADER"], row.get("BODY", {})
    if isinstance(body, list):
        body = {str(i + 1): value for i, value in enumerate(body) if value is not None}
    return {
        "type": header["type"],
        "lsn": header.get("lsn", 0),
        "replica_id": header.get("replica_id", 0),
        "tsn": header.get("tsn"),
        "timestamp": oracle.oracle_value(header.get("timestamp")),
        "group_id": header.get("group_id"),
        "body": {key: oracle.oracle_value(value) for key, value in body.items()},
    }
