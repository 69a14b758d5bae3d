"""python -m bench.scale POINTS.jsonl [PATTERN...]: measures jobs over sizes and cores, and fits a cost model to them.

Each point (job-shape-GiB-cores, such as convert-small-0.25-2) runs in a process of its own with a time limit; its line
is appended to the file, and points that stand there are not measured again: a run can be broken off and continued.
Then the points, the model and what follows from it are printed as docs/scale.md has them; --write puts them there.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import mysql_log
from bench.measure import ROOT
from bench.scale_report import sections

GIB, MIB = 1 << 30, 1 << 20
SIZES = (0.1, 0.25, 1.0, 2.0, 4.0, 8.0)
QUICK_SIZES = (0.002, 0.004)
LARGEST_LOG = GIB
"""Servers write no larger ones: more data is more logs, here the same one under more names."""

FLEET_LOGS = 64
"""So many logs of a fleet differ; the others are links to them."""

ROWS = {"small": 1, "wide": 56}
"""Rows in a row event: events of 62 bytes in the mean, and of 1 KiB."""

LOG_SIZE = {"small": MIB, "wide": MIB, "tiny": 64 * 1024, "keyed": MIB}
"""Bytes of a log of a fleet. tiny: logs of 64 KiB, else as small. keyed: as small, and every row has a key."""

FAR = float("inf")


@dataclass(frozen=True)
class Point:
    """What is measured. amount: GiB of logs; for `tasks` their number."""

    job: str
    shape: str
    amount: float
    cores: int

    @property
    def name(self) -> str:
        return f"{self.job}-{self.shape}-{self.amount:g}-{self.cores}"

    @property
    def bytes(self) -> int:
        return 0 if self.job == "tasks" else int(self.amount * GIB)


def points(sizes: Sequence[float]) -> list[Point]:
    """All of them, the small ones first."""
    kinds = [("convert", "small", FAR), ("convert", "wide", FAR), ("verify", "small", FAR), ("verify", "wide", FAR)]
    kinds += [("verify", "tiny", 0.25), ("replay", "keyed", FAR), ("replay", "wide", FAR)]
    empty = [Point("tasks", "empty", count, cores) for count in (8, 64, 512) for cores in (1, 2)]
    full = [
        Point(job, shape, size, cores)
        for size in sorted(sizes) for job, shape, most in kinds if size <= most for cores in (1, 2)
    ]  # fmt: skip
    return empty + full


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    wanted = [p for p in points(options.sizes) if any(fnmatch.fnmatch(p.name, one) for one in options.pattern or ["*"])]
    if options.list:
        print("\n".join(point.name for point in wanted))
        return 0
    if not options.report:
        measure(wanted, options.points, options.limit, options.directory)
    made = sections(read_points(options.points))
    print("\n\n".join(filter(None, made.values())))
    if options.write is not None:
        options.write.write_text(put(options.write.read_text("utf-8"), made), "utf-8")
    return 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("points", type=Path, help="the file of the measured points")
    parser.add_argument("pattern", nargs="*", help="names of points, such as 'convert-*' (all)")
    parser.add_argument("--sizes", type=lambda text: [float(one) for one in text.split(",")], help="GiB of logs")
    parser.add_argument("--quick", action="store_true", help="a few MiB: to see whether it works")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for one point (1200)")
    parser.add_argument("--directory", type=Path, help="where logs and outputs are made (the temporary directory)")
    parser.add_argument("--list", action="store_true", help="only name the points")
    parser.add_argument("--report", action="store_true", help="measure nothing, fit what is there")
    parser.add_argument("--write", type=Path, help="a document, between whose marks the tables are put")
    options = parser.parse_intermixed_args(arguments)
    options.sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    return options


def read_points(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; none if it is not there."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def put(text: str, made: dict[str, str]) -> str:
    """The document with each section between its marks."""
    for name, section in made.items():
        begin, end = f"<!-- scale:{name} -->\n", f"<!-- /scale:{name} -->"
        before, _, rest = text.partition(begin)
        shown = f"{section}\n" if section else ""
        text = f"{before}{begin}{shown}{end}{rest.partition(end)[2]}"
    return text


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(wanted: Sequence[Point], path: Path, limit: float, directory: Path | None) -> None:
    """Each point that does not stand in the file. Behind one that took too long its larger ones are left out."""
    seen = {line["name"] for line in read_points(path)}
    late: set[tuple[str, str, int]] = set()
    for point in wanted:
        series = (point.job, point.shape, point.cores)
        if point.name in seen or series in late:
            continue
        with tempfile.TemporaryDirectory(prefix="binlogtool-scale-", dir=directory) as folder:
            if shutil.disk_usage(folder).free < 2 * point.bytes + 4 * GIB:
                print(f"{point.name}: not measured, too little room in {folder}", file=sys.stderr)
                continue
            data = make(point, Path(folder))
            result = child(point, data, limit)
        if result is None:
            late.add(series)
            continue
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": point.name, **asdict(point), **result}) + "\n")
        print(f"{point.name}: {result['cpu']:.1f} s CPU, {result['wall']:.1f} s", file=sys.stderr, flush=True)


def child(point: Point, data: Path, limit: float) -> dict[str, Any] | None:
    """What the process of a point tells; None: it failed, or the time was over."""
    environment = {**os.environ, "TMPDIR": str(data.parent), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bench.scale_work", point.job, str(data), str(point.cores), f"{point.amount:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True) as process:
        try:
            told, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            print(f"{point.name}: more than {limit:.0f} s", file=sys.stderr)
            return None
    if process.returncode:
        print(f"{point.name}: ended with {process.returncode}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(told)
    return result


def end(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C does, so that Spark ends too; then by force."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    process.kill()


def make(point: Point, folder: Path) -> Path:
    """The logs of a point."""
    data = folder / "data"
    data.mkdir()
    if point.job == "convert":
        logs(data, point.bytes, ROWS[point.shape])
    elif point.job != "tasks":
        for number, log in enumerate(fleet(folder, point)):
            home = data / f"{number:06d}"
            home.mkdir()
            os.link(log, home / "log.000001")
    return data


def logs(data: Path, size: int, rows: int) -> None:
    """Logs of at most 1 GiB in one directory; each but the first is the first one under another name."""
    count = -(-size // LARGEST_LOG)
    first = mysql_log.synthetic(data, size // count, rows)
    for number in range(2, count + 1):
        os.link(first, data / f"log.{number:06d}")


def fleet(folder: Path, point: Point) -> Iterator[Path]:
    """As many logs as make up the size; they repeat."""
    size = LOG_SIZE[point.shape]
    count = max(1, point.bytes // size)
    made = []
    for number in range(min(FLEET_LOGS, count)):
        (home := folder / f"made-{number}").mkdir()
        keyed = point.shape == "keyed"
        made.append(mysql_log.synthetic(home, size - number * 1000, ROWS.get(point.shape, 1), keyed=keyed))
    return (made[number % len(made)] for number in range(count))


if __name__ == "__main__":
    raise SystemExit(main())
