"""Damaged events that MariaDB's reader accepts, and events at which it ends, as SHOW BINLOG EVENTS showed them."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from binlogtool.formats.binlog_events.wire_format import FormatDescription, parse_format_description
from binlogtool.formats.mysql_binlog.replay.mariadb_event_checks import is_event_accepted, is_fixed_size_accepted
from tests.formats.mysql_binlog.starts import LOGS, changed_logs_of, predict

ACCEPTED, ENDS = True, False
EVENTS = {
    (162, "03ff000000000000000000000c000000000000"): ACCEPTED,
    (162, "0400000000000000000000000c0000000000b7"): ACCEPTED,
    (162, "0500000000000000000000000c"): ENDS,
    (162, "010000000000000000000000290000000000"): ENDS,
    (162, ""): ENDS,
    (19, "120000010000010001010001740002030f022c0102"): ACCEPTED,
    (19, "12000000000001000164ff01740002030f022c0102"): ACCEPTED,
    (19, "1200002300000100016400017400020356022c0102"): ACCEPTED,
    (19, "120000000000010001640001740002030f"): ACCEPTED,
    (19, "120000000000010001640001740002030f022c01022d18743353a89295"): ACCEPTED,
    (19, "120000000000010001640001740002030f022c"): ENDS,
    (19, "120000000000010001640001740002030f022c01"): ENDS,
    (19, "120000000000010001640001740002030f002c0102"): ENDS,
    (19, "120000000000010001640001740002030fe22c0102"): ENDS,
    (19, "120000000000010001640074740002030f022ca702"): ENDS,
    (19, "1200000000000100c0640001740002030f022c0102"): ENDS,
    (2, "05000000000000000100001a0000000000010100002054000000000603737464042100210008006400"): ACCEPTED,
    (2, "05000000000000000100001a000000000001010000205400000000060373746404210021000800"): ENDS,
    (2, "050000000000"): ENDS,
    (23, "12000047000001000203fc0400000002007861"): ACCEPTED,
    (23, "1200000000000100ff03fc030000000300726f77"): ENDS,
    (23, "120000000000010002"): ENDS,
    (4, "040000000000000062696e2e3030303030"): ACCEPTED,
    (4, "040000"): ENDS,
    (5, "02"): ACCEPTED,
    (13, "f76597"): ACCEPTED,
    (26, "010003616263"): ACCEPTED,
    (26, "01a9031f6263"): ENDS,
    (166, "1200000000000100020381cf789cfbc3cac0c07082a1729800008d0760525d31020391160337"): ACCEPTED,
}  # fmt: skip
"""Type and body of an event with a wrong checksum -> what MariaDB 10.11 and 11.8 did."""

FIXED_SIZES = {
    (162, 18): ENDS, (162, 19): ACCEPTED, (162, 20): ENDS, (161, 3): ENDS, (161, 4): ACCEPTED, (161, 5): ENDS,
    (163, 3): ENDS, (163, 4): ACCEPTED, (163, 5): ACCEPTED, (163, 8): ENDS, (163, 255): ENDS, (160, 60): ACCEPTED,
    (5, 255): ACCEPTED, (13, 4): ACCEPTED,
}  # fmt: skip
"""Type and the size of its fixed part in FORMAT_DESCRIPTION -> what MariaDB 10.11 did with an intact event."""

BODIES = {
    162: bytes.fromhex("0100000000000000000000002900000000000000")[:19],
    161: struct.pack("<I", 10) + b"bin.000001",
    163: struct.pack("<I", 0) + bytes(2),
    160: b"INSERT INTO t VALUES (1)",
    5: b"\x02" + bytes(8),
    13: bytes(16),
}


def _read_description() -> FormatDescription:
    data = (LOGS / "mariadb-10.11" / "crashed" / "bin.000003").read_bytes()
    return parse_format_description(data[4 : 4 + struct.unpack_from("<I", data, 13)[0]])


@pytest.mark.parametrize(("event", "did"), EVENTS.items())
def test_mariadb_accepts_a_damaged_event_if_its_fields_fit(event: tuple[int, str], did: bool) -> None:
    code, body = event
    assert is_event_accepted(code, bytes.fromhex(body), _read_description()) is did


@pytest.mark.parametrize(("declared", "did"), FIXED_SIZES.items())
def test_mariadb_ends_at_events_whose_declared_fixed_part_does_not_fit(declared: tuple[int, int], did: bool) -> None:
    code, size = declared
    description = _read_description()
    sizes = bytearray(description.post_header_len)
    sizes[code - 1] = size
    changed = msgspec.structs.replace(description, post_header_len=bytes(sizes))
    assert is_fixed_size_accepted(code, BODIES[code], changed) is did


GTIDS = {
    ("damages", 185): "0-1-15", ("damages", 235): "0-1-15", ("damages", 249): "0-1-3", ("damages", 289): "0-1-11",
    ("damages", 401): "", ("damages", 409): "", ("damages", 419): "", ("contents", 121): "0-1-3",
    ("contents", 227): "0-1-15",
}  # fmt: skip
"""Random change to a log that was not closed -> GTIDs that MariaDB 11.8 had after its start."""


@pytest.mark.full
@pytest.mark.parametrize(("change", "did"), GTIDS.items())
def test_gtids_after_recovery_follow_from_the_events_that_mariadb_accepts(
    change: tuple[str, int], did: str, tmp_path: Path
) -> None:
    changed_logs_of("mariadb-11.8", *change, tmp_path / "log")
    assert predict(tmp_path / "log")[:2] == ("YY", did)
