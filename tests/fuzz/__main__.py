"""`python -m tests.fuzz FORMAT --count N`: any bytes, and what must hold for them (docs/reliability/fuzz.md)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.check import ENGINES, checked
from tests.fuzz.run import Order, Summary, made_choices, run, scratch_folder
from tests.fuzz.seeds import TARGETS, Seed, seeds

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))


def main() -> int:
    """Runs what the command line says; 1 if anything does not hold."""
    asked = _arguments()
    if asked.input:
        return _one(asked)
    status = 0
    for target in TARGETS if asked.format == "all" else [asked.format]:
        found = seeds(CORPUS, target)
        with scratch_folder() as scratch:
            order = Order(target, asked.count, asked.seed, asked.repair, asked.jobs, asked.save, scratch, asked.engines)
            done = run(order, found)
        print(row(target, len(found), done), flush=True)
        for kind, count in done.failures.most_common():
            print(f"  {count:,} x {kind}")
        for folder in done.saved:
            print(f"  {folder}/failure.txt")
        status |= bool(done.failures)
    return status


def row(target: str, files: int, done: Summary) -> str:
    """A line of the table in docs/reliability/fuzz.md."""
    repaired = sum(done.repairs.values()) - done.repairs["-"]
    cells = (
        target, files, f"{done.inputs:,}", f"{done.bytes / 1e6:,.0f}", f"{done.engines:,}", f"{repaired:,}",
        f"{done.repairs['repaired']:,}", f"{done.seconds:,.0f}", sum(done.failures.values()),
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _one(asked: argparse.Namespace) -> int:
    """A saved input: the exception, if there is one, is the answer."""
    path: Path = asked.input
    others = sorted(one for one in path.parent.iterdir() if one.name not in (path.name, "failure.txt"))
    beside = tuple((one.name, one.read_bytes()) for one in others)
    seed = Seed(asked.format, path.name, path.read_bytes(), beside=beside)
    with scratch_folder() as scratch:
        print(checked(seed, made_choices(asked.seed), scratch, asked.engines, True, True))
    return 0


def _engines(names: str) -> tuple[str, ...]:
    """Backends by name, the one that sees every input first."""
    chosen = tuple(names.split(","))
    if wrong := [one for one in chosen if one not in ENGINES]:
        raise argparse.ArgumentTypeError(f"no such backend: {', '.join(wrong)} (there are {', '.join(ENGINES)})")
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("format", choices=[*TARGETS, "all"])
    parser.add_argument("--count", type=int, default=1000, help="inputs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input (default 0)")
    parser.add_argument("--repair", type=int, default=0, help="so many of them are also repaired and undone")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--engines", type=_engines, default=ENGINES, help="backends")
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="where failures are kept")
    parser.add_argument("--input", type=Path, help="a saved input instead")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
