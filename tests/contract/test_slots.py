"""Kernels of transactions, validators, scripts and changes name slots of their state, types, kinds and traits;
those of other modules have so many numbers without a name as are counted here, and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.formats.binlog_events import wire_format
from binlogtool.formats.binlog_events.wire_format import HEADER_SIZE, EventType

FORMATS = Path(__file__).resolve().parents[2] / "formats"
STRICT = (
    "binlog_events/transactions/*.py", "binlog_events/changes/*.py", "binlog_events/sql/kernels/*.py",
    "mysql_binlog/validate/*.py", "mysql_binlog/extract_transactions.py", "mariadb_innodb_binlog/event_groups.py",
    "mariadb_innodb_binlog/records/salvage.py", "mariadb_innodb_binlog/validate/log_set.py",
)  # fmt: skip
"""Modules of such kernels, below `formats`: none of their numbers is without a name."""
NAMED = {
    "code", "codes", "type_code", "type_codes", "row_kind", "expected_type", "literal_code",
    "attribute_type", "column_type", "value_type", "encoding", "trait", "type_traits", "mark",
    "event_mark", "kind", "group", "group_state", "what",
}  # fmt: skip
"""Variables that are compared with names."""

FILES = sorted(path for pattern in STRICT for path in FORMATS.glob(pattern))
ELSEWHERE = {
    "binlog_events/wire_format.py": 2,
    "manticore/decode.py": 1,
    "mariadb_innodb_binlog/validate/file.py": 2,
    "tarantool/msgpack/parse.py": 49,
    "tarantool/replay/replay_kernels.py": 37,
    "tarantool/rows/json_line_kernels.py": 25,
    "tarantool/rows/parse_rows.py": 29,
    "tarantool/spaces/definitions.py": 2,
    "tarantool/validate/base_validator.py": 31,
}
"""Number of bare numbers in the other modules of formats: codes of wire formats (MessagePack, protobuf)
in compiled code. No number may rise, and no module may be added."""


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)


def name_of(node: ast.expr) -> str:
    """The name of a variable, or of a field of a struct."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def leaves(side: ast.expr) -> Iterator[str]:
    """What is compared: a variable, an element of an array, or what is computed of one."""
    if isinstance(side, ast.Name):
        yield side.id
    elif isinstance(side, ast.Subscript) and isinstance(side.value, ast.Attribute):
        yield side.value.attr
    elif isinstance(side, ast.Subscript):
        yield from leaves(side.value)
    elif isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mod | ast.Sub | ast.Add):
        yield from leaves(side.left)


def bare(tree: ast.AST) -> Iterator[ast.expr]:
    """Slots of a state, and types, that are numbers. 0 is none of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and name_of(node.value) == "state":
            if is_number(node.slice):
                yield node
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {inner for side in sides if not isinstance(side, ast.Call) for inner in leaves(side)}
            if names & NAMED and any(is_number(side) and ast.literal_eval(side) for side in sides):
                yield node
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) and is_number(node.right):
            yield from [node] * (isinstance(node.left, ast.Name) and node.left.id in NAMED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FORMATS)))
def test_no_slot_and_no_event_type_is_a_bare_number(path: Path) -> None:
    found = [f"{node.lineno}: {ast.unparse(node)}" for node in bare(ast.parse(path.read_text("utf-8")))]
    assert found == []


def test_other_modules_have_no_more_bare_numbers_than_they_had() -> None:
    paths = sorted(set(FORMATS.rglob("*.py")) - set(FILES))
    counts = {
        str(path.relative_to(FORMATS)): sum(1 for _ in bare(ast.parse(path.read_text("utf-8")))) for path in paths
    }
    assert {name: count for name, count in counts.items() if count > ELSEWHERE.get(name, 0)} == {}
    assert sorted(name for name in ELSEWHERE if not counts.get(name)) == [], "none left: take it off the list"


def test_the_places_in_the_common_header_are_those_of_the_specification() -> None:
    assert (
        wire_format.TYPE_AT,
        wire_format.SERVER_ID_AT,
        wire_format.EVENT_SIZE_AT,
        wire_format.END_LOG_POS_AT,
        wire_format.FLAGS_AT,
    ) == (
        4,
        5,
        9,
        13,
        17,
    )
    assert wire_format.HEADER.sizeof() == HEADER_SIZE == 19


def test_bare_numbers_are_seen() -> None:
    text = "state[3] = 1\nif code == 16 or trait & 4 or codes[i] == 2 or (code - X) % Y == 1:\n    state[OPEN] = 0\n"
    found = ["state[3]", "code == 16", "codes[i] == 2", "(code - X) % Y == 1", "trait & 4"]
    assert sorted(ast.unparse(node) for node in bare(ast.parse(text))) == sorted(found)


def test_the_numbers_of_kernels_are_those_of_the_enum() -> None:
    numbers = {name: value for name, value in vars(wire_format).items() if name in EventType.__members__}
    assert len(numbers) >= 17
    assert numbers == {name: EventType[name].value for name in numbers}
