"""Every example of the README runs and prints what it says, and every line of its table does what it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Example, examples, make_place, matches, run

TEXT = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = examples(TEXT)
GUIDES = "tests/corpus/guides"
TABLE = {
    "The server does not start": ("tarantool-flipped", 1, "do 1 "),
    "A log ends in the middle": ("tarantool-torn", 0, "nothing was changed; use --apply to carry out the plan"),
    "A wrong `DELETE`": ("mariadb", 0, "wrote  flashback.sql"),
    "What happened to a table": ("mariadb", 0, "Egil"),
    "What changed at 14:05?": ("mariadb", 0, "DELETE_ROWS_V1"),
    "Check backups in CI": ("mariadb", 0, "(100 %)"),
    "Logs to Parquet": ("mariadb", 0, "wrote  tables"),
    "Messages for a change": ("mariadb", 0, "wrote  changes.jsonl"),
    "Restore up to a moment": ("mariadb", 0, "wrote  until.sql"),
}
"""The start of a row -> the sample that its first command is tried on, its status, words that it prints."""


def rows() -> dict[str, list[str]]:
    """The table of the first screen: what happened -> the commands."""
    lines = TEXT[TEXT.index("| what happened |") :].split("\n\n", 1)[0].splitlines()[2:]
    cells = [line.strip("| ").split(" | ", 1) for line in lines]
    return {cell[0]: re.findall(r"`(binlogtool [^`]+)`", cell[1]) for cell in cells}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A directory that looks like the checkout, where commands may write."""
    return make_place(tmp_path, {"data": ROOT / GUIDES})


def test_the_first_screen_answers_what_happened() -> None:
    assert len(EXAMPLES) >= 3
    assert len(TABLE) == len(rows()) == len([r for r in rows() if r.startswith(tuple(TABLE))])
    assert TEXT[: TEXT.index("| what happened |")].count("\n") < 12


@pytest.mark.parametrize(
    "what",
    [pytest.param(w, marks=[pytest.mark.spark(alone=True)] if "Parquet" in w else []) for w in TABLE],
    ids=lambda w: w,
)
def test_what_the_table_says_to_type_does_it(what: str, workplace: Path) -> None:
    sample, status, words = TABLE[what]
    command = next(commands[0] for row, commands in rows().items() if row.startswith(what))
    command, replaced = re.subn(r"/(?:var/lib|backup)/\w+", f"data/{sample}", command)
    assert replaced == 1
    ended, shown = run(command, workplace)
    assert ended == status and words in "\n".join(shown), "\n".join(shown)


def test_the_cut_of_the_table_can_be_taken_back(workplace: Path) -> None:
    row = next(commands for what, commands in rows().items() if "torn tail" in what)
    assert row[1] == "binlogtool undo --apply UNDO_FILE"
    log = next((workplace / "data" / "tarantool-torn").glob("*.xlog"))
    before = log.read_bytes()
    assert run("binlogtool truncate-to-durable --apply --yes data/tarantool-torn", workplace)[0] == 0
    assert len(log.read_bytes()) < len(before)
    (undo,) = log.parent.glob("*.binlogtool-undo-*")
    assert run(f"{row[1].replace('UNDO_FILE', str(undo))} --yes", workplace)[0] == 0
    assert log.read_bytes() == before


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"line {e.line}")
def test_the_example_prints_what_the_readme_says(example: Example, workplace: Path) -> None:
    _, shown = run(example.command, workplace)
    assert matches(example.output, shown), "\n".join(shown)


def test_the_comparison_can_fail() -> None:
    assert matches(["a", "…", "c"], ["a", "b", "b", "c"])
    assert not matches(["a", "c"], ["a", "b", "c"])
    assert matches(["undo ….gz"], ["undo 12.gz"]) and not matches(["undo ….gz"], ["undo 12.xz"])
    assert matches(["a", ""], ["a"]) and not matches(["a"], [])
