from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binlogtool
from binlogtool.format_api.layout import ColumnTable
from binlogtool.formats.tarantool.decode import _decode_times_in_microseconds, to_microseconds
from tests.formats.tarantool.make import TIME, block, dml, log, records, row

names = st.text(max_size=5).filter(lambda name: not name.startswith("$"))


def only(tmp_path: Path, payload: bytes, **options: Any) -> Any:
    found = records(tmp_path / "00000000000000000000.xlog", log([block(payload)]), **options)
    assert len(found) == 1
    return found[0]


def body_of(tmp_path: Path, fields: bytes) -> Any:
    """The `tuple` of a REPLACE whose tuple has these encoded bytes."""
    payload = row({0: 3, 2: 1, 3: 1, 4: TIME}) + b"\x82\x10\xcd\x02\x00\x21" + fields
    return only(tmp_path, payload).body["tuple"]


@given(st.floats(0, 4e9))
def test_times_are_rounded_as_the_standard_library_rounds_them(seconds: float) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
    assert to_microseconds(seconds) == expected


@given(st.lists(st.floats(2**30, 2**31, exclude_max=True), min_size=1))
def test_the_short_way_for_times_of_our_days_agrees(seconds: list[float]) -> None:
    bits = [struct.unpack("<q", struct.pack("<d", one))[0] for one in seconds]
    table = ColumnTable(len(bits), {"timestamp": bits, "header_keys": [0b11101] * len(bits)})
    assert _decode_times_in_microseconds(table, 0, len(bits)) == [to_microseconds(one) for one in seconds]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1e300, 1e300, 253402300800.0])
def test_what_is_no_time_is_none(seconds: float) -> None:
    assert to_microseconds(seconds) is None


def test_a_row_has_the_envelope_that_the_contract_names(tmp_path: Path) -> None:
    found = only(tmp_path, dml(5, tsn=3))
    assert (found.type, found.seq, found.origin, found.txn, found.object) == ("REPLACE", 5, 1, "1:3", "512")
    assert found.time == 1795232544897920
    assert found.extras == {"header": {"type": 3, "replica_id": 1, "lsn": 5, "timestamp": TIME, "tsn": 3}}
    assert found.body == {"space_id": 512, "tuple": [5, "text"]}


def test_a_local_row_counts_back_to_the_number_of_its_transaction(tmp_path: Path) -> None:
    found = only(tmp_path, dml(3, replica=0, tsn=81, commit=True))
    assert (found.origin, found.txn) == (0, "0:81")
    assert found.extras["header"] == {"type": 3, "lsn": 3, "timestamp": TIME, "tsn": 81, "flags": 1}


def test_numbers_over_the_signed_range_stay_positive(tmp_path: Path) -> None:
    found = only(tmp_path, row({0: 3, 2: 2**64 - 1, 3: 2**64 - 2}, {0x10: 512, 0x21: []}))
    assert (found.origin, found.seq) == (2**64 - 1, 2**64 - 2)
    assert found.extras["header"]["lsn"] == 2**64 - 2


def test_names_of_spaces_are_learned_from_their_rows(tmp_path: Path) -> None:
    rows = [
        dml(1, space=280, tuple=[512, 1, "books", "memtx", 0, {}, []], type=2),
        dml(2),
        row({0: 4, 2: 1, 3: 3, 4: TIME}, {0x10: 280, 0x15: 1, 0x20: [512], 0x21: [["=", 3, "novels"]]}),
        dml(4),
        dml(5, space=513),
    ]
    found = records(tmp_path / "x.xlog", log([block(b"".join(rows))]))
    assert [r.object for r in found] == ["_space", "books", "_space", "novels", "513"]


def test_bodies_have_the_names_of_their_row_type(tmp_path: Path) -> None:
    rows = [
        row({0: 4, 3: 1}, {0x10: 512, 0x15: 1, 0x20: [1], 0x21: [["+", 2, 1]]}),
        row({0: 9, 3: 2}, {0x10: 512, 0x21: [1], 0x28: [["=", 1, 5]]}),
        row({0: 5, 3: 3}, {0x10: 512, 0x20: [1]}),
        row({0: 12, 3: 4}),
        row({0: 30, 3: 5, 7: 1}, {0: 2, 1: 1, 3: {1: 5}, 5: True}),
        row({0: 31, 3: 6}, {2: 1, 3: 5, 0x53: 2, 0x26: {0: 1}}),
        row({0: 40, 3: 7}, {2: 1, 3: 5}),
        row({0: 41, 3: 8}, {2: 1, 3: 6}),
        row({0: 3, 3: 9}, {0x10: 512, 0x21: [1], 0x7E: "x"}),
        row({0: 77, 3: 10}, {0x10: "free", 1: 2}),
    ]
    found = records(tmp_path / "x.xlog", log([block(b"".join(rows))]))
    assert [(r.type, r.body) for r in found] == [
        ("UPDATE", {"space_id": 512, "index_base": 1, "key": [1], "tuple": [["+", 2, 1]]}),
        ("UPSERT", {"space_id": 512, "tuple": [1], "ops": [["=", 1, 5]]}),
        ("DELETE", {"space_id": 512, "key": [1]}),
        ("NOP", {}),
        ("RAFT", {"term": 2, "vote": 1, "vclock": {"1": 5}, "is_leader_seen": True}),
        ("RAFT_PROMOTE", {"replica_id": 1, "lsn": 5, "term": 2, "vclock": {"0": 1}}),
        ("CONFIRM", {"replica_id": 1, "lsn": 5}),
        ("ROLLBACK", {"replica_id": 1, "lsn": 6}),
        ("REPLACE", {"space_id": 512, "tuple": [1], "key_0x7e": "x"}),
        ("77", {"space_id": "free", "key_0x01": 2}),
    ]


@pytest.mark.parametrize(
    ("encoded", "shown"),
    [
        ("91c40161", [b"a"]),
        ("91a2c328", [b"\xc3\x28"]),
        ("91cb7ff8000000000000", [{"$float": "NaN"}]),
        ("91d802" + "00" * 15 + "01", [{"$uuid": "00000000-0000-0000-0000-000000000001"}]),
        ("91d501025c", [{"$decimal": "0.05"}]),
        ("91d7040000000000000000", [{"$datetime": "1970-01-01T00:00:00Z", "seconds": 0}]),
        ("91c7030601060a", [{"$interval": {"second": 10}}]),
        ("91d60563636363", [{"$ext": [5, b"cccc"]}]),
        ("91d6ff00000000", [{"$ext": [-1, bytes(4)]}]),
        ("9182a16101a16102", [{"$map": [["a", 1], ["a", 2]]}]),
        ("91810102", [{"1": 2}]),
        ("9182a1310101a0", [{"$map": [["1", 1], [1, ""]]}]),
        ("9181c402616201", [{"$map": [[b"ab", 1]]}]),
        ("9181a5247575696400", [{"$map": [["$uuid", 0]]}]),
        ("91cfffffffffffffffff", [2**64 - 1]),
        ("9181a16bd802" + "00" * 16, [{"k": {"$uuid": "00000000-0000-0000-0000-000000000000"}}]),
    ],
)
def test_values_that_json_cannot_say_plainly(tmp_path: Path, encoded: str, shown: Any) -> None:
    assert body_of(tmp_path, bytes.fromhex(encoded)) == shown


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=40) | st.binary(max_size=40),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
        max_leaves=20,
    )
)  # fmt: skip
def test_fast_and_exact_decoding_agree(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("values")
    assert body_of(folder, msgpack.packb([value])) == [value]


def test_a_body_nested_too_deep_is_a_finding_and_its_neighbours_are_not_harmed(tmp_path: Path) -> None:
    deep = row({0: 3, 2: 1, 3: 2, 4: TIME}) + b"\x82\x10\xcd\x02\x00\x21" + b"\x91" * 100 + b"\x90"
    found = records(tmp_path / "x.xlog", log([block(dml(1) + deep + dml(3))]))
    assert [r.body is None for r in found] == [False, True, False]
    (trouble,) = found[1].findings
    assert (trouble.id, trouble.record) == ("nesting-too-deep", 1)


def test_nesting_is_allowed_as_deep_as_the_limits_say(tmp_path: Path) -> None:
    deep = b"\x91" * 30 + b"\x90"
    payload = row({0: 3, 2: 1, 3: 2, 4: TIME}) + b"\x82\x10\xcd\x02\x00\x21" + deep
    assert only(tmp_path, payload).body["tuple"]
    refused = only(tmp_path, payload, limits=binlogtool.Limits(max_depth=30))
    assert [f.id for f in refused.findings] == ["nesting-too-deep"]
    assert only(tmp_path, payload, limits=binlogtool.Limits(max_depth=31)).body["tuple"]


def test_a_bomb_of_nesting_needs_neither_stack_nor_time(tmp_path: Path) -> None:
    bomb = row({0: 3, 2: 1, 3: 2, 4: TIME}) + b"\x82\x10\xcd\x02\x00\x21" + b"\x91" * 2_000_000 + b"\x90"
    found = only(tmp_path, bomb, limits=binlogtool.Limits(max_depth=10**9))
    assert [f.id for f in found.findings] == ["nesting-too-deep"]


def test_records_of_the_metadata_log_are_named(tmp_path: Path) -> None:
    payload = row({0: 2, 4: TIME}, {0x21: [0, {0: 8, 6: 513, 7: [[0, "unsigned"]]}]})
    (found,) = records(tmp_path / "x.vylog", log([block(payload)], kind="VYLOG"))
    assert found.body["tuple"] == [0, {"0": 8, "6": 513, "7": [[0, "unsigned"]]}]
    assert found.body["record"] == "create_lsm"
    assert found.body["fields"] == {"lsm_id": 8, "space_id": 513, "key_def": [[0, "unsigned"]]}
    assert found.txn is None
