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
from tests.mutation.run import KILLED, MutantResult, MutationRunner
from tests.mutation.suites import MODULES, SUITES, Suite

ROOT = Path(__file__).resolve().parent.parent.parent
MIN_KILLED_SHARE = 0.85
"""Of all mutants of a run that are not equivalent to the original."""
TESTS = "not (full or full_corpus or server or nightly or spark)"
"""The quick tests that need no Spark, as an expression of pytest."""
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
    names = set(arguments.modules or MODULES)
    suites = [
        Suite(tuple(name for name in suite.modules if name in names), suite.files)
        for suite in SUITES
        if names.intersection(suite.modules)
    ]
    if len(suites) == 1:
        scores = score_suite(suites[0], arguments.sample, arguments.seed, arguments.seconds)
    else:  # each in a process of its own: a process collects tests once
        options = [f"--sample={arguments.sample}", f"--seed={arguments.seed}", f"--seconds={arguments.seconds}"]
        scores = [score for suite in suites for score in _score_in_process(suite, options)]
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


def score_suite(suite: Suite, sample: int, seed: int, seconds: float) -> list[Score]:
    """Run the tests of a suite against the mutants of each of its modules."""
    modules = [f"binlogtool.{name}" for name in suite.modules]
    runner = MutationRunner(modules, sample, seed, seconds, lambda text: print(text, flush=True))
    tests = [str(ROOT / "tests" / path) for path in suite.files]
    options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    pytest.main([*options, "-m", TESTS, *tests], plugins=[runner])
    return [
        _add_up(name, [one for one in runner.results if one.module == f"binlogtool.{name}"]) for name in suite.modules
    ]


def _add_up(name: str, results: Sequence[MutantResult]) -> Score:
    known = EQUIVALENT.get(name, {})
    killed = sum(result.state == KILLED for result in results)
    equivalent = sum(result.state != KILLED and result.mutant.name in known for result in results)
    return Score(name, len(results), killed, equivalent)


def _score_in_process(suite: Suite, options: Sequence[str]) -> list[Score]:
    """Score the modules of one suite in a new process and read its table; stop if a module has no mutants."""
    command = [sys.executable, "-m", "tests.mutation", *suite.modules, *options]
    scores: dict[str, Score] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if row := ROW.match(line):
                scores[row[1]] = Score(row[1], int(row[2]), int(row[3]), int(row[4]))
            elif not line.startswith("|"):
                print(line, end="", flush=True)
    if missing := [name for name in suite.modules if name not in scores or not scores[name].mutants]:
        raise SystemExit(f"no mutants of {', '.join(missing)} were made: see the message above")
    return [scores[name] for name in suite.modules]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="default: all of tests/mutation/suites.py")
    parser.add_argument("--sample", type=int, default=0, help="number of mutants of each module (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU time of the tests that run against one mutant")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(MODULES):
        parser.error(f"no such module: {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
