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

pytestmark = [pytest.mark.corpus, pytest.mark.slow]

SECONDS = float(os.environ.get("BINLOGTOOL_FUZZ_SECONDS", 600 if FULL else 60))
SHARE = {"mysql-binlog": 0.4, "mariadb-innodb-binlog": 0.4}
"""The part of the time that a format gets, where it is not all."""
SEED = int(os.environ.get("BINLOGTOOL_FUZZ_SEED", 1))
SLOWEST = 1.0
KIB = 1024


def told(sample: Sample, data: bytes, seed: int) -> str:
    """What a person needs to run the input again."""
    return f"seed {seed}, made from {sample.name}: {base64.b85encode(data).decode()}"


def timed(sample: Sample, data: bytes, seed: int, backend: str = "python") -> tuple[Opinion, float]:
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
    end = time.monotonic() + SECONDS * SHARE.get(format, 1)
    done, slowest, size, ids = 0, 0.0, 0, set[str]()
    while time.monotonic() < end:
        seed = SEED * 1_000_000_000 + done
        sample, data = mutated(random.Random(seed), samples)
        seen, seconds = timed(sample, data, seed)
        done, size, slowest = done + 1, size + len(data), max(slowest, seconds)
        ids |= seen.ids
    amount = f"{done:,} mutated inputs, {size / 1e6:.0f} MB"
    print(f"\nR1 {format}: {amount}, 0 exceptions; slowest {1000 * slowest:.0f} ms CPU")
    print(f"  R9: the byte account was whole each time; kinds of findings seen: {', '.join(sorted(ids))}")
    assert done > 100


@pytest.mark.parametrize("format", FORMATS)
def test_both_scanners_have_one_opinion_of_mutated_input(corpus: Path, format: str) -> None:
    samples = inputs(corpus, format)
    end = time.monotonic() + SECONDS / 3 * SHARE.get(format, 1)
    done = 0
    while time.monotonic() < end:
        seed = SEED * 2_000_000_000 + done
        sample, data = mutated(random.Random(seed), samples)
        plain, _ = timed(sample, data, seed)
        fast = opinion(format, sample.name, data, "native", hints=sample.hints)
        assert fast == plain, told(sample, data, seed)
        done += 1
    print(f"\nR12 {format}: {done:,} mutated inputs, both scanners agree on records, durable end and findings")
    assert done > 50
