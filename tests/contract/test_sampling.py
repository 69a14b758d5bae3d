"""The full tier runs a part of the cases of a parametrized test; nightly all."""

from __future__ import annotations

import itertools

import pytest

from tests import sampling
from tests.sampling import choose_cases

CASES = [
    {"format": format, "number": number} for format, number in itertools.product(["a", "b", "c", "d", "e"], range(4))
]


@pytest.fixture(autouse=True)
def in_the_full_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EXHAUSTIVE", False)


@pytest.mark.parametrize(("count", "chosen"), [(0, 0), (1, 1), (3, 3), (4, 2), (6, 2), (7, 3), (40, 14)])
def test_of_more_than_three_cases_a_third_is_run(count: int, chosen: int) -> None:
    assert len(choose_cases("test", [{"number": number} for number in range(count)])) == chosen


@pytest.mark.parametrize("name", ["one", "two", "three", "four", "five", "six", "seven"])
def test_every_format_is_among_them(name: str) -> None:
    chosen = choose_cases(name, CASES)
    assert {CASES[index]["format"] for index in chosen} == {"a", "b", "c", "d", "e"} and len(chosen) == 7


def test_each_run_takes_the_same_cases_and_each_test_its_own() -> None:
    assert choose_cases("one", CASES) == choose_cases("one", CASES) != choose_cases("two", CASES)


def test_the_nightly_run_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EXHAUSTIVE", True)
    assert choose_cases("test", CASES) == set(range(20))
