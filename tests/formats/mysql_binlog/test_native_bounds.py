"""The kernels as plain Python, where a byte that is read or written outside of its place is an IndexError."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.format_api.encode_json import to_json_bytes
from binlogtool.format_api.json_text_kernels import NO_SPACE, UNSUPPORTED
from binlogtool.formats.binlog_events.event_schemas import SHOWN_BODIES
from binlogtool.formats.binlog_events.json_line_kernels import EventBodyRange, write_json_body_member
from binlogtool.formats.binlog_events.rows.table_map import (
    encode_json_kernel_table_map,
    join_json_kernel_table_maps,
    parse_table_map,
)
from binlogtool.formats.binlog_events.transactions.boundaries import (
    STATEMENT_WORDS,
    classify_query_body,
    get_query_kind,
)
from binlogtool.formats.binlog_events.wire_format import ROW_EVENTS
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.native_logs import (
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DELETE_V1,
    DOUBLE,
    ENUM,
    FLOAT,
    INT24,
    LONG,
    LONGLONG,
    NEWDECIMAL,
    SET,
    STRING,
    TIME2,
    TIMESTAMP2,
    UPDATE_V1,
    VARCHAR,
    WRITE_V1,
    WRITE_V2,
    YEAR,  # fmt: skip
)
from tests.formats.mysql_binlog.row_building import image, lenenc, optional, rows_body, sized, table_map_body
from tests.json_bodies import json_of

TYPES = bytes([LONG, LONGLONG, INT24, FLOAT, DOUBLE, VARCHAR, BLOB, STRING, STRING])
TYPES += bytes([NEWDECIMAL, DATE, TIME2, DATETIME2, TIMESTAMP2, YEAR, BIT])
METADATA = b"\x04\x08\x40\x00\x02" + bytes([ENUM, 1, SET, 8]) + b"\x1e\x0a\x03\x06\x02\x00\x08"
WIDTHS = [4, 8, 3, 4, 8, -1, -2, 1, 8, 14, 3, 5, 8, 5, 1, 8]
MORE = optional(6, lenenc(2) + sized(b"one") + sized(b'"two"')) + optional(5, lenenc(2) + sized(b"a") + sized(b"b"))
MAP = parse_table_map(table_map_body(TYPES, METADATA, MORE))
TABLE = join_json_kernel_table_maps([encode_json_kernel_table_map(MAP, to_json_bytes)])
MOST = 1 << 14


def written(code: int, body: bytes, room: int = MOST) -> bytes | int:
    """What is written of a body that has this room; the bytes end where the body does."""
    if code not in ROW_EVENTS:
        return json_of(SHOWN_BODIES[code], body, *([1] if SHOWN_BODIES[code].parameters else []), room=room)
    out = bytearray(room)
    end = write_json_body_member(body, TABLE, [0] * 256, out, 0, room, EventBodyRange(code, 1, 0, len(body), 0))
    return end if end < 0 else bytes(out[:end])


def random_row(source: random.Random) -> bytes:
    values: list[bytes | None] = []
    for type_, width in zip(TYPES, WIDTHS, strict=True):
        size = width if width > 0 else source.randrange(6)
        data = (b"\x80" + bytes(8 + size))[:size] if source.random() < 0.95 else source.randbytes(size)
        data = struct.pack("<f" if type_ == FLOAT else "<d", source.random()) if type_ in (FLOAT, DOUBLE) else data
        sized_data = data if width > 0 else len(data).to_bytes(-width, "little") + data
        values.append(None if source.random() < 0.2 else sized_data)
    return image(values)


def random_rows(source: random.Random, code: int) -> bytes:
    bitmaps = [[True] * len(TYPES)] * (2 if code == UPDATE_V1 else 1)
    images = b"".join(random_row(source) for _ in range(source.randrange(1, 4) * len(bitmaps)))
    return rows_body(len(TYPES), images, bitmaps, extra=b"" if code == WRITE_V2 else None)


CODES = [WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2]


@pytest.mark.parametrize("code", CODES)
def test_most_of_the_rows_here_are_written(code: int) -> None:
    """What is not written goes the general way, within bounds too: those cases must not be all."""
    found = [written(code, random_rows(random.Random(seed), code)) for seed in range(40)]
    assert sum(isinstance(one, bytes) for one in found) > 10


def test_sound_bodies_are_written() -> None:
    for code, body in ((2, make.query(b"select 1")), (33, make.mysql_gtid(7)), (162, make.mariadb_gtid(7, 0, 0, b""))):
        assert isinstance(written(code, body), bytes), code


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from(CODES), st.integers(0, 40))
def test_rows_are_read_and_written_within_their_bounds(seed: int, code: int, cut: int) -> None:
    source = random.Random(seed)
    body = random_rows(source, code)
    body = body[: len(body) - cut]
    whole = written(code, body)
    assert isinstance(whole, bytes) or whole == UNSUPPORTED  # each is right: damage decides which, see the tests above
    for room in (0, 1, 60, 200, source.randrange(2000), source.randrange(2000)):
        part = written(code, body, room)
        assert part in (whole, NO_SPACE, UNSUPPORTED)


bodies = st.one_of(
    st.tuples(st.sampled_from([2, 5, 16, 29, 33, 34, 160, 162]), st.binary(max_size=80)),
    st.builds(lambda s, q: (2, make.query(q, s)), st.binary(max_size=40), st.binary(max_size=20)),
    st.builds(lambda n, m: (33, make.mysql_gtid(n, more=m)), st.integers(1, 99), st.binary(max_size=50)),
    st.builds(
        lambda n, f, m: (162, make.mariadb_gtid(n, 0, f, m)),
        st.integers(1, 99),
        st.integers(0, 255),
        st.binary(max_size=30),
    ),
)


@settings(max_examples=400, deadline=None)
@given(bodies, st.integers(0, 500))
def test_other_bodies_are_read_and_written_within_their_bounds(given_body: tuple[int, bytes], room: int) -> None:
    whole = written(*given_body)
    assert whole == UNSUPPORTED or isinstance(whole, bytes)  # each is right: damage decides which, see the tests above
    assert written(*given_body, room) in (whole, NO_SPACE)


def test_a_row_event_is_what_its_meaning_is() -> None:
    """Compiled code is compared with the general writer elsewhere; this is the same kernel as plain Python."""
    body = rows_body(len(TYPES), image([struct.pack("<i", -5), *[None] * (len(TYPES) - 1)]))
    text = written(WRITE_V1, body)
    nothing = b"".join(b',"@%d":null' % n for n in range(2, len(TYPES) + 1))
    assert text == b'{"table_id":7,"flags":1,"table":"db.t","rows":[{"after":{"@1":-5' + nothing + b"}}]}"


@pytest.mark.parametrize("after", [b"", b" ", b"x", b"_", b"9", b"\xff"])
def test_queries_are_told_apart_in_the_same_way(after: bytes) -> None:
    words = [number for word, kind in STATEMENT_WORDS for number in (len(word), kind, *word)] + [0]
    for word, _ in STATEMENT_WORDS:
        for text in (word + after, word.lower() + after, word[:-1] + after, b" " + word + after):
            body = make.query(text)
            assert classify_query_body(words, body, 0, len(body)) == get_query_kind(make.QUERY, body)


@given(st.binary(max_size=60))
def test_any_query_is_read_within_its_bounds(body: bytes) -> None:
    words = [number for word, kind in STATEMENT_WORDS for number in (len(word), kind, *word)] + [0]
    assert classify_query_body(words, body, 0, len(body)) == get_query_kind(make.QUERY, body)
