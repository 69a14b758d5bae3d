"""Goals R1, R2, R9 and R12 on damaged input: no exception, no hang, every byte accounted for, one opinion."""

from __future__ import annotations

import base64
import os
import random
import time
from pathlib import Path

import pytest

from tests.harness.engine import Opinion, opinion
from tests.harness.mutate import mutated
from tests.harness.samples import FORMATS, FULL, Sample, keyed, pieces
from tests.sampling import EXHAUSTIVE

pytestmark = pytest.mark.full

INPUTS = int(os.environ.get("BINLOGTOOL_FUZZ_INPUTS", 100_000 if FULL else 5_000 if EXHAUSTIVE else 400))
"""Of each format. `tests/fuzz` tries more kinds of damage, and more often."""
SEED = int(os.environ.get("BINLOGTOOL_FUZZ_SEED", 1))
SLOWEST = 1.0
KIB = 1024


def told(sample: Sample, data: bytes, seed: int) -> str:
    """What a person needs to run the input again."""
    return f"seed {seed}, made from {sample.name}: {base64.b85encode(data).decode()}"


def timed(sample: Sample, data: bytes, seed: int, backend: str) -> tuple[Opinion, float]:
    """One verify that must neither raise nor take long."""
    start = time.thread_time()
    try:
        seen = opinion(sample.format, sample.name, data, backend, hints=sample.hints)
    except Exception as error:
        raise AssertionError(f"{error!r} on {told(sample, data, seed)}") from error
    seconds = time.thread_time() - start
    assert seconds < SLOWEST, f"{seconds:.2f} s on {told(sample, data, seed)}"
    return seen, seconds


def inputs(corpus: Path, format: str) -> list[Sample]:
    """What is mutated; encrypted logs also with their keys."""
    return [*pieces(corpus, format, 16 * KIB), *keyed(corpus, format, 16 * KIB)]


@pytest.mark.parametrize("format", FORMATS)
def test_no_mutated_input_crashes_hangs_or_loses_a_byte(corpus: Path, format: str) -> None:
    samples = inputs(corpus, format)
    slowest, size, ids = 0.0, 0, set[str]()
    for seed in range(SEED * 1_000_000_000, SEED * 1_000_000_000 + INPUTS):
        sample, data = mutated(random.Random(seed), samples)
        seen, seconds = timed(sample, data, seed, "native")
        size, slowest = size + len(data), max(slowest, seconds)
        ids |= seen.ids
    amount = f"{INPUTS:,} mutated inputs, {size / 1e6:.0f} MB"
    print(f"\nR1 {format}: {amount}, 0 exceptions; slowest {1000 * slowest:.0f} ms CPU")
    print(f"  R9: the byte account was whole each time; kinds of findings seen: {', '.join(sorted(ids))}")
    assert len(ids) > 10


@pytest.mark.parametrize("format", FORMATS)
def test_both_scanners_have_one_opinion_of_mutated_input(corpus: Path, format: str) -> None:
    samples = inputs(corpus, format)
    for seed in range(SEED * 2_000_000_000, SEED * 2_000_000_000 + INPUTS // 2):
        sample, data = mutated(random.Random(seed), samples)
        plain, _ = timed(sample, data, seed, "python")
        fast, _ = timed(sample, data, seed, "native")
        assert fast == plain, told(sample, data, seed)
    print(f"\nR12 {format}: {INPUTS // 2:,} mutated inputs, both scanners agree on records, durable end and findings")
