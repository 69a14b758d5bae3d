"""Goal R5: which single-bit flips nobody could notice, by the part of the file they lie in.

`python -m tests.harness.flips CORPUS` tries every bit and writes the coverage maps beside this file.
"""

from __future__ import annotations

import bisect
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from binlogtool.findings import Severity
from tests.harness.engine import opinion
from tests.harness.oracle import Field, Walk
from tests.harness.samples import FORMATS, Sample, pieces

LIMIT = 16 * 1024
MAPS = Path(__file__).parent / "coverage"

WHY = {
    "tarantool": {
        "head: Version": "free text; the server ignores it (1.1)",
        "head: Server": "any well-formed uuid will do; other files of the set would contradict (1.1)",
        "head: Instance": "any well-formed uuid will do; other files of the set contradict (1.1, 6.1)",
        "head: PrevVClock": "only the neighbour file can contradict (3)",
        "head: VClock": "in files whose name says nothing (test data), only the neighbour files can contradict (3)",
        "head: blank behind the colon": "spaces and tabs are equal there, and part of a value otherwise (1.1)",
        "previous crc": "never checked by anybody; a value other than 0 is reported, other forms of 0 are not (1.2)",
        "padding": "its content is free: zeros in new files, garbage in old ones (1.2)",
    },
    "drizzle": {
        "no checksum: message": "without a checksum a changed value is as good as the old one (5)",
    },
}
"""Reviewed: the parts that no check can cover, and why. A part that is not named here must not hide a single bit."""


class Tried(NamedTuple):
    """What came out for some flips of one sample. Counters are by part of the file.

    hidden: flips without any new finding. graded: flips by the severity of the worst new finding, or `exception`.
    places: the hidden flips as (part, byte, bit).
    """

    tried: Counter[str]
    hidden: Counter[str]
    graded: Counter[str]
    places: tuple[tuple[str, int, int], ...]


def part_of(walk: Walk) -> Iterator[Field]:
    """All parts of a file that the harness' reader names, in order."""
    yield from walk.fields
    for frame in walk.frames:
        yield from frame.fields
    if walk.mark:
        yield walk.mark


def try_flips(sample: Sample, bits: Iterable[int]) -> Tried:
    """Flips bits one after the other. A bit in a range that is reported as damaged anyway is not tried."""
    base = opinion(sample.format, sample.name, sample.data)
    known = base.signature
    reported = [f for f in base.findings if f.severity == Severity.ERROR and f.offset is not None and f.length]
    parts = list(part_of(sample.walk))
    starts = [part.start for part in parts]
    data = bytearray(sample.data)
    out = Tried(Counter(), Counter(), Counter(), ())
    places = []
    for position in bits:
        byte, bit = divmod(position, 8)
        if any(f.offset <= byte < f.offset + f.length for f in reported):  # type: ignore[operator]
            continue
        index = bisect.bisect_right(starts, byte) - 1
        part = parts[index].name if index >= 0 and byte < parts[index].end else "between frames"
        data[byte] ^= 1 << bit
        out.tried[part] += 1
        try:
            seen = opinion(sample.format, sample.name, bytes(data))
        except Exception:  # goal R1 is what tells about it; the map goes on
            out.graded["exception"] += 1
            continue
        finally:
            data[byte] ^= 1 << bit
        fresh = [found[1] for found in seen.signature - known]
        if not fresh and not seen.refused:
            out.hidden[part] += 1
            places.append((part, byte, bit))
        else:
            out.graded["refused" if seen.refused else Severity(max(fresh)).label] += 1
    return out._replace(places=tuple(places))


def part_of_the_bits(sample: Sample, count: int) -> list[int]:
    """At most `count` bits: the same number from each part of the file, evenly spread by a seeded choice."""
    rng = random.Random(len(sample.data))
    by_part: dict[str, list[int]] = {}
    for part in part_of(sample.walk):
        by_part.setdefault(part.name, []).extend(range(8 * part.start, 8 * part.end))
    each = max(1, count // max(1, len(by_part)))
    return sorted(bit for bits in by_part.values() for bit in rng.sample(bits, min(each, len(bits))))


def _all_bits(sample: Sample) -> Tried:
    return try_flips(sample, range(8 * len(sample.data)))


def write_map(corpus: Path, format: str, workers: int) -> None:
    """Tries every bit of every file and writes the map."""
    tried: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    chosen = list(pieces(corpus, format, LIMIT))
    with ProcessPoolExecutor(workers) as pool:
        for sample, one in zip(chosen, pool.map(_all_bits, chosen), strict=True):
            tried, hidden, graded = tried + one.tried, hidden + one.hidden, graded + one.graded
            print(f"{sample.name}: {sum(one.tried.values()):,} flips, {sum(one.hidden.values()):,} hidden", flush=True)
    parts = {
        part: {"why": WHY[format].get(part, "NOT REVIEWED"), "hidden": hidden[part], "tried": tried[part]}
        for part in sorted(hidden)
    }
    covered = {part: count for part, count in sorted(tried.items()) if part not in hidden}
    found = {"files": len(chosen), "flips": sum(tried.values()), "hidden": sum(hidden.values())}
    text = {"format": format, **found, "detected_as": dict(graded), "uncovered": parts, "covered": covered}
    MAPS.mkdir(exist_ok=True)
    (MAPS / f"{format}.json").write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    for name in sys.argv[2:] or FORMATS:
        write_map(Path(sys.argv[1]), name, workers=2)
