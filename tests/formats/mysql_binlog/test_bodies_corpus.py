"""Every body of every intact log: no byte without a name, built back, and read alike by schema and by `decoded`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from construct import Bytes, GreedyRange, Int8ul, Int32ul, Struct, Switch, this

from binlogtool.format_api.schema_fields import NestedSchema
from binlogtool.formats.binlog_events.event_schemas import (
    BODIES,
    decode_body,
    make_payload_event_constructs,
    make_row_event_constructs,
    make_transaction_payload_construct,
)
from binlogtool.formats.binlog_events.rows.rows_event import decode_rows
from binlogtool.formats.binlog_events.rows.table_map import TableMap, parse_table_map
from binlogtool.formats.binlog_events.wire_format import (
    EVENT_TYPE_NAMES,
    ROW_EVENTS,
    EventType,
    unpack_transaction_payload,
)
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import TraceResult, parse_to_field_rows
from binlogtool.schema.annotation_types import FieldRow
from tests.formats.mysql_binlog.bodies_walk import Event, events, logs
from tests.formats.mysql_binlog.holes import holes

_T = EventType


@pytest.fixture(scope="module")
def bodies(corpus: Path) -> list[tuple[Path, Event]]:
    found = [(path, event) for path in logs(corpus) for event in events(path.read_bytes())]
    assert len(found) > (19_000 if own_only(found) else 25_000)
    return found


def own_only(bodies: list[tuple[Path, Event]]) -> bool:
    """Are those of other projects, which have five more types, not there?"""
    return all("generated" in path.parts for path, _ in bodies)


@pytest.mark.full
def test_the_rows_of_an_annotated_body_tile_it(bodies: list[tuple[Path, Event]]) -> None:
    seen: Counter[str] = Counter()
    for path, event in bodies:
        found = parse_to_field_rows(BODIES[event.type], event.body, 1000, Limits())
        assert holes(found) == [], (path.name, event.at, EVENT_TYPE_NAMES[event.type])
        seen[EVENT_TYPE_NAMES[event.type]] += len(found.rows)
    print(dict(seen))
    assert len(seen) >= (33 if own_only(bodies) else 35)


def test_a_body_is_built_back_from_what_was_parsed(bodies: list[tuple[Path, Event]]) -> None:
    for path, event in bodies:
        schema = BODIES[event.type]
        assert schema.build(schema.parse(event.body)) == event.body, (path.name, event.at)


def rows_of(found: TraceResult) -> Iterator[tuple[int, str, FieldRow]]:
    """Index of the row, image and leaf of each value."""
    for row in found.rows:
        place, bracket, rest = row.path.partition("].")
        image, dot, column = rest.partition(".")
        if bracket and dot and column not in ("nulls", "value_options", "partial_bits"):
            yield int(place.rpartition("[")[2]), image, row


@pytest.mark.full
def test_with_a_table_map_each_value_of_a_row_event_is_a_row_of_its_own(bodies: list[tuple[Path, Event]]) -> None:
    maps: dict[int, TableMap] = {}
    schemas = make_row_event_constructs(maps.get)
    values = nulls = 0
    for path, event in bodies:
        if event.type == _T.FORMAT_DESCRIPTION:
            if ".relay" not in path.name and not path.name.startswith("relay"):
                maps.clear()
        elif event.type == _T.TABLE_MAP:
            known = parse_table_map(event.body)
            maps[known.table_id] = known
        elif event.type in ROW_EVENTS and int.from_bytes(event.body[:6], "little") in maps:
            found = parse_to_field_rows(schemas[event.type], event.body, 0, Limits())
            assert holes(found) == [], (path.name, event.at)
            known = maps[int.from_bytes(event.body[:6], "little")]
            shown: dict[tuple[int, str], dict[str, Any]] = {}
            for index, image, row in rows_of(found):
                shown.setdefault((index, image), {})[row.path.partition("].")[2].partition(".")[2]] = row.value
            for index, expected in enumerate(decode_rows(event.type, event.body, known)):
                for image, cells in expected.items():
                    there = {key: value for key, value in cells.items() if value is not None}
                    assert repr(shown.get((index, image), {})) == repr(there), (path.name, event.at, index)
                    values += len(there)
                    nulls += len(cells) - len(there)
    print(f"{values:,} values, {nulls:,} NULLs")
    assert values > (50_000 if own_only(bodies) else 100_000)


def test_rows_inside_a_payload_are_shown_with_the_table_map_before_them(bodies: list[tuple[Path, Event]]) -> None:
    inner = make_payload_event_constructs(lambda table_id: None)
    event = Struct(
        "header" / Struct("timestamp" / Int32ul, "type_code" / Int8ul, Bytes(4), "event_size" / Int32ul, Bytes(6)),
        "body" / NestedSchema(Bytes(this.header.event_size - 19), Switch(this.header.type_code, dict(inner))),
    )
    schema = make_transaction_payload_construct(GreedyRange(event), unpack_transaction_payload)
    payloads = events_inside = values = 0
    for path, one in bodies:
        if one.type == _T.TRANSACTION_PAYLOAD:
            found = parse_to_field_rows(schema, one.body, 0, Limits())
            assert holes(found) == [], (path.name, one.at)
            payloads += 1
            events_inside += sum(row.path.endswith("type_code") for row in found.rows)
            values += sum(1 for _ in rows_of(found))
            assert not [row for row in found.rows if row.path.endswith("body.rows") and row.leaf]
    print(f"{payloads} payloads, {events_inside} events, {values} values")
    assert payloads >= 31 and events_inside > 100 and values > 500


FAST = {
    _T.QUERY: ("thread_id", "exec_time", "error_code", "db", "sql"),
    _T.XID: ("xid",),
    _T.INTVAR: ("type", "value"),
    _T.RAND: ("seed1", "seed2"),
    _T.ROTATE: ("position", "name"),
    _T.ANNOTATE_ROWS: ("sql",),
    _T.ROWS_QUERY: ("sql",),
    _T.EXECUTE_LOAD_QUERY: (
        "thread_id", "exec_time", "error_code", "file_id", "fn_pos_start", "fn_pos_end", "dup_handling", "db", "sql",
    ),
    _T.GTID_LOG: (
        "sid", "gno", "lt_type", "last_committed", "sequence_number", "immediate_commit_timestamp",
        "transaction_length", "immediate_server_version", "commit_group_ticket",
    ),
    _T.GTID: ("seq_no", "domain_id", "commit_id", "extra_engines", "start_alter_seq", "thread_id"),
}  # fmt: skip
FAST[_T.ANONYMOUS_GTID] = FAST[_T.GTID_LOG]


def test_the_quick_readers_and_the_schemas_give_the_same_values(bodies: list[tuple[Path, Event]]) -> None:
    compared: Counter[str] = Counter()
    for path, event in bodies:
        names = FAST.get(_T(event.type), ())
        if names:
            by_schema = BODIES[event.type].parse(event.body)
            quick = decode_body(event.type, event.body, None, event.server_id)
            for name in names:
                assert quick.get(name) == by_schema[name], (path.name, event.at, name)
                compared[EVENT_TYPE_NAMES[event.type]] += 1
    print(dict(compared))
    assert len(compared) == len(FAST)


def test_the_lists_of_gtids_are_the_same_in_both(bodies: list[tuple[Path, Event]]) -> None:
    lists = 0
    for _, event in bodies:
        parsed = BODIES[event.type].parse(event.body) if event.type in (_T.PREVIOUS_GTIDS, _T.GTID_LIST) else None
        quick = decode_body(event.type, event.body, None) if parsed is not None else {}
        if event.type == _T.PREVIOUS_GTIDS:
            lists += 1
            by_schema = [(one.sid, one.tag or "", [[i.start, i.end] for i in one.intervals]) for one in parsed.sids]
            assert by_schema == [(one["sid"], one.get("tag", ""), one["intervals"]) for one in quick["sids"]]
        elif event.type == _T.GTID_LIST:
            lists += 1
            by_schema = [(one.domain_id, one.server_id, one.seq_no) for one in parsed.list]
            assert by_schema == [tuple(one.values()) for one in quick["list"]]
    assert lists > (50 if own_only(bodies) else 150)


def test_every_body_can_be_shown_in_json(bodies: list[tuple[Path, Event]]) -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                assert type(name) is str
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)
        else:
            assert type(value) in (int, float, str, bytes, bool, type(None)), value

    for _, event in bodies:
        check(decode_body(event.type, event.body, None, event.server_id))
