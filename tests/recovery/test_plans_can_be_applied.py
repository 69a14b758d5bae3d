"""A plan that is not refused can be carried out: what the result would be is judged before, the whole log included."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.recovery.damaged_logs import LEAST, cases, content, written
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = pytest.mark.full

CHOICES = (
    RepairPolicy(),
    RepairPolicy(allow_discard_valid=True),
    RepairPolicy(allow_discard_valid=True, fix_meta=True, write_close_marker=True),
)


@pytest.mark.parametrize("format", LEAST)
def test_a_plan_that_is_not_refused_is_carried_out_and_the_log_is_clean(
    corpus: Path, quick_folder: Path, format: str
) -> None:
    outcomes: Counter[str] = Counter()
    every = list(cases(corpus, format))
    chosen = take_sample(every, 2)
    for number, (name, files) in enumerate(chosen, 1):
        folder = written(files, quick_folder / str(number))
        log = folder / next(iter(files)) if len(files) == 1 else folder
        for asked in CHOICES:
            outcomes[_outcome(log, asked, name)] += 1
            assert content(folder) == files, name
    print(f"\nplans {format}: {len(chosen)} damaged logs: {dict(outcomes)}")
    assert len(every) >= LEAST[format]
    assert outcomes["repaired"] >= (8 if EXHAUSTIVE else 3)


def _outcome(log: Path, asked: RepairPolicy, name: str) -> str:
    try:
        plan = binlogtool.plan_truncate(log, policy=asked)
    except (UnknownFormatError, RefusedError):
        return "not a log"
    if plan.refused:
        assert plan.reasons, name
        return "refused"
    if plan.changes:
        done = binlogtool.apply_plan(plan)  # never a RestoredError
        assert done.undo is not None
    report = binlogtool.verify([log])
    assert report.count_findings(Severity.ERROR) == 0, (name, asked, [str(f) for f in report.findings])
    again = binlogtool.plan_truncate(log, policy=asked)
    assert (again.refused, again.changes) == (False, ()), (name, asked, again)
    if not plan.changes:
        return "nothing to do"
    binlogtool.undo(str(done.undo))
    Path(str(done.undo)).unlink()
    return "repaired"
