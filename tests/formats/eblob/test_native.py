"""Records by compiled code are those of the general way: lines of dump and rows of convert."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from binlogtool.schema.backends import get_native_backend
from tests.export.native_rows import same as same_rows
from tests.formats.eblob.make import control, header, key, overwrite, record, remove, write
from tests.report.native_lines import same

CORPUS = Path(__file__).parents[2] / "corpus" / "eblob"
SAMPLES = sorted(CORPUS.glob("*.binlog"))
LOG = CORPUS / "instance-a.binlog"
FAR = (1 << 64) - 8

pytestmark = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_are_written_alike(path: Path) -> None:
    same(path)
    same_rows(path)


def test_what_a_data_sort_writes_is_written_by_compiled_code() -> None:
    done = same(LOG)
    assert done.native > 300
    assert done.others == 0


@pytest.mark.parametrize("seed", range(30))
def test_changed_records_are_written_alike(seed: int, tmp_path: Path) -> None:
    """Bytes of records of all kinds, mostly in their heads and at the places that tell what they are."""
    rng, made = random.Random(seed), list[bytes]()
    for number in range(80):
        data = rng.randbytes(rng.choice([0, 8, 20, 72, 96]))
        of, start = key(number % 7), rng.choice([5000, 5000 + number, FAR])
        kinds = [
            overwrite(number % 7, data, footer=rng.random() < 0.7), remove(number % 7), write(of, start & FAR, data),
            record(of, rng.randbytes(rng.choice([0, 3, 88])), data),
            write(of, 5000, control(of, rng.randrange(1 << 10), len(data), 96, rng.choice([5000, FAR]))),
            write(of, 5000 + len(data), rng.randbytes(64) + struct.pack("<Q", rng.choice([4904, FAR]))),
        ]  # fmt: skip
        one = bytearray(rng.choice(kinds))
        for at in (64, 127, 128, 133, *range(136, len(one), 24)):
            if at < len(one) and rng.random() < 0.02:
                one[at] ^= 1 << rng.randrange(8)
        made.append(bytes(one))
    path = tmp_path / "data-0.0.binlog"
    path.write_bytes(header() + b"".join(made))
    same(path)
    same_rows(path)


@pytest.mark.full
def test_a_group_that_goes_on_in_the_next_batch_stays_one(tmp_path: Path) -> None:
    """Batches end after some MiB: overwrites of many sizes, so that some do so inside of one."""
    path = tmp_path / "data-0.0.binlog"
    path.write_bytes(header() + b"".join(overwrite(n % 9, b"x" * (n * 37 % 4000)) for n in range(12000)))
    done = same(path)
    assert done.native == 36000
