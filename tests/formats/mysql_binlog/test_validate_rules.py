"""The rules one by one: real logs with one event changed, taken out, or put in, and right checksums everywhere."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from binlogtool.findings import Severity
from tests.formats.mysql_binlog.validated_events import (
    GTID,
    MYSQL_GTID,
    QUERY,
    TABLE_MAP,
    XID,
    Raw,
    changed,
    diagnoses,
    errors,
    events_of,
    first,
    ids,
    judged,
    judged_file,
    log_of,
)

MYSQL = "mysql-9.7/rotated-set/rot-bin.000005"
MARIADB = "mariadb-11.8/rotated-set/rot-bin.000005"
BOTH = (MYSQL, MARIADB)
BACKENDS = ("python", "native")


def _events(corpus: Path, name: str) -> list[Raw]:
    return events_of((corpus / "mysql-binlog/generated" / name).read_bytes())


@pytest.mark.parametrize("name", BOTH)
def test_a_log_that_is_put_together_again_is_the_same_log(corpus: Path, name: str) -> None:
    data = (corpus / "mysql-binlog/generated" / name).read_bytes()
    assert log_of(events_of(data)) == data


@pytest.mark.parametrize("name", [*BOTH, "mariadb-10.11/xa/mariadb-bin.000001", "mysql-9.7/xa/binlog.000001"])
def test_no_event_can_be_taken_out_unnoticed(corpus: Path, name: str) -> None:
    events = _events(corpus, name)
    for index in range(1, len(events) - 1):
        report = judged(log_of(events[:index] + events[index + 1 :], chained=False))
        assert errors(report), (index, events[index].code)
    last = judged(log_of(events[:-1], chained=False))
    assert "no-end" in diagnoses(last, Severity.WARNING)


@pytest.mark.parametrize("name", [MYSQL, MARIADB])
def test_a_gtid_a_map_or_a_commit_is_missed_even_where_the_positions_are_right(corpus: Path, name: str) -> None:
    events = _events(corpus, name)
    for code in (TABLE_MAP, XID, MYSQL_GTID if name == MYSQL else GTID):
        for index in [i for i, one in enumerate(events) if one.code == code]:
            report = judged(log_of(events[:index] + events[index + 1 :]))
            assert errors(report), (index, code)


@pytest.mark.parametrize("name", BOTH)
def test_a_group_that_stands_twice_is_named(corpus: Path, name: str) -> None:
    events = _events(corpus, name)
    code = MYSQL_GTID if name == MYSQL else GTID
    start = first(events, code)
    stop = first(events, code, start + 1)
    report = judged(log_of(events[:stop] + events[start:stop] + events[stop:]))
    assert "gtid-twice" in diagnoses(report)


def test_a_gtid_of_an_earlier_file_is_named(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, MYSQL_GTID)
    body = events[index].body
    report = judged(log_of(changed(events, index, body=body[:17] + (1).to_bytes(8, "little") + body[25:])))
    assert diagnoses(report) == ["gtid-twice"]
    assert "PREVIOUS_GTIDS" in errors(report)[0].message


def test_a_hole_between_gtids_is_a_warning_and_told_at_the_end(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    start = first(events, MYSQL_GTID, first(events, MYSQL_GTID) + 1)
    stop = first(events, MYSQL_GTID, start + 1)
    report = judged(log_of(events[:start] + events[stop:]))
    assert diagnoses(report, Severity.WARNING) == ["gtid-gap"]
    assert set(diagnoses(report)) == {"sequence-number"}


def test_gtids_of_mysql_may_come_in_another_order(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    a = first(events, MYSQL_GTID)
    b = first(events, MYSQL_GTID, a + 1)
    left, right = events[a].body[17:25], events[b].body[17:25]
    events = changed(events, a, body=events[a].body[:17] + right + events[a].body[25:])
    events = changed(events, b, body=events[b].body[:17] + left + events[b].body[25:])
    for backend in BACKENDS:
        report = judged(log_of(events), backend)
        assert report.findings == ()


def test_a_number_that_falls_is_a_warning_in_mariadb(corpus: Path) -> None:
    events = _events(corpus, MARIADB)
    index = first(events, GTID, first(events, GTID) + 1)
    low = struct.pack("<Q", 2)
    report = judged(log_of(changed(events, index, body=low + events[index].body[8:])))
    assert "gtid-falls" in diagnoses(report, Severity.WARNING)
    assert errors(report) == []


@pytest.mark.parametrize("number", [0, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_at_the_end_of_their_range_are_judged(corpus: Path, number: int, backend: str) -> None:
    for name, code, at in ((MARIADB, GTID, 0), (MYSQL, MYSQL_GTID, 17), (MYSQL, MYSQL_GTID, 34), (MYSQL, XID, 0)):
        events = _events(corpus, name)
        index = first(events, code, first(events, code) + 1)
        body = events[index].body
        body = body[:at] + struct.pack("<Q", number) + body[at + 8 :]
        assert judged(log_of(changed(events, index, body=body)), backend).records == len(events)


def test_sequence_numbers_grow_by_one(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, MYSQL_GTID)
    body = bytearray(events[index].body)
    body[34:42] = struct.pack("<q", 5)
    assert "sequence-number" in diagnoses(judged(log_of(changed(events, index, body=bytes(body)))))
    body[34:42] = struct.pack("<q", 1)
    body[26:34] = struct.pack("<q", 1)
    assert "last-committed" in diagnoses(judged(log_of(changed(events, index, body=bytes(body)))))


def test_the_length_of_a_group_is_compared_with_its_gtid(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, MYSQL_GTID)
    body = bytearray(events[index].body)
    assert body[49] == 0xFC  # two bytes of length follow
    body[50] ^= 1
    report = judged(log_of(changed(events, index, body=bytes(body))))
    assert diagnoses(report) == ["transaction-length"]


def test_another_number_of_columns_than_in_the_table_map_is_an_error(corpus: Path) -> None:
    for name, at in ((MYSQL, 10), (MARIADB, 8)):
        events = _events(corpus, name)
        index = next(i for i, one in enumerate(events) if one.code in (23, 30))
        body = bytearray(events[index].body)
        body[at] += 1
        for backend in BACKENDS:
            report = judged(log_of(changed(events, index, body=bytes(body))), backend)
            assert diagnoses(report) == ["column-count"]


def test_a_statement_must_say_that_it_ends(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = next(i for i, one in enumerate(events) if one.code == 30)
    body = bytearray(events[index].body)
    body[6] &= 0xFE
    events = changed(events, index, body=bytes(body))
    kept = [one for i, one in enumerate(events) if i <= index or one.code not in (TABLE_MAP, 30, 31, 32)]
    assert "statement-open" in diagnoses(judged(log_of(kept)))


def test_a_wrong_position_that_stands_alone_is_a_damaged_field(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    data = log_of(events)
    index = first(events, XID)
    report = judged(log_of(changed(events, index, position=events[index].position ^ 0x40), chained=False))
    assert data and diagnoses(report) == ["end-log-pos"]


def test_a_time_that_goes_back_by_two_days_is_a_warning(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, XID)
    late = replace(events[index], time=events[index].time - 2 * 86400)
    report = judged(log_of([*events[:index], late, *events[index + 1 :]]))
    assert diagnoses(report, Severity.WARNING) == ["time-falls"]


def test_another_server_inside_a_group_is_a_warning(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, TABLE_MAP)
    report = judged(log_of(changed(events, index, server=77)))
    assert diagnoses(report, Severity.WARNING) == ["server-changes", "server-changes"]


@pytest.mark.parametrize(("flags", "severity"), [(0, Severity.ERROR), (0x80, Severity.WARNING)])
def test_an_unknown_event_may_be_skipped_if_its_flags_say_so(corpus: Path, flags: int, severity: Severity) -> None:
    events = _events(corpus, MARIADB)
    strange = Raw(events[-1].time, 200, events[-1].server, flags, 1, b"?")
    report = judged(log_of([*events[:-1], strange, events[-1]]))
    assert ids(report, severity) == ["unknown-record-type"]


def test_an_incident_and_a_second_description_are_told(corpus: Path) -> None:
    events = _events(corpus, MARIADB)
    incident = Raw(events[-1].time, 26, events[-1].server, 0, 1, b"\x01\x00\x04lost")
    report = judged(log_of([*events[:-1], incident, events[-1]]))
    assert diagnoses(report, Severity.WARNING) == ["incident"]
    assert "lost" in report.findings[0].message
    assert "second-description" in diagnoses(judged(log_of([*events, events[0]])))


def test_a_flipped_bit_of_a_description_that_is_in_use_is_found_at_its_place(corpus: Path) -> None:
    data = bytearray((corpus / "mysql-binlog/generated" / MYSQL).read_bytes())
    data[21] |= 1
    assert errors(judged(bytes(data))) == []
    data[60] ^= 4
    found = errors(judged(bytes(data)))[0]
    assert (found.id, found.facts["flipped_byte"], found.facts["flipped_bit"]) == ("checksum-mismatch", 60, 2)


@pytest.mark.parametrize("name", ["mysql-9.7/compressed-transactions/binlog.000001"])
def test_a_payload_must_hold_a_whole_transaction(corpus: Path, name: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    events = _events(corpus, name)
    index = first(events, 40)
    inner = zstandard.ZstdDecompressor().decompressobj().decompress(_payload(events[index].body))
    ends = [0]
    while ends[-1] < len(inner):
        ends.append(ends[-1] + struct.unpack_from("<I", inner, ends[-1] + 9)[0])
    without_commit, without_map = inner[: ends[-2]], inner[: ends[1]] + inner[ends[2] :]
    for changed_inner, rule in ((without_commit, "payload-open"), (without_map, "table-map-missing")):
        report = judged(log_of(changed(events, index, body=_packed(changed_inner))))
        assert rule in diagnoses(report)


def _payload(body: bytes) -> bytes:
    """What is behind the fields of a TRANSACTION_PAYLOAD."""
    at = 0
    while body[at]:
        at += 2 + body[at + 1]
    return body[at + 1 :]


def _packed(inner: bytes) -> bytes:
    """A TRANSACTION_PAYLOAD that stores its events as they are."""
    fields = b"\x01\x09\xfe" + struct.pack("<Q", len(inner)) + b"\x02\x03\xfc\xff\x00"
    return fields + b"\x03\x09\xfe" + struct.pack("<Q", len(inner)) + b"\x00" + inner


def test_begin_inside_a_transaction_is_an_error(corpus: Path) -> None:
    events = _events(corpus, MYSQL)
    index = first(events, QUERY, first(events, TABLE_MAP) - 1)
    assert "nesting" in diagnoses(judged(log_of([*events[: index + 1], *events[index:]])))


def test_both_backends_give_the_same_verdict_about_damaged_logs(corpus: Path) -> None:
    paths = sorted((corpus / "mysql-binlog/generated/damaged").rglob("*.bin"))
    assert len(paths) == 86
    for path in paths:
        python, native = judged_file(path), judged_file(path, "native")
        assert python.findings == native.findings, path.name
        assert python.record_types == native.record_types
        assert (python.durable_end, python.transactions) == (native.durable_end, native.transactions)
