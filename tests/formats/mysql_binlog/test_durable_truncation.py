"""A log cut at any byte: never an exception, nothing lost in front of the cut, a durable end that never falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.findings import Severity
from binlogtool.formats.binlog_events.transactions.boundaries import GroupStep, TransactionGroupState
from tests.formats.mysql_binlog.validated_events import errors, events_of, judged, starts_of

SMALL = (
    "mysql-9.7/checksum-switch/binlog.000002",
    "mysql-9.7/gtid-tagged/binlog.000002",
    "mariadb-11.8/checksum-switch/mariadb-bin.000002",
    "mariadb-11.8/checksum-switch/mariadb-bin.000003",
    "mysql-9.7/relay/relay.000010",
)


@pytest.mark.parametrize("name", SMALL)
def test_a_log_that_is_cut_at_any_byte_keeps_all_events_in_front_of_the_cut(corpus: Path, name: str) -> None:
    data = (corpus / "mysql-binlog/generated" / name).read_bytes()
    ends = starts_of(data)[1:]
    durable = 0
    for size in range(len(data)):
        report = judged(data[:size])
        if size >= ends[0]:
            assert (size, report.records) == (size, sum(end <= size for end in ends))
        assert (report.durable_end or 0) <= size
        if size >= ends[1]:
            assert (report.durable_end or 0) >= durable, size
            durable = report.durable_end or 0


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in SMALL if "relay" not in name])
def test_a_closed_log_that_is_cut_inside_an_event_is_an_error(corpus: Path, name: str) -> None:
    data = (corpus / "mysql-binlog/generated" / name).read_bytes()
    ends = starts_of(data)[1:]
    for size in range(len(data)):
        if size not in ends:
            assert errors(judged(data[:size])), size


@pytest.mark.parametrize("name", ["mysql-9.7/xa/binlog.000001", "mariadb-11.8/xa/mariadb-bin.000001"])
def test_a_cut_between_two_events_is_durable_up_to_the_last_group_that_ended(corpus: Path, name: str) -> None:
    data = (corpus / "mysql-binlog/generated" / name).read_bytes()
    groups, boundary, ends = TransactionGroupState(), 0, starts_of(data)[1:]
    for event, end in zip(events_of(data), ends, strict=True):
        if groups.advance_to_event(event.code, event.body) in (GroupStep.ENDS, GroupStep.OUTSIDE):
            boundary = end
        report = judged(data[:end])
        assert (end, report.durable_end) == (end, boundary)
        assert bool(errors(report)) == (boundary != end), end


def test_the_head_is_never_cut(corpus: Path) -> None:
    data = (corpus / "mysql-binlog/generated/mysql-9.7/gtid-tagged/binlog.000002").read_bytes()
    head, listed = starts_of(data)[1:3]
    assert judged(data[:head]).durable_end == head
    assert {judged(data[:size]).durable_end for size in range(head + 1, listed)} == {None}
    assert judged(data[:listed]).durable_end == listed


def test_a_torn_end_is_a_note_where_the_log_is_still_in_use(corpus: Path) -> None:
    data = bytearray((corpus / "mysql-binlog/generated/mysql-9.7/xa/binlog.000001").read_bytes())
    data[21] |= 1
    for size in range(len(data) - 200, len(data)):
        report = judged(bytes(data[:size]))
        assert {one.severity for one in report.findings} <= {Severity.NOTE}, size
