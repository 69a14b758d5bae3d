"""A region that is given up is searched completely: an independent search, byte by byte, finds nothing there."""

from __future__ import annotations

import gzip
import random
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlogtool import formats
from binlogtool.core.open_file import BytesSource, open_file
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.limits import KIB, MIB, Limits
from binlogtool.schema import backends
from tests.fuzz.mutate import sectors
from tests.harness import oracle, oracle_ibb, oracle_mysql
from tests.harness.slowness import slowness
from tests.verify_bytes import verify_bytes

SECTOR = 512
LONGEST = 128 * KIB
HEAD = 16 * KIB

Proven = Callable[[bytes, int], bool]


def mysql_at(data: bytes, at: int) -> bool:
    """An event with its right checksum."""
    form = oracle_mysql.description(data, 4)
    return form is not None and form.crc and oracle_mysql.event_at(data, at, form) is not None


def sphinx_at(data: bytes, at: int) -> bool:
    """A transaction whose checksum stands directly before the next one, or at the end of the file."""
    if data[at : at + 4] != b"TXN!":
        return False
    ends = [match.start() for match in re.finditer(b"TXN!", data[at + 4 :])]
    for size in [*(end + 4 for end in ends), len(data) - at]:
        end = at + size - 4
        if end > at + 4 and zlib.crc32(data[at + 4 : end]) == struct.unpack_from("<I", data, end)[0]:
            return True
    return False


def page_at(data: bytes, at: int) -> bool:
    """A page with its right checksum."""
    size = oracle_ibb.page_size(data) or 0
    return bool(size) and at % size == 0 and any(data[at : at + size]) and oracle_ibb.right(data[at : at + size])


PROVEN: dict[str, Proven] = {
    "tarantool": lambda data, at: oracle.block(data, at) is not None,
    "drizzle": lambda data, at: oracle.entry(data, at) is not None,
    "mysql-binlog": mysql_at,
    "manticore": sphinx_at,
    "mariadb-innodb-binlog": page_at,
}
FOLDERS = {
    "tarantool": ("tarantool/generated", "*.xlog"),
    "drizzle": ("drizzle/generated", "*.log"),
    "mysql-binlog": ("mysql-binlog/generated", "*-bin.0*"),
    "manticore": ("sphinx/generated", "binlog.0*"),
    "mariadb-innodb-binlog": ("mariadb-innodb-binlog/generated", "*.ibb.gz"),
}


def given_up(format: str, name: str, data: bytes) -> Iterator[tuple[int, int]]:
    """The regions that the scan hands on as damage."""
    file = open_file(name, name, formats.load_format(format), Limits(), BytesSource(name, data))
    backend = backends.choose_backend("python")
    for segment in Scan(file.source, file.format, file.layout, backend, Limits(), rows=False).segments():
        if isinstance(segment, DamagedRange):
            yield segment.start, segment.end


def passed_over(format: str, name: str, data: bytes) -> list[int]:
    """Places of intact frames inside those regions, behind their first byte."""
    proven = PROVEN[format]
    return [at for start, end in given_up(format, name, data) for at in range(start + 1, end) if proven(data, at)]


def damaged_behind_head(rng: random.Random, data: bytes) -> bytes:
    """The beginning stays whole: a log without its head is another matter."""
    head = min(HEAD, SECTOR if len(data) <= 2 * HEAD else HEAD)
    return data[:head] + sectors(rng, data[head:], size=SECTOR)


@pytest.mark.full
@pytest.mark.parametrize("format", PROVEN)
def test_no_intact_record_is_passed_over_behind_stale_zero_and_swapped_sectors(corpus: Path, format: str) -> None:
    folder, glob = FOLDERS[format]
    rng, found = (
        random.Random(15),
        [path for path in sorted((corpus / folder).rglob(glob)) if "damaged" not in path.parts],
    )
    regions = size = 0
    for number in range(25):
        path = rng.choice(found)
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        damaged = damaged_behind_head(rng, data[:LONGEST])
        name = path.name.removesuffix(".gz")
        assert passed_over(format, name, damaged) == [], (path, number)
        lost = list(given_up(format, name, damaged))
        regions, size = regions + len(lost), size + sum(end - start for start, end in lost)
    assert regions
    print(f"\nR7 {format}: 25 damaged files, {regions} regions of {size:,} bytes searched, 0 intact records in them")


@pytest.mark.full_corpus
@pytest.mark.parametrize(("name", "records"), [("binlog.003", 54), ("binlog.002", 9)])
def test_records_between_a_stale_sector_and_the_place_where_its_record_seems_to_end_are_found(
    corpus: Path, name: str, records: int
) -> None:
    data = (corpus / "found" / "resync" / name).read_bytes()
    assert passed_over("manticore", name, data) == []
    report = verify_bytes(name, data)
    assert report.records == records
    regions = {found.offset: found.offset + found.length for found in report.findings if found.id == "damaged-range"}
    mismatches = [found for found in report.findings if found.id == "checksum-mismatch"]
    assert len(mismatches) == len(regions)
    assert all(found.offset + found.length <= regions[found.offset] for found in mismatches)


def test_entries_inside_one_that_has_no_checksum_and_is_none_are_found() -> None:
    message = bytes.fromhex("0a16080210 0118e0c8b48c8cb4ae0220aaedb48c8cb4ae02 1a020800 20012801".replace(" ", ""))
    entry = struct.pack("<II", 1, len(message)) + message + bytes(4)
    wrong = bytearray(entry)
    wrong[4:8] = struct.pack("<I", len(message) + 2 * len(entry))
    report = verify_bytes("transaction.log", entry * 2 + wrong + entry * 4, format="drizzle")
    assert report.records == 6
    assert report.bytes["damaged"] == len(entry)


@pytest.mark.full_corpus
@pytest.mark.parametrize("format", ["drizzle", "mysql-binlog"])
def test_a_long_damaged_record_is_searched_in_linear_time(corpus: Path, format: str) -> None:
    noise = random.Random(3).randbytes(2 * MIB) * 4
    real = (corpus / "third-party-2" / "vector.binlog").read_bytes()
    entry = struct.pack("<II", 1, len(noise)) + noise + b"\1\2\3\4"
    expected = (0, 2 * len(entry)) if format == "drizzle" else (38, 19 + len(noise))
    event = struct.pack("<IBIIIH", 1, 2, 1, 19 + len(noise), 0, 0) + noise
    data = entry * 2 if format == "drizzle" else real[:0x9E] + event + real[0x9E:]
    started = time.thread_time()
    report = verify_bytes("transaction.log", data, format=format)
    assert time.thread_time() - started < slowness() * (1 + 20 * len(data) / (100 * MIB))
    assert (report.records, report.bytes["damaged"]) == expected
