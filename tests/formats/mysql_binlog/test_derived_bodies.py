"""Readers that are made of a schema: what they show is what construct parses, as a dictionary and as JSON."""

from __future__ import annotations

import random
from typing import Any

import pytest
from construct import Container, EnumIntegerString, FlagsEnum, Renamed, Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.format_api.encode_json import to_json_bytes
from binlogtool.format_api.json_text_kernels import NO_SPACE, UNSUPPORTED
from binlogtool.format_api.schema_fields import HiddenField, MalformedError, ZeroMeansAbsent, decode_text, format_uuid
from binlogtool.formats.binlog_events.event_schemas import (
    BODIES,
    SHOWN_BODIES,
    QueryParts,
    decode_body,
    parse_load_query,
    parse_query,
    parse_xid,
)
from binlogtool.formats.binlog_events.gtid.gtid_events import (
    read_gtid_list,
    read_gtid_source_and_number,
    read_mariadb_gtid,
    read_mysql_gtid,
    read_previous_gtids,
)
from binlogtool.formats.binlog_events.json_line_kernels import _FREQUENT_BODIES
from binlogtool.formats.binlog_events.status_variables import decode_status_variables
from binlogtool.formats.binlog_events.wire_format import EventType
from tests.formats.mysql_binlog import make_log as make
from tests.json_bodies import json_of

_T = EventType
SERVER = 7
TYPES = [
    _T.QUERY, _T.EXECUTE_LOAD_QUERY, _T.XID, _T.INTVAR, _T.RAND, _T.ROTATE, _T.ROWS_QUERY, _T.ANNOTATE_ROWS,
    _T.GTID, _T.GTID_LOG, _T.ANONYMOUS_GTID, _T.XA_PREPARE, _T.BEGIN_LOAD_QUERY, _T.APPEND_BLOCK, _T.DELETE_FILE,
    _T.INCIDENT, _T.HEARTBEAT, _T.BINLOG_CHECKPOINT, _T.START_ENCRYPTION, _T.STOP,
]  # fmt: skip


def viewed(schema: Any, parsed: Any) -> dict[str, Any]:
    """What construct parsed, without what is marked; flags stay as they are."""
    shown = {}
    for sub in schema.subcons:
        marks, inner = [], sub
        while isinstance(inner, Renamed):
            marks.append(type(inner))
            inner = inner.subcon
        value = parsed[sub.name]
        if HiddenField in marks or value is None or (ZeroMeansAbsent in marks and not any(flags_of(value).values())):
            continue
        shown[sub.name] = nested(value)
    return shown


def flags_of(value: Any) -> dict[str, bool]:
    return {name: is_set for name, is_set in value.items() if name != "_flagsenum"}


def nested(value: Any) -> Any:
    if isinstance(value, Container) and "_flagsenum" not in value:
        return {name: inner for name, inner in value.items() if name[:1] != "_" and not name.endswith("_len")}
    return str(value) if isinstance(value, EnumIntegerString) else value


def assert_same(schema: Any, shown: Any, parsed: dict[str, Any]) -> None:
    """The members of both, in the same order; of flags those bits that have names."""
    assert list(shown) == list(parsed)
    for sub in schema.subcons:
        if sub.name not in parsed:
            continue
        value, expected = shown[sub.name], parsed[sub.name]
        if sub.name == "status_vars":
            assert value == decode_status_variables(expected)
        elif isinstance(expected, Container):
            masks = flags_enum(sub).flags
            assert {name: bool(value & mask) for name, mask in masks.items()} == flags_of(expected)
        else:
            assert value == expected
            assert type(value) in (int, str, bytes, dict)


def flags_enum(sub: Any) -> FlagsEnum:
    while not isinstance(sub, FlagsEnum):
        sub = sub.subcon
    return sub


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    return {name: as_json(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def noise(source: random.Random, size: int) -> bytes:
    """Bytes among which small lengths, text, and the borders of length-encoded integers are frequent."""
    usual = [0, 1, 2, 3, 4, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF, *b'aB" \\']
    return bytes(source.choice(usual) if source.random() < 0.6 else source.randrange(256) for _ in range(size))


def body_of(source: random.Random, code: int) -> bytes:
    tail = noise(source, source.choice([0, 1, 7, 8, 12, 20, 40]))
    if code in (_T.QUERY, _T.EXECUTE_LOAD_QUERY) and source.random() < 0.8:
        status = source.choice([b"", b"\x00\x01\x00\x00\x00\x06\x03std", tail, b"\x03\x01\x00\x02\x00"])
        body = make.query(tail, status)
        return body[:13] + noise(source, 13) + body[13:] if code == _T.EXECUTE_LOAD_QUERY else body
    if code in (_T.GTID_LOG, _T.ANONYMOUS_GTID) and source.random() < 0.8:
        return noise(source, 25) + source.choice([b"", b"\x02" + noise(source, 16) + tail])
    if code == _T.GTID and source.random() < 0.8:
        return noise(source, 12) + bytes([source.choice([0, 1, 2, 64, 66, 128, 255])]) + tail + tail
    return noise(source, source.choice([0, 4, 8, 9, 13, 16, 17, 30]))


@pytest.mark.full
@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from(TYPES), st.integers(0, 400))
def test_a_body_is_shown_as_construct_parses_it_and_json_says_the_same(seed: int, code: EventType, room: int) -> None:
    body, shown = body_of(random.Random(seed), code), SHOWN_BODIES[code]
    server = [SERVER] if shown.parameters else []
    written = json_of(shown, body, *server)
    assert json_of(shown, body, *server, room=room) in (written, NO_SPACE)
    schema: Any = shown.schema
    try:
        parsed = schema.parse(body)
        value = decode_body(code, body, None, SERVER)
    except Exception:
        with pytest.raises(MalformedError):
            decode_body(code, body, None, SERVER)
        assert written == UNSUPPORTED
        return
    rest = dict(value)
    if shown.title is not None:
        assert rest.pop("gtid") == expected_gtid(code, parsed)
    if rest.get("flags_extra", 1) & 31 == 0:
        del rest["flags_extra"]  # construct does not keep bits without a name
    assert isinstance(schema, Struct)
    assert_same(schema, rest, viewed(schema, parsed))
    assert written in (to_json_bytes(as_json(value)), UNSUPPORTED)


def expected_gtid(code: int, parsed: Any) -> str | None:
    if code == _T.GTID:
        return f"{parsed.domain_id}-{SERVER}-{parsed.seq_no}"
    return f"{parsed.sid}:{parsed.gno}" if code == _T.GTID_LOG else None


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from([_T.QUERY, _T.EXECUTE_LOAD_QUERY, _T.GTID, _T.GTID_LOG, _T.XID]))
def test_fields_of_a_body_are_those_that_construct_parses(seed: int, code: EventType) -> None:
    body = body_of(random.Random(seed), code)
    schema: Any = SHOWN_BODIES[code].schema
    readers: dict[int, Any] = {
        _T.QUERY: parse_query, _T.EXECUTE_LOAD_QUERY: parse_load_query, _T.GTID: read_mariadb_gtid,
        _T.GTID_LOG: lambda data: read_mysql_gtid(_T.GTID_LOG, data), _T.XID: parse_xid,
    }  # fmt: skip
    try:
        parsed = schema.parse(body)
    except Exception:
        with pytest.raises(MalformedError):
            readers[code](body)
        return
    found = readers[code](body)
    if code == _T.XID:
        assert found == parsed.xid
        return
    parts = {**parsed, **(parsed.get("xid") or {})}
    for name, value in found._asdict().items():
        expected = parts.get(name, b"" if name == "tag" else None)
        if name in ("flags", "flags2", "flags_extra") and expected is not None:
            masks = flags_enum(getattr(schema, name)).flags
            assert {bit: bool((value or 0) & mask) for bit, mask in masks.items()} == flags_of(expected)
        elif name == "sid":
            assert value.hex() == expected.replace("-", "")
        else:
            assert value == (expected.encode() if isinstance(expected, str) else expected), name
    if code != _T.QUERY and code != _T.EXECUTE_LOAD_QUERY:
        assert read_gtid_source_and_number(code, SERVER, body) == (
            (f"{parsed.domain_id}-{SERVER}", parsed.seq_no) if code == _T.GTID else (parsed.sid, parsed.gno)
        )


def sources_of(parsed: Any) -> list[tuple[str, Any, list[tuple[int, int]]]]:
    return [(one.sid, one.tag, [(pair.start, pair.end) for pair in one.intervals]) for one in parsed.sids]


def lists_of(source: random.Random, code: int) -> bytes:
    """PREVIOUS_GTIDS or GTID_LIST, now and then with a byte too few or too many."""
    count = source.randrange(4)
    body = (count | source.randrange(16) << 28).to_bytes(4, "little") + noise(source, 16 * count)
    if code == _T.PREVIOUS_GTIDS:
        tagged = source.random() < 0.5
        body = b"\x01" + count.to_bytes(6, "little") + b"\x01" if tagged else count.to_bytes(8, "little")
        for _ in range(count):
            tag, pairs = source.choice([b"", b"a", b"t" * 32, b"t" * 33]), source.randrange(3)
            body += noise(source, 16) + (bytes([2 * len(tag)]) + tag if tagged else b"")
            body += pairs.to_bytes(8, "little") + noise(source, 16 * pairs)
    end = source.choice([len(body), len(body), len(body) - 1, source.randrange(len(body) + 1)])
    return body[:end] + noise(source, source.choice([0, 0, 1]))


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 60), st.sampled_from([_T.PREVIOUS_GTIDS, _T.GTID_LIST]))
def test_the_lists_of_a_body_are_those_that_construct_parses(seed: int, code: EventType) -> None:
    body, schema = lists_of(random.Random(seed), code), BODIES[code]
    read: Any = read_previous_gtids if code == _T.PREVIOUS_GTIDS else read_gtid_list
    try:
        parsed: Any = schema.parse(body)
    except Exception:
        with pytest.raises(MalformedError):
            read(body)
        return
    if code == _T.GTID_LIST:
        assert read(body) == tuple((one.domain_id, one.server_id, one.seq_no) for one in parsed.list)
        assert decode_body(code, body, None)["flags"] == parsed.count.high == body[3] >> 4
        return
    found = [(format_uuid(one.sid), decode_text(one.tag), list(one.intervals)) for one in read(body)]
    assert found == sources_of(parsed)


def test_what_is_too_short_is_named_with_what_it_needs() -> None:
    with pytest.raises(MalformedError, match=r"^error_code needs 2 bytes, 1 left$") as caught:
        parse_query(bytes(10))
    assert caught.value.finding_id == "length-out-of-bounds"
    with pytest.raises(MalformedError, match=r"^xid\.bqual needs 2 bytes, 1 left$"):
        read_mariadb_gtid(bytes(12) + b"\x40" + bytes(4) + b"\x01\x02" + b"ab")


def test_the_frequent_bodies_are_written_by_compiled_code() -> None:
    body = make.query(b"select 1")
    assert isinstance(json_of(SHOWN_BODIES[_T.QUERY], body), bytes)
    assert {code for code, _ in _FREQUENT_BODIES.by_code} >= {_T.QUERY, _T.XID, _T.GTID, _T.GTID_LOG}
    assert QueryParts._fields[3:] == ("status_vars", "db", "sql")
