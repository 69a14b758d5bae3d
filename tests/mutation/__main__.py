"""Report which small mistakes in the code that verifies, predicts, repairs and exports no test notices."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutation.known import EQUIVALENT
from tests.mutation.run import KILLED, MutationRunner
from tests.mutation.suites import SUITES

ROOT = Path(__file__).resolve().parent.parent.parent
MIN_KILLED_SHARE = 0.85
"""Of all mutants of a run that are not equivalent to the original."""
HEADER = (
    "| module | mutants | killed | equivalent | survivors | killed of those that differ |\n|---|---|---|---|---|---|"
)
ROW = re.compile(r"\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \|")


class Score(NamedTuple):
    """How many mutants of a module were made, noticed by a test, and known to behave like the original."""

    module: str
    mutants: int
    killed: int
    equivalent: int

    @property
    def survivors(self) -> int:
        """Mutants that behave differently and that no test noticed."""
        return self.mutants - self.killed - self.equivalent

    @property
    def share(self) -> float:
        """The part of the mutants that differ which a test noticed; 0 without mutants."""
        differing = self.mutants - self.equivalent
        return self.killed / differing if differing else 0.0

    def to_row(self) -> str:
        """Write the score as a row of a Markdown table."""
        counts = f"{self.mutants} | {self.killed} | {self.equivalent} | {self.survivors}"
        return f"| {self.module} | {counts} | {100 * self.share:.1f} % |"


def main() -> int:
    """Score the modules of the command line; 1 if fewer than 85 % of all mutants that differ are killed."""
    arguments = _parse_arguments()
    names = arguments.modules or list(SUITES)
    if len(names) == 1:
        scores = [score_module(names[0], arguments.sample, arguments.seed, arguments.seconds)]
    else:  # each in a process of its own: a process collects tests once
        options = [f"--sample={arguments.sample}", f"--seed={arguments.seed}", f"--seconds={arguments.seconds}"]
        scores = [_score_in_process(name, options) for name in names]
    total = add_scores(scores)
    print("\n".join([HEADER, *(score.to_row() for score in scores), total.to_row()]), flush=True)
    return 0 if total.share >= MIN_KILLED_SHARE else 1


def add_scores(scores: Sequence[Score]) -> Score:
    """Add up the scores of several modules."""
    return Score(
        "all",
        sum(score.mutants for score in scores),
        sum(score.killed for score in scores),
        sum(score.equivalent for score in scores),
    )


def score_module(name: str, sample: int, seed: int, seconds: float) -> Score:
    """Run the tests of one module against its mutants."""
    runner = MutationRunner(f"binlogtool.{name}", sample, seed, seconds, lambda text: print(text, flush=True))
    tests = [str(ROOT / path) for path in SUITES[name]]
    options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    pytest.main([*options, *tests], plugins=[runner])
    equivalent = sum(state != KILLED and mutant.name in EQUIVALENT.get(name, {}) for mutant, state in runner.results)
    killed = sum(state == KILLED for _, state in runner.results)
    return Score(name, len(runner.results), killed, equivalent)


def _score_in_process(name: str, options: Sequence[str]) -> Score:
    """Score one module in a new process and read its row; no mutants if it failed."""
    command = [sys.executable, "-m", "tests.mutation", name, *options]
    row = None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = ROW.match(line) or row
            print(line, end="", flush=True)
    if row is None or not int(row[2]):
        raise SystemExit(f"no mutant of {name} was made: see the message above")
    return Score(name, int(row[2]), int(row[3]), int(row[4]))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="default: all of tests/mutation/suites.py")
    parser.add_argument("--sample", type=int, default=0, help="number of mutants of each module (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--seconds", type=float, default=6.0, help="CPU time of the tests that run against one mutant")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(SUITES):
        parser.error(f"no such module: {', '.join(sorted(unknown))}; choose from {', '.join(SUITES)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
