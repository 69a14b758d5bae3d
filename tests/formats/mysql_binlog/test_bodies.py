"""Bodies written by hand after the specification: what no server of the corpus wrote."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.event_schemas import (
    BODIES,
    decode_body,
    make_transaction_payload_construct,
    parse_query,
    parse_xid,
)
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    encode_unsigned_varint,
    format_previous_gtids,
    read_gtid_list,
    read_gtid_source_and_number,
    read_gtid_text,
    read_mariadb_gtid,
    read_mysql_gtid,
    read_previous_gtids,
    read_unsigned_varint,
)
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    EventType,
    encode_lenenc,
    read_lenenc,
    unpack_transaction_payload,
)
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
from tests.formats.mysql_binlog.holes import holes

_T = EventType
SID = bytes.fromhex("4806e0cce55c11f18d6402fc00000001")
UUID = "4806e0cc-e55c-11f1-8d64-02fc00000001"


def annotated(kind: EventType, body: bytes) -> dict[str, Any]:
    """Path -> value of the leaves, which tile the body; and it is built back."""
    schema = BODIES[kind]
    assert schema.build(schema.parse(body)) == body
    found = parse_to_field_rows(schema, body, 0, Limits())
    assert holes(found) == []
    return {row.path: row.value for row in found.rows if row.leaf}


def test_every_type_has_a_schema() -> None:
    assert set(BODIES) == set(EVENT_TYPE_NAMES)


def test_a_gtid_of_mysql_5_6_ends_behind_its_number() -> None:
    body = b"\x01" + SID + struct.pack("<q", 7)
    assert decode_body(_T.GTID_LOG, body, None) == {"gtid": f"{UUID}:7", "flags": 1, "sid": UUID, "gno": 7}
    assert annotated(_T.GTID_LOG, body) == {"flags": 1, "sid": UUID, "gno": 7}
    assert read_mysql_gtid(_T.GTID_LOG, body).last_committed is None


def test_a_gtid_of_mysql_5_7_ends_behind_its_logical_time_stamps() -> None:
    body = b"\x00" + SID + struct.pack("<qBqq", 8, 2, 3, 5)
    assert decode_body(_T.GTID_LOG, body, None) == {
        "gtid": f"{UUID}:8", "flags": 0, "sid": UUID, "gno": 8, "lt_type": 2, "last_committed": 3, "sequence_number": 5,
    }  # fmt: skip
    assert annotated(_T.GTID_LOG, body)["sequence_number"] == 5


def test_a_gtid_that_was_replicated_has_both_times_both_versions_and_a_ticket() -> None:
    body = b"\x00" + SID + struct.pack("<qBqq", 8, 2, 3, 5)
    body += (1 << 55 | 2000).to_bytes(7, "little") + (1000).to_bytes(7, "little") + b"\xfc\x2c\x01"
    body += struct.pack("<IIQ", 1 << 31 | 90704, 80036, 99)
    fields = decode_body(_T.ANONYMOUS_GTID, body, None)
    assert fields["gtid"] is None
    assert (fields["immediate_commit_timestamp"], fields["original_commit_timestamp"]) == (2000, 1000)
    assert (fields["immediate_server_version"], fields["original_server_version"]) == (90704, 80036)
    assert (fields["transaction_length"], fields["commit_group_ticket"]) == (300, 99)
    rows = annotated(_T.ANONYMOUS_GTID, body)
    assert (rows["immediate_commit_timestamp"], rows["original_commit_timestamp"]) == (2000, 1000)
    assert (rows["immediate_server_version"], rows["original_server_version"]) == (90704, 80036)


def number(value: int) -> bytes:
    """A number of GTID_TAGGED_LOG, written after the rule of the specification alone."""
    for size in range(1, 9):
        if value < 1 << 7 * size:
            ones = (1 << size - 1) - 1
            return (value << size | ones).to_bytes(size, "little")
    return b"\xff" + value.to_bytes(8, "little")


def tagged(*fields: bytes, last: int = 0) -> bytes:
    body = b"".join(fields)
    return number(1) + number(3 + len(body)) + number(last) + body


def test_numbers_of_a_tagged_gtid_follow_their_trailing_one_bits() -> None:
    for value in (0, 1, 127, 128, 300, 1 << 14, (1 << 56) - 1, 1 << 56, (1 << 64) - 1):
        assert read_unsigned_varint(number(value), 0, 9) == (value, len(number(value)))
        assert encode_unsigned_varint(value) == number(value)


def test_a_tagged_gtid_keeps_every_field() -> None:
    body = tagged(
        number(0) + number(1),
        number(1) + b"".join(map(number, SID)),
        number(2) + number(2 * 5),
        number(3) + number(4) + b"blue",
        number(4) + number(2 * 2 - 1),
        number(5) + number(2 * 9),
        number(6) + number(1795232366365816),
        number(7) + number(1795232366365000),
        number(8) + number(288),
        number(9) + number(90704),
        number(10) + number(80300),
        number(11) + number(1 << 63),
    )
    assert len(body) < 128
    assert decode_body(_T.GTID_TAGGED_LOG, body, None) == {
        "gtid": f"{UUID}:blue:5", "flags": 1, "sid": UUID, "gno": 5, "tag": "blue", "last_committed": -2,
        "sequence_number": 9, "immediate_commit_timestamp": 1795232366365816,
        "original_commit_timestamp": 1795232366365000, "transaction_length": 288, "immediate_server_version": 90704,
        "original_server_version": 80300, "commit_group_ticket": 1 << 63,
    }  # fmt: skip
    rows = annotated(_T.GTID_TAGGED_LOG, body)
    assert rows["message.last_committed.value"] == -2
    assert rows["message.tag.value"] == "blue"
    assert read_gtid_text(_T.GTID_TAGGED_LOG, 1, body) == f"{UUID}:blue:5"


def test_an_unknown_field_of_a_tagged_gtid_is_left_out_only_if_it_may_be() -> None:
    head = (number(1) + b"".join(map(number, SID)), number(2) + number(14))
    ignorable = tagged(*head, number(20) + b"xyz", last=11)
    assert decode_body(_T.GTID_TAGGED_LOG, ignorable, None)["gtid"] == f"{UUID}:7"
    assert annotated(_T.GTID_TAGGED_LOG, ignorable)["message.ignorable"] == number(20) + b"xyz"
    with pytest.raises(MalformedError, match="marked as not ignorable"):
        decode_body(_T.GTID_TAGGED_LOG, tagged(*head, number(20) + b"xyz", last=20), None)


@pytest.mark.parametrize(
    ("body", "finding_id"),
    [
        (tagged(number(2) + number(14)), "payload-undecodable"),
        (tagged(number(1) + number(256) * 16, number(2) + number(2)), "varint-overlong"),
        (tagged(number(3) + number(33) + b"x" * 33), "length-out-of-bounds"),
        (tagged(number(2) + number(2), number(1) + b"".join(map(number, SID))), "payload-undecodable"),
        (tagged(number(6) + b"\x7f"), "length-out-of-bounds"),
        (tagged(number(0) + number(0)) + b"\x00", "length-out-of-bounds"),
    ],
)
def test_a_tagged_gtid_that_breaks_a_rule_is_refused(body: bytes, finding_id: str) -> None:
    with pytest.raises(MalformedError) as raised:
        read_mysql_gtid(_T.GTID_TAGGED_LOG, body)
    assert raised.value.finding_id == finding_id


def test_previous_gtids_without_tags() -> None:
    body = struct.pack("<Q", 1) + SID + struct.pack("<Qqqqq", 2, 1, 6, 7, 8)
    assert format_previous_gtids(read_previous_gtids(body)) == f"{UUID}:1-5:7"
    assert decode_body(_T.PREVIOUS_GTIDS, body, None)["sids"] == [{"sid": UUID, "intervals": [[1, 6], [7, 8]]}]
    assert annotated(_T.PREVIOUS_GTIDS, body)["sids[0].intervals[1].start"] == 7


def test_previous_gtids_with_tags() -> None:
    body = b"\x01" + (2).to_bytes(6, "little") + b"\x01"
    body += SID + number(0) + struct.pack("<Qqq", 1, 1, 6) + SID + number(3) + b"tag" + struct.pack("<Qqq", 1, 1, 4)
    assert decode_body(_T.PREVIOUS_GTIDS, body, None)["gtids"] == f"{UUID}:1-5, {UUID}:tag:1-3"
    assert annotated(_T.PREVIOUS_GTIDS, body)["sids[1].tag"] == "tag"


def test_counts_that_cannot_fit_are_refused_before_anything_is_made() -> None:
    for body in (
        struct.pack("<Q", 1 << 40),
        struct.pack("<Q", 1) + SID + struct.pack("<Q", 1 << 60),
        b"\x01" + b"\xff" * 6 + b"\x01" + SID,
    ):
        with pytest.raises(MalformedError) as raised:
            read_previous_gtids(body)
        assert raised.value.finding_id == "count-out-of-bounds"
        assert (
            parse_to_field_rows(BODIES[_T.PREVIOUS_GTIDS], body, 0, Limits()).errors[0].finding_id
            == "count-out-of-bounds"
        )
    with pytest.raises(MalformedError) as raised:
        read_gtid_list(struct.pack("<IQ", 5, 0))
    assert raised.value.finding_id == "count-out-of-bounds"


def test_a_gtid_of_mariadb_has_what_its_flags_say_and_zeros_behind() -> None:
    plain = struct.pack("<QIB", 42, 3, 1) + bytes(6)
    assert decode_body(_T.GTID, plain, None, 7) == {"gtid": "3-7-42", "seq_no": 42, "domain_id": 3, "flags2": 1}
    assert annotated(_T.GTID, plain) == {
        "seq_no": 42, "domain_id": 3, "flags2": 1, "flags_extra": 0, "padding": bytes(5),
    }  # fmt: skip
    full = struct.pack("<QIBQiBB", 42, 3, 2 | 4 | 64, 5, -1, 2, 1) + b"gtb" + bytes([1 | 4 | 16, 0xFF])
    full += struct.pack("<QI", 41, 17)
    fields = read_mariadb_gtid(full)
    assert fields == (42, 3, 70, 5, -1, b"gt", b"b", 21, 255, 41, 17)
    rows = annotated(_T.GTID, full)
    assert (rows["xid.format_id"], rows["xid.gtrid"], rows["start_alter_seq"], rows["thread_id"]) == (-1, "gt", 41, 17)
    assert read_gtid_source_and_number(_T.GTID, 7, full) == ("3-7", 42)


def test_a_list_of_gtids_keeps_its_flags_apart_from_its_count() -> None:
    body = struct.pack("<IIIQ", 1 << 28 | 1, 0, 1, 42)
    assert decode_body(_T.GTID_LIST, body, None) == {
        "gtids": "0-1-42", "flags": 1, "list": [{"domain_id": 0, "server_id": 1, "seq_no": 42}],
    }  # fmt: skip
    assert annotated(_T.GTID_LIST, body)["list[0].seq_no"] == 42
    assert decode_body(_T.GTID_LIST, bytes(6), None) == {"gtids": "", "flags": 0, "list": []}


def test_an_incident_has_a_name_and_a_message() -> None:
    body = struct.pack("<HB", 1, 4) + b"lost"
    assert decode_body(_T.INCIDENT, body, None) == {"incident": "LOST_EVENTS", "message": "lost"}
    assert annotated(_T.INCIDENT, body)["message"] == "lost"


def test_an_xa_prepare_has_its_two_parts() -> None:
    body = struct.pack("<Biii", 1, -1, 2, 3) + b"\xff\x00bqu"
    assert decode_body(_T.XA_PREPARE, body, None) == {
        "one_phase": 1,
        "format_id": -1,
        "gtrid": b"\xff\x00",
        "bqual": "bqu",
    }
    with pytest.raises(MalformedError) as raised:
        decode_body(_T.XA_PREPARE, struct.pack("<Biii", 1, 1, -2, 3) + b"abc", None)
    assert raised.value.finding_id == "length-out-of-bounds"


@pytest.mark.parametrize("order", [(2, 5), (5, 2)])
def test_a_piece_of_a_row_event_knows_its_number_in_either_order(order: tuple[int, int]) -> None:
    body = struct.pack("<IIBQ", *order, 1, 1 << 31) + b"piece"
    assert decode_body(_T.PARTIAL_ROW_DATA, body, None) == {
        "fragment": 2, "fragments": 5, "flags": 1, "original_size": 1 << 31, "data": b"piece",
    }  # fmt: skip
    rows = annotated(_T.PARTIAL_ROW_DATA, body)
    assert (rows["fragment.number"], rows["fragment.total"], rows["original_size"]) == (2, 5, 1 << 31)


def test_heartbeats_of_the_wire_are_told_as_well() -> None:
    assert decode_body(_T.HEARTBEAT, b"binlog.000001", None) == {"name": "binlog.000001"}
    body = b"\x01\x03bin" + b"\x02\x03\xfc\x00\x10" + b"\x00"
    rows = annotated(_T.HEARTBEAT_V2, body)
    assert (rows["fields[0].value"], rows["fields[1].value"]) == ("bin", 4096)


def query(status: bytes = b"", db: bytes = b"d", sql: bytes = b"select 1") -> bytes:
    return struct.pack("<IIBHH", 9, 1, len(db), 0, len(status)) + status + db + b"\0" + sql


@pytest.mark.parametrize(
    ("status", "name", "value"),
    [
        (b"\x02\x03std\x00", "catalog", "std"),
        (b"\x0a" + struct.pack("<I", 77), "master_data_written", 77),
        (b"\x0b\x02me\x04host", "invoker", {"user": "me", "host": "host"}),
        (b"\x0c\x02a\x00bc\x00", "updated_db_names", ["a", "bc"]),
        (b"\x0c\xfe", "updated_db_names", None),
        (b"\x0d\x01\x02\x00", "microseconds", 513),
        (b"\x82\x04" + struct.pack("<Q", 41), "gtid_flags3", {"flags": 4, "start_alter_seq": 41}),
        (b"\x82\x02", "gtid_flags3", {"flags": 2}),
        (b"\x83\x01" + struct.pack("<HH", 33, 2048), "character_set_collations", [[33, 2048]]),
    ],
)
def test_status_variables_have_their_values(status: bytes, name: str, value: Any) -> None:
    body = query(status)
    assert decode_body(_T.QUERY, body, None)["status_vars"] == {name: value}
    assert any(path.startswith(f"status_vars.{name}") for path in annotated(_T.QUERY, body))


def test_an_unknown_status_variable_ends_the_parse_and_keeps_the_rest() -> None:
    body = query(b"\x00\x01\x00\x00\x00" + b"\x7bxyz")
    assert decode_body(_T.QUERY, body, None)["status_vars"] == {"flags2": 1, "opaque": b"\x7bxyz"}
    assert annotated(_T.QUERY, body)["status_vars.opaque"] == b"\x7bxyz"
    assert decode_body(_T.QUERY, query(b"\xff\xff"), None)["status_vars"] == {}


def test_a_status_block_that_was_seen_before_is_not_shared_with_the_caller() -> None:
    first = decode_body(_T.QUERY, query(b"\x00\x01\x00\x00\x00"), None)
    first["status_vars"]["flags2"] = 99
    assert decode_body(_T.QUERY, query(b"\x00\x01\x00\x00\x00"), None)["status_vars"] == {"flags2": 1}


@pytest.mark.parametrize(
    "status", [b"\x00\x01", b"\x06\x09std", b"\x0c\x02a\x00bc", b"\x83\x05\x01\x00", b"\x0c\x40a\x00"]
)
def test_a_status_variable_that_ends_behind_its_block_is_refused(status: bytes) -> None:
    with pytest.raises(MalformedError) as raised:
        decode_body(_T.QUERY, query(status), None)
    assert raised.value.finding_id in ("length-out-of-bounds", "count-out-of-bounds")
    assert parse_to_field_rows(BODIES[_T.QUERY], query(status), 0, Limits()).errors


def test_text_that_is_no_utf_8_stays_bytes() -> None:
    assert decode_body(_T.QUERY, query(sql=b"select '\xe4'"), None)["sql"] == b"select '\xe4'"
    assert decode_body(_T.ANNOTATE_ROWS, "größer".encode(), None) == {"sql": "größer"}


def test_a_compressed_query_is_unpacked_with_a_bound() -> None:
    packed = zlib.compress(b"x" * 5000)
    body = query(sql=b"\x82\x13\x88" + packed)
    assert decode_body(_T.QUERY_COMPRESSED, body, None)["sql"] == "x" * 5000
    found = parse_to_field_rows(BODIES[_T.QUERY_COMPRESSED], body, 0, Limits())
    assert holes(found) == []
    assert [row.value for row in found.rows if row.path == "sql.text"] == ["x" * 5000]
    with pytest.raises(MalformedError) as raised:
        decode_body(_T.QUERY_COMPRESSED, body, None, 0, Limits(max_inflate=4999))
    assert raised.value.finding_id == "inflate-limit"
    with pytest.raises(MalformedError) as raised:
        decode_body(_T.QUERY_COMPRESSED, query(sql=b"\x82\x13\x87" + packed), None)
    assert raised.value.finding_id == "compression-error"


def test_a_stored_payload_shows_its_events_in_place() -> None:
    schema = make_transaction_payload_construct(BODIES[_T.XID], unpack_transaction_payload)
    body = b"\x02\x03\xfc\xff\x00" + b"\x03\x01\x08" + b"\x01\x01\x08" + b"\x00" + struct.pack("<Q", 77)
    found = parse_to_field_rows(schema, body, 0, Limits())
    assert holes(found) == []
    assert {row.path: row.value for row in found.rows}["payload.xid"] == 77
    assert decode_body(_T.TRANSACTION_PAYLOAD, body, None) == {
        "compression": "NONE", "uncompressed_size": 8, "payload_size": 8,
    }  # fmt: skip


def test_a_payload_field_that_is_longer_than_its_number_is_refused() -> None:
    with pytest.raises(MalformedError):
        decode_body(_T.TRANSACTION_PAYLOAD, b"\x01\x02\x08\x08\x00", None)
    with pytest.raises(MalformedError) as raised:
        decode_body(_T.TRANSACTION_PAYLOAD, b"\x01\xfe" + b"\xff" * 8, None)
    assert raised.value.finding_id == "length-out-of-bounds"


def user_var(kind: int, value: bytes, flags: bytes = b"") -> bytes:
    return struct.pack("<I", 1) + b"v\0" + struct.pack("<BII", kind, 8, len(value)) + value + flags


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (user_var(2, b"\xff" * 8, b"\x00"), -1),
        (user_var(2, b"\xff" * 8, b"\x01"), (1 << 64) - 1),
        (user_var(2, b"\xff" * 8), -1),
        (user_var(1, struct.pack("<d", 0.5)), 0.5),
        (user_var(0, b"caf\xe9"), b"caf\xe9"),
        (user_var(4, b"\x03\x02\x81\x19"), "1.25"),
        (user_var(4, b"\x03\x02\x7e\xe6"), "-1.25"),
    ],
)
def test_user_variables_of_every_kind(body: bytes, value: Any) -> None:
    assert decode_body(_T.USER_VAR, body, None)["value"] == value
    assert annotated(_T.USER_VAR, body)["content.value"] == value


def test_a_user_variable_whose_size_does_not_fit_its_type_is_refused() -> None:
    for body in (
        user_var(2, b"\xff" * 7),
        user_var(1, b""),
        user_var(4, b"\x03\x05\x81"),
        user_var(4, b"\x03\x02\x81"),
    ):
        with pytest.raises(MalformedError):
            decode_body(_T.USER_VAR, body, None)


def test_helpers_for_single_values() -> None:
    assert parse_xid(struct.pack("<Q", 1 << 63)) == 1 << 63
    rotated = decode_body(4, struct.pack("<Q", 4) + b"bin.000002", None)
    assert rotated == {"position": 4, "name": "bin.000002"}
    assert parse_query(query(b"\x00\x01\x00\x00\x00")) == (9, 1, 0, b"\x00\x01\x00\x00\x00", b"d", b"select 1")
    for read in (parse_xid, parse_query, read_previous_gtids, read_gtid_list, read_mariadb_gtid):
        with pytest.raises(MalformedError):
            read(b"abc")
    with pytest.raises(MalformedError):
        decode_body(4, b"abc", None)


def test_length_encoded_integers_keep_a_form_that_is_longer_than_needed() -> None:
    forms = {250: "fa", 251: "fcfb00", 1 << 16: "fd000001", 1 << 24: "fe0000000100000000"}
    for value, data in ((value, bytes.fromhex(form)) for value, form in forms.items()):
        assert read_lenenc(data, 0, len(data)) == (value, len(data))
        assert encode_lenenc(value) == data
    wide = b"\x00" + SID + struct.pack("<qBqq", 8, 2, 3, 5) + bytes(7) + b"\xfe" + (9).to_bytes(8, "little")
    assert annotated(_T.GTID_LOG, wide)["transaction_length"] == 9
    for data in (b"\xfb", b"\xff", b"\xfc\x01", b""):
        with pytest.raises(MalformedError):
            read_lenenc(data, 0, len(data))


def test_a_description_of_an_old_server_has_no_checksum_algorithm() -> None:
    lengths = bytes(range(27))
    old = struct.pack("<H50sIB", 4, b"5.1.73-log", 0, 19) + lengths
    assert decode_body(_T.FORMAT_DESCRIPTION, old, None)["post_header_len"] == list(lengths)
    assert "checksum_alg" not in decode_body(_T.FORMAT_DESCRIPTION, old, None)
    new = struct.pack("<H50sIB", 4, b"5.6.1-log", 0, 19) + lengths + b"\x01"
    assert decode_body(_T.FORMAT_DESCRIPTION, new, None)["checksum_alg"] == "CRC32"
    assert annotated(_T.FORMAT_DESCRIPTION, new)["post_header_len[26]"] == 26
