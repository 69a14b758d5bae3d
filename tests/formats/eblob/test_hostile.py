"""Damage of every kind: a report without an exception, every byte accounted for, dump and verify of one mind."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest

import binlogtool
from tests.formats.eblob.files import FILES
from tests.formats.eblob.make import header, verified
from tests.harness.slowness import slowness

NUMBERS = (0, 1, 2, 3, 8, 72, 96, 1 << 31, 1 << 56, 1 << 63, (1 << 64) - 128, (1 << 64) - 1)


def mutated(rng: random.Random) -> bytes:
    """One of the files with a few changes."""
    files = list(FILES.values())
    data = bytearray(rng.choice(files))
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS))
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(300))
        elif kind == 3:
            del data[at : at + rng.randrange(300)]
        else:
            other = rng.choice(files)
            data[at:at] = other[rng.randrange(len(other)) :]
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_any_damage_gives_a_report_and_dump_shows_what_verify_counts(seed: int, tmp_path: Path) -> None:
    rng, located = random.Random(seed), 0
    path = tmp_path / "data-0.0.binlog"
    for _ in range(100):
        data = mutated(rng)
        report = verified(data)
        assert sum(report.bytes.values()) == report.size == len(data)
        for found in (one for one in report.findings if one.offset is not None):
            assert 0 <= found.offset <= found.offset + found.length <= len(data)
            located += 1
        path.write_bytes(data)
        with binlogtool.open(path, format="eblob", backend="python") as log:
            assert sum(1 for _ in log.records()) == report.records
    assert located > 50


@pytest.mark.full
@pytest.mark.parametrize(
    "unit",
    [
        struct.pack("<4Q", 1, 8, 300_000, 0),
        struct.pack("<4Q", 1, 8, 1 << 19, 0) + b"\1" * 96,
        struct.pack("<4Q", 1, 0, 72, 0) + bytes(168),
        struct.pack("<4Q", 1, 8, 72, 0) + bytes(96) + struct.pack("<Q", 168) + bytes(64) + struct.pack("<Q", 72),
    ],
    ids=["far-ends", "padded", "zeros", "footers"],
)
def test_a_megabyte_of_false_headers_is_searched_in_bounded_time(unit: bytes) -> None:
    data = header() + b"no header" * 20 + unit * ((1 << 20) // len(unit))
    began = time.process_time()
    report = verified(data)
    assert time.process_time() - began < 6 * slowness()
    assert sum(report.bytes.values()) == len(data)
