"""Goal R4 with repair: a log cut at any byte, then repaired, is clean and holds exactly the durable records."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.format_api.format import ResultPiece
from binlogtool.limits import Limits
from binlogtool.repair.apply_plan_or_salvage import apply_plan
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy
from binlogtool.repair.undo_repair import apply_undo
from tests.harness.samples import FULL
from tests.recovery.cut_logs import FORMATS, Log, Quick, logs

FILES, CUTS = 8, 8
"""Of the sampled run."""
WHY_NOT = (
    "end mark",
    "head of the file",
    "dialect is not certain",
    "the index describes no run",
    "no record would be kept",
)
"""A .snap without its end mark, or an .index without records, is worthless; a cut inside the head makes no log; eblob
has dialects that look alike; nothing is emptied."""
SPREAD = None if FULL else 800
"""Cuts of the exhaustive run, per format, equally far from each other over all bytes of all files; None: every byte."""


def some_cuts(log: Log) -> list[int]:
    """Around two borders of records, and at random places."""
    rng = random.Random(len(log.data))
    near = {border + step for border in rng.sample(log.ends, k=min(2, len(log.ends))) for step in (-1, 0, 1)}
    return sorted(
        cut for cut in near | {rng.randrange(1, len(log.data)) for _ in range(CUTS - 6)} if 0 < cut < len(log.data)
    )


@pytest.mark.full
@pytest.mark.parametrize("format", FORMATS)
def test_r4_a_cut_log_is_repaired_to_exactly_its_durable_records(corpus: Path, folder: Path, format: str) -> None:
    outcomes: Counter[str] = Counter()
    every = list(logs(corpus, format))
    some = every[:: max(1, len(every) // FILES)]
    for log in some:
        case = Cuts(log, folder)
        outcomes.update(case.repaired(cut, carry_out=True) for cut in some_cuts(log))
        case.close()
    print(f"\nR4 with repair, {format}: {len(some)} of {len(every)} files, {outcomes.total():,} cuts: {dict(outcomes)}")
    assert outcomes["repaired"] >= 20


@pytest.mark.nightly
@pytest.mark.parametrize("format", FORMATS)
def test_r4_logs_cut_at_every_byte_are_repaired(corpus: Path, folder: Path, format: str) -> None:
    """Each plan is looked at; one is carried out, and taken back, for each different end."""
    outcomes: Counter[str] = Counter()
    every = list(logs(corpus, format))
    size = sum(len(log.data) for log in every)
    step, at = size // SPREAD if SPREAD else 1, 1
    for log in every:
        case = Cuts(log, folder)
        cuts = range(at, len(log.data), step)
        outcomes.update(case.repaired(cut) for cut in cuts)
        at = max(1, at + step * len(cuts) - len(log.data))
        case.close()
    print(
        f"\nR4 with repair, {format}: each {step:,}. byte of {len(every)} files with {size:,} bytes, "
        f"{outcomes.total():,} cuts: {dict(outcomes)}"
    )
    assert outcomes["repaired"] >= 100
    assert outcomes.total() >= min(size, SPREAD or size) - len(every)


class Cuts:
    """One log that is cut, again and again, in a directory of its own."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        self._home = Path(tempfile.mkdtemp(dir=folder))
        self._path = self._home / Path(log.name).name
        self._done: set[tuple[int, str]] = set()

    def close(self) -> None:
        shutil.rmtree(self._home)

    def repaired(self, cut: int, *, carry_out: bool = False) -> str:
        """Cuts the log there, and looks at what a repair makes of it. carry_out: in any case."""
        data, end = self._log.data[:cut], self._log.end_at(cut)
        self._path.write_bytes(data)
        plan, how = self._plan()
        where = (self._log.name, cut, end)
        if plan.files[0].durable_end is None:
            assert plan.refused, where
            return "head not whole: refused"
        if plan.refused:
            known = [text for text in WHY_NOT if text in plan.reasons[0]]
            assert known, (where, plan.reasons)
            return f"{known[0]}: refused"
        if not plan.changes:
            assert not data[end:].strip(b"\0"), where  # all of it, or space that the writer reserved
            return "whole already"
        (file,) = plan.files
        assert (file.action, file.pieces, file.durable_end) == ("truncate", (ResultPiece(0, end),), end), where
        assert file.sha256_kept == hashlib.sha256(data[:end]).hexdigest(), where
        if carry_out or (end, how) not in self._done:
            self._done.add((end, how))
            self._carry_out(plan, data, end)
        return how

    def _plan(self) -> tuple[RepairPlan, str]:
        plan = binlogtool.plan_truncate(self._path, format=self._log.format)
        if not plan.refused or plan.files[0].durable_end is None:
            return plan, "repaired"
        asked = RepairPolicy(allow_discard_valid=True)
        return binlogtool.plan_truncate(self._path, format=self._log.format, policy=asked), "repaired with consent"

    def _carry_out(self, plan: RepairPlan, data: bytes, end: int) -> None:
        """It must be the durable part then, and clean, and undo must bring everything back."""
        path, format = self._path, self._log.format
        done = apply_plan(plan, format=format, limits=Limits(), backend="auto", system=Quick())
        assert path.read_bytes() == data[:end], path
        (report,) = binlogtool.verify([path], format=format).files
        assert max((f.severity for f in report.findings), default=Severity.NOTE) < Severity.ERROR, path
        assert not binlogtool.plan_truncate(path, format=format).changes
        assert done.undo is not None
        apply_undo(done.undo, system=Quick())
        os.unlink(done.undo)
        assert path.read_bytes() == data
