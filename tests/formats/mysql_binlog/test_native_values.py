"""Values of row images by compiled code: exact at their ends, the same as by the general writer, whatever the bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.native_logs import (
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DOUBLE,
    ENUM,
    FLOAT,
    INT24,
    LONG,
    LONGLONG,
    NEWDECIMAL,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    WRITE_V1,
    YEAR,
    dumped,
    one_column,
    rows_of,
)
from tests.formats.mysql_binlog.row_building import image, lenenc, optional, rows_body, sized, table_map_body


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native") / "log.000001"


# -- values ------------------------------------------------------------------------------------------------------------

INTEGERS = [(TINY, 1), (SHORT, 2), (INT24, 3), (LONG, 4), (LONGLONG, 8)]


@pytest.mark.parametrize("unsigned", [False, True])
def test_integers_of_all_widths_are_exact_at_their_ends(file: Path, unsigned: bool) -> None:
    types = bytes(code for code, _ in INTEGERS)
    map_ = table_map_body(types, more=optional(1, b"\xf8" if unsigned else b"\x00"))
    low = [0 if unsigned else -(1 << 8 * width - 1) for _, width in INTEGERS]
    high = [(1 << 8 * width - (not unsigned)) - 1 for _, width in INTEGERS]
    images = [
        image(
            [value.to_bytes(width, "little", signed=value < 0) for value, (_, width) in zip(row, INTEGERS, strict=True)]
        )
        for row in (low, high, [0] * 5, [1] * 5)
    ]
    done = dumped(file, make.event(make.TABLE_MAP, map_), make.event(WRITE_V1, rows_body(5, b"".join(images))))
    assert [list(row["after"].values()) for row in rows_of(done)] == [low, high, [0] * 5, [1] * 5]
    assert done.native == 2


def test_floats_of_any_bits_are_written_the_same(file: Path) -> None:
    source = random.Random(1)
    ordinary = [
        source.randrange(111, 151) << 23 | source.getrandbits(23) | source.getrandbits(1) << 31 for _ in range(20000)
    ]
    ordinary += [struct.unpack("<I", struct.pack("<f", n / 10**k))[0] for k in range(4) for n in range(1, 4000, 7)]
    images = b"".join(image([struct.pack("<I", bits)]) for bits in ordinary)
    map_ = table_map_body(bytes([FLOAT]), b"\x04")
    assert dumped(file, make.event(make.TABLE_MAP, map_), make.event(WRITE_V1, rows_body(1, images))).native == 2
    one_column(file, map_, [source.randbytes(4) for _ in range(500)])


@pytest.mark.full
def test_powers_of_two_as_floats_are_written_the_same(file: Path) -> None:
    """Below them neighbours are half as far away as above."""
    values = [struct.pack("<I", exponent << 23 | more) for exponent in range(255) for more in (0, 1, 0x7FFFFF)]
    assert one_column(file, table_map_body(bytes([FLOAT]), b"\x04"), values) == 3 * 40 + 1


def test_doubles_are_written_the_same(file: Path) -> None:
    values = [struct.pack("<d", value) for value in (0.0, -0.0, 1.5, -2.25, 0.1, 1e300, -1e-300, 2**53, 123456789.125)]
    values += [struct.pack("<Q", bits) for bits in (0x7FF0000000000000, 0x7FF8000000000000, 1, 0x3FB999999999999A)]
    assert one_column(file, table_map_body(bytes([DOUBLE]), b"\x08"), values) == 7


def packed(digits: str, precision: int, scale: int, negative: bool) -> bytes:
    """A packed decimal, after the specification."""
    sizes = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = [whole[:first], *(whole[i : i + 9] for i in range(first, len(whole), 9))]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    data = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group))
    data[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in data) if negative else bytes(data)


@pytest.mark.full
@pytest.mark.parametrize("precision", range(1, 66))
def test_decimals_of_every_number_of_digits_are_exact(file: Path, precision: int) -> None:
    source = random.Random(precision)
    for scale in sorted({0, 1, precision // 2, min(precision, 30)} - ({1} if precision < 1 else set())):
        if scale > precision:
            continue
        texts = ["0" * precision, "9" * precision, "0" * (precision - 1) + "1"]
        texts += ["".join(source.choices("0123456789", k=precision)) for _ in range(4)]
        values = [(text, negative) for text in texts for negative in (False, True)]
        images = b"".join(image([packed(text, precision, scale, negative)]) for text, negative in values)
        map_ = make.event(make.TABLE_MAP, table_map_body(bytes([NEWDECIMAL]), bytes([precision, scale])))
        done = dumped(file, map_, make.event(WRITE_V1, rows_body(1, images)))
        expected = []
        for text, negative in values:
            whole, fraction = text[: precision - scale].lstrip("0") or "0", text[precision - scale :]
            expected.append("-" * negative + whole + (f".{fraction}" if scale else ""))
        assert [row["after"]["@1"] for row in rows_of(done)] == expected
        assert done.native == 2


def test_decimals_with_impossible_digits_are_left_to_the_general_writer(file: Path) -> None:
    values = [b"\x80\xff", b"\x7f\x00", b"\xe4\x01", b"\x80\x63", b"\x80\x64"]
    map_ = table_map_body(bytes([NEWDECIMAL]), bytes([4, 2]))
    assert one_column(file, map_, values) == 1


TEXTS = [
    b"",
    b"plain",
    b'"\\/',
    bytes(range(32)),
    b"\x7f",
    b"caf\xc3\xa9",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xae",
    b"\xf0\x9d\x84\x9e",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\xc2\x9f",
    b"\xa0\xe9\xff",
    b"\x80\x9f",
    b"x" * 255,
]


@pytest.mark.full
@pytest.mark.parametrize("collation", [None, 8, 33, 45, 63, 11, 9, 13, 28, 35, 255, 4000])
@pytest.mark.parametrize(
    ("kind", "metadata", "length"),
    [
        (VARCHAR, b"\xff\x00", 1),
        (VARCHAR, b"\x00\x10", 2),
        (STRING, b"\xfe\xff", 1),
        (BLOB, b"\x03", 3),
        (BLOB, b"\x04", 4),
    ],
)
def test_texts_of_any_bytes_and_character_sets_are_written_the_same(
    file: Path, kind: int, metadata: bytes, length: int, collation: int | None
) -> None:
    more = b"" if collation is None else optional(2, lenenc(collation))
    values = [len(text).to_bytes(length, "little") + text for text in TEXTS]
    count = one_column(file, table_map_body(bytes([kind]), metadata, more), [*values, None])
    assert count == {None: 15, 33: 15, 45: 15, 63: 20, 255: 15, 4000: 15, 8: 11, 35: 1}.get(collation, 6)


@pytest.mark.full
@pytest.mark.parametrize("digits", range(7))
@pytest.mark.parametrize(("kind", "width"), [(TIME2, 3), (DATETIME2, 5), (TIMESTAMP2, 4)])
def test_times_of_any_bits_are_written_the_same(file: Path, kind: int, width: int, digits: int) -> None:
    source = random.Random(digits)
    size = width + (digits + 1) // 2
    values = [source.randbytes(size) for _ in range(200)]
    values += [bytes([0x80]) + source.randbytes(size - 1) for _ in range(100)]
    values += [b"\x99" + source.randbytes(width - 1) + bytes(size - width) for _ in range(100)]
    values += [bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1), b"\x7f" + b"\xff" * (size - 1)]
    count = one_column(file, table_map_body(bytes([kind]), bytes([digits])), values)
    assert count > (100 if digits == 0 else 10)


def test_known_times_have_their_known_text(file: Path) -> None:
    map_ = table_map_body(bytes([TIME2, DATETIME2, TIMESTAMP2, DATE, YEAR]), bytes([2, 3, 6]))
    zero = [b"\x80\0\0\0", b"\x80" + bytes(6), bytes(7), b"\0\0\0", b"\0"]
    some = [
        b"\x7f\xff\xff\xf6",
        bytes.fromhex("99b5ce8a1f04d2"),
        bytes.fromhex("6b014ae0000001"),
        b"\x21\xc0\x0f",
        b"\x7b",
    ]
    images = image(zero) + image(some)
    done = dumped(file, make.event(make.TABLE_MAP, map_), make.event(WRITE_V1, rows_body(5, images)))
    first, second = ([*row["after"].values()] for row in rows_of(done))
    assert first == ["00:00:00.00", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000000", "0000-00-00", 0]
    assert second == ["-00:00:00.10", "2025-02-07 08:40:31.123", "2026-11-21 07:40:16.000001", "2016-01-01", 2023]
    assert done.native == 2


def test_dates_of_any_bits_are_written_the_same(file: Path) -> None:
    source = random.Random(2)
    values = [source.randbytes(3) for _ in range(300)]
    assert one_column(file, table_map_body(bytes([DATE])), values) > 50


def test_bits_of_every_width_are_numbers(file: Path) -> None:
    widths = list(range(1, 65))
    map_ = table_map_body(bytes([BIT]) * 64, b"".join(bytes([width % 8, width // 8]) for width in widths))
    full = [(2**width - 1).to_bytes((width + 7) // 8, "big") for width in widths]
    done = dumped(file, make.event(make.TABLE_MAP, map_), make.event(WRITE_V1, rows_body(64, image(full))))
    assert list(rows_of(done)[0]["after"].values()) == [2**width - 1 for width in widths]
    assert done.native == 2


def choices(texts: list[bytes]) -> bytes:
    return lenenc(len(texts)) + b"".join(map(sized, texts))


@pytest.mark.parametrize("count", [0, 1, 3, 63, 64])
def test_enums_and_sets_have_their_texts_or_numbers(file: Path, count: int) -> None:
    texts = [f'value "{i}" \u202e'.encode() if i % 3 else b"" for i in range(count)]
    more = (optional(6, choices(texts)) + optional(5, choices(texts))) if count else b""
    map_ = table_map_body(bytes([STRING, STRING]), bytes([ENUM, 1, SET, 8]), more)
    source = random.Random(count)
    masks = [0, 1, 2**64 - 1, 2**63, 5, *(source.getrandbits(count) for _ in range(20) if count)]
    images = b"".join(image([bytes([n % 70]), mask.to_bytes(8, "little")]) for n, mask in enumerate(masks * 4))
    done = dumped(file, make.event(make.TABLE_MAP, map_), make.event(WRITE_V1, rows_body(2, images)))
    assert done.native == 2
