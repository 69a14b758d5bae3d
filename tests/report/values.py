"""Reports, plans and blocks made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from binlogtool.core.record_and_selection_types import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import EnvelopeColumns, ResultPiece
from binlogtool.repair.plan_types import FilePlan, RepairPlan
from binlogtool.verification.verify_report import FileReport, PathFailure, Report, SetReport

SECOND = 1_000_000
NEW_YEAR_2026 = 1_767_225_600 * SECOND


def account(**classes: int) -> dict[str, int]:
    names = ("header", "record", "padding", "preallocated", "torn_tail", "damaged", "unknown")
    return {name: classes.get(name, 0) for name in names}


def file_report(path: str = "/data/binlog/0002.xlog", *findings: Finding, **changes: Any) -> FileReport:
    values: dict[str, Any] = {
        "path": path,
        "format": "tarantool",
        "variant": "XLOG 0.13",
        "size": 13_043_225,
        "records": 35_116,
        "record_types": {"INSERT": 35_000, "NOP": 116},
        "transactions": 30_000,
        "durable_end": 13_042_914,
        "closed": False,
        "bytes": account(header=8, record=13_041_002, damaged=1_904, torn_tail=311),
        "findings": findings,
        "first_seq": 181_205,
        "last_seq": 216_377,
        "seconds": 1.5,
    }
    return FileReport(**{**values, **changes})


MISMATCH = make_finding(
    "checksum-mismatch", 0xA1F3C0, 88, "the bytes are not those that were written", record=30_990,
    stored="5b1c22e0", computed="91d0447f",
)  # fmt: skip
TORN = make_finding("torn-tail", 0xC66D12, 311, "the last record is incomplete: 311 bytes")
MISSING = make_finding("missing-member", None, 0, "0001.xlog is not there", severity=Severity.ERROR)


def report(*, failures: Sequence[PathFailure] = ()) -> Report:
    """Two files and their set: one clean, one damaged."""
    clean = file_report(
        "/data/binlog/0001.xlog", size=64 * 1024 * 1024, records=181_204, bytes=account(header=8, record=67_108_856),
        first_seq=1, last_seq=181_204, closed=True, durable_end=67_108_864,
    )  # fmt: skip
    damaged = file_report("/data/binlog/0002.xlog", MISMATCH, TORN)
    both = SetReport("/data/binlog", "tarantool", ("0001.xlog", "0002.xlog"), (MISSING,))
    return Report((clean, damaged), (both,), tuple(failures))


def plan(**changes: Any) -> RepairPlan:
    file = FilePlan(
        "/data/binlog/0003.xlog", 13_043_225, "truncate", 0xC66D12, 311, 0, {"records": 35_116, "last_seq": 216_377},
        "aa" * 32, "bb" * 32, pieces=(ResultPiece(0, 0xC66D12),),
    )  # fmt: skip
    return RepairPlan(**{"format": "tarantool", "refused": False, "reasons": (), "files": (file,), **changes})


def block(bodies: Sequence[Any], **changes: Any) -> RecordBlock:
    """INSERTs of 44 bytes each, one second apart."""
    count = len(bodies)
    envelope = EnvelopeColumns(
        ["INSERT"] * count,
        list(range(100, 100 + count)),
        [NEW_YEAR_2026 + i * SECOND for i in range(count)],
        ["512"] * count,
        [1] * count,
        [f"1:{100 + i}" for i in range(count)],
    )
    values: dict[str, Any] = {
        "file": "a.xlog",
        "format": "tarantool",
        "record": range(count),
        "offset": [130 + 44 * i for i in range(count)],
        "size": [44] * count,
        "inner": [None] * count,
        "envelope": envelope,
        "checksum": [RecordChecksum("crc32c", 0x9A, 0x9A, True)] * count,
        "bodies": list(bodies),
        "extras": None,
        "findings": {},
        "raw": [bytes([i % 256]) * 3 for i in range(count)],
    }
    return RecordBlock(**{**values, **changes})


__all__ = ["InnerPosition", "account", "block", "file_report", "plan", "report"]
