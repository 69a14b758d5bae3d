"""A cost model of jobs on Spark, fitted to points of `bench.scale`.

CPU of all processes, behind the start of the session:

    job + task * tasks + log * logs + row * rows + byte * bytes

with coefficients of each kind of job (task: of all kinds together), none of them negative. The driver's part of it, by
the clock, is fitted by itself: nothing else runs meanwhile, however many cores there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

Line = Mapping[str, Any]
Terms = Mapping[str, float]

SERIAL: dict[str, tuple[str, tuple[str, ...]]] = {
    "list": ("convert verify replay", ("once", "files")),
    "gather": ("verify replay", ("once", "files")),
}
"""Steps of the driver that nothing runs beside: of which jobs, and what they grow with."""


@dataclass(frozen=True)
class Fit:
    """Coefficients, and for each point by how much the model is wrong, as a share of what was measured."""

    coefficients: Mapping[str, float]
    errors: tuple[float, ...] = ()

    def at(self, terms: Terms) -> float:
        return sum(self.coefficients.get(name, 0.0) * value for name, value in terms.items())

    @property
    def typical(self) -> float:
        return median(abs(error) for error in self.errors) if self.errors else 0.0

    @property
    def worst(self) -> float:
        return max((abs(error) for error in self.errors), default=0.0)


def fitted(rows: Sequence[Terms], measured: Sequence[float]) -> Fit:
    """Least squares of the relative errors. A coefficient that would become negative is left out, the worst first."""
    if not rows:
        return Fit({})
    names = sorted({name for row in rows for name in row})
    values = np.array(measured, float)
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in rows]) / values[:, None]
    widths = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    used = list(range(len(names)))
    found = np.zeros(len(names))
    while used:
        solved = np.linalg.lstsq((matrix / widths)[:, used], np.ones(len(values)), rcond=None)[0]
        if solved.min() >= 0:
            found[used] = solved / widths[used]
            break
        del used[int(solved.argmin())]
    errors = matrix @ found - 1.0
    return Fit(dict(zip(names, map(float, found), strict=True)), tuple(map(float, errors)))


def cpu_terms(line: Line) -> dict[str, float]:
    """What the CPU time of a job is made of."""
    job = line["job"]
    terms = {f"{job}: job": 1.0, "task": float(line["tasks"])}
    if job != "tasks":
        terms |= {f"{job}: row": float(line["rows"]), f"{job}: byte": float(line["bytes"])}
    if job in ("verify", "replay"):
        terms[f"{job}: log"] = float(line["files"])
    return terms


def serial_terms(step: str, line: Line) -> dict[str, float]:
    return {name: 1.0 if name == "once" else float(line[name]) for name in SERIAL[step][1]}


@dataclass(frozen=True)
class Model:
    """All that was fitted. start: (seconds of CPU, of the clock) of a session. overlap: by number of cores, the clock
    after the driver's part over CPU divided by cores."""

    cpu: Fit
    serial: Mapping[str, Fit]
    start: tuple[float, float]
    overlap: Mapping[int, float]
    lines: Sequence[Line] = field(default_factory=list)

    def serial_seconds(self, line: Line) -> float:
        """What nothing runs beside."""
        steps = [step for step, (jobs, _) in SERIAL.items() if line["job"] in jobs.split()]
        return sum(self.serial[step].at(serial_terms(step, line)) for step in steps)

    def wall(self, line: Line) -> float:
        """By the clock, behind the start of the session, on the cores of this point."""
        alone = self.serial_seconds(line)
        beside = max(0.0, self.cpu.at(cpu_terms(line)) - alone)
        return alone + self.overlap.get(line["cores"], 1.0) * beside / float(line["cores"])

    def per_row(self, name: str, job: str, shape: str, by: str = "rows") -> float:
        """How much of something there is per row, file or byte in the largest point of a kind; 0: no such point."""
        chosen = [line for line in self.lines if (line["job"], line["shape"]) == (job, shape) and name in line]
        largest = max(chosen, key=lambda line: float(line["bytes"]), default=None)
        return 0.0 if largest is None or not largest[by] else largest[name] / largest[by]


def model_of(lines: Sequence[Line]) -> Model:
    """The model of these points."""
    cpu = fitted([cpu_terms(line) for line in lines], [line["cpu"] for line in lines])
    serial = {step: fitted(*serial_points(step, lines)) for step in SERIAL}
    start = (middle(line["start_cpu"] for line in lines), middle(line["start_wall"] for line in lines))
    plain = Model(cpu, serial, start, {}, lines)
    return Model(cpu, serial, start, overlaps(plain, lines), lines)


def serial_points(step: str, lines: Sequence[Line]) -> tuple[list[dict[str, float]], list[float]]:
    chosen = [line for line in lines if line["job"] in SERIAL[step][0].split() and line.get(step, 0) > 0]
    return [serial_terms(step, line) for line in chosen], [line[step] for line in chosen]


def overlaps(model: Model, lines: Sequence[Line]) -> dict[int, float]:
    """Java and Python work beside each other even on one core of Spark's; and no machine is idle otherwise."""
    ratios: dict[int, list[float]] = {}
    for line in lines:
        alone = model.serial_seconds(line)
        if line["job"] != "tasks" and line["cpu"] > alone:
            ratios.setdefault(line["cores"], []).append((line["wall"] - alone) / (line["cpu"] - alone) * line["cores"])
    return {cores: middle(seen) for cores, seen in sorted(ratios.items())}


def middle(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else 0.0
