"""Which events are one transaction: the step, against the rules of both servers, and all who follow it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.replay.simulated_applier import classify_statement
from binlogtool.formats.binlog_events.transactions import boundaries
from binlogtool.formats.binlog_events.transactions.boundaries import (
    MAX_WORD_SIZE,
    STATEMENT_WORDS,
    GroupStep,
    QueryKind,
    TransactionGroupState,
    get_statement_text_kind,
)
from binlogtool.formats.binlog_events.wire_format import EventType as T
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.validated_events import diagnoses, judged

SINGLE, TRANSACTION = make.mariadb_gtid(1, flags=1), make.mariadb_gtid(1, flags=0)
ROWS, LAST_ROWS = bytes(6) + b"\0\0", bytes(6) + b"\1\0"
INCIDENT = b"\1\0\4lost"
HEAD, OUTER = make.mysql_gtid(1), b""
OUTSIDE, OPENS, INSIDE, ENDS, ALONE = GroupStep

TOLD = (
    # MySQL: a transaction, a statement alone, an INCIDENT with a GTID of its own, an XA transaction in two parts.
    (((T.GTID_LOG, HEAD), (T.QUERY, b"BEGIN"), (T.TABLE_MAP, b""), (T.WRITE_ROWS_V2, LAST_ROWS), (T.XID, b"")),
     (OPENS, INSIDE, INSIDE, INSIDE, ENDS)),
    (((T.ANONYMOUS_GTID, HEAD), (T.QUERY, b"CREATE TABLE t (a int)"), (T.STOP, OUTER)), (OPENS, ENDS, OUTSIDE)),
    (((T.GTID_LOG, HEAD), (T.INCIDENT, INCIDENT), (T.GTID_LOG, HEAD)), (OPENS, ENDS, OPENS)),
    (((T.GTID_LOG, HEAD), (T.EXECUTE_LOAD_QUERY, b"")), (OPENS, ENDS)),
    (((T.GTID_TAGGED_LOG, HEAD), (T.TRANSACTION_PAYLOAD, b"")), (OPENS, ENDS)),
    (((T.GTID_LOG, HEAD), (T.QUERY, b"XA START X'61'"), (T.QUERY, b"XA END X'61'"), (T.XA_PREPARE, b"")),
     (OPENS, INSIDE, INSIDE, ENDS)),
    (((T.GTID_LOG, HEAD), (T.QUERY, b"XA COMMIT X'61'")), (OPENS, ENDS)),
    # MariaDB: GTID begins the transaction; one statement with what stands in front of it; rows as one statement.
    (((T.GTID, TRANSACTION), (T.QUERY, b"INSERT"), (T.QUERY, b"ROLLBACK TO a"), (T.QUERY, b"ROLLBACK")),
     (OPENS, INSIDE, INSIDE, ENDS)),
    (((T.GTID, SINGLE), (T.INTVAR, b""), (T.USER_VAR, b""), (T.QUERY, b"INSERT")), (OPENS, INSIDE, INSIDE, ENDS)),
    (((T.GTID, SINGLE), (T.TABLE_MAP, b""), (T.WRITE_ROWS_V1, ROWS), (T.WRITE_ROWS_V1, LAST_ROWS)),
     (OPENS, INSIDE, INSIDE, ENDS)),
    # Without GTIDs.
    (((T.QUERY, b"begin"), (T.INTVAR, b""), (T.QUERY, b"INSERT"), (T.QUERY, b"COMMIT")), (OPENS, INSIDE, INSIDE, ENDS)),
    (((T.RAND, b""), (T.QUERY, b"INSERT"), (T.QUERY, b"BEGINNING")), (OUTSIDE, ALONE, ALONE)),
    # What stands between groups.
    (tuple((code, b"") for code in (
        T.START_V3, T.SLAVE, T.ROTATE, T.STOP, T.HEARTBEAT, T.GTID_LIST, T.PREVIOUS_GTIDS, T.BINLOG_CHECKPOINT,
        T.START_ENCRYPTION, T.FORMAT_DESCRIPTION, T.INCIDENT)), (OUTSIDE,) * 11),
)  # fmt: skip


def body_of(code: int, given: bytes) -> bytes:
    return make.query(given) if code == T.QUERY else given


@pytest.mark.parametrize(("events", "told"), TOLD)
def test_events_open_and_end_groups_as_servers_say(
    events: Sequence[tuple[T, bytes]], told: Sequence[GroupStep]
) -> None:
    groups = TransactionGroupState()
    assert tuple(groups.advance_to_event(code, body_of(code, body)) for code, body in events) == told
    assert groups.fault is None


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([(T.GTID_LOG, HEAD), (T.GTID_LOG, HEAD)], "a group starts inside another one"),
        ([(T.GTID, TRANSACTION), (T.QUERY, b"BEGIN")], "a transaction begins inside another one"),
        ([(T.GTID, TRANSACTION), (T.ROTATE, OUTER)], "ROTATE inside a group"),
        ([(T.GTID, TRANSACTION), (T.INCIDENT, INCIDENT)], "INCIDENT inside a group"),
        ([(T.GTID_LOG, HEAD), (T.XID, b"")], "XID outside a transaction"),
        ([(T.XA_PREPARE, b"")], "XA_PREPARE outside a transaction"),
        ([(T.QUERY, b"COMMIT")], "COMMIT outside a transaction"),
        ([(T.GTID_LOG, HEAD), (T.QUERY, b"SAVEPOINT a")], "SAVEPOINT outside a transaction"),
    ],
)
def test_what_breaks_the_nesting_is_told(events: Sequence[tuple[T, bytes]], fault: str) -> None:
    groups = TransactionGroupState()
    for code, body in events:
        assert groups.fault is None
        groups.advance_to_event(code, body_of(code, body))
    assert groups.fault == fault


@pytest.mark.parametrize("backend", ["python", "native"])
def test_an_incident_with_a_gtid_of_its_own_is_a_whole_group(backend: str) -> None:
    """MySQL's Transaction_boundary_parser: an incident always marks the end of a transaction."""
    tail = struct_tail(len(INCIDENT))
    events = [(T.GTID_LOG, make.mysql_gtid(1, more=tail)), (T.INCIDENT, INCIDENT)]
    events += [(T.GTID_LOG, make.mysql_gtid(2, more=struct_tail(len(make.query(b"CREATE TABLE t (a int)")))))]
    events += [(T.QUERY, make.query(b"CREATE TABLE t (a int)"))]
    report = judged(chained(events), backend)
    assert diagnoses(report, Severity.ERROR) == []
    assert "incident" in diagnoses(report, Severity.WARNING)
    assert report.transactions == 2


@pytest.mark.parametrize("backend", ["python", "native"])
def test_an_incident_belongs_to_the_gtid_in_front_of_it(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(chained([(T.GTID_LOG, make.mysql_gtid(1, more=struct_tail(7))), (T.INCIDENT, INCIDENT)]))
    with binlogtool.open(path, backend=backend) as log:
        found = {record.type: record.txn for record in log.records()}
    assert found["INCIDENT"] == found["GTID_LOG"] == "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"


def struct_tail(size: int) -> bytes:
    """The end of a GTID_LOG that says how long a group is whose other event has a body of this size."""
    own = len(make.mysql_gtid(1)) + 7 + 1 + 4
    return bytes(7) + bytes([own + size + 2 * 23]) + (80402).to_bytes(4, "little")


def chained(events: Sequence[tuple[int, bytes]]) -> bytes:
    """A whole log of MySQL; each event knows where it ends."""
    data = make.log([], make.MYSQL)
    for code, body in [*events, (T.STOP, b"")]:
        data += make.event(code, body, position=len(data) + 19 + len(body) + 4)
    return data


def test_only_letters_of_ascii_make_a_word() -> None:
    assert get_statement_text_kind("BEG\u0131N".encode()) is QueryKind.STATEMENT
    assert get_statement_text_kind(b"BEGIN WORK") is QueryKind.BEGIN
    assert get_statement_text_kind(b"COMMITTED") is QueryKind.STATEMENT


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("begin", QueryKind.BEGIN),
        ("START TRANSACTION READ ONLY", QueryKind.BEGIN),
        ("Commit", QueryKind.COMMIT),
        ("COMMITTED", QueryKind.STATEMENT),
        ("ROLLBACK", QueryKind.ROLLBACK),
        ("ROLLBACK TO `a`", QueryKind.SAVEPOINT),
        ("RELEASE SAVEPOINT a", QueryKind.SAVEPOINT),
        ("XA START X'61',X'',1", QueryKind.XA_START),
        ("XA END X'61',X'',1", QueryKind.XA_END),
        ("XA ROLLBACK X'61',X'',1", QueryKind.XA_FINISH),
        ("XA RECOVER", QueryKind.STATEMENT),
        ("/*!40000 BEGIN */", QueryKind.STATEMENT),
        (" BEGIN", QueryKind.STATEMENT),
        ("BEG\u0131N", QueryKind.STATEMENT),
        ("RELEA\u017fE SAVEPOINT a", QueryKind.STATEMENT),
        ("\udc80", QueryKind.STATEMENT),
        ("", QueryKind.STATEMENT),
    ],
)
def test_replay_takes_a_statement_for_what_grouping_takes_it_for(sql: str, kind: QueryKind) -> None:
    assert classify_statement(sql) is kind
    assert get_statement_text_kind(sql.encode("utf-8", "replace")) is kind


def test_no_word_is_longer_than_what_is_looked_at() -> None:
    for word, kind in STATEMENT_WORDS:
        assert len(word) < MAX_WORD_SIZE
        assert get_statement_text_kind(word.lower()) is kind
        assert get_statement_text_kind(word + b"x") is not kind


def test_the_tabulated_step_is_the_step() -> None:
    for mark in range(boundaries.MARK_COUNT):
        for group in range(4):
            assert boundaries.STEP_TABLE[4 * mark + group] == boundaries.compute_packed_group_step(group, mark)
