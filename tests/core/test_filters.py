"""Selection: positions, types, objects, counts. Expectations are the facts of the sample's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import LogPosition, Record, RecordBlock, Selection, parse_position
from binlogtool.errors import UsageError
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines, FieldJsonEncoder, RecordJsonEncoder

FIRST_OFFSETS = [0, 44, 207, 669, 964, 1357, 2055, 2205, 2303, 2753, 2851, 3217, 3668, 4090, 4548, 4970, 5093]
"""Entry starts of basic-checksum.log, as its manifest lists them."""


@pytest.fixture
def log(samples: Path) -> Path:
    return samples / "drizzle" / "basic-checksum.log"


def select(log: Path, **options: object) -> list[Record]:
    with binlogtool.open(log) as opened:
        return list(opened.records(selection=Selection(**options)))  # type: ignore[arg-type]


def test_all_records_come_in_order_with_their_offsets(log: Path) -> None:
    records = select(log)
    assert [r.offset for r in records[:17]] == FIRST_OFFSETS
    assert [r.record for r in records] == list(range(67))
    assert sum(r.size for r in records) == 22501


def test_a_byte_position_is_inclusive_at_the_start_and_exclusive_at_the_stop(log: Path) -> None:
    assert [r.offset for r in select(log, start="207", stop="0x3c4")] == [207, 669]
    assert [r.offset for r in select(log, start="208", stop="965")] == [669, 964]


def test_record_numbers_select(log: Path) -> None:
    assert [r.offset for r in select(log, start="record:2", stop="record:4")] == [207, 669]


def test_sequence_numbers_select(log: Path) -> None:
    assert [r.seq for r in select(log, start="seq:5", stop="seq:8")] == [5, 6, 7]


def test_positions_count_from_the_end(log: Path) -> None:
    (last,) = select(log, start="end-44")
    assert (last.offset, last.size) == (22457, 44)


def test_a_position_may_name_its_file(log: Path) -> None:
    assert len(select(log, stop="basic-checksum.log:207")) == 2


@pytest.mark.parametrize("option", ["start", "stop"])
def test_a_file_that_is_not_there_is_named(log: Path, option: str) -> None:
    with pytest.raises(UsageError, match="no file of that name"):
        select(log, **{option: "other.log:207"})


def test_limit_skip_and_tail_count_records(log: Path) -> None:
    assert [r.record for r in select(log, skip=3, limit=2)] == [3, 4]
    assert [r.record for r in select(log, tail=2)] == [65, 66]
    assert [r.record for r in select(log, types=("CREATE_TABLE",), limit=1)] == [2]


def test_types_and_objects_select(log: Path) -> None:
    assert {r.type for r in select(log, types=("CREATE_TABLE", "DROP_TABLE"))} == {"CREATE_TABLE", "DROP_TABLE"}
    items = select(log, objects=("*.item",))
    others = select(log, exclude_objects=("*.item",))
    assert items
    assert len(items) + len(others) == 67
    assert {r.object for r in items} == {"shop1.item"}


def test_origins_select(log: Path) -> None:
    assert len(select(log, origins=(2,))) == 67
    assert select(log, exclude_origins=(2,)) == []


def test_times_select(log: Path) -> None:
    assert [r.seq for r in select(log, start_time=1330000000006338, stop_time=1330000000020116)] == [2, 3]


@pytest.mark.parametrize("text", ["x", "record:", "record:x", "gtid:0-1-1", "page:3", "end+4"])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_position(text, 100)


def test_position_texts_are_read() -> None:
    assert parse_position("4KiB", None) == LogPosition("offset", 4096)
    assert parse_position("f:seq:7", None) == LogPosition("seq", 7, "f")
    assert parse_position("end-0x10", 100) == LogPosition("offset", 84)


MARIADB = Path(__file__).parents[1] / "corpus" / "guides" / "mariadb"
"""16 events of shop.orders and shop.stock, in two files, and the CREATE TABLE of each."""


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({"objects": ("shop.stock",), "statements": "also"}, 7),  # 3 TABLE_MAP, 3 row events, the CREATE TABLE
        ({"objects": ("shop.*",), "exclude_objects": ("shop.orders",)}, 6),
        ({"types": ("DELETE_ROWS_V1",)}, 1),
        ({"origins": (9,)}, 0),
        ({"objects": ("shop.orders",), "start_time": 1795183200_000_000}, 4),
    ],
)
def test_names_select_in_compiled_code_as_in_python(chosen: dict[str, Any], count: int) -> None:
    found = {}
    for backend in ("native", "python"):
        with binlogtool.open(MARIADB, backend=backend) as log:
            encoder = CompiledLineEncoder()
            parts = list(encoder.encode_ranges(log.record_ranges(Selection(**chosen))))
        if backend == "native":
            assert not any(isinstance(part, RecordBlock) for part in parts)
        style = FieldJsonEncoder(RecordJsonEncoder())
        lines = [part.data if isinstance(part, EncodedLines) else style.encode_lines(part) for part in parts]
        found[backend] = b"".join(bytes(one) for one in lines)
    assert found["native"] == found["python"]
    assert found["native"].count(b"\n") == count
