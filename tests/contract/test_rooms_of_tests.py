"""The rooms of the tests: what several of them need lies in plain modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.contract.sources import ROOT

ASKING = sorted(p for folder in ("tests", "bench", "examples") for p in (ROOT / folder).rglob("*.py"))


def imported_tests(path: Path) -> list[str]:
    """Test files that a file imports, at its top or later."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or "", *(alias.name for alias in node.names)]
    return [name for name in found if name.rpartition(".")[2].startswith("test_")]


def test_no_test_file_is_imported() -> None:
    assert len(ASKING) > 400
    assert {str(p.relative_to(ROOT)): names for p in ASKING if (names := imported_tests(p))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import tests.log.test_one_walk",
        "from tests.log.test_one_walk import logs",
        "from tests.log import test_one_walk",
    ],
)
def test_an_import_of_a_test_file_is_seen_also_inside_a_function(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"def late():\n    {text}\n")
    assert imported_tests(tmp_path / "a.py") != []
