"""Goal R12: the construct loop, the generated Python scanner and the compiled scanner are one engine."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from construct import ConstructError

from binlogtool import formats
from binlogtool.format_api.format import FileHead
from binlogtool.format_api.layout import LogFileLayout
from binlogtool.format_api.schema_fields import ChecksumResult
from binlogtool.limits import Limits
from binlogtool.schema import backends
from binlogtool.schema.frame_scan_loop import StopReason
from tests.harness.engine import opinion
from tests.harness.mutate import mutated
from tests.harness.samples import FORMATS, FULL, pieces, samples
from tests.sampling import EXHAUSTIVE, take_sample

pytestmark = pytest.mark.full

KIB = 1024
MUTATED = 20_000 if FULL else 600 if EXHAUSTIVE else 200
LONGEST = {"mysql-binlog": 64 * KIB}
"""The construct loop needs a minute for longer files of some formats; they are scanned by the other two."""
VERDICT = {True: 1, None: 2, False: -1}


class Walked(NamedTuple):
    """Offset, end and checksum verdict of each good frame, and where the walk ended."""

    frames: list[tuple[int, int, int]]
    stopped: int
    at_end: bool


def layout_of(format: str, name: str, data: bytes) -> LogFileLayout:
    head = FileHead(data[:4096], Path(name).name, len(data))
    return formats.load_format(format).reading.layout(head, Limits())


def by_construct(layout: LogFileLayout, data: bytes) -> Walked:
    """Parses frame after frame with the unchanged schema."""
    stream, frames = io.BytesIO(data), []
    at = layout.frames_at
    while at < len(data):
        stream.seek(at)
        try:
            parsed = layout.frame.schema.parse_stream(stream)
        except (ConstructError, OverflowError, MemoryError):
            return Walked(frames, at, False)
        verdicts = [value.ok for value in parsed.values() if isinstance(value, ChecksumResult)]
        end = stream.tell()
        if False in verdicts or end <= at:
            return Walked(frames, at, False)
        frames.append((at, end, VERDICT[verdicts[0]] if verdicts else 0))
        at = end
    return Walked(frames, at, True)


def by_scanner(layout: LogFileLayout, data: bytes, backend: str) -> Walked:
    """Scans the same bytes."""
    scanner = backends.choose_backend(backend).make_scanner(layout.frame.schema, layout.frame.columns)
    frames: list[tuple[int, int, int]] = []
    at = layout.frames_at
    while True:
        table, stop = scanner.scan(data, at, len(data))
        for i in range(table.count):
            frames.append((int(table["offset"][i]), int(table["end"][i]), int(table["checksum"][i])))
        at = stop.at
        if stop.reason != StopReason.FULL:
            return Walked(frames, at, stop.reason == StopReason.END)


def columns_of(layout: LogFileLayout, data: bytes, backend: str) -> list[list[int]]:
    """Every column of every frame up to the first stop."""
    scanner = backends.choose_backend(backend).make_scanner(layout.frame.schema, layout.frame.columns)
    table, _ = scanner.scan(data, layout.frames_at, len(data))
    return [[int(value) for value in table[name][: table.count]] for name in layout.frame.columns]


def inputs(corpus: Path, format: str) -> Iterator[tuple[str, bytes]]:
    """Every file of the corpus, then seeded damage."""
    for sample in take_sample(samples(corpus, format, LONGEST.get(format, 1 << 30) if not FULL else 1 << 30), 3):
        yield sample.name, sample.data
    some = list(pieces(corpus, format, 16 * KIB))
    for number in range(MUTATED):
        sample, data = mutated(random.Random(number), some)
        yield f"{sample.name}, mutation {number}", data


@pytest.mark.parametrize("format", FORMATS)
def test_three_engines_see_the_same_frames(corpus: Path, format: str) -> None:
    count = frames = 0
    wrong: list[Any] = []
    for name, data in inputs(corpus, format):
        layout = layout_of(format, name.split(",")[0], data)
        if not layout.readable or layout.frames_at > len(data):
            continue
        count += 1
        expected = by_construct(layout, data)
        frames += len(expected.frames)
        for backend in ("python", "native"):
            seen = by_scanner(layout, data, backend)
            if seen != expected:
                wrong.append((name, backend, expected.frames[-1:], expected[1:], seen.frames[-1:], seen[1:]))
        if columns_of(layout, data, "python") != columns_of(layout, data, "native"):
            wrong.append((name, "columns differ"))
    print(
        f"\nR12 {format}: {count:,} files and mutations, {frames:,} frames by three engines, {len(wrong)} differences"
    )
    assert not wrong, wrong[:5]
    assert count > 20


@pytest.mark.parametrize("format", FORMATS)
def test_two_scanners_give_one_report_of_every_corpus_file(corpus: Path, format: str) -> None:
    count = 0
    for sample in take_sample(samples(corpus, format, 1 << 30), 3, 1):
        plain = opinion(format, sample.name, sample.data, "python")
        assert opinion(format, sample.name, sample.data, "native") == plain, sample.name
        count += 1
    print(f"\nR12 {format}: {count} corpus files, both scanners give the same report")
    assert count > (20 if EXHAUSTIVE else 8)
