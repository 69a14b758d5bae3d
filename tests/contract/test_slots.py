"""Kernels of the groups and of the judge name the slots of their state, the event types and the traits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FORMATS = Path(__file__).resolve().parents[2] / "formats"
ROOMS = (
    "binlog_events/groups/*.py", "binlog_events/changes/run_kernels.py", "mysql_binlog/judge/*.py",
    "mysql_binlog/cuts.py", "mariadb_innodb_binlog/groups/*.py",
)  # fmt: skip
NAMED = {"code", "trait", "mark", "kind", "group", "what"}
"""Variables that are compared with names."""

FILES = sorted(path for room in ROOMS for path in FORMATS.glob(room))


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)


def bare(tree: ast.AST) -> Iterator[ast.expr]:
    """Slots of a state, and types, that are numbers. 0 is none of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "state":
            if is_number(node.slice):
                yield node
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {side.id for side in sides if isinstance(side, ast.Name)}
            if names & NAMED and any(is_number(side) and ast.literal_eval(side) for side in sides):
                yield node
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) and is_number(node.right):
            yield from [node] * (isinstance(node.left, ast.Name) and node.left.id in NAMED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FORMATS)))
def test_no_slot_and_no_event_type_is_a_bare_number(path: Path) -> None:
    found = [f"{node.lineno}: {ast.unparse(node)}" for node in bare(ast.parse(path.read_text("utf-8")))]
    assert found == []


def test_bare_numbers_are_seen() -> None:
    text = "state[3] = 1\nif code == 16 or trait & 4:\n    state[OPEN] = 0\n"
    assert [ast.unparse(node) for node in bare(ast.parse(text))] == ["state[3]", "code == 16", "trait & 4"]
