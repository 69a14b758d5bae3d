"""Progress steps of a conversion, and the tally of its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import ENCRYPTED, Severity

MAX_LISTED_FINDINGS = 1000


class ProgressStep(NamedTuple):
    """One progress report of a conversion.

    stage: what is being done, as text. done, total: bytes. records: records so far (0 = unknown).
    """

    stage: str
    done: int
    total: int
    records: int = 0


ProgressCallback = Callable[[ProgressStep], None]


class WeightedProgress:
    """Report the progress of consecutive stages as parts of one whole; the reported amount never decreases.

    Args:
        report: receives the combined steps.
        weights: share of the whole work of each stage, in order.
        total: bytes of the whole.
    """

    def __init__(self, report: ProgressCallback, weights: Mapping[str, float], total: int) -> None:
        self._report = report
        self._total = total
        self._stage_ranges: dict[str, tuple[float, float]] = {}
        begin = 0.0
        for stage, weight in weights.items():
            self._stage_ranges[stage] = (begin, weight)
            begin += weight
        self._reported_bytes = 0

    def __call__(self, step: ProgressStep) -> None:
        """Report a step of one stage; a stage without a weight only changes the stage name."""
        begin, weight = self._stage_ranges.get(step.stage, (0.0, 0.0))
        done = begin + weight * (min(1.0, step.done / step.total) if step.total else 0.0)
        self._reported_bytes = max(self._reported_bytes, int(done * self._total))
        self._report(ProgressStep(step.stage, self._reported_bytes, self._total, step.records))


class FindingTally(msgspec.Struct):
    """Findings as JSON objects with their file: all are counted, the first MAX_LISTED_FINDINGS are kept.

    damage_rows: findings about bytes that could not be read. errors: those of them that stop a conversion.
    """

    listed: list[Mapping[str, Any]] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    damage_rows: int = 0
    errors: int = 0

    def add(self, file: str, finding: Mapping[str, Any], *, damage: bool) -> None:
        """Count one finding. damage: it is about bytes that could not be read, not about a record."""
        self.counts[finding["id"]] += 1
        self.damage_rows += damage
        self.errors += damage and (finding["severity"] == Severity.ERROR.label or finding["id"] == ENCRYPTED)
        if len(self.listed) < MAX_LISTED_FINDINGS:
            self.listed.append({"file": file, **finding})

    def merge(self, other: FindingTally) -> None:
        """Add the counts and findings of another tally."""
        self.counts += other.counts
        self.damage_rows += other.damage_rows
        self.errors += other.errors
        self.listed += other.listed[: MAX_LISTED_FINDINGS - len(self.listed)]
