"""What the harness found: the smallest file for each bug, so that none comes back."""

from __future__ import annotations

import gc
import struct
import weakref

import pytest
from construct import Int8ub, Struct

from binlogtool.errors import LimitError
from binlogtool.format_api.schema_fields import DecompressionError
from binlogtool.formats.binlog_events.rows.rows_event import decode_rows
from binlogtool.formats.binlog_events.rows.table_map import parse_table_map
from binlogtool.formats.binlog_events.wire_format import unpack_compressed_block
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
from tests.harness.engine import opinion
from tests.harness.mysql_writer import MAGIC, MARIADB, Made, binlog, block, description, event, rows, table_map

FORMAT = "mysql-binlog"


def relay(*events: Made) -> bytes:
    """A relay log of MariaDB."""
    data = MAGIC + description(MARIADB, flags=0x40)
    for made in events:
        data += event(made, len(data), crc=True)
    return data


GTID = Made(162, struct.pack("<QIB6x", 1, 0, 4))
LIST = Made(163, bytes(6))
XID = Made(16, bytes(8))


def test_a_relay_log_that_ends_in_its_first_group_is_durable_up_to_that_group() -> None:
    """It was durable up to the end of the file, although the group had no end."""
    assert opinion(FORMAT, "relay.000002", relay(LIST, GTID)).durable_end == len(relay(LIST))
    assert opinion(FORMAT, "relay.000002", relay(LIST, GTID, XID)).durable_end == len(relay(LIST, GTID, XID))


def test_the_end_of_a_group_that_the_relay_log_before_began_is_a_boundary() -> None:
    data = relay(LIST, XID, GTID)
    assert opinion(FORMAT, "relay.000002", data).durable_end == len(relay(LIST, XID))


@pytest.mark.parametrize("server", ["y.7.4", "9\xae7.4", "5.5.4"])
@pytest.mark.parametrize("crc", [True, False])
def test_a_damaged_version_does_not_turn_the_checksums_off(server: str, crc: bool) -> None:
    """One flipped bit in the version made a log of a server that knows no checksums of it, without a word."""
    data = bytearray(binlog([], crc=crc))
    data[25:30] = server.encode("latin-1")
    seen = opinion(FORMAT, "binlog.000001", bytes(data))
    assert seen.ids & {"bad-header", "checksum-mismatch"}
    assert seen.durable_end is None


@pytest.mark.parametrize("place", [21 + 20, 4 + 253 + 19 + 3])
def test_a_flipped_bit_in_front_of_encrypted_events_is_seen_without_the_key(place: int) -> None:
    """FORMAT_DESCRIPTION and START_ENCRYPTION are not encrypted; their checksums were not looked at."""
    head = MAGIC + description(MARIADB)
    data = bytearray(head + event(Made(164, b"\1\1\0\0\0" + bytes(12)), len(head), crc=True))
    assert "checksum-mismatch" not in opinion(FORMAT, "b.000001", bytes(data)).ids
    data[place] ^= 0x10
    assert "checksum-mismatch" in opinion(FORMAT, "b.000001", bytes(data)).ids


def test_what_a_block_declares_is_compared_with_the_ceiling_before_it_is_unpacked() -> None:
    with pytest.raises(DecompressionError, match="declares 1,073,741,824 bytes unpacked") as caught:
        unpack_compressed_block(block(b"x", 1 << 30), Limits())
    assert caught.value.finding_id == "inflate-limit"


def test_rows_whose_values_would_fill_the_memory_are_not_decoded() -> None:
    """12 million rows of NULL in 60 KiB took 1.5 GiB in dump."""
    table = parse_table_map(table_map(b"\3").body, 6)
    body = rows(b"\xff" * 200_000).body
    assert len(decode_rows(30, body, table)) == 200_000
    with pytest.raises(LimitError, match="200,000 rows of 1 columns"):
        decode_rows(30, body, table, Limits(max_memory=16 << 20))


class Held:
    """Something that a caller of `trace` has in its hands."""


def test_a_traced_error_keeps_nothing_of_its_callers_alive() -> None:
    """Each bad payload of 60 MiB stayed in memory until the garbage collector ran."""

    def caller() -> weakref.ref[Held]:
        held = Held()
        known = weakref.ref(held)
        assert parse_to_field_rows(Struct("a" / Int8ub, "b" / Int8ub), b"x", 0, Limits()).error is not None
        return known

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
