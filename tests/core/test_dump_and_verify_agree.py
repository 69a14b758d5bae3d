"""One walk serves all: what `verify` counts and judges is what `dump` prints, whatever is damaged."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from binlogtool import formats
from binlogtool.errors import UnknownFormatError
from binlogtool.format_api.format import Format
from tests.core.corpus_logs import logs
from tests.harness.mutate import CHANGES
from tests.harness.samples import Sample
from tests.harness.scan_results import dumped, judged
from tests.sampling import take_sample

MUTATED = 16


def agree(path: Path, format: Format, backends: Sequence[str] = ("python",)) -> None:
    first = None
    for backend in backends:
        try:
            seen = judged(path, format, backend)
        except UnknownFormatError:
            return
        assert seen.report is not None
        printed = dumped(path, format, backend)
        assert (len(printed), printed) == (seen.report.records, seen.records), backend
        first = first or seen.records
        assert seen.records == first, backend


def unpack(root: Path, target: Path) -> None:
    """Copies of the logs that are packed."""
    for path in root.rglob("*.gz"):
        copy = target / path.parent.name / path.stem
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(gzip.decompress(path.read_bytes()))


@pytest.mark.full_corpus
@pytest.mark.parametrize("backend", ["python", "native"])
def test_what_verify_counts_behind_a_damage_of_a_log_without_checksums_dump_prints(
    corpus: Path, tmp_path: Path, backend: str
) -> None:
    path = tmp_path / "mariadb-bin.000001"
    path.write_bytes((corpus / "found" / "resync" / "dump-count.000001").read_bytes())
    mysql = formats.load_format("mysql-binlog")
    for on_damage in ("skip", "salvage"):
        assert len(dumped(path, mysql, backend, on_damage)) == 64
    assert len(dumped(path, mysql, backend, start="0x4db")) == 42
    report = judged(path, mysql, backend).report
    assert report is not None and report.records == 64


@pytest.mark.full
@pytest.mark.parametrize("name", formats.list_names())
def test_dump_prints_what_verify_counts_in_every_mutated_sample(samples: Path, tmp_path: Path, name: str) -> None:
    format = formats.load_format(name)
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
        agree(target, format, ("python", "native") if number % 8 == 0 else ("python",))


@pytest.mark.full
def test_dump_prints_what_verify_counts_in_every_log_of_the_corpus(corpus: Path) -> None:
    found = list(logs(corpus))
    assert {format.name for _, format in found} == set(formats.list_names())
    for path, format in take_sample(found, 6):
        if path.parent.name != "15-limit-told-as-server-stops":  # 8 million rows in one event: dump ends with status 6
            agree(path, format, ("python", "native"))
