"""Bodies made to harm their reader: only `MalformedError`, in bounded time, and every byte is still shown."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.event_schemas import BODIES, decode_body, make_row_event_constructs
from binlogtool.formats.binlog_events.gtid.gtid_events import read_gtid_text
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.wire_format import EVENT_TYPE_NAMES, ROW_EVENTS, EventType
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import TraceResult, parse_to_field_rows
from tests.formats.mysql_binlog.bodies_walk import events, logs

SMALL = Limits(max_inflate=1 << 20, max_memory=1 << 24)


def covers(found: TraceResult, size: int) -> bool:
    """Do the leaves of the body itself follow each other without a hole, as far as the parse came?"""
    reached = 0
    for row in found.rows:
        if row.leaf and row.space == "":
            if row.start != reached:
                return False
            reached = row.end
    return reached <= size


def mutations(body: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(body)
        kind = chance.randrange(4)
        if kind == 0 and data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[chance.randrange(len(data) + 1) :]
        elif kind == 2 and data:
            at = chance.randrange(len(data))
            data[at : at + 8] = chance.choice([b"\xff" * 8, bytes(8), b"\xfe" + b"\xff" * 7, chance.randbytes(8)])
        else:
            data[chance.randrange(len(data) + 1) : 0] = chance.randbytes(chance.randrange(1, 9))
        yield bytes(data)


def check(kind: int, body: bytes) -> None:
    try:
        decode_body(kind, body, None, 1, SMALL)
    except MalformedError as error:
        assert error.finding_id and str(error)
    with suppress(MalformedError):
        read_gtid_text(kind, 1, body)
    assert covers(parse_to_field_rows(BODIES[kind], body, 0, SMALL), len(body))


@pytest.mark.parametrize("kind", sorted(EVENT_TYPE_NAMES))
def test_random_bytes_raise_nothing_else_than_malformed(kind: int) -> None:
    chance = random.Random(kind)
    start = time.process_time()
    for size in (0, 1, 2, 7, 8, 13, 19, 25, 42, 60, 200):
        for _ in range(12):
            check(kind, chance.randbytes(size))
            check(kind, bytes(chance.choice(b"\x00\x01\x02\x03\xfb\xfc\xfd\xfe\xff") for _ in range(size)))
    assert time.process_time() - start < 20


def test_a_body_of_zeros_or_ones_is_bounded() -> None:
    start = time.process_time()
    for kind in EVENT_TYPE_NAMES:
        for data in (bytes(1 << 16), b"\xff" * (1 << 16), b"\x01" * (1 << 16)):
            check(kind, data)
    assert time.process_time() - start < 60


def test_mutated_bodies_of_real_logs_raise_nothing_else_than_malformed(corpus: Path) -> None:
    chance = random.Random(20)
    chosen: dict[int, list[bytes]] = {}
    for path in logs(corpus):
        for event in events(path.read_bytes()):
            chosen.setdefault(event.type, []).append(event.body)
    for kind, bodies in chosen.items():
        for body in chance.sample(bodies, min(len(bodies), 12)):
            for mutated in mutations(body[:3000], chance, 40):
                check(kind, mutated)


def test_mutated_images_are_shown_as_far_as_they_make_sense(corpus: Path) -> None:
    chance = random.Random(21)
    maps: dict[int, TableMap] = {}
    schemas = make_row_event_constructs(maps.get)
    tried = 0
    for path in logs(corpus)[::4]:
        for event in events(path.read_bytes()):
            if event.type == EventType.TABLE_MAP:
                known = parse_table_map(event.body)
                maps[known.table_id] = known
            elif event.type in ROW_EVENTS and len(event.body) < 2000 and chance.random() < 0.3:
                for mutated in mutations(event.body, chance, 4):
                    assert covers(parse_to_field_rows(schemas[event.type], mutated, 0, SMALL), len(mutated))
                    tried += 1
    assert tried > 1000
