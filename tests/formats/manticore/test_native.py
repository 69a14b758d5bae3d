"""Transactions by compiled code are those of the general way: lines of dump and rows of convert."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

import binlogtool
from binlogtool.limits import MIB, Limits
from binlogtool.schema.backends import get_native_backend
from tests.export.native_rows import same as same_rows
from tests.formats.manticore.make import add_cache, add_index, add_txn, killed, log, zint, zstring
from tests.report.native_lines import same

CORPUS = Path(__file__).parents[2] / "corpus" / "manticore"
SAMPLES = sorted(path for path in CORPUS.rglob("binlog.*") if path.is_file() and path.stat().st_size > 8)

pytestmark = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")


def transactions(path: Path) -> tuple[bytes, list[bytes]]:
    """The header of a file, and its transactions without magic and checksum."""
    data = path.read_bytes()
    with binlogtool.open(path) as opened:
        places = [(record.offset, record.size) for record in opened.records()]
    return data[:8], [data[at + 4 : at + size - 4] for at, size in places]


def sealed(body: bytes) -> bytes:
    return b"TXN!" + body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_samples_are_written_alike(path: Path) -> None:
    same(path)
    same_rows(path)


def test_most_of_what_servers_write_is_written_by_compiled_code() -> None:
    done = [same(path) for path in SAMPLES]
    assert sum(one.native for one in done) > 4 * sum(one.others for one in done) > 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_changed_transactions_are_written_alike(seed: int, tmp_path: Path) -> None:
    """Bytes changed, taken out and put in, with the right checksum."""
    rng = random.Random(seed)
    head, made = transactions(rng.choice(SAMPLES))
    changed = list[bytes]()
    for body in made * (1 + 60 // max(len(made), 1)):
        one = bytearray(body)
        for _ in range(rng.choice([0, 0, 1, 2])):
            at = rng.randrange(len(one))
            match rng.randrange(3):
                case 0:
                    one[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
                case 1 if len(one) > 1:
                    del one[at]
                case _:
                    one[at:at] = rng.randbytes(1)
        changed.append(sealed(bytes(one)))
    path = tmp_path / f"binlog.{'0001' if head[4] > 14 else '001'}"
    path.write_bytes(head + b"".join(changed))
    same(path)
    same_rows(path)


def update(attributes: list[tuple[bytes, int]], pool: list[int], ids: list[int], at: list[int], blobs: bytes) -> bytes:
    """The payload of an UPDATE."""
    parts = [zint(len(attributes)), *(zstring(name) + zint(kind) for name, kind in attributes)]
    for code, values in (("I", pool), ("q", ids), ("I", at)):
        parts.append(zint(len(values)) + struct.pack(f"<{len(values)}{code}", *values))
    return b"\0" + b"".join(parts) + zstring(blobs)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_updates_of_any_attributes_are_written_alike(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    names = [b"a", b"price", b'q"uote', "über".encode(), b"\x01"]
    made = [add_index(0, b"t")]
    for number in range(200):
        kinds = [
            rng.choice([1, 2, 4, 6, 6, 7, 7, 1, 5, 9, 15, 1 << 30 | 1, 1 << 30 | 2, 1 << 63])
            for _ in range(rng.randrange(4))
        ]
        if rng.random() < 0.95:
            kinds = [1 << 30 | 1, 6, 7][: len(kinds)]
        called = rng.sample(names, 4) if rng.random() < 0.95 else rng.choices([*names, b"\xff"], k=4)
        attributes = list(zip(called, kinds, strict=False))
        ids = [rng.randrange(-5, 1 << 40) for _ in range(rng.randrange(4))]
        at = [rng.randrange(4) for _ in ids] if rng.random() < 0.5 else []
        pool = [rng.choice([0, 1, 3, 1 << 31, 0x3FC00000, 0xBF99999A, 0x7F800000]) for _ in range(rng.randrange(10))]
        made.append(add_txn(rng.choice([0, 0, 7]), number, update(attributes, pool, ids, at, rng.randbytes(4))))
    path = tmp_path / "binlog.0001"
    path.write_bytes(log(*made, add_cache((b"t", 1, 2, 0)), add_cache((b"t", 1, 2, 0), crc=None)))
    assert same(path).native > 0
    same_rows(path)


def test_updates_are_written_by_compiled_code(tmp_path: Path) -> None:
    attributes = [(b"n", 1), (b"big", 6), (b"text", 7), (b"share", 5)]
    pool = [4, 1, 2, 0, 3, 0x3FC00000, 0, 5, 0, 1, 1, 0]
    path = tmp_path / "binlog.0001"
    path.write_bytes(log(*(add_txn(0, n, update(attributes, pool, [n, -n], [0, 6], b"abc")) for n in range(20))))
    done = same(path)
    assert (done.native, done.others) == (20, 0)
    assert b'"values":{"n":4,"big":8589934593,"text":"abc","share":1.5}},{"docid":-7,' in done.text
    assert b'"docid":-7,"values":{"n":0,"big":5,"text":"b","share":0.0}}]' in done.text


def test_names_are_known_from_transactions_that_are_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "binlog.0001"
    path.write_bytes(log(add_index(1 << 63, b"far"), *(add_txn(1 << 63, n, killed(n, -n)) for n in range(1, 50))))
    done = same(path)
    assert (done.native, done.others, done.text.count(b'"object":"far"')) == (50, 0, 50)


def test_what_is_too_large_to_be_decoded_is_so_for_compiled_code(tmp_path: Path) -> None:
    path = tmp_path / "binlog.0001"
    path.write_bytes(log(add_index(0, b"t"), add_txn(0, 1, killed(*range(40000))), add_txn(0, 2, killed(7))))
    done = same(path, limits=Limits(max_memory=4 * MIB))
    assert b"count-out-of-bounds" in done.text
    assert same(path).native > 0
