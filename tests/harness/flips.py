"""Goal R5: which single-bit flips nobody could notice, by the part of the file they lie in.

`python -m tests.harness.flips CORPUS FORMAT [BITS]` tries the bits of every file (BITS: so many of each file, the same
number from each part) and writes the coverage map.
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
from tests.harness.samples import FULL, Sample, pieces

LIMIT = 16 * 1024
MAPS = Path(__file__).parent / "coverage"

_SEALED = "encrypted, its checksum too: without the key only sizes can be read (9)"

_BODIES = {
    "ANNOTATE_ROWS APPEND_BLOCK BEGIN_LOAD_QUERY HEARTBEAT INCIDENT ROWS_QUERY XA_PREPARE": "text or data of any kind",
    "ANONYMOUS_GTID GTID GTID_LOG GTID_TAGGED_LOG": "times, commit numbers and other sources: any value is possible",
    "BINLOG_CHECKPOINT ROTATE": "the name of a file, a position in it; only the other files of the set contradict",
    "DELETE_ROWS UPDATE_ROWS WRITE_ROWS PARTIAL_UPDATE_ROWS": "a value of a column that is as long as before; flags",
    "DELETE_ROWS_V1 UPDATE_ROWS_V1 WRITE_ROWS_V1": "a value of a column that is as long as before; flags",
    "EXECUTE_LOAD_QUERY QUERY": "text, thread, time and status variables of a statement",
    "FORMAT_DESCRIPTION": "text of the version, the time, lengths of fixed parts that nobody reads",
    "GTID_LIST PREVIOUS_GTIDS": "what was in the files before; only those contradict",
    "INTVAR RAND USER_VAR XID": "any number is possible",
    "TRANSACTION_PAYLOAD": "zstd without a checksum of its own: another text, number or value of the same length",
    "TABLE_MAP": "names, flags, and metadata that the row images fit as well",
}
"""Without checksums a changed value is as good as the old one; by types of events."""

WHY = {
    "tarantool": {
        "head: Version": "free text; the server ignores it (1.1)",
        "head: Comment": "the value of a key that nobody knows; the key itself is reported (1.1)",
        "head: Instance": "another well-formed uuid; only the other files of the set contradict (1.1, 6.1)",
        "head: Server": "the old name of Instance: another well-formed uuid (1.1)",
        "head: VClock": "the id of a component: the sum stays right; only the neighbour files contradict (3)",
        "head: PrevVClock": "only the file before it can contradict (3)",
        "head: format version": "0.12 and 0.13 are both valid, with one layout (1.1)",
        "head: blank behind the colon": "blanks are skipped; in front of free text they may be anything (1.1)",
        "head: line end": "behind free text: the next line becomes part of it, and Instance may be absent (1.1)",
        "padding": "its content is free: zeros in new files, letters and garbage in old ones (1.2)",
    },
    "drizzle": {
        "no checksum: message": "without a checksum a changed value is as good as the old one (5)",
    },
    "mysql-binlog": {
        "FORMAT_DESCRIPTION: flags": "the in-use flag is left out of the checksum; it says nothing in a relay log; a "
        "log that was left open looks like a closed one without it (3)",
        "checksum_alg 0: FORMAT_DESCRIPTION: flags": "the in-use flag, as with checksums (3)",
        "no checksum: FORMAT_DESCRIPTION: flags": "the in-use flag; no checksum sees the others (3)",
        **{f"no checksum: body: {kind}": why for kinds, why in _BODIES.items() for kind in kinds.split()},
        "no checksum: timestamp": "any time within a day of its neighbours, or later, is possible (11, rule 4)",
        "no checksum: type": "another type whose body has the same shape, outside of groups (5)",
        "no checksum: server id": "outside of groups any server may have written it (11, rule 5)",
        "no checksum: end_log_pos": "of relay logs, and 0 for the cached events of MariaDB: it need not be right (2)",
        "no checksum: flags": "any known flag is possible (2)",
        "encrypted: timestamp": _SEALED,
        "encrypted: type": _SEALED,
        "encrypted: server id": _SEALED,
        "encrypted: end_log_pos": _SEALED,
        "encrypted: flags": _SEALED,
        "encrypted: body": _SEALED,
        "encrypted: event size": "a size that leads to another chain of sizes up to the end of the file (9)",
    },
    "mariadb-innodb-binlog": {},
}
"""Reviewed: the parts that no check can cover, and why. A part that is not named here must not hide a single bit."""


class Tried(NamedTuple):
    """What came out for some flips of one sample. Counters are by part of the file.

    hidden: flips that change nothing in the report. graded: flips by the severity of the worst new finding; `account`
    where only the classes of the bytes and the clean-close mark tell. places: the hidden flips as (part, byte, bit).
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
    base = opinion(sample.format, sample.name, sample.data, hints=sample.hints)
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
        if fresh or seen.refused:
            out.graded["refused" if seen.refused else Severity(max(fresh)).label] += 1
        elif (seen.account, seen.closed) != (base.account, base.closed):
            out.graded["account"] += 1
        else:
            out.hidden[part] += 1
            places.append((part, byte, bit))
    return out._replace(places=tuple(places))


def part_of_the_bits(sample: Sample, count: int) -> list[int]:
    """At most `count` bits: the same number from each part of the file, evenly spread by a seeded choice."""
    rng = random.Random(len(sample.data))
    by_part: dict[str, list[int]] = {}
    for part in part_of(sample.walk):
        by_part.setdefault(part.name, []).extend(range(8 * part.start, 8 * part.end))
    each = max(1, count // max(1, len(by_part)))
    return sorted(bit for bits in by_part.values() for bit in rng.sample(bits, min(each, len(bits))))


def bits_for_the_map(sample: Sample, seen: set[bytes]) -> list[int]:
    """Every bit outside of payloads, one of each payload byte (of each eighth packed one); BINLOGTOOL_FULL: all.

    seen: frames that were tried in another file are not tried again.
    """
    walk, bits = sample.walk, []
    known = [frame for frame in walk.frames if sample.data[frame.start : frame.end] in seen]
    skipped = {field for frame in known for field in frame.fields}
    seen.update(sample.data[frame.start : frame.end] for frame in walk.frames)
    for part in part_of(walk):
        if part in skipped:
            continue
        if FULL or not part.name.endswith("payload"):
            bits += range(8 * part.start, 8 * part.end)
        else:
            step = 8 if part.name == "packed payload" else 1
            bits += [8 * byte + byte // step % 8 for byte in range(part.start, part.end, step)]
    return bits


def write_map(corpus: Path, format: str, count: int | None, workers: int = 2) -> None:
    """Tries the bits of every file (count: so many of each) and writes the map."""
    tried: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    seen: set[bytes] = set()
    chosen = list(pieces(corpus, format, LIMIT))
    bits = [part_of_the_bits(s, count) if count else bits_for_the_map(s, seen) for s in chosen]
    with ProcessPoolExecutor(workers) as pool:
        for sample, one in zip(chosen, pool.map(try_flips, chosen, bits), strict=True):
            tried, hidden, graded = tried + one.tried, hidden + one.hidden, graded + one.graded
            print(f"{sample.name}: {sum(one.tried.values()):,} flips, {sum(one.hidden.values()):,} hidden", flush=True)
    parts = {
        part: {"why": WHY.get(format, {}).get(part, "NOT REVIEWED"), "hidden": hidden[part], "tried": tried[part]}
        for part in sorted(hidden)
    }
    covered = {part: count for part, count in sorted(tried.items()) if part not in hidden}
    amount = f"{count} bits of each file" if count else "every bit, see bits_for_the_map"
    found = {"amount": amount, "files": len(chosen), "flips": sum(tried.values()), "hidden": sum(hidden.values())}
    text = {"format": format, **found, "detected_as": dict(graded), "uncovered": parts, "covered": covered}
    MAPS.mkdir(exist_ok=True)
    (MAPS / f"{format}.json").write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    write_map(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
