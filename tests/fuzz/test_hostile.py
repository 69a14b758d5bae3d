"""Commands over hostile content in a run of seconds; `python -m tests.fuzz.hostile FORMAT --count N` has no end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.content import TARGETS, content_seeds, make_hostile_seed
from tests.fuzz.hostile import Order, run
from tests.harness.engine import opinion

CHECKED = ("tarantool", "mariadb-innodb-binlog", "drizzle", "mysql-binlog")
"""Targets whose checksums cover a stated range, whatever is in it."""


@pytest.mark.full
@pytest.mark.parametrize("target", CHECKED)
def test_the_checksums_of_changed_records_are_right(corpus: Path, target: str) -> None:
    sound = [seed for seed in content_seeds(corpus, target) if not _is_damaged(seed.format, seed.name, seed.data)]
    inputs = [make_hostile_seed(random.Random(number), sound) for number in range(60)]
    assert sum(_is_damaged(seed.format, seed.name, seed.data) for seed in inputs) == 0
    assert len({seed.data for seed in inputs}) > 50


def _is_damaged(format: str, name: str, data: bytes) -> bool:
    return bool(opinion(format, name, data, depth="checksum").ids & {"checksum-mismatch", "bad-magic"})


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_some_hostile_inputs_break_no_promise(corpus: Path, tmp_path: Path, target: str) -> None:
    done = run(Order(target, 6, 0, 3, 1, tmp_path), content_seeds(corpus, target))
    assert (done.inputs, done.calls, dict(done.faults)) == (6, 36, {}), done.examples
