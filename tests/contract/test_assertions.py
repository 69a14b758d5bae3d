"""Assertions of the tests that may be unable to fail, counted; each number may only fall.

An `assert a or b` accepts two answers: often one of them is the fault. Write one expected value, if need be one for
each parametrized case. What is left says in a comment why both are right.

A test that ends by a bare `return` in front of its first assertion has passed without having checked anything: a
missing input is `pytest.skip` with a reason, or a failure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TWO_ANSWERS = 3
"""Assertions of the form `assert a or b`."""


def two_answers(tree: ast.AST) -> Iterator[int]:
    """The lines of assertions that accept two answers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or):
            yield node.lineno


def silent_returns(tree: ast.AST) -> Iterator[int]:
    """The lines of bare `return`s of tests in front of which nothing was asserted and no helper was called."""
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test"):
            returns = [node for node in ast.walk(test) if isinstance(node, ast.Return) and node.value is None]
            if not returns:
                continue
            checks = [node.lineno for node in ast.walk(test) if isinstance(node, ast.Assert | ast.With)
                      or (isinstance(node, ast.Call) and ast.unparse(node.func) in CHECKING)]  # fmt: skip
            first = min(checks, default=test.end_lineno or 0)
            yield from (node.lineno for node in returns if node.lineno <= first)


CHECKING = {"compare"}
"""Helpers that assert."""


def found(rule: Callable[[ast.AST], Iterator[int]]) -> list[str]:
    """The places in all tests."""
    return [f"{path.relative_to(TESTS)}:{line}" for path in sorted(TESTS.rglob("*.py")) for line in rule(parsed(path))]


@cache
def parsed(path: Path) -> ast.Module:
    """The module, parsed once for all rules."""
    return ast.parse(path.read_text("utf-8"))


def test_no_more_assertions_accept_two_answers() -> None:
    lines = found(two_answers)
    assert len(lines) <= TWO_ANSWERS, lines


def test_no_test_returns_before_it_has_checked_anything() -> None:
    assert found(silent_returns) == []


def test_both_are_seen() -> None:
    text = "def test_a(a):\n    if a:\n        return\n    assert a or not a\n    assert not (a and a)\n"
    tree = ast.parse(text)
    assert (list(silent_returns(tree)), list(two_answers(tree))) == ([3], [4])
