"""Every example of the README runs and prints what it says.

A block marked `console` is run: lines that start with `$ binlogtool` are commands, the lines below are their output. A
line `…` stands for any lines. Blocks marked otherwise are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


class Example(NamedTuple):
    line: int
    command: str
    output: list[str]


def examples(text: str, programs: tuple[str, ...] = ("binlogtool",)) -> list[Example]:
    found: list[Example] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside and line.strip() == "```console"
        elif inside and line.startswith("$ "):
            found.append(Example(number, line[2:], []))
        elif inside and found:
            found[-1].output.append(line)
    return [e for e in found if e.command.startswith(programs)]


def matches(expected: list[str], shown: list[str]) -> bool:
    pattern = "".join("(?:.*\n)*?" if e.strip() in ("…", "...") else re.escape(e.rstrip()) + " *\n" for e in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


EXAMPLES = examples(README.read_text("utf-8"))


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A directory that looks like the checkout, where commands may write."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    shim = tmp_path / "shims" / "binlogtool"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m binlogtool "$@"\n')
    shim.chmod(0o755)
    return tmp_path


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, marks=[pytest.mark.spark] if "parquet" in e.command else []) for e in EXAMPLES],
    ids=lambda e: f"line {e.line}",
)
def test_the_example_prints_what_the_readme_says(example: Example, workplace: Path) -> None:
    environment = {**os.environ, "PATH": f"{workplace / 'shims'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", example.command],
        cwd=workplace,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=180,
        check=False,
    )
    shown = done.stdout.decode("utf-8").splitlines()
    expected = example.output
    while expected and not expected[-1].strip():
        expected = expected[:-1]
    while shown and not shown[-1].strip():
        shown = shown[:-1]
    assert matches(expected, shown), "\n".join(shown)


def test_the_comparison_can_fail() -> None:
    assert matches(["a", "…", "c"], ["a", "b", "b", "c"])
    assert not matches(["a", "c"], ["a", "b", "c"])
