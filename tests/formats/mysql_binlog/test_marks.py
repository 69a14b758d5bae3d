"""The commit marks that stop MySQL's recovery, and those that do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from binlogtool.formats.mysql_binlog.replay.crash_recovery_commit_marks import (
    MAX_REMEMBERED,
    LogSanitizer,
    TransactionEndEvent,
)

X, Y = ({"format_id": 1, "gtrid": name, "bqual": ""} for name in "xy")


def wrong(marks: Iterable[tuple[str, Any]]) -> tuple[int, str] | None:
    """What stops recovery; each mark is 10 bytes behind the one before it."""
    seen = LogSanitizer()
    for offset, (kind, body) in enumerate(marks):
        seen.add_mark(TransactionEndEvent(10 * offset, kind, body))
    return seen.first_fault


def query(sql: str, **status: int) -> tuple[str, Any]:
    return "QUERY", {"sql": sql, "status_vars": status}


BEGIN = query("BEGIN")
SEVEN, EIGHT = ("XID", {"xid": 7}), ("XID", {"xid": 8})
PREPARE_X, PREPARE_Y = (
    [query(f"XA START X'{code}',X'',1"), query(f"XA END X'{code}',X'',1"), ("XA_PREPARE", one)]
    for code, one in (("78", X), ("79", Y))
)
COMMIT_X, ROLLBACK_X = query("XA COMMIT X'78',X'',1"), query("XA ROLLBACK X'78',X'',1")


@pytest.mark.parametrize(
    ("marks", "at", "why"),
    [
        ([BEGIN, SEVEN, BEGIN, EIGHT, BEGIN, SEVEN], 50, "XID 7"),
        ([BEGIN, ("XID", {"xid": 62}), query("CREATE TABLE t (i INT)", ddl_logged_with_xid=62)], 20, "XID 62"),
        ([*PREPARE_X, *PREPARE_Y, *PREPARE_X], 80, "X'78',X'',1 is prepared twice"),
        ([*PREPARE_X, query("XA COMMIT X'78',X\"\",1")], 30, "not an XA identifier"),
        ([query("XA ROLLBACK whatever")], 0, "not an XA identifier"),
        ([*PREPARE_X, COMMIT_X, ROLLBACK_X], 40, "finished twice"),
        ([BEGIN, SEVEN, EIGHT], 20, "XID outside a transaction"),
        ([query("begin"), SEVEN], 10, "XID outside a transaction"),
        ([("XA_PREPARE", X)], 0, "XA_PREPARE outside a transaction"),
        ([BEGIN, BEGIN], 10, "BEGIN or XA START inside a transaction"),
        ([BEGIN, query("XA START X'78',X'',1")], 10, "BEGIN or XA START inside a transaction"),
        ([query("COMMIT")], 0, "COMMIT outside a transaction"),
        ([query("ROLLBACK")], 0, "ROLLBACK outside a transaction"),
        ([BEGIN, query("DROP TABLE t", ddl_logged_with_xid=3)], 10, "DDL inside a transaction"),
        ([*PREPARE_X, BEGIN, COMMIT_X], 40, "XA COMMIT inside a transaction"),
    ],
)
def test_marks_that_contradict_each_other_stop_recovery(marks: list[tuple[str, Any]], at: int, why: str) -> None:
    """MySQL 9.7: Found invalid event sequence while recovering from binary log file (`Log_sanitizer`)."""
    found = wrong(marks)
    assert found is not None and found[0] == at and why in found[1]


@pytest.mark.parametrize(
    "marks",
    [
        [BEGIN, SEVEN, BEGIN, ("XID", {"xid": 6}), BEGIN, ("XID", {"xid": 9})],
        [BEGIN, query("INSERT INTO t VALUES ('XA COMMIT x')"), query("COMMIT"), BEGIN],
        [*PREPARE_X, COMMIT_X, *PREPARE_X, ROLLBACK_X],
        [query("XA COMMIT X'79',X'',1")],  # prepared in a file before this one
        [one for number in range(1, MAX_REMEMBERED + 10) for one in (BEGIN, ("XID", {"xid": number}))],
        [query("commit"), query("rollback"), query("xa rollback whatever")],  # the server compares the exact text
        [query("DROP TABLE t", ddl_logged_with_xid=(1 << 64) - 1)] * 2,
    ],
)
def test_other_marks_do_not(marks: list[tuple[str, Any]]) -> None:
    assert wrong(marks) is None
