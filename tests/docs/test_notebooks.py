"""docs/notebooks.md and docs/examples/rows.ipynb are run, and show what they say.

After a wanted change: `python -m tests.docs.test_notebooks` writes the outputs of the notebook anew.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "examples" / "rows.ipynb"


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("duckdb", "polars", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[dev]'")
    monkeypatch.chdir(ROOT)


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell shows, as the notebook keeps it: what it prints, and the value of a last expression."""
    tree, shown = ast.parse(source), list[dict[str, Any]]()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    if out.getvalue():
        shown.append({"name": "stdout", "output_type": "stream", "text": out.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        shown.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return shown


def cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each cell with code, and what it shows."""
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield cell, run("".join(cell["source"]), names)


@pytest.mark.full
def test_the_notebook_shows_what_it_says() -> None:
    seen = 0
    for cell, shown in cells(json.loads(NOTEBOOK.read_text("utf-8"))):
        assert cell["outputs"] == shown, "".join(cell["source"])
        seen += bool(shown)
    assert seen >= 5


def test_the_page_about_notebooks_shows_what_it_says() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / "notebooks.md"), module_relative=False, encoding="utf-8")
    assert failed == 0 and tried > 15


def record(path: Path) -> None:
    """Writes the outputs anew."""
    notebook = json.loads(path.read_text("utf-8"))
    for cell, shown in cells(notebook):
        cell["outputs"] = shown
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    os.chdir(ROOT)
    record(NOTEBOOK)
