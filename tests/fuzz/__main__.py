"""`python -m tests.fuzz FORMAT --count N`: check what must hold for any bytes (docs/reliability/fuzz.md)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.check import ENGINES, check_input
from tests.fuzz.run import Order, Summary, make_choice_rng, run, scratch_folder
from tests.fuzz.seeds import TARGETS, Seed, seeds

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))


def main() -> int:
    """Run the inputs of the command line; 1 if anything does not hold."""
    arguments = _arguments()
    if arguments.input:
        return _check_saved_input(arguments)
    status = 0
    for target in TARGETS if arguments.format == "all" else [arguments.format]:
        inputs = seeds(CORPUS, target)
        with scratch_folder() as scratch:
            order = Order(
                target,
                arguments.count,
                arguments.seed,
                arguments.repair,
                arguments.jobs,
                arguments.save,
                scratch,
                arguments.engines,
            )
            done = run(order, inputs)
        print(row(target, len(inputs), done), flush=True)
        for kind, count in done.failures.most_common():
            print(f"  {count:,} x {kind}")
        for folder in done.saved:
            print(f"  {folder}/failure.txt")
        status |= bool(done.failures)
    return status


def row(target: str, files: int, done: Summary) -> str:
    """Write a line of the table in docs/reliability/fuzz.md."""
    repaired = sum(done.repairs.values()) - done.repairs["-"]
    cells = (
        target, files, f"{done.inputs:,}", f"{done.bytes / 1e6:,.0f}", f"{done.engines:,}", f"{repaired:,}",
        f"{done.repairs['repaired']:,}", f"{done.seconds:,.0f}", sum(done.failures.values()),
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _check_saved_input(arguments: argparse.Namespace) -> int:
    """Check a saved input; its failure is raised as the exception."""
    path: Path = arguments.input
    others = sorted(entry for entry in path.parent.iterdir() if entry.name not in (path.name, "failure.txt"))
    beside = tuple((entry.name, entry.read_bytes()) for entry in others)
    seed = Seed(arguments.format, path.name, path.read_bytes(), beside=beside)
    with scratch_folder() as scratch:
        print(check_input(seed, make_choice_rng(arguments.seed), scratch, arguments.engines, True, True))
    return 0


def _engines(names: str) -> tuple[str, ...]:
    """Parse names of backends; the first one reads every input."""
    chosen = tuple(names.split(","))
    if wrong := [name for name in chosen if name not in ENGINES]:
        raise argparse.ArgumentTypeError(f"no such backend: {', '.join(wrong)} (there are {', '.join(ENGINES)})")
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("format", choices=[*TARGETS, "all"])
    parser.add_argument("--count", type=int, default=1000, help="inputs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input (default 0)")
    parser.add_argument("--repair", type=int, default=0, help="inputs that are also repaired and undone (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--engines", type=_engines, default=ENGINES, help="backends")
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="where failures are kept")
    parser.add_argument("--input", type=Path, help="a saved input instead")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
