"""Replays by compiled code against the general way, which takes row by row: on rows of all kinds."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest

import binlogtool
from binlogtool.format_api import row_store_kernels
from binlogtool.format_api.replay_rules import encode_canonical
from binlogtool.formats.tarantool.msgpack.decode_values import get_fast_decoder
from binlogtool.formats.tarantool.replay import replay_kernels
from binlogtool.prediction.row_store import CompiledRowStore, ObjectNames, hash_row
from binlogtool.schema import backends
from binlogtool.schema.backends import get_native_backend
from tests.formats.tarantool import make

NATIVE = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")
INSERT, REPLACE, UPDATE, DELETE, UPSERT = 2, 3, 4, 5, 9
SPACES = {512: [0], 513: [0, 2], 514: [1], 515: [2, 0]}
"""Fields of the primary keys: one, several, not the first, not in the order of the row."""


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def some_number(source: random.Random) -> bytes:
    """Also in forms that are longer than they need to be."""
    number = source.choice((0, 1, 31, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1))
    wide = struct.pack(">BQ", 0xCF, number)
    low = struct.pack(">Bi", 0xD2, source.choice((-1, -32, -33, -128, -129, -32769, -(2**31), 5)))
    return source.choice((pack(number), pack(number), pack(-(number % 2**63)), pack(source.random()), wide, low))


def some_value(source: random.Random, depth: int = 0) -> bytes:
    kind = source.randrange(14)
    if kind < 4:
        return some_number(source)
    if kind < 7:
        size = source.choice((0, 3, 31, 32, 255, 256, 300))
        return source.choice(
            (pack("x" * size), pack("ü€😀"[: size % 4]), b"\xd9\x03abc", b"\xda\x00\x03abc", b"\xa2\xff\xfe")
        )
    if kind == 7:
        return pack(source.choice((True, False, None, b"bytes", b"x" * 300, b"")))
    if kind == 8:
        return source.choice((b"\xca\x3f\x80\x00\x00", b"\xcb\x7f\xf8" + bytes(6), b"\xcb\x80" + bytes(7)))
    if kind == 9:
        return source.choice(
            (b"\xd8\x02" + bytes(range(16)), pack(msgpack.ExtType(1, b"\x02\x01\x5c")), b"\xd4\x55\x00")
        )
    count = source.randrange(4 if depth < 4 else 1)
    if kind < 12:
        return bytes([0x90 + count]) + b"".join(some_value(source, depth + 1) for _ in range(count))
    names = source.choice(
        (["a", "b", "c"], ["b", "a", "c"], ["a", "a", "b"], ["$a", "b", "c"], ["", "aa", "ab"], [1, 2, 3])
    )
    pairs = (pack(names[i]) + some_value(source, depth + 1) for i in range(count))
    return bytes([0x80 + count]) + b"".join(pairs)


def some_row(source: random.Random, plain: bool) -> list[bytes]:
    fields = [pack(source.randrange(40)), pack(f"key {source.randrange(40)}"), pack(source.randrange(3) - 1)]
    values = (
        pack(source.randrange(100_000)),
        pack("v" * source.randrange(60)),
        pack(source.random()),
        pack([1, {"a": None}]),
    )
    fields += [source.choice(values[:1]) for _ in range(2 if plain else 0)]
    fields += [source.choice(values) if plain else some_value(source) for _ in range(source.randrange(4))]
    if not plain and source.random() < 0.1:
        fields[source.randrange(3)] = some_value(source)
    return fields[: source.randrange(5)] if source.random() < 0.02 else fields


def array(items: list[bytes]) -> bytes:
    return bytes([0x90 + len(items)]) + b"".join(items)


def some_operation(source: random.Random, plain: bool) -> bytes:
    field = pack(source.choice((3, 4) if plain and source.random() < 0.95 else (3, 4, 5, -1, 2, "[2]", 9)))
    name = source.choice("==+-" if plain else "=+-&|^!#")
    argument = pack(source.choice((1, 200, -70_000, 2**40))) if plain else some_value(source)
    return array([pack(name), field, argument])


def some_body(source: random.Random, plain: bool) -> tuple[int, bytes]:
    """Type and body of a row."""
    space = source.choice((512, 513, 514) if plain and source.random() < 0.95 else list(SPACES))
    kind = source.choice((INSERT, REPLACE, REPLACE, REPLACE, UPDATE, UPDATE, DELETE, REPLACE if plain else UPSERT))
    row = some_row(source, plain)
    pairs = [pack(0x10) + pack(space)]
    if kind in (INSERT, REPLACE):
        pairs.append(b"\x21" + array(row))
    elif kind == UPSERT:
        pairs += [b"\x21" + array(row), b"\x28" + array([some_operation(source, plain)])]
    else:
        key = [row[part] for part in SPACES[space] if part < len(row)]
        pairs.append(b"\x20" + array(key))
        if kind == UPDATE:
            count = source.randrange(4)
            pairs.append(b"\x21" + array([some_operation(source, plain) for _ in range(count)]))
            if source.random() < 0.5:
                pairs.insert(source.randrange(3), b"\x15" + pack(source.randrange(2)))
    if not plain and source.random() < 0.03:
        pairs.append(source.choice((b"\x10" + pack(512), b"\x27\xa1x", b"\x11\x00")))
    return kind, bytes([0x80 + len(pairs)]) + b"".join(pairs)


def some_log(seed: int, count: int, plain: bool) -> bytes:
    """Spaces are made; rows; now and then a space is emptied, renamed, or gets another key."""
    source = random.Random(seed)
    lsn, payloads = 0, []

    def write(kind: int, body: bytes) -> None:
        nonlocal lsn
        lsn += 1
        payloads.append(msgpack.packb({0: kind, 2: 1, 3: lsn, 4: make.TIME}) + body)

    def define(space: int, parts: list[int]) -> None:
        write(INSERT, pack({0x10: 280, 0x21: [space, 1, f"space {space}", "memtx", 0, {}, []]}))
        write(INSERT, pack({0x10: 288, 0x21: [space, 0, "pk", "tree", {}, [[n, "unsigned"] for n in parts]]}))

    for space, parts in SPACES.items():
        define(space, parts)
    for number in range(count):
        if number % 400 == 399:
            space = source.choice(list(SPACES))
            name = ["=", 2, f"space {source.randrange(600)}"]
            truncate = pack({0x10: 330, 0x21: [space, number]})
            rename = pack({0x10: 280, 0x20: [space], 0x21: [name]})
            write(*source.choice(((REPLACE, truncate), (UPDATE, rename))))
        write(*some_body(source, plain))
    return make.log(make.block(b"".join(payloads[at : at + 50])) for at in range(0, len(payloads), 50))


@pytest.mark.full
@NATIVE
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_replay_by_compiled_code_leaves_the_same_state(tmp_path: Path, seed: int, plain: bool) -> None:
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(some_log(seed, 3000, plain))
    for policy in ("server", "force"):
        (quick,) = binlogtool.replay([path], policy=policy)
        (slow,) = binlogtool.replay([path], policy=policy, backend="python")
        assert quick == slow
    assert quick.digest is not None and sum(one.keys or 0 for one in quick.objects) > 50
    assert binlogtool.replay([path], digest=False) == binlogtool.replay([path], digest=False, backend="python")


@NATIVE
def test_most_plain_rows_are_kept_by_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare the general way with itself."""
    path = tmp_path / "00000000000000000000.xlog"
    path.write_bytes(some_log(1, 3000, plain=True))
    from binlogtool.formats.tarantool.replay.replay_kernels import TarantoolFastPath

    done, keep = [], TarantoolFastPath.store_changes_until_unsupported

    def counted(self: TarantoolFastPath, kept: Any, batch: Any, start: int, stop: int) -> int:
        reached = keep(self, kept, batch, start, stop)
        done.append(reached - start)
        return reached

    monkeypatch.setattr(TarantoolFastPath, "store_changes_until_unsupported", counted)
    binlogtool.replay([path])
    assert sum(done) > 1000


@NATIVE
def test_rows_beyond_the_memory_go_to_files_and_count_the_same(tmp_path: Path) -> None:
    rows_ = [make.dml(n, tuple=[n % 30_000, "text" * 12, n]) for n in range(3, 60_003)]
    head = [
        make.row({0: 2, 2: 1, 3: 1, 4: make.TIME}, {0x10: 280, 0x21: [512, 1, "big", "memtx", 0, {}, []]}),
        make.row({0: 2, 2: 1, 3: 2, 4: make.TIME}, {0x10: 288, 0x21: [512, 0, "pk", "tree", {}, [[0, "unsigned"]]]}),
    ]
    path = tmp_path / "00000000000000000000.xlog"
    payloads = [*head, *rows_]
    path.write_bytes(make.log(make.block(b"".join(payloads[at : at + 500])) for at in range(0, len(payloads), 500)))
    (whole,) = binlogtool.replay([path])
    (parts,) = binlogtool.replay([path], limits=binlogtool.Limits(max_memory=2 << 20))
    assert parts.details["keys_spilled"] > 30_000 and "keys_spilled" not in whole.details
    assert (parts.digest, parts.objects) == (whole.digest, whole.objects)
    assert [one.keys for one in whole.objects if one.name == "big"] == [30_000]


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_a_kernel_calls_canonical_are_those_of_the_decoded_value(seed: int) -> None:
    source, taken = random.Random(seed), 0
    for _ in range(3000):
        data = some_value(source)
        end = replay_kernels.find_canonical_end(data, 0, len(data), replay_kernels.MAX_CANONICAL_DEPTH)
        if end >= 0:
            taken += 1
            assert end == len(data)
            assert encode_canonical(get_fast_decoder()(data)) == data
        assert replay_kernels.find_canonical_end(data, 0, len(data) - 1, replay_kernels.MAX_CANONICAL_DEPTH) < 0
    assert taken > 1000


def test_a_key_is_canonical_in_any_length_of_text() -> None:
    for size in (0, 1, 31, 32, 255, 256, 65535, 65536):
        for value in ("é" * (size // 2), b"b" * size, ["x"] * size, "x" * size):
            data = pack(value)
            assert replay_kernels.find_canonical_end(data, 0, len(data), replay_kernels.MAX_CANONICAL_DEPTH) == len(
                data
            )
            assert encode_canonical(get_fast_decoder()(data)) == data


@pytest.mark.parametrize("backend", ["python", pytest.param("native", marks=NATIVE)])
def test_a_table_of_rows_holds_what_a_dictionary_holds(backend: str) -> None:
    source, wanted = random.Random(backend), dict[tuple[str, bytes], tuple[int, int, bytes, tuple[bytes, ...]]]()
    kept = CompiledRowStore(
        backends.choose_backend(backend).compile_kernel, ObjectNames(lambda name: name, lambda _: 3), lambda _: True
    )
    for name in ("one", "ö"):
        kept.get_object_number_and_epoch(name)
    for _ in range(4000):
        place = source.choice(("one", "ö")), source.randbytes(source.choice((0, 1, 1, 2, 9)))
        image = source.randbytes(source.choice((0, 5, 90, 700)))
        entry = source.choice((
            (3, row_store_kernels.ROW_KNOWN, image, ()), (2, row_store_kernels.ROW_KNOWN, image, ()), (3,
            row_store_kernels.ROW_DELETED, b"", ()),
            (3, row_store_kernels.ROW_PENDING, b"", (image, b"more")),
        ))  # fmt: skip
        kept.put_entry(*place, entry)
        wanted[place] = entry
    assert dict(kept.iter_rows()) == wanted and len(kept) == len(wanted)
    assert all(kept.get_entry(*place) == entry for place, entry in wanted.items())
    assert kept.get_entry("one", b"not there") is None and kept.get_entry("other", b"") is None
    others = []
    sums = kept.sum_row_hashes(lambda name: name.upper(), lambda *one: others.append(one))
    for name in ("one", "ö"):
        images = [
            (key, one[2])
            for (owner, key), one in wanted.items()
            if owner == name and one[:2] == (3, row_store_kernels.ROW_KNOWN)
        ]
        numbers = [hash_row(name.upper(), key, image) for key, image in images]
        assert sums[name] == (len(numbers), sum(numbers) % 2**256)
    assert len(others) == sum(one[1] == row_store_kernels.ROW_PENDING for one in wanted.values())


@NATIVE
@pytest.mark.parametrize("size", [*range(20), 127, 128, 129, 255, 256, 257, 1000])
def test_hashes_and_digests_of_rows_are_the_same_in_c_and_python(size: int) -> None:
    held = get_native_backend()
    assert held is not None
    data, seed = os.urandom(size + 3), struct.unpack("q", os.urandom(8))[0]
    assert held.compile_kernel(row_store_kernels.hash_bytes)(data, 3, size, seed) == row_store_kernels.hash_bytes(
        data, 3, size, seed
    )
    for start in (0, (1 << 63) - 1, -1):
        both = []
        for function in (row_store_kernels.add_row_digest, held.compile_kernel(row_store_kernels.add_row_digest)):
            sums = memoryview(bytearray(struct.pack("6q", 7, start, -1, -1, -1, 7))).cast("q")
            function(b"a name", 0, 6, data, 0, min(size, 3), min(size, 3), size, sums, 1)
            both.append(sums.tolist())
        assert both[0] == both[1] and both[0][0] == both[0][5] == 7
        total = sum((word & (2**64 - 1)) << 64 * i for i, word in enumerate((start, -1, -1, -1)))
        image = data[min(size, 3) : min(size, 3) + size]
        total += hash_row("a name", data[: min(size, 3)], image)
        assert sum((word & (2**64 - 1)) << 64 * i for i, word in enumerate(both[0][1:5])) == total % 2**256


@NATIVE
@pytest.mark.parametrize("seed", range(3))
def test_kernels_of_rows_do_the_same_in_c_and_python(seed: int) -> None:
    """Also with bytes that are cut off or changed: what is refused is refused by both."""
    source, held = random.Random(seed), get_native_backend()
    assert held is not None
    known = memoryview(bytearray(struct.pack("12q", 512, 0, 0, 2, 0, 2, *[0] * 6))).cast("q")
    for _ in range(1500):
        data = bytearray(array(some_row(source, plain=source.random() < 0.5)))
        if source.random() < 0.5 and data:
            data[source.randrange(len(data))] = source.randrange(256)
        stop = source.randrange(len(data) + 1) if source.random() < 0.3 else len(data)
        made = []
        for function in (replay_kernels.write_row_key, held.compile_kernel(replay_kernels.write_row_key)):
            out = bytearray(200)
            made.append((function(data, 0, stop, known, 0, b"", out, 0, 150), bytes(out)))
        assert made[0] == made[1]
        number = source.choice((0, -1, 127, 128, -32, -33, 2**31, -(2**31), -(2**31) - 1, 2**62, -(2**62), 65536))
        out = bytearray(9)
        end = held.compile_kernel(replay_kernels.write_integer)(number, b"", out, 0)
        assert bytes(out[:end]) == pack(number)
