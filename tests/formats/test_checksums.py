"""The fast kernels against the definitions that crcmod computes."""

from __future__ import annotations

import random
import zlib

import pytest
from msgspec.structs import replace

from binlogtool.format_api.layout import CHECK_INPUT, CRC32, CRC32C, CRC32C_RAW, Checksum

ALL = [CRC32, CRC32C, CRC32C_RAW]
each = pytest.mark.parametrize("checksum", ALL, ids=["crc32", "crc32c", "crc32c-raw"])


@each
def test_the_published_check_value_comes_out(checksum: Checksum) -> None:
    published = {CRC32: 0xCBF43926, CRC32C: 0xE3069283, CRC32C_RAW: 0x58E3FA20}
    assert checksum(CHECK_INPUT) == published[checksum]


@each
def test_the_fast_kernel_equals_the_definition_at_random_lengths(checksum: Checksum) -> None:
    rng = random.Random(1)
    lengths = [*range(130), *(rng.randrange(130, 70_000) for _ in range(40))]
    for length in lengths:
        data = rng.randbytes(length)
        assert checksum(data) == checksum.reference(data), length


@each
def test_any_view_of_the_bytes_gives_the_same_value(checksum: Checksum) -> None:
    data = random.Random(2).randbytes(5000)
    expected = checksum.reference(data[17:4711])
    assert checksum(bytearray(data)[17:4711]) == expected
    assert checksum(memoryview(data)[17:4711]) == expected


@each
def test_a_chain_of_pieces_equals_the_definition_of_the_whole(checksum: Checksum) -> None:
    rng = random.Random(3)
    for _ in range(100):
        pieces = [rng.randbytes(rng.choice((0, 1, 3, 8, 100, 4097))) for _ in range(rng.randrange(1, 8))]
        register = checksum.start
        for piece in pieces:
            register = checksum.kernel(piece, register)
        assert register ^ checksum.final == checksum.reference(b"".join(pieces))


def test_crc32_is_the_one_of_zlib() -> None:
    data = random.Random(4).randbytes(100_000)
    assert CRC32(data) == zlib.crc32(data)


@pytest.mark.parametrize("wrong", [{"check": 0}, {"init": 1}, {"xorout": 1}, {"poly": 0x11EDC6F41}])
def test_a_definition_that_disagrees_with_its_check_value_is_refused(wrong: dict[str, int]) -> None:
    checksum = replace(CRC32, **wrong)
    for use in (lambda: checksum.reference, lambda: checksum(b"")):
        with pytest.raises(AssertionError, match="disagrees with its definition"):
            use()
