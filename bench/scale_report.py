"""The points of `bench.scale`, the model and what follows from it, as the tables of docs/scale.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.scale_model import SERIAL, Line, Model, cpu_terms, model_of
from binlogtool.export.output_options import TableFileOptions

HOUR = 3600.0
TB = 1e12
AMOUNTS = (("1 TB", TB), ("100 TB", 100 * TB), ("10 PB", 10_000 * TB))
GIB = 1 << 30
PARTS = 1600
"""Of a job of `convert` on a hundred cores, as long as they are not too large."""

DRIVER_BYTES = 1e9
"""What may be sent to the driver (`spark.driver.maxResultSize` is 1 GiB)."""

EVENTS = {
    "small": "events of 62 bytes",
    "wide": "events of 1 KiB",
    "tiny": "events of 62 bytes",
    "keyed": "events of 62 bytes, rows with keys",
}
LOGS = {"1 GiB": GIB, "1 MiB": 1 << 20, "64 KiB": 1 << 16}
MEASURED = {"convert": "1 GiB", "verify": "1 MiB", "replay": "1 MiB"}
KINDS = (
    ("convert", "small", "1 GiB"), ("convert", "wide", "1 GiB"),
    ("verify", "small", "1 GiB"), ("verify", "small", "1 MiB"), ("verify", "wide", "1 GiB"),
    ("replay", "keyed", "1 GiB"), ("replay", "wide", "1 GiB"),
)  # fmt: skip
"""What is told on paper: the job, its events, the size of a log."""

PER = {"once": "once", "files": "log"}
STEPS = {
    "list": "list the logs",
    "gather": "read the results",
}


def sections(lines: Sequence[Line]) -> dict[str, str]:
    """Each section by the name of its marks; empty without points."""
    if not lines:
        return dict.fromkeys(("points", "model", "paper", "ends"), "")
    model = model_of(lines)
    return {"points": points(model), "model": coefficients(model), "paper": paper(model), "ends": ends(model)}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruled = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)


# -- the points ----------------------------------------------------------------------------------------------------


def points(model: Model) -> str:
    head = ("job", "GiB", "cores", "files", "records", "CPU s", "model", "wall s", "model", "driver MB")
    return table(head, [point(model, line) for line in model.lines])


def point(model: Model, line: Line) -> list[str]:
    empty = line["job"] == "tasks"
    log = "64 KiB" if line["shape"] == "tiny" else MEASURED.get(line["job"], "")
    name = f"{line['tasks']} empty tasks" if empty else said(line["job"], line["shape"], log)
    size = "" if empty else f"{line['amount']:g}"
    walls = [f"{line['wall']:.1f}", f"{model.wall(line):.1f}"]
    cpus = [f"{line['cpu']:.1f}", f"{model.cpu.at(cpu_terms(line)):.1f}"]
    counts = [str(line["cores"]), f"{line['files']:,}", f"{line['rows']:,}"]
    return [name, size, *counts, *cpus, *walls, f"{line['peak'] / 1e6:.0f}"]


def said(job: str, shape: str, log: str) -> str:
    return f"{job}, {EVENTS[shape]}, logs of {log}"


# -- the coefficients ----------------------------------------------------------------------------------------------


def coefficients(model: Model) -> str:
    rows = [["start of a session", f"{model.start[0]:.1f} s", f"{model.start[1]:.1f} s by the clock"]]
    said = {"task": "a task"}
    rows += [[said.get(name, name), unit(name, value), "CPU"] for name, value in model.cpu.coefficients.items()]
    for step, fit in model.serial.items():
        for name, value in fit.coefficients.items():
            rows.append([f"driver, {STEPS[step]}: {PER[name]}", unit(name, value), errors(fit.typical, fit.worst)])
    for cores, ratio in model.overlap.items():
        rows.append([f"clock over CPU / cores, local[{cores}]", f"{ratio:.2f}", "after the driver's part"])
    walls = [abs(model.wall(line) / line["wall"] - 1) for line in model.lines if line["job"] != "tasks"]
    rows.append(["CPU of a point", "", errors(model.cpu.typical, model.cpu.worst)])
    rows.append(["clock of a point", "", errors(sorted(walls)[len(walls) // 2], max(walls)) if walls else ""])
    return table(("what", "seconds", "by the clock, or how far off"), rows)


def unit(name: str, value: float) -> str:
    """Seconds for one; for bytes, of a GB."""
    if name.endswith(("byte", "bytes", "output")) and value:
        return f"{value * 1e9:.3g} s/GB"
    if not value:
        return "0"
    return f"{value * 1e6:.3g} µs" if value < 1e-2 else f"{value:.2f} s"


def errors(typical: float, worst: float) -> str:
    return f"off by {typical:.0%} (median), {worst:.0%} (worst)"


# -- on paper ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A job that nobody has run. core_hours: of all processes but for the steps of the driver alone."""

    line: dict[str, Any]
    core_hours: float
    driver_hours: float
    shuffle: float
    reports: float


def estimate(model: Model, job: str, shape: str, log: str, size: float) -> Estimate:
    """What there is in a byte, or of a log, is taken from the largest measured point of the kind."""
    files = size / LOGS[log]
    line: dict[str, Any] = {"job": job, "shape": shape, "bytes": size, "files": files, "amount": size / GIB}
    line |= {"rows": size * model.per_row("rows", job, shape, "bytes")}
    line |= {"output": size * model.per_row("output", job, shape, "bytes")}
    line |= {
        "tasks": TableFileOptions("parquet").estimate_file_count(int(size), 1) if job == "convert" else min(files, 4000)
    }
    driver = model.serial_seconds(line)
    work = max(0.0, model.cpu.at(cpu_terms(line)) - driver)
    shuffle = line["rows"] * model.per_row("shuffle", job, shape)
    reports = files * model.per_row("reports", job, shape, "files")
    return Estimate(line, work / HOUR, driver / HOUR, shuffle, reports)


def paper(model: Model) -> str:
    head = ("job", "data", "records", "logs", "tasks", "core hours", "driver alone", "shuffled", "reports")
    return table(head, [row(kind, model, *amount) for kind in measured(model) for amount in AMOUNTS])


def measured(model: Model) -> list[tuple[str, str, str]]:
    """The kinds of which there are points."""
    seen = {(line["job"], line["shape"]) for line in model.lines}
    return [kind for kind in KINDS if kind[:2] in seen]


def row(kind: tuple[str, str, str], model: Model, name: str, size: float) -> list[str]:
    one = estimate(model, *kind, size)
    counts = [power(one.line["rows"]), power(one.line["files"]), power(one.line["tasks"])]
    hours = [rounded(one.core_hours), f"{rounded(one.driver_hours)} h"]
    return [said(*kind), name, *counts, *hours, amount(one.shuffle), amount(one.reports)]


def power(value: float) -> str:
    """1,234, or 1.2 · 10⁹."""
    if value < 1e5:
        return f"{value:,.0f}"
    digits, _, exponent = f"{value:.1e}".partition("e+")
    return f"{digits} · 10{str(int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def rounded(value: float) -> str:
    """Two digits that mean something."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def amount(size: float) -> str:
    for name, one in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= one:
            return f"{rounded(size / one)} {name}"
    return "-" if size < 1 else f"{rounded(size / 1e3)} kB"


# -- where it ends -------------------------------------------------------------------------------------------------


def ends(model: Model) -> str:
    """How much there may be until a step of the driver takes an hour, or a limit is reached."""
    rows = []
    for kind in measured(model):
        name, one = said(*kind), estimate(model, *kind, TB)
        for step, (jobs, _) in SERIAL.items():
            seconds = driver_seconds(model, step, one.line)
            if kind[0] in jobs.split() and seconds > 0:
                rows.append([name, f"{STEPS[step]}: one hour on the driver", amount(TB * HOUR / seconds)])
        if one.reports:
            rows.append([name, "the driver holds 1 GB of reports", amount(TB * DRIVER_BYTES / one.reports)])
        if kind[0] == "replay" and one.shuffle:
            rows.append([name, "bytes shuffled", f"{one.shuffle / TB:.2g} of the size of the logs"])
    return table(("job", "limit", "reached at"), rows)


def driver_seconds(model: Model, step: str, line: Line) -> float:
    """What grows with the data."""
    names = [name for name in SERIAL[step][1] if name != "once"]
    return model.serial[step].at({name: float(line[name]) for name in names})
