"""Truncation at every byte and every single-bit flip: what is noticed, and, by name, what nobody could notice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.findings import Severity
from binlogtool.verification.verify_report import FileReport
from tests.formats.eblob.make import header, key, overwrite, record, remove, total, verified

OVERWRITE, REMOVE, SINGLE = ("data", "footer", "control"), ("remove",), ("single",)

UNCOVERED = {
    "sorted": {
        "header: flags": "the three flags that eblob knows (3)",
        "control: own flags": "any flags may stand in a control block (4)",
        "remove: key": "any 64 bytes are a key",
        "remove: target": "the removed record itself is not in the log",
        "single: key": "data that belongs to no whole overwrite",
        "single: target": "data that belongs to no whole overwrite",
        "single: data": "data that belongs to no whole overwrite",
    },
    "real": {
        "header: flags": "the three flags that eblob knows (3)",
        "control: own flags": "any flags may stand in a control block (4)",
    },
    "api": {
        "header: flags": "the three flags that eblob knows (3)",
        "single: key": "the format has no checksum",
        "single: target": "the format has no checksum",
        "single: data": "the format has no checksum",
    },
    "a": {
        "header: flags": "the flags that eblob knew in 2012 (3)",
        "single: meta_size": "the total stays right: the chain is whole, metadata and data are split elsewhere (8)",
        "single: type": "three types, none of them checked against the content (5)",
        "single: key": "the format has no checksum",
        "single: target": "the format has no checksum",
        "single: data": "the format has no checksum",
    },
}
"""The coverage map: parts of a file in which at least one flipped bit changes nothing in the report, and why.

real: two whole overwrites as the real library logged them; sorted: a data-sort's log with whole overwrites, a removal
and an overwrite that has lost its end; api: a log of single records; a: dialect a. Everything
else in these files is covered: no flip there goes unnoticed.
"""

Field = tuple[str, int, int]


def fields(parts: list[tuple[str, int]], sizes: tuple[str, str]) -> Iterator[Field]:
    """Names for the bytes of a file. parts: what each record is, its data size. sizes: names of the two size fields."""
    yield from (
        ("header: magic", 0, 8),
        ("header: version", 8, 10),
        ("header: pad1", 10, 16),
        ("header: flags", 16, 24),
    )
    yield ("header: pad2", 24, 256)
    at = 256
    names = (("type", 8), (sizes[0], 8), (sizes[1], 8), ("flags", 8), ("key", 64), ("pad", 32), ("target", 8))
    for what, size in parts:
        for name, width in names:
            yield (f"{what}: {name}", at, at + width)
            at += width
        inside = {
            "control": (("own key", 64), ("own flags", 8), ("own data_size", 8), ("disk_size", 8), ("position", 8)),
            "footer": (("sha512", 64), ("record_start", 8)),
        }.get(what, (("data", size),))
        for name, width in inside:
            yield (f"{what}: {name}", at, at + width)
            at += width


def sorted_log() -> tuple[bytes, list[tuple[str, int]]]:
    single = record(key(4), (30096).to_bytes(8, "little"), b"lonely")
    data = header() + overwrite(1, b"all the data") + single + remove(2) + overwrite(3, b"more of it", start=20000)
    parts = [("data", 12), ("footer", 72), ("control", 96), ("single", 6), ("remove", 8)]
    return data, [*parts, ("data", 10), ("footer", 72), ("control", 96)]


def real_log() -> tuple[bytes, list[tuple[str, int]]]:
    """The beginning of a sample; sizes as in its trace."""
    path = Path(__file__).parents[2] / "corpus" / "eblob" / "instance-a.binlog"
    overwrites = [("data", 34), ("footer", 72), ("control", 96), ("data", 128), ("footer", 72), ("control", 96)]
    return path.read_bytes()[:1570], overwrites


def api_log() -> tuple[bytes, list[tuple[str, int]]]:
    records = [record(key(i), (1000 * i).to_bytes(8, "little"), b"d" * size) for i, size in enumerate((10, 20, 30))]
    return header() + b"".join(records), [("single", size) for size in (10, 20, 30)]


def a_log() -> tuple[bytes, list[tuple[str, int]]]:
    records = [total(key(i), bytes(range(1, 9)), b"d" * size, 1 + i % 2) for i, size in enumerate((10, 20, 30, 9))]
    return header() + b"".join(records), [("single", size) for size in (10, 20, 30, 9)]


A_DOUBTFUL = range(410, 444)
"""One whole record of dialect a and a few bytes of the next: as good as one record of dialect b, perhaps torn."""

LOGS = {"real": real_log, "sorted": sorted_log, "api": api_log, "a": a_log}


def said(report: FileReport) -> tuple[object, ...]:
    """What a reader of the report gets to see, without the words."""
    found = frozenset((f.id, f.severity, f.offset, f.length, f.record) for f in report.findings)
    return found, report.records, report.durable_end, tuple(sorted(report.bytes.items()))


def hidden(
    data: bytes, parts: list[tuple[str, int]], sizes: tuple[str, str], bits: range
) -> tuple[Counter[str], Counter[str]]:
    """Flips that change nothing, and all flips, by the part of the file. bits: which ones of each byte."""
    intact = said(verified(data))
    named = list(fields(parts, sizes))
    assert [start for _, start, _ in named][1:] == [end for _, _, end in named][:-1]
    assert named[-1][2] == len(data)
    quiet: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for name, start, end in named:
        for at in range(start, end):
            for bit in bits:
                flipped = bytearray(data)
                flipped[at] ^= 1 << (bit + at) % 8
                tried[name] += 1
                quiet[name] += said(verified(bytes(flipped))) == intact
    return +quiet, tried


def check(name: str, bits: range) -> None:
    data, parts = LOGS[name]()
    sizes = ("size", "meta_size") if name == "a" else ("meta_size", "data_size")
    quiet, tried = hidden(data, parts, sizes, bits)
    assert sum(tried.values()) == len(data) * len(bits)
    assert set(quiet) <= set(UNCOVERED[name])
    if len(bits) == 8:
        assert set(quiet) == set(UNCOVERED[name])
    for part in ("single: key", "single: data", "single: target", "remove: key", "remove: target"):
        if tried[part]:
            assert quiet[part] == tried[part], part  # said plainly: not one bit of these is covered


@pytest.mark.full
@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_bit_in_each_byte_is_noticed_where_the_map_says_so(name: str) -> None:
    check(name, range(1))


@pytest.mark.nightly
@pytest.mark.parametrize("name", LOGS)
def test_every_flipped_bit_is_noticed_where_the_map_says_so(name: str) -> None:
    check(name, range(8))


def borders(data: bytes, parts: list[tuple[str, int]]) -> list[int]:
    ends = [256]
    for _, size in parts:
        ends.append(ends[-1] + 136 + size)
    assert ends[-1] == len(data)
    return ends


@pytest.mark.full
@pytest.mark.parametrize("name", LOGS)
def test_a_file_cut_at_any_byte_keeps_its_whole_records(name: str) -> None:
    data, parts = LOGS[name]()
    ends = borders(data, parts)
    for size in range(len(data) + 1):
        report = verified(data[:size])
        assert sum(report.bytes.values()) == size
        if name == "a" and size in A_DOUBTFUL:
            assert "dialect not certain" in {f.facts.get("diagnosis") for f in report.findings}
            continue
        if size < 256:
            assert (report.records, report.durable_end) == (0, None)
            continue
        whole = [end for end in ends if end <= size]
        assert (report.records, report.durable_end) == (len(whole) - 1, whole[-1])
        torn = [f for f in report.findings if f.id == "torn-tail"]
        assert [f.offset for f in torn] == ([] if size in ends else [whole[-1]])
        assert report.bytes["torn_tail"] == size - whole[-1]
        assert all(f.severity < Severity.ERROR for f in report.findings)


def test_an_overwrite_that_the_end_cuts_off_is_a_note_and_one_elsewhere_a_warning() -> None:
    data, parts = sorted_log()
    ends = borders(data, parts)
    for cut, expected in (
        (ends[6], (Severity.WARNING, Severity.NOTE)),
        (ends[3], ()),
        (len(data), (Severity.WARNING,)),
    ):
        found = [f for f in verified(data[:cut]).findings if f.id == "incomplete-transaction"]
        assert tuple(f.severity for f in found) == expected


def test_a_real_log_cut_at_any_byte_of_its_beginning_keeps_its_whole_records(corpus: Path) -> None:
    data = (corpus / "eblob/generated/instance-a.binlog").read_bytes()
    ends = [256, 426, 634, 866, 1130, 1338]  # first_offsets of the manifest
    for size in range(256, 1338):
        report = verified(data[:size])
        whole = [end for end in ends if end <= size]
        assert (report.records, report.durable_end) == (len(whole) - 1, whole[-1])
