"""One walk serves all: what `verify` counts and judges is what `dump` prints, whatever is damaged."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import binlogtool
from binlogtool import formats
from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Finding
from binlogtool.formats.base import Batch, Format, Judge, Layout
from binlogtool.limits import KIB, Limits
from binlogtool.log.blocks import Places
from binlogtool.log.open import open_file
from binlogtool.log.records import Block
from binlogtool.log.select import Selection
from binlogtool.recovery.verify import Options, judge_file
from tests.harness.mutate import CHANGES
from tests.harness.samples import Sample

LONGEST = 256 * KIB
MUTATED = 16


def judged(path: Path, format: Format, backend: str) -> tuple[int | None, list[int]]:
    """What verify counts, and where the records are that its judge is given."""
    seen: list[int] = []

    class Spy:
        def __init__(self, judge: Judge, layout: Layout) -> None:
            self.finish, self.damage, self._judge, self._layout = judge.finish, judge.damage, judge, layout

        def feed(self, batch: Batch) -> Sequence[Finding]:
            seen.extend(Places(batch, self._layout, 0, batch.records.count).offsets() if batch.records.count else ())
            return self._judge.feed(batch)

    spied = replace(format, judge=lambda layout, *rest: Spy(format.judge(layout, *rest), layout))
    file = open_file(str(path), path.name, spied, Limits())
    try:
        return judge_file(file, Options(backend=backend)).report.records, seen
    finally:
        file.source.close()


def dumped(path: Path, format: Format, backend: str, on_damage: str = "skip", start: str | None = None) -> list[int]:
    """Where the records are that dump prints; those inside another record are lines, but not counted."""
    found: dict[int, int] = {}
    with binlogtool.open(path, format=format.name, backend=backend) as log:
        for block in log.blocks(Selection(on_damage=on_damage, start=start)):
            if isinstance(block, Block):
                found.update(zip(block.record, block.offset, strict=True))
    assert list(found) == sorted(found)
    return list(found.values())


def agree(path: Path, format: Format, backends: Sequence[str] = ("python",)) -> None:
    first = None
    for backend in backends:
        try:
            count, offsets = judged(path, format, backend)
        except UnknownFormatError:
            return
        printed = dumped(path, format, backend)
        assert (len(printed), printed) == (count, offsets), backend
        first = first or offsets
        assert offsets == first, backend


def of_format(path: Path) -> Format | None:
    """The format of a small log file, None for anything else."""
    if not path.is_file() or path.stat().st_size > LONGEST or not path.stat().st_size:
        return None
    if {"oracle", "make"} & set(path.parts) or path.suffix in (".md", ".json", ".py", ".sql", ".txt", ".gz"):
        return None
    try:
        file = open_file(str(path), path.name, None, Limits())
    except UnknownFormatError:
        return None
    file.source.close()
    return file.format


def logs(root: Path) -> Iterator[tuple[Path, Format]]:
    """Every small log below a folder."""
    for path in sorted(root.rglob("*")):
        format = of_format(path)
        if format is not None:
            yield path, format


def unpack(root: Path, target: Path) -> None:
    """Copies of the logs that are packed."""
    for path in root.rglob("*.gz"):
        copy = target / path.parent.name / path.stem
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("backend", ["python", "numba"])
def test_what_verify_counts_behind_a_damage_of_a_log_without_checksums_dump_prints(
    corpus: Path, tmp_path: Path, backend: str
) -> None:
    path = tmp_path / "mariadb-bin.000001"
    path.write_bytes((corpus / "found" / "resync" / "dump-count.000001").read_bytes())
    mysql = formats.get("mysql-binlog")
    for on_damage in ("skip", "salvage"):
        assert len(dumped(path, mysql, backend, on_damage)) == 64
    assert len(dumped(path, mysql, backend, start="0x4db")) == 42
    assert judged(path, mysql, backend)[0] == 64


@pytest.mark.parametrize("name", formats.names())
def test_dump_prints_what_verify_counts_in_every_mutated_sample(samples: Path, tmp_path: Path, name: str) -> None:
    format = formats.get(name)
    unpack(samples, tmp_path / "packed")
    roots = (samples, tmp_path / "packed")
    found = [(path, path.read_bytes()) for root in roots for path, of in logs(root) if of.name == name]
    donors = [Sample(name, path.name, data) for path, data in found]
    rng = random.Random(15)
    for number in range(MUTATED):
        path, content = rng.choice(found)
        data = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 3))):
            rng.choice(CHANGES)(rng, data, donors)
        target = tmp_path / str(number) / path.name
        target.parent.mkdir()
        target.write_bytes(data)
        agree(target, format, ("python", "numba") if number % 8 == 0 else ("python",))


@pytest.mark.corpus
@pytest.mark.slow
def test_dump_prints_what_verify_counts_in_every_log_of_the_corpus(corpus: Path) -> None:
    found = list(logs(corpus))
    assert {format.name for _, format in found} == set(formats.names())
    for path, format in found:
        agree(path, format, ("python", "numba"))
