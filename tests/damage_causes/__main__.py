"""`python -m tests.damage_causes [FORMAT …] --count N`: the table of docs/reliability.md."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from tests.damage_causes.damage import KINDS
from tests.damage_causes.measure import FORMATS, measured, samples

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))


def row(format: str, kind: str, seen: Counter[str]) -> str:
    """A line of the table: shares of the damages that were noticed."""
    right, wrong, none = seen["right"], seen["wrong"], seen["none"]
    given, noticed = right + wrong, right + wrong + none
    share = f"{100 * right / given:.2f} %" if given else "-"
    cells = (format, kind, noticed, right, wrong, share, f"{100 * none / max(1, noticed):.1f} %", seen["unseen"])
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage_causes", description=__doc__)
    parser.add_argument("formats", nargs="*", default=FORMATS, metavar="FORMAT")
    parser.add_argument("--count", type=int, default=200, help="damages of each kind per format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="only this one")
    parser.add_argument("--wrong", action="store_true", help="show the wrong verdicts")
    asked = parser.parse_args()
    sound = {format: samples(CORPUS / format, format, 24) for format in FORMATS}
    print("| format | damage | noticed | right | wrong | right of the verdicts | no verdict | unseen |")
    print("|---|---|---|---|---|---|---|---|")
    total: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for format in asked.formats:
        others = [one.data for name in FORMATS if name != format for one in sound[name]]
        for kind in [asked.kind] if asked.kind else KINDS:
            seen = measured(kind, sound[format], others, asked.count, asked.seed) if sound[format] else Counter()
            total[kind] += seen
            print(row(format, kind, seen), flush=True)
            for text in [text for text in seen if asked.wrong and text.startswith("!")][:8]:
                print("   ", text)
    for kind, seen in total.items():
        print(row("**all**", kind, seen))


if __name__ == "__main__":
    main()
