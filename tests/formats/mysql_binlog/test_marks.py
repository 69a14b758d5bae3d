"""The commit marks that stop MySQL's recovery, and those that do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from binlogtool.formats.mysql_binlog.replay.crash_recovery import MAX_REMEMBERED, CommitMark, CommitMarks

X, Y = ({"format_id": 1, "gtrid": name, "bqual": ""} for name in "xy")


def wrong(marks: Iterable[tuple[str, Any]]) -> tuple[int, str] | None:
    """What stops recovery; each mark is 10 bytes behind the one before it."""
    seen = CommitMarks()
    for offset, (kind, body) in enumerate(marks):
        seen.add_mark(CommitMark(10 * offset, kind, body))
    return seen.first_fault


def query(sql: str, **status: int) -> tuple[str, Any]:
    return "QUERY", {"sql": sql, "status_vars": status}


@pytest.mark.parametrize(
    ("marks", "at", "why"),
    [
        ([("XID", {"xid": 7}), ("XID", {"xid": 8}), ("XID", {"xid": 7})], 20, "XID 7"),
        ([("XID", {"xid": 62}), query("CREATE TABLE t (i INT)", ddl_logged_with_xid=62)], 10, "XID 62"),
        ([("XA_PREPARE", X), ("XA_PREPARE", Y), ("XA_PREPARE", X)], 20, "X'78',X'',1 is prepared twice"),
        ([("XA_PREPARE", X), query("XA COMMIT X'78',X\"\",1")], 10, "not an XA identifier"),
        ([query("xa rollback whatever")], 0, "not an XA identifier"),
        ([("XA_PREPARE", X), query("XA COMMIT X'78',X'',1"), query("XA ROLLBACK X'78',X'',1")], 20, "finished twice"),
    ],
)
def test_marks_that_contradict_each_other_stop_recovery(marks: list[tuple[str, Any]], at: int, why: str) -> None:
    found = wrong(marks)
    assert found is not None and found[0] == at and why in found[1]


@pytest.mark.parametrize(
    "marks",
    [
        [("XID", {"xid": 7}), ("XID", {"xid": 6}), ("XID", {"xid": 9})],
        [query("BEGIN"), query("INSERT INTO t VALUES ('XA COMMIT x')"), query("BEGIN")],
        [("XA_PREPARE", X), query("XA COMMIT X'78',X'',1"), ("XA_PREPARE", X), query("XA ROLLBACK X'78',X'',1")],
        [query("XA COMMIT X'79',X'',1")],  # prepared in a file before this one
        [("XID", {"xid": number}) for number in range(1, MAX_REMEMBERED + 10)],
    ],
)
def test_other_marks_do_not(marks: list[tuple[str, Any]]) -> None:
    assert wrong(marks) is None
