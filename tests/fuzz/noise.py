"""`python -m tests.fuzz.noise`: random bytes behind a real log, and how many records are seen in them (figure R8)."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

import binlogtool
from tests.fuzz.__main__ import CORPUS
from tests.fuzz.run import scratch_folder
from tests.fuzz.search import FORMAT, frames
from tests.fuzz.seeds import TARGETS, Seed, seeds

PIECE = 1 << 20


def main() -> int:
    """Prints a row for each format; 1 if a record was seen that nobody wrote."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.noise", description=__doc__)
    parser.add_argument("formats", nargs="*", default=[one for one in TARGETS if one != "mariadb-redo"])
    parser.add_argument("--mib", type=int, default=1024, help="random bytes per format (default 1024 MiB)")
    parser.add_argument("--file", type=int, default=4, help="of them in one file (default 4 MiB)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    for target in asked.formats:
        count, seconds = looked(target, asked.mib, asked.file, asked.seed)
        print(f"| {target} | {asked.mib} MiB | {count} | {seconds:.0f} |", flush=True)
        wrong += count
    return int(wrong > 0)


def looked(target: str, mib: int, each: int, seed: int) -> tuple[int, float]:
    """How many records are seen in so many MiB of random bytes, and how much CPU time that takes."""
    head = sound(target)
    began, seen = time.process_time(), 0
    with scratch_folder() as scratch:
        path = scratch / Path(head.name).name
        for at in range(0, mib, each):
            write(path, head.data, each, f"{target} {seed} {at}")
            (report,) = binlogtool.verify([path], format=FORMAT.get(target, target), hints=head.hints).files
            assert report.size == len(head.data) + each * PIECE
            assert report.records is not None and "incomplete" not in report.details, report.details
            seen += report.records - records(head, scratch)
            path.unlink()
    return seen, time.process_time() - began


def sound(target: str) -> Seed:
    """The shortest sound log of a format that has frames; encrypted ones have nothing that random bytes are not."""
    fit = [one for one in seeds(CORPUS, target) if "damaged" not in one.name and not one.hints.keyfile]
    return min((one for one in fit if frames(target, one.data)), key=lambda one: (len(one.data), one.name))


def records(head: Seed, scratch: Path) -> int:
    """Those of the log by itself."""
    path = scratch / "alone" / Path(head.name).name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(head.data)
    (report,) = binlogtool.verify([path], format=head.format, hints=head.hints).files
    assert report.records is not None
    return report.records


def write(path: Path, head: bytes, mib: int, seed: str) -> None:
    """The log, and random bytes behind it: the same for the same seed."""
    noise = random.Random(seed)
    with path.open("wb") as file:
        file.write(head)
        for _ in range(mib):
            file.write(noise.randbytes(PIECE))
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
