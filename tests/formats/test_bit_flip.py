"""One flipped bit is found from the two checksum values; random damage is not taken for one flipped bit."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlogtool.format_api.layout import CRC32, CRC32C, CRC32C_RAW, MAX_LENGTH, BitFlip, Checksum, locate_bit_flip
from tests.harness.slowness import slowness

ALL = [CRC32, CRC32C, CRC32C_RAW, Checksum("odd", 0x104C11DB7, 0x12345678, 0x0F0F0F0F, 0xE8F29BDA)]
each = pytest.mark.parametrize("checksum", ALL, ids=["crc32", "crc32c", "crc32c-raw", "odd-init-and-xorout"])


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@each
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 19, 64, 257])
def test_every_single_bit_of_the_data_is_named(checksum: Checksum, length: int) -> None:
    data = random.Random(length).randbytes(length)
    stored = checksum.reference(data)
    for bit in range(8 * length):
        computed = checksum.reference(flipped(data, bit))
        assert locate_bit_flip(checksum, stored, computed, length) == BitFlip("data", bit // 8, bit % 8)


@each
@pytest.mark.parametrize("length", [0, 1, 100, MAX_LENGTH])
def test_every_single_bit_of_the_stored_value_is_named(checksum: Checksum, length: int) -> None:
    for bit in range(32):
        assert locate_bit_flip(checksum, 0xCAFEBABE ^ 1 << bit, 0xCAFEBABE, length) == BitFlip(
            "stored", bit // 8, bit % 8
        )


@each
def test_bits_all_over_a_long_record_are_named(checksum: Checksum) -> None:
    rng = random.Random(5)
    length = 3 << 20
    data = rng.randbytes(length)
    stored = checksum(data)
    for bit in (0, 1, 7, 8 * length - 1, *(rng.randrange(8 * length) for _ in range(20))):
        assert locate_bit_flip(checksum, stored, checksum(flipped(data, bit)), length) == BitFlip(
            "data", bit // 8, bit % 8
        )


def test_equal_values_are_no_flip() -> None:
    assert locate_bit_flip(CRC32, 7, 7, 1000) is None


def test_a_flip_outside_the_covered_length_is_not_claimed() -> None:
    """The syndrome of a bit 100 bytes from the end fits a range of 101 bytes and none shorter."""
    data = random.Random(6).randbytes(101)
    stored, computed = CRC32.reference(data), CRC32.reference(flipped(data, 3))
    assert locate_bit_flip(CRC32, stored, computed, 101) == BitFlip("data", 0, 3)
    for length in range(101):
        assert locate_bit_flip(CRC32, stored, computed, length) is None


def test_a_range_where_the_answer_is_ambiguous_gives_none() -> None:
    data = bytes(40)
    stored, computed = CRC32C.reference(data), CRC32C.reference(flipped(data, 0))
    assert locate_bit_flip(CRC32C, stored, computed, MAX_LENGTH) is not None
    assert locate_bit_flip(CRC32C, stored, computed, MAX_LENGTH + 1) is None


@pytest.mark.parametrize("length", [16 << 20, MAX_LENGTH])
def test_long_records_are_answered_in_half_a_second(length: int) -> None:
    """Values that no bit explains cost most: every giant step is made."""
    took = []
    for _ in range(3):  # what else the machine does counts in the longer ones
        start = time.process_time()
        assert locate_bit_flip(CRC32C, 0x12345678, 0x9ABCDEF3, length) is None
        took.append(time.process_time() - start)
    seconds = min(took)
    print(f"\n{length:,} bytes: {seconds:.3f} s CPU")
    assert seconds < 0.5 * slowness()


def tarantool_payloads(data: bytes) -> Iterator[bytes]:
    """Covered bytes of the blocks of an intact file whose length field takes one byte or three (0xcd)."""
    at = data.index(b"\n\n") + 2
    while data[at : at + 4] in (b"\xd5\xba\x0b\xab", b"\xd5\xba\x0b\xba"):
        first = data[at + 4]
        length = first if first < 0x80 else int.from_bytes(data[at + 5 : at + 5 + (1 << first - 0xCC)], "big")
        yield data[at + 19 : at + 19 + length]
        at += 19 + length


def drizzle_payloads(data: bytes) -> Iterator[bytes]:
    """Covered bytes of the entries of an intact file."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        yield data[at + 8 : at + 8 + length]
        at += 12 + length


def random_damage(rng: random.Random, record: bytes) -> tuple[bytes, int]:
    """The damaged record, and what is xored into its stored checksum: two bits or more in all."""
    style = rng.choice(("two bits", "some bits", "burst", "garbage", "zeroed", "record and checksum"))
    size, bits = len(record), 8 * len(record)
    whole = int.from_bytes(record, "little")
    mask, stored = 0, 0
    while mask.bit_count() + stored.bit_count() < 2:
        if style == "two bits":
            mask = sum(1 << bit for bit in rng.sample(range(bits), 2))
        elif style == "some bits":
            mask = sum(1 << bit for bit in rng.sample(range(bits), rng.randrange(2, 33)))
        elif style == "burst":
            mask = rng.getrandbits(rng.randrange(2, 33)) << rng.randrange(bits) & (1 << bits) - 1
        elif style == "garbage":
            mask = rng.getrandbits(bits)
        elif style == "zeroed":
            start = rng.randrange(size)
            mask = int.from_bytes(record[start : start + 512], "little") << 8 * start
        else:
            mask, stored = 1 << rng.randrange(bits), 1 << rng.randrange(32)
    return (whole ^ mask).to_bytes(size, "little"), stored


@pytest.mark.parametrize(
    ("checksum", "file", "walk"),
    [
        (CRC32C_RAW, "tarantool/generated/single/00000000000000000000.xlog", tarantool_payloads),
        (CRC32, "drizzle/generated/basic-checksum.log", drizzle_payloads),
    ],
    ids=["tarantool", "drizzle"],
)
def test_random_damage_of_corpus_records_is_not_taken_for_one_bit(
    corpus: Path, checksum: Checksum, file: str, walk: Callable[[bytes], Iterator[bytes]]
) -> None:
    rng = random.Random(7)
    records = [record for record in walk((corpus / file).read_bytes()) if record]
    tries, claims, expected = 10_000, 0, 0.0
    for _ in range(tries):
        record = rng.choice(records)
        damaged, xored = random_damage(rng, record)
        flip = locate_bit_flip(checksum, checksum(record) ^ xored, checksum(damaged), len(record))
        claims += flip is not None
        expected += (8 * len(record) + 32) / 2**32
    print(f"\n{file}: {len(records)} records, {tries:,} random damages, {claims} false claims, {expected:.4f} expected")
    assert claims <= expected + 4 * expected**0.5
