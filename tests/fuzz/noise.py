"""`python -m tests.fuzz.noise`: write random bytes after a real log and count the records that are found in them."""

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
    """Print a row for each format; 1 if a record was found that no server wrote."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.noise", description=__doc__)
    parser.add_argument("formats", nargs="*", default=[target for target in TARGETS if target != "mariadb-redo"])
    parser.add_argument("--mib", type=int, default=1024, help="random bytes per format (default 1024 MiB)")
    parser.add_argument("--file", type=int, default=4, help="random bytes in one file (default 4 MiB)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wrong = 0
    for target in arguments.formats:
        count, seconds = count_false_records(target, arguments.mib, arguments.file, arguments.seed)
        print(f"| {target} | {arguments.mib} MiB | {count} | {seconds:.0f} |", flush=True)
        wrong += count
    return int(wrong > 0)


def count_false_records(target: str, mib: int, each: int, seed: int) -> tuple[int, float]:
    """Count the records found in so many MiB of random bytes; return the count and the CPU time."""
    head = pick_sound_log(target)
    began, seen = time.process_time(), 0
    with scratch_folder() as scratch:
        path = scratch / Path(head.name).name
        for at in range(0, mib, each):
            write_noisy_log(path, head.data, each, f"{target} {seed} {at}")
            (report,) = binlogtool.verify([path], format=FORMAT.get(target, target), hints=head.hints).files
            assert report.size == len(head.data) + each * PIECE
            assert report.records is not None and "incomplete" not in report.details, report.details
            seen += report.records - count_records(head, scratch)
            path.unlink()
    return seen, time.process_time() - began


def pick_sound_log(target: str) -> Seed:
    """Return the shortest undamaged log with frames; encrypted frames look like random bytes and are left out."""
    sound = [seed for seed in seeds(CORPUS, target) if "damaged" not in seed.name and not seed.hints.keyfile]
    return min((seed for seed in sound if frames(target, seed.data)), key=lambda seed: (len(seed.data), seed.name))


def count_records(head: Seed, scratch: Path) -> int:
    """Count the records of the log without random bytes."""
    path = scratch / "alone" / Path(head.name).name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(head.data)
    (report,) = binlogtool.verify([path], format=head.format, hints=head.hints).files
    assert report.records is not None
    return report.records


def write_noisy_log(path: Path, head: bytes, mib: int, seed: str) -> None:
    """Write the log and random bytes after it; the same bytes for the same seed."""
    noise = random.Random(seed)
    with path.open("wb") as file:
        file.write(head)
        for _ in range(mib):
            file.write(noise.randbytes(PIECE))
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
