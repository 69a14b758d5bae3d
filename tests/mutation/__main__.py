"""`python -m tests.mutation [MODULE …]`: which small mistakes in the code that repairs no test notices (figure H5)."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.known import EQUIVALENT
from tests.mutation.run import KILLED, UNREACHED, Runner
from tests.mutation.suites import SUITES

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Runs what the command line says; 1 if fewer than nine of ten mutants are noticed, or one that is not explained
    is not."""
    asked = _arguments()
    names = asked.modules or list(SUITES)
    if len(names) > 1:  # each in a process of its own: tests are collected once
        rest = [f"--sample={asked.sample}", f"--seed={asked.seed}", f"--seconds={asked.seconds}"]
        commands = [[sys.executable, "-m", "tests.mutation", one, *rest] for one in names]
        return max(subprocess.run(one, cwd=ROOT).returncode for one in commands)
    (name,) = names
    share, unexplained = score(name, asked.sample, asked.seed, asked.seconds)
    return 0 if share >= 0.9 and not unexplained else 1


def score(name: str, sample: int, seed: int, seconds: float) -> tuple[float, int]:
    """The share of mutants of one module that are killed, of those that are not known to mean the same; and how many
    others there are."""
    runner = Runner(f"binlogtool.{name}", sample, seed, seconds, lambda text: print(text, flush=True))
    tests = [str(ROOT / one) for one in SUITES[name]]
    options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    pytest.main([*options, *tests], plugins=[runner])
    same = sum(how != KILLED and mutant.name in EQUIVALENT.get(name, {}) for mutant, how in runner.results)
    told = Counter(how for _, how in runner.results)
    counted = max(len(runner.results) - same, 1)
    share = told[KILLED] / counted
    print(
        f"| {name} | {len(runner.results)} | {told[KILLED]} | {same} | {counted - told[KILLED]} "
        f"| {told[UNREACHED]} | {100 * share:.1f} % |",
        flush=True,
    )
    return (share, counted - told[KILLED]) if runner.results else (0.0, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="all if none is named")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each module (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time of the tests that one mutant may pass")
    asked = parser.parse_args()
    if wrong := set(asked.modules) - set(SUITES):
        parser.error(f"no such module: {', '.join(sorted(wrong))} (there are {', '.join(SUITES)})")
    return asked


if __name__ == "__main__":
    sys.exit(main())
