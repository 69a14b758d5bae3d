"""Numbers and commands as readers see them."""

from __future__ import annotations

import sys

import pytest

from binlogtool.report.format_numbers_and_names import (
    format_command,
    format_duration,
    format_facts_missing_from_message,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_725, "1 h 2 min"), (26 * 3_600, "1 d 2 h"), (86_405, "1 d")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("program", "words"),
    [("/usr/bin/binlogtool", "binlogtool"), ("/opt/my tools/b.pyz", "python3 '/opt/my tools/b.pyz'")],
)
def test_a_command_names_the_program_that_runs(program: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert format_command("verify", "a b") == f"{words} verify 'a b'"


def test_facts_are_names_with_values_in_words_for_people() -> None:
    facts = {
        "situation": "apply",
        "server": "refuse",
        "is_first": False,
        "between": True,
        "missing": "",
        "stored": "5b1c",
    }
    assert format_facts_missing_from_message(facts, "a message") == [
        "when the log is replayed", "the server refuses to start", "stored 5b1c",
    ]  # fmt: skip
    assert format_facts_missing_from_message(facts, "stored 5b1c; the server refuses to start") == [
        "when the log is replayed"
    ]
