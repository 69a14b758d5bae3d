"""TRANSACTION_PAYLOAD: its fields and what it unpacks to."""

from __future__ import annotations

import tracemalloc

import pytest

from binlogtool.format_api.schema_fields import DecompressionError, MalformedError
from binlogtool.formats.binlog_events.wire_format import (
    TransactionPayloadHeader,
    parse_transaction_payload_header,
    unpack_transaction_payload,
)
from binlogtool.limits import Limits
from tests.formats.mysql_binlog.compressed_rows import EVENTS, packed, payload

LIMITS = Limits()


def test_the_fields_say_where_the_packed_bytes_start() -> None:
    body = payload(b"12345", 30_000, 255)
    assert parse_transaction_payload_header(body) == TransactionPayloadHeader(len(body) - 5, 5, 255, 30_000)


@pytest.mark.parametrize("declared", [len(EVENTS), None])
def test_one_frame_is_unpacked(declared: int | None) -> None:
    assert unpack_transaction_payload(payload(packed(), declared), LIMITS) == EVENTS
    assert unpack_transaction_payload(memoryview(payload(packed(), declared)), LIMITS) == EVENTS


def test_several_frames_are_unpacked_one_behind_the_other() -> None:
    frames = packed(EVENTS[:100]) + packed(EVENTS[100:200]) + packed(EVENTS[200:])
    assert unpack_transaction_payload(payload(frames), LIMITS) == EVENTS


def test_a_payload_may_be_stored_as_it_is() -> None:
    assert unpack_transaction_payload(payload(EVENTS, compression=255), LIMITS) == EVENTS


@pytest.mark.parametrize(
    ("body", "limit", "id_"),
    [
        (payload(packed(), len(EVENTS) - 1), 1 << 20, "compression-error"),
        (payload(packed(), len(EVENTS) + 1), 1 << 20, "compression-error"),
        (payload(packed()[:-9]), 1 << 20, "compression-error"),
        (payload(packed() + b"junk"), 1 << 20, "compression-error"),
        (payload(packed()), 100, "inflate-limit"),
        (payload(packed(), None), 100, "inflate-limit"),
        (payload(packed(), 100), 100, "inflate-limit"),
        (payload(EVENTS, compression=1), 1 << 20, "compression-error"),
        (payload(EVENTS, 5, compression=255), 1 << 20, "compression-error"),
        (payload(packed(), size=5), 1 << 20, "compression-error"),
        (b"\x01\x09\x05", 1 << 20, "compression-error"),
        (b"", 1 << 20, "compression-error"),
    ],
)
def test_a_payload_that_is_not_what_it_says_is_an_error(body: bytes, limit: int, id_: str) -> None:
    with pytest.raises(DecompressionError) as caught:
        unpack_transaction_payload(body, Limits(max_inflate=limit))
    assert caught.value.finding_id == id_


def test_a_field_that_does_not_fit_is_named() -> None:
    with pytest.raises(MalformedError, match="field 1 of 9 bytes"):
        parse_transaction_payload_header(b"\x01\x09\x05")
    with pytest.raises(MalformedError, match="declares 5 packed bytes, 9 follow"):
        parse_transaction_payload_header(payload(b"123456789", size=5))


@pytest.mark.parametrize("declared", [1000, 2**40, None])
def test_a_bomb_takes_no_more_memory_than_the_limit(declared: int | None) -> None:
    bomb = payload(packed(bytes(1 << 28)), declared)
    tracemalloc.start()
    with pytest.raises(DecompressionError):
        unpack_transaction_payload(bomb, Limits(max_inflate=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
