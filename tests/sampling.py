"""How much of an exhaustive check a run makes: a fixed sample, or all of it with BINLOGTOOL_SAMPLES=all (nightly)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

EXHAUSTIVE = os.environ.get("BINLOGTOOL_SAMPLES") == "all"


def take_sample(cases: Iterable[T], every: int, first: int = 0) -> list[T]:
    """Choose one case of each `every`, from the case number `first` on; all cases in an exhaustive run."""
    return list(cases) if EXHAUSTIVE else list(cases)[first::every]
