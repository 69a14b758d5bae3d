"""Goal R5: no flipped bit of a page goes unseen: CRC-32C covers each page, zeros those that were never written.

The coverage map of this format is empty: there is no byte that nothing covers.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.verification.verify_logs import LogVerifyOptions
from tests.verify_bytes import verify_bytes

SAMPLES = Path(__file__).parents[2] / "corpus/mariadb-innodb-binlog/page4k"
PAGE = 4096
HEADER_USED = 64
FIRST_CRC = 508


NAMES = sorted(path.name.removesuffix(".gz") for path in SAMPLES.glob("*.ibb.gz"))


def sample(name: str) -> bytes:
    return gzip.decompress((SAMPLES / f"{name}.gz").read_bytes())


def hidden(name: str, data: bytes, bits: Iterator[int]) -> tuple[int, list[int]]:
    """How many flips were tried, and those after which the report is what it was."""
    before = report(name, data)
    flipped = bytearray(data)
    tried, unseen = 0, []
    for bit in bits:
        flipped[bit // 8] ^= 1 << bit % 8
        tried += 1
        if report(name, bytes(flipped)) == before:
            unseen.append(bit)
        flipped[bit // 8] ^= 1 << bit % 8
    return tried, unseen


def report(name: str, data: bytes) -> object:
    found = verify_bytes(name, data, format="mariadb-innodb-binlog", options=LogVerifyOptions("payload"))
    assert sum(found.bytes.values()) == len(data)
    return [(f.id, f.severity, f.offset, f.message) for f in found.findings]


def of_the_header() -> Iterator[int]:
    """Every bit of the fields, of both checksums, and one of each unused byte."""
    yield from range(8 * HEADER_USED)
    yield from range(8 * FIRST_CRC, 8 * (FIRST_CRC + 4))
    yield from range(8 * (PAGE - 4), 8 * PAGE)
    yield from (8 * byte + byte % 8 for byte in range(HEADER_USED, PAGE - 4, 16))


def of_the_pages(data: bytes, each: int) -> Iterator[int]:
    """So many bits of each page, its first chunk header and its checksum among them."""
    rng = random.Random(5)
    for page in range(PAGE, len(data), PAGE):
        yield from range(8 * page, 8 * (page + 3), 3)
        yield from range(8 * (page + PAGE - 4), 8 * (page + PAGE), 5)
        yield from (8 * page + rng.randrange(8 * PAGE) for _ in range(each))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_bit_of_a_header_page_is_seen(name: str) -> None:
    tried, unseen = hidden(name, sample(name), of_the_header())
    print(f"{name}: {tried:,} flips of the header page, {len(unseen)} unseen")
    assert tried > 800
    assert not unseen


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_bit_of_a_page_is_seen(name: str) -> None:
    data = sample(name)
    tried, unseen = hidden(name, data, of_the_pages(data, 40))
    print(f"{name}: {tried:,} flips of data pages, {len(unseen)} unseen")
    assert tried > 300
    assert not unseen
