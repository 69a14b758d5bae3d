"""The format against bytes that its writer made; it must be installed (or its entry point be found) to be run."""

import struct
import zlib

import pytest

import binlogtool

MAGIC = b"MYLOG\0\1\0"
FIRST_TIME = 1_767_225_600_000_000  # 2026-01-01


def record(kind, number, key, data=b""):
    """As the application writes it."""
    fixed = struct.pack("<BQQBB", kind, number, FIRST_TIME + number, 4, len(key))
    payload = fixed + b"shop" + key + data
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


RECORDS = (record(1, 1, b"a", b"one"), record(1, 2, b"b", b"two"), record(2, 3, b"a"), record(1, 4, b"c", b"four"))


def verified(path, data):
    path.write_bytes(data)
    report = binlogtool.verify([str(path)])
    return report.files[0]


def test_an_intact_log_is_clean(tmp_path):
    found = verified(tmp_path / "one.mylog", MAGIC + b"".join(RECORDS))
    assert (found.format, found.records, found.transactions, found.findings) == ("my-log", 4, 4, ())
    assert dict(found.record_types) == {"PUT": 3, "DELETE": 1}


def test_records_say_what_was_written(tmp_path):
    path = tmp_path / "one.mylog"
    path.write_bytes(MAGIC + b"".join(RECORDS))
    with binlogtool.open(str(path)) as log:
        found = [(one.type, one.seq, one.object, one.body) for one in log.records()]
    assert found[0] == ("PUT", 1, "shop", {"key": b"a", "data": b"one"})
    assert found[2] == ("DELETE", 3, "shop", {"key": b"a", "data": b""})


def test_rows_of_a_table_are_what_was_put_and_deleted(tmp_path):
    pytest.importorskip("pyarrow", reason="rows need binlogtool[arrow]")
    path = tmp_path / "one.mylog"
    path.write_bytes(MAGIC + b"".join(RECORDS))
    with binlogtool.open(str(path)) as log:
        found = [(row["op"], row["key"], row["data"], row["commit"]) for row in log.rows("shop")]
    assert found[1:3] == [("PUT", b"b", b"two", True), ("DELETE", b"a", None, True)] and len(found) == 4


@pytest.mark.parametrize("cut", (1, 4, 17, len(RECORDS[-1]) - 1))
def test_a_log_cut_in_its_last_record_keeps_the_others(tmp_path, cut):
    found = verified(tmp_path / "one.mylog", (MAGIC + b"".join(RECORDS))[:-cut])
    assert [one.id for one in found.findings] == ["torn-tail"]
    assert (found.records, found.durable_end) == (3, len(MAGIC) + sum(map(len, RECORDS[:3])))


@pytest.mark.parametrize("byte", (0, 3, 4, 8, 9, 17, 25, 26, 28, len(RECORDS[1]) - 1))
def test_every_flipped_byte_of_a_record_is_found(tmp_path, byte):
    data = bytearray(MAGIC + b"".join(RECORDS))
    start = len(MAGIC) + len(RECORDS[0])
    data[start + byte] ^= 0xFF
    found = verified(tmp_path / "one.mylog", bytes(data))
    assert found.durable_end == start
    assert {one.severity.name for one in found.findings} & {"ERROR"}


def test_a_missing_record_is_a_gap(tmp_path):
    found = verified(tmp_path / "one.mylog", MAGIC + RECORDS[0] + RECORDS[2])
    assert [(one.id, one.offset) for one in found.findings] == [("gap-in-sequence", len(MAGIC) + len(RECORDS[0]))]


def test_what_the_application_does_not_read_behind_a_damage_is_a_silent_loss(tmp_path):
    path = tmp_path / "one.mylog"
    path.write_bytes(MAGIC + RECORDS[0] + b"\xff" * len(RECORDS[1]) + RECORDS[2] + RECORDS[3])
    (replayed,) = binlogtool.replay([str(path)])
    assert {"silent-loss"} <= {one.id for _, one in replayed.findings}
