"""python -m bench [--quick] [CASE...]: prints every figure with its range and the promise it belongs to.

Promises are for files of full size: of a sixteenth of it much of the time is the start.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import cases, ibb_cases, mysql_cases, replay_cases, spark_cases, sql_cases, table_cases
from bench.cases import Figure, Setting, Skipped

CASES = (
    cases.CASES
    | mysql_cases.CASES
    | ibb_cases.CASES
    | sql_cases.CASES
    | spark_cases.CASES
    | replay_cases.CASES
    | table_cases.CASES
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a promise was not kept."""
    options = parsed(arguments)
    setting_of = {True: (1 / 16, 3), False: (1.0, 5)}[options.quick]
    scale, rounds = setting_of[0], options.rounds or setting_of[1]
    print(
        f"{platform.machine()}, Python {platform.python_version()}; CPU time; median [least .. most] of {rounds} rounds"
    )
    missed = 0
    for folder in filter(None, (options.directory, options.logs)):
        folder.mkdir(parents=True, exist_ok=True)
    for name in options.case or CASES:
        print(f"\n{name}: {CASES[name].__doc__}")
        with tempfile.TemporaryDirectory(prefix="binlogtool-bench-", dir=options.directory) as directory:
            for figure in CASES[name](Setting(Path(directory), scale, rounds, options.logs)):
                print(line(figure, judged=not options.quick), flush=True)
                missed += not options.quick and isinstance(figure, Figure) and figure.kept is False
    said = "no promise was judged: they are for files of full size" if options.quick else "all promises kept"
    print(f"\n{missed} promises missed" if missed else f"\n{said}")
    return 1 if missed else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("case", nargs="*", help=f"which ones (all): {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="files of a sixteenth of the size, 3 rounds, no verdicts")
    parser.add_argument("--rounds", type=int, help="rounds per figure (5)")
    parser.add_argument(
        "--directory", type=Path, help="where the big files are made (the system's temporary directory)"
    )
    parser.add_argument(
        "--logs", type=Path, help="where logs that servers write are kept, and taken from the next time"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.case) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    return options


def line(figure: Figure | Skipped, *, judged: bool = True) -> str:
    """One figure as a line of text. judged: with the verdict on its promise."""
    if isinstance(figure, Skipped):
        return f"  {figure.name:<72} skipped: {figure.reason}"
    values = figure.series.values
    spread = f"[{min(values):.4g} .. {max(values):.4g}]" if len(values) > 1 else ""
    promise = ""
    if figure.target is not None:
        verdict = ("kept" if figure.kept else "MISSED") if judged else "promised at full size"
        promise = f"  {'>=' if figure.at_least else '<='} {figure.target:g}: {verdict}"
    return f"  {figure.name:<72} {figure.series.median:>9.4g} {figure.unit:<12} {spread}{promise}"


if __name__ == "__main__":
    raise SystemExit(main())
