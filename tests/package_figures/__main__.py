"""Figures of this package.

python -m tests.package_figures [--at COMMIT ...]               the table: a column for each commit, and one for today
python -m tests.package_figures --names [--at COMMIT]           what is long, and which circles there are, by name
python -m tests.package_figures --written FOLDER                which records compiled code writes, of all logs there
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.package_figures.figures import SECTIONS, longest
from tests.package_figures.modules import ROOT, Code, checkout
from tests.package_figures.written import table as table_of_writers
from tests.package_figures.written import written


def table(columns: dict[str, Code]) -> Iterator[str]:
    """All figures in Markdown, a column for each checkout; a figure that one of them has not stays empty."""
    yield f"| | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for title, measured in SECTIONS.items():
        found = {name: dict(measured(code)) for name, code in columns.items()}
        yield f"| **{title}** |{' |' * len(columns)}"
        for what in dict.fromkeys(what for figures in found.values() for what in figures):
            yield f"| {what} | {' | '.join(figures.get(what, '') for figures in found.values())} |"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.package_figures", description="Figures of this package.")
    parser.add_argument("--at", metavar="COMMIT", action="append", default=[], help="as it was there; several times")
    parser.add_argument("--names", action="store_true", help="what is long, and the circles, by name")
    parser.add_argument("--written", metavar="FOLDER", type=Path, help="which records compiled code writes")
    asked = parser.parse_args(words)
    if asked.written is not None:
        sys.stdout.writelines(f"{line}\n" for line in table_of_writers(written(asked.written)))
        return
    with ExitStack() as held:
        columns = {commit: held.enter_context(checkout(commit)) for commit in asked.at}
        code = next(iter(columns.values()), Code(ROOT))
        lines = longest(code, 12) if asked.names else table({**columns, "today": Code(ROOT)})
        sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
