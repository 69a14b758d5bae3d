"""How much of an exhaustive check a run makes: a fixed sample, or all of it with BINLOGTOOL_SAMPLES=all (nightly)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

EXHAUSTIVE = os.environ.get("BINLOGTOOL_SAMPLES") == "all"

MAX_WHOLE = 3
"""Tests with at most this many cases are always run with all of them."""

SHARE = 3
"""Of tests with more cases, one of so many is run."""

EACH_VALUE = frozenset(("format", "format_", "folder", "server", "command", "to", "kind", "case", "backend"))
"""Parameters of which each value is in the sample: no format, server, command or kind of fault is left out."""


def take_sample(cases: Iterable[T], every: int, first: int = 0) -> list[T]:
    """Choose one case of each `every`, from the case number `first` on; all cases in an exhaustive run."""
    return list(cases) if EXHAUSTIVE else list(cases)[first::every]


def choose_cases(test: str, cases: Sequence[Mapping[str, object]]) -> set[int]:
    """Choose which cases of a parametrized test of the full tier are run: always the same ones of the same cases.

    Args:
        test: the name of the test, from which the choice follows.
        cases: the parameters of each case.

    Returns:
        Indexes into `cases`.
    """
    if EXHAUSTIVE or len(cases) <= MAX_WHOLE:
        return set(range(len(cases)))
    order = list(range(len(cases)))
    random.Random(test).shuffle(order)
    seen, chosen = set[tuple[str, str]](), list[int]()
    for index in order:
        values = {(name, repr(value)) for name, value in cases[index].items() if name in EACH_VALUE}
        if values - seen:
            chosen.append(index)
            seen |= values
    rest = [index for index in order if index not in chosen]
    return {*chosen, *rest[: max(0, max(2, -(-len(cases) // SHARE)) - len(chosen))]}
