"""Regular expressions: what `re` of the first releases of Python 3.11 matches wrongly is not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contract.sources import modules

_WRONG = re.compile(r"(?<!/)[*+?]\+|\{\d*,?\d*\}\+|\(\?>")
"""Possessive quantifiers and atomic groups (fixed in Python 3.11.5); `/*+` opens a hint of an optimizer."""


def texts(source: str) -> Iterator[str | bytes]:
    """Every text in the code; not its docstrings."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in said:
            yield node.value


def wrong(source: str) -> list[str]:
    found = (text if isinstance(text, str) else text.decode("latin-1") for text in texts(source))
    return [text for text in found if _WRONG.search(text)]


@pytest.mark.parametrize(
    "pattern", ["(?:[^*]|x)*+", "(?:a|b)++", "(?:ab?)?+", "(?>ab?c)", "(?:ab){2,}+", r"\s*+", "a{3}+"]
)
def test_a_pattern_that_some_pythons_match_wrongly_is_found(pattern: str) -> None:
    assert wrong(f"import re\nA = re.compile(r'{pattern}')\nB = re.compile(rb'{pattern}')\n") == [pattern, pattern]


def test_ordinary_quantifiers_are_not_taken_for_possessive_ones() -> None:
    assert wrong("'''C++ and a*+'''\nA = r'(?:a+|[+]+)* (?=x) (?:y){1,2}z+'\n") == []


def test_no_pattern_of_the_product_is_possessive_or_atomic() -> None:
    suspects = {path.resolve() for path in modules() if _WRONG.search(path.read_text())}
    assert {str(path): found for path in suspects if (found := wrong(path.read_text()))} == {}
