"""Entries by compiled code are those of the general way: lines of dump and rows of convert."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from binlogtool.format_api.schema_fields import load_uint32
from binlogtool.formats.drizzle import json_line_kernels
from binlogtool.formats.drizzle.json_line_kernels import is_plain_message, write_json_message
from binlogtool.schema.backends import get_native_backend
from tests.export.native_rows import same as same_rows
from tests.formats.drizzle.walk import entries
from tests.report.native_lines import same

CORPUS = Path(__file__).parents[2] / "corpus" / "drizzle"
SAMPLES = sorted(CORPUS.rglob("*.log"))
WITH_CHECKSUM = CORPUS / "basic-checksum.log"
RARE = CORPUS / "rare-statements.log"

pytestmark = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")


def messages() -> list[bytes]:
    """Those of samples that servers wrote."""
    data = [path.read_bytes() for path in (WITH_CHECKSUM, RARE)]
    return [bytes(entry.message) for one in data for _, entry in entries(one) if entry.type == 1]


def log_of(*made: bytes) -> bytes:
    """A log of these messages, each with the right checksum."""
    return b"".join(struct.pack("<II", 1, len(one)) + one + struct.pack("<I", zlib.crc32(one)) for one in made)


def written(path: Path, *made: bytes) -> tuple[int, int]:
    """How many of these are written by compiled code, and by the general way."""
    path.write_bytes(log_of(*made))
    done = same(path)
    same_rows(path)
    return done.native, done.others


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_samples_are_written_alike(path: Path) -> None:
    same(path)
    same_rows(path)


def test_what_a_server_writes_is_written_by_compiled_code(tmp_path: Path) -> None:
    made = messages()
    native, others = written(tmp_path / "transaction.log", *made)
    assert native == len(made) > 20
    assert others == 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_changed_messages_are_written_alike(seed: int, tmp_path: Path) -> None:
    """Bytes changed, taken out, put in, and put twice: lengths stay right only by chance."""
    rng, made = random.Random(seed), messages()
    changed = []
    for _ in range(60):
        one = bytearray(rng.choice(made))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(one))
            match rng.randrange(4):
                case 0:
                    one[at] = rng.randrange(256)
                case 1:
                    one[at] ^= 1 << rng.randrange(8)
                case 2 if len(one) > 1:
                    del one[at]
                case _:
                    one[at:at] = rng.randbytes(rng.randint(1, 3))
        changed.append(bytes(one))
    native, others = written(tmp_path / "transaction.log", *changed)
    assert native + others <= 60


@pytest.mark.parametrize("seed", range(20))
def test_no_byte_outside_of_message_and_room_is_touched(seed: int) -> None:
    """Plain Python refuses what lies outside; whatever is not said to be plain may be anything."""
    rng, texts, fitted = random.Random(seed), json_line_kernels.create_catalog_table(), 0
    for one in messages():
        data = bytearray(one[: rng.randrange(len(one) + 1)] if rng.random() < 0.5 else one)
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        if not is_plain_message(bytes(data), 0, len(data), texts, load_uint32(texts, 0)):
            continue
        whole = bytearray(1 << 16)
        end = write_json_message(bytes(data), 0, len(data), texts, load_uint32(texts, 0), whole, 0, len(whole))
        room = rng.randrange(1 << 12)
        small = bytearray(room)
        again = write_json_message(bytes(data), 0, len(data), texts, load_uint32(texts, 0), small, 0, room)
        assert again in (end, -1)
        if again == end:
            assert small[:again] == whole[:end]
            fitted += 1
    assert fitted > 5


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def context(server: int = 3, number: int = 7, began: int = 1_330_000_000_000_000) -> bytes:
    return field(1, field(1, server) + field(2, number) + field(3, began) + field(4, began + 1))


def statement(kind: int, *parts: bytes) -> bytes:
    return field(2, field(1, kind) + field(2, 5) + field(3, 6) + b"".join(parts))


def insert(schema: bytes, table: bytes, *values: bytes) -> bytes:
    head = field(1, field(1, schema) + field(2, table)) + field(2, field(1, 1) + field(2, b"a"))
    records = b"".join(field(3, field(1, one) + field(2, 0)) for one in values)
    return statement(1, field(5, head), field(6, field(1, 1) + field(2, 1) + records))


ONE, TWO = context() + insert(b"s", b"t", b"1"), context()


@pytest.mark.parametrize(
    ("message", "ours"),
    [
        (ONE, True),
        (context(2**32 - 1, 2**64 - 1), True),
        (context(2**32), False),
        (context(began=2**64 - 1), False),
        (context(began=5 * 10**15), True),
        (context(began=10**17), True),
        (context() + insert(b"s", b"t", b"\0\xff", b"\xff", "\u00e9\n".encode(), b"", b"x" * 900), True),
        (context() + insert(b"s", b"t", "\u202e".encode()), False),
        (context() + insert(b"\xff", b"t"), False),
        (context() + insert(b"s", b"t") + insert(b"s", b"t"), True),
        (context() + insert(b"s", b"t") + insert(b"other", b"t"), True),
        (context() + insert(b"a.b", b"c") + insert(b"a", b"b.c"), False),
        (context() + insert(b"s", b"t") + statement(0), True),
        (context() + statement(0) + statement(11), True),
        (context() + insert(b"s", b"t") + statement(99, field(4, b"create")), True),
        (context() + statement(77), False),
        (context() + statement(1), False),
        (context() + insert(b"s", b"t") + field(3, field(1, 1)) + field(4, 9) + field(5, 1), True),
        (context() + field(5, 1) + field(4, 9), False),
        (context() + field(4, 9) + field(4, 9), False),
        (context() + field(19, b"new"), False),
        (context() + field(4, b"of another type"), False),
        (context() + b"\x20\x80\x80\x00", True),
        (insert(b"s", b"t"), False),
        (context() + statement(6, field(14, field(1, b"s"))), False),
        (context() + statement(7, field(13, field(1, b"s"))), True),
    ],
)  # fmt: skip
def test_only_messages_as_servers_write_them_are_written_by_compiled_code(
    message: bytes, ours: bool, tmp_path: Path
) -> None:
    assert written(tmp_path / "transaction.log", message) == ((1, 0) if ours else (0, 1))
