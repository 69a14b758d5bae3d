"""A condition on columns by compiled code chooses exactly what the general way chooses, from logs of real servers."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from decimal import Decimal
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.apply_where import CompiledCondition
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.query.conditions import (
    OPERATORS,
    Constant,
    MemberPath,
    compare_column_with_number,
    compare_column_with_text,
    compare_columns_pairwise,
    make_comparison,
)
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines

WORKLOADS = Path(__file__).parents[1] / "corpus" / "mysql_binlog" / "workloads"
LOGS = sorted(WORKLOADS.glob("*/types*.full.000001.gz")) + sorted(WORKLOADS.glob("*/partial-json.full.000001.gz"))
SHOP = WORKLOADS.parents[1] / "guides" / "mariadb" / "mariadb-bin.000002"
TESTS = ["> 0", "= '1'", "!= 0.5", "like '%1%'", "is null", "= x'00'", "< time '2024-01-01'", "in (1, true, 'b', null)"]


def columns_of(path: Path) -> list[str]:
    with binlogtool.open([str(path)]) as log:
        rows = [row for one in log.records() if isinstance(one.body, dict) for row in one.body.get("rows", ())]
    return sorted({name for row in rows for image in row.values() for name in image})


def chosen(path: Path, condition: str, backend: str) -> list[int]:
    with binlogtool.open([str(path)], backend=backend) as log:
        blocks = log.blocks(Selection(where=condition), decode="frame")
        return [int(offset) for block in blocks if isinstance(block, RecordBlock) for offset in block.offset]


@pytest.mark.full
@pytest.mark.parametrize("packed", LOGS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_both_ways_choose_the_same(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.000001"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    answers = 0
    true = CompiledCondition.evaluate_until_refused

    def counted(*given: object) -> tuple[list[bool], bool]:
        nonlocal answers
        found = true(*given)  # type: ignore[arg-type]
        answers += len(found[0])
        return found

    monkeypatch.setattr(CompiledCondition, "evaluate_until_refused", counted)
    names = [name for name in columns_of(path) if "`" not in name]
    assert names
    for i, name in enumerate(names):
        test = TESTS[i % len(TESTS)]
        condition = f"after.`{name}` {test} or not before.`{name}` {test} and before.`{name}` = after.`{names[i - 1]}`"
        assert chosen(path, condition, "native") == chosen(path, condition, "python"), condition
    for condition in ("body.flags = 1", "body.table_id > 18 and body.table like 'd%'", "body.database is null"):
        assert chosen(path, condition, "native") == chosen(path, condition, "python")
    assert answers > len(names)


MEMBERS = [
    "type like 'UPDATE%' or size > 200",
    "object like '%e%' and time >= '2020-01-01' and record > 10",
    "offset > 2000 and seq is not null and origin = 1",
    "txn like '%1' or object is null and not type = 'XID'",
    "type like '%ROWS%' and before.id is not null and object != 'x.y'",
    "type like 'WRITE%' and after.id > 0 or type = 'XID' and body.xid > 3",
]

NONE_IN_SHOP = MEMBERS[2]
"""Events of that log have no sequence number."""


@pytest.mark.parametrize("condition", MEMBERS)
@pytest.mark.parametrize("packed", [*LOGS[:2], SHOP], ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_lines_of_chosen_records_are_those_of_the_whole_log(packed: Path, condition: str, tmp_path: Path) -> None:
    path = tmp_path / "log.000001"
    data = packed.read_bytes()
    path.write_bytes(gzip.decompress(data) if packed.suffix == ".gz" else data)
    wanted = chosen(path, condition, "python")
    whole = lines(path, Selection())
    compared_lines = 0
    for selection, offsets in (
        (Selection(where=condition), wanted),
        (Selection(where=condition, skip=3, limit=5), wanted[3:8]),
    ):
        found = lines(path, selection)
        assert list(found) == offsets
        both = [at for at in offsets if found[at] and whole[at]]
        assert [found[at] for at in both] == [whole[at] for at in both]
        compared_lines += len(both)
    assert compared_lines >= (0 if packed == SHOP and condition == NONE_IN_SHOP else 1)


def lines(path: Path, selection: Selection) -> dict[int, bytes]:
    """What compiled code writes of the selected records, by offset; nothing of those that go the general way."""
    found: dict[int, bytes] = {}
    with binlogtool.open([str(path)], backend="native") as log:
        for part in CompiledLineEncoder().encode_ranges(log.record_ranges(selection)):
            if isinstance(part, EncodedLines):
                made = bytes(part.data).splitlines()
                assert [json.loads(line)["record"] for line in made] == list(part.record)
                found |= {json.loads(line)["offset"]: line for line in made}
            elif isinstance(part, RecordBlock):
                found |= {int(offset): b"" for offset in part.offset}
    return found


ODD = [
    [
        "1",
        "2.5",
        "-0",
        "0",
        "+7",
        "10",
        "3",
        "4",
        "0.10",
        "-99999999999999999999.1",
        "5",
        "6",
        "7",
        "8",
        "9",
        "0.1",
        "2",
    ],
    ["1", "2\n3", *"456789abcdefghi"],
    ["1", "1e5", "nan", "inf", " 1", "1_0", "", "x", *"123456789"],
    [1, 2, -1, 0, 2**80, None, *range(12)],
    [1, 2, -1, 0, 2**80, True, *range(12)],
    [1.5, None, "1", *range(15)],
    ["9007199254740993", "9007199254740992", "9007199254740993.0", *map(str, range(14))],
]


AS_A_WHOLE = [(8, 5, 0), (0, 5, 0), (0, 5, 0), (8, 0, 1), (0, 0, 0), (0, 0, 0), (8, 5, 0)]
"""How many of the 8 numbers, 5 texts and 1 column each column of `ODD` is compared with at once, not value by value."""


@pytest.mark.parametrize(("values", "expected"), list(zip(ODD, AS_A_WHOLE, strict=True)), ids=range(len(ODD)))
@pytest.mark.parametrize("sign", OPERATORS)
def test_whole_columns_compare_as_single_values_do(
    values: list[object], expected: tuple[int, int, int], sign: str
) -> None:
    field, holds = MemberPath(("after", "x")), OPERATORS[sign]
    at_once = {"number": 0, "text": 0, "column": 0}
    for number in (
        0,
        1,
        -1,
        Decimal("0.1"),
        9007199254740993,
        Decimal("9007199254740993.0"),
        10**400,
        Decimal(-(10**400)),
    ):
        one = make_comparison(sign, field, Constant(number))
        if (known := compare_column_with_number(holds, values, number)) is not None:
            assert known == [one.evaluate(value, number) for value in values]
            at_once["number"] += 1
    for text in ("", "x", "1", "\U0001f600", "\udc80"):
        one = make_comparison(sign, field, Constant(text))
        if (known := compare_column_with_text(holds, values, text)) is not None:
            assert known == [one.evaluate(value, text) for value in values]
            at_once["text"] += 1
    other = values[::-1]
    two = make_comparison(sign, field, field)
    if (known := compare_columns_pairwise(holds, values, other)) is not None:
        assert known == [two.evaluate(*pair) for pair in zip(values, other, strict=True)]
        at_once["column"] += 1
    assert tuple(at_once.values()) == expected


def test_the_frequent_kinds_are_compared_at_once() -> None:
    for values in (ODD[0], ODD[3], ODD[6]):
        assert compare_column_with_number(OPERATORS["<"], values, 1) is not None
    assert compare_column_with_text(OPERATORS["!="], ["a", None, "x"], "x") == [2, 1, 0]
    assert compare_column_with_text(OPERATORS["!="], ["a", 1], "x") is None


def test_a_column_that_is_not_named_and_cannot_be_read_has_its_record_chosen(tmp_path: Path) -> None:
    """Both ways: a body that cannot be read could be anything."""
    log = bytearray(SHOP.read_bytes())
    path = tmp_path / "log.000001"
    path.write_bytes(log)
    condition = "before.id = 77"
    assert chosen(path, condition, "native") == []
    with binlogtool.open([str(path)]) as opened:
        event = next(one for one in opened.records() if one.type.startswith("DELETE_ROWS"))
    start = event.offset
    total = log.index(bytes.fromhex("80000078 00".replace(" ", "")), start)  # 120.00
    log[total : total + 5] = bytes.fromhex("ffffffffff")
    end = start + event.size - 4
    log[end : end + 4] = struct.pack("<I", zlib.crc32(log[start:end]))
    path.write_bytes(log)
    assert chosen(path, condition, "native") == chosen(path, condition, "python") == [start]


SPACES = sorted((Path(__file__).parents[1] / "corpus" / "tarantool" / "chain").glob("*.xlog"))


@pytest.mark.parametrize("backend", ["native", "python"])
def test_a_condition_that_leaves_out_the_definition_of_a_space_leaves_its_name(backend: str) -> None:
    """A condition on sizes alone passed over the rows of `_space`, and the space was called by its number."""
    named = 0
    for path in SPACES:
        with binlogtool.open([str(path)], backend=backend) as log:
            objects = {record.record: record.object for record in log.records()}
        for number, name in list(objects.items())[-30:]:
            with binlogtool.open([str(path)], backend=backend) as log:
                (block,) = log.blocks(Selection(where=f"record = {number}"), decode="frame")
            assert isinstance(block, RecordBlock) and list(block.envelope.object) == [name]
            named += name is not None and not name.isdigit()
    assert named > 20
