"""Goal R4 with repair: a log cut at any byte, then repaired, is clean and holds exactly the durable records."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.recovery.plan import Asked
from tests.harness import oracle
from tests.harness.samples import FORMATS, FULL, Sample, samples

pytestmark = [pytest.mark.corpus, pytest.mark.slow]

LIMIT = 64 * 1024
CUTS = 1 << 30 if FULL else 10
"""Cuts of each file."""
FILES = 1 << 30 if FULL else 30


def cuts(sample: Sample, walk: oracle.Walk) -> list[int]:
    """Everywhere, or around some frame borders and at random places."""
    size = len(sample.data)
    if size <= CUTS:
        return list(range(1, size))
    rng = random.Random(size)
    borders = rng.sample([frame.end for frame in walk.frames], k=min(2, len(walk.frames)))
    near = {border + step for border in borders for step in (-1, 0, 1)}
    return sorted(cut for cut in near | {rng.randrange(1, size) for _ in range(CUTS - 6)} if 0 < cut < size)


@pytest.mark.parametrize("format", FORMATS)
def test_r4_a_cut_log_is_repaired_to_exactly_its_durable_records(corpus: Path, tmp_path: Path, format: str) -> None:
    outcomes: Counter[str] = Counter()
    files = 0
    for sample in samples(corpus, format, LIMIT):
        walk = sample.walk
        if walk.head is None or not walk.clean or not walk.frames or files >= FILES:
            continue
        path = tmp_path / PurePosixPath(sample.name).name
        path.write_bytes(sample.data)
        if sample.name.startswith("damaged") or binlogtool.verify([path], format=format).count(Severity.ERROR):
            continue
        files += 1
        durable = oracle.durable_ends(walk)
        ends = [frame.end for frame in walk.frames]
        for cut in cuts(sample, walk):
            whole = sum(end <= cut for end in ends)
            outcomes[repaired(path, sample.data[:cut], durable[whole], walk.head, format)] += 1
        path.unlink()
    print(f"\nR4 with repair, {format}: {files} files, {sum(outcomes.values()):,} cuts: {dict(outcomes)}")
    assert outcomes["repaired"] + outcomes["repaired with consent"] > 60


def repaired(path: Path, data: bytes, end: int, head: int, format: str) -> str:
    """Repairs the bytes; they must be the durable part then, and clean, and undo must bring them back."""
    path.write_bytes(data)
    plan = binlogtool.plan_truncate(path, format=format)
    if plan.files[0].durable_end is None:
        assert plan.refused or not plan.changes
        assert path.read_bytes() == data
        return "head not whole: refused"
    how = "repaired"
    if plan.refused:
        plan = binlogtool.plan_truncate(path, format=format, asked=Asked(allow_discard_valid=True))
        how = "repaired with consent"
    if plan.refused:
        assert "end mark" in plan.reasons[0] or "head" in plan.reasons[0], plan.reasons
        return "must end with its mark: refused"
    if not plan.changes:
        assert end == len(data), (path.name, end, len(data))
        return "whole already"
    done = binlogtool.apply_plan(plan, format=format)
    assert path.read_bytes() == data[:end], (path.name, len(data), end)
    (report,) = binlogtool.verify([path], format=format).files
    assert max((f.severity for f in report.findings), default=Severity.NOTE) < Severity.ERROR, path
    assert not binlogtool.plan_truncate(path, format=format).changes
    assert done.undo is not None
    binlogtool.undo(done.undo)
    os.unlink(done.undo)
    assert path.read_bytes() == data
    return how
