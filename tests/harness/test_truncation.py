"""Goal R4: a file cut at any byte keeps exactly the records that lie wholly in front of the cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from binlogtool.findings import Severity
from tests.harness import oracle, oracle_mysql
from tests.harness.engine import opinion
from tests.harness.samples import FORMATS, FULL, WALKERS, Sample, samples

pytestmark = pytest.mark.nightly

KIB = 1024
EVERY_BYTE = 64 * KIB if FULL else 2 * KIB
EACH = {"tarantool": 12, "drizzle": 12, "mysql-binlog": 4, "mariadb-innodb-binlog": 8}
"""Cuts of a damaged file."""
SMALL = {"mysql-binlog": 16 * KIB if FULL else 400}
"""Where every byte is too much."""
NEAR = 8 if FULL else 2
SOMEWHERE = 0 if FULL else 20


def cuts(sample: Sample, walk: oracle.Walk) -> Iterator[int]:
    """Where to cut: everywhere in small files; around each frame border, and at random places, in others."""
    size = len(sample.data)
    if size <= SMALL.get(sample.format, EVERY_BYTE):
        yield from range(size)
        return
    borders = [walk.head or 0, *(frame.end for frame in walk.frames)]
    reach, somewhere = (1, 6) if sample.format in SMALL and not FULL else (NEAR, SOMEWHERE)
    if not FULL:
        borders = borders[:4] + borders[-4:]
    near = {border + step for border in borders for step in range(-reach, reach + 1)}
    rng = random.Random(size)
    yield from sorted(cut for cut in near | {rng.randrange(size) for _ in range(somewhere)} if 0 <= cut < size)


def broken_rules(sample: Sample) -> bool:
    """Are there errors although each frame is whole? Of MySQL: nesting, GTIDs or bodies that are wrong."""
    if sample.format != "mysql-binlog":
        return False
    found = opinion(sample.format, sample.name, sample.data).findings
    sealed = any(field.name.startswith("encrypted") for frame in sample.walk.frames for field in frame.fields)
    return not sealed and any(one.severity is Severity.ERROR for one in found)


def headless(sample: Sample, walk: oracle.Walk) -> bool:
    """Is the header such that the harness' reader gives up, where the product finds the size of pages by their CRCs?"""
    return sample.format == "mariadb-innodb-binlog" and not any(frame.records for frame in walk.frames)


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_file_keeps_exactly_the_whole_records(corpus: Path, format: str) -> None:
    """Intact files: the borders of the whole file say what is expected at each cut."""
    files = tried = 0
    wrong: list[tuple[str, int, object, object]] = []
    for sample in samples(corpus, format, 1 << 20):
        walk = sample.walk
        if walk.head is None or not walk.clean or broken_rules(sample):
            continue
        files += 1
        ends = [frame.end for frame in walk.frames]
        counts = [0, *accumulate(frame.records for frame in walk.frames)]
        durable = oracle.durable_ends(walk)
        for cut in cuts(sample, walk):
            tried += 1
            whole = sum(end <= cut for end in ends)
            seen = opinion(format, sample.name, sample.data[:cut])
            expected = (counts[whole], durable[whole]) if cut >= walk.head else (0, None)
            if format == "mysql-binlog" and not oracle_mysql.repairable(sample.data, walk, cut):
                expected = (expected[0], None)
            if (seen.records, seen.durable_end) != expected:
                wrong.append((sample.name, cut, expected, (seen.records, seen.durable_end)))
    amount = "every byte up to 64 KiB, else near borders" if FULL else "part: BINLOGTOOL_FULL=1 cuts at every byte"
    print(f"\nR4 {format}: {files} intact files, {tried:,} cuts ({amount}), {len(wrong)} wrong")
    assert not wrong, wrong[:10]
    assert tried


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_damaged_file_keeps_exactly_the_provable_records(corpus: Path, format: str) -> None:
    """Damaged files: the harness' own reader, which searches behind damage, is asked about each cut."""
    files = tried = 0
    wrong: list[tuple[str, int, int, int]] = []
    for sample in samples(corpus, format, 64 * KIB):
        walk = sample.walk
        if walk.clean or headless(sample, walk):
            continue
        files += 1
        for cut in (
            cuts(sample, walk) if FULL else random.Random(1).choices(range(len(sample.data) + 1), k=EACH[format])
        ):
            tried += 1
            expected = sum(frame.records for frame in WALKERS[format](sample.data[:cut]).frames)
            seen = opinion(format, sample.name, sample.data[:cut])
            if seen.records != expected:
                wrong.append((sample.name, cut, expected, seen.records))
    print(f"\nR4 {format}: {files} damaged files, {tried:,} cuts, {len(wrong)} wrong")
    assert not wrong, wrong[:10]
    assert tried
