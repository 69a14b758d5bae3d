"""Truncation at every byte, single-bit flips with the map of what nothing covers, kernels against schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from construct import Construct, ConstructError, Struct, Tell

from binlogtool.findings import Severity
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.payload_kernels import create_skip_table, skip_fields_by_program
from binlogtool.formats.manticore.schema import OldOp
from tests.formats.manticore.make import add_cache, add_index, add_txn, killed, log, meta, zint
from tests.formats.manticore.sets import Directory, verified
from tests.sampling import EXHAUSTIVE

STEP = 1 if EXHAUSTIVE else 283
FILES = ("v16-cache/binlog.0000", "v16-mixed/binlog.0000", "v14-mixed/binlog.001", "sphinx-mixed/binlog.001")

each_file = pytest.mark.parametrize("name", FILES)


class Transaction(NamedTuple):
    """What the independent decoder read: the operation, and the id of the table."""

    op: str
    id: int


def transactions(samples: Path, name: str) -> dict[int, Transaction]:
    """Each transaction by the offset of its end."""
    path = samples / "manticore" / name
    lines = [json.loads(line) for line in (path.parent / "expected.jsonl").read_text().splitlines()]
    return {
        one["offset"] + one["size"]: Transaction(one["op"], one.get("id", 0))
        for one in lines
        if one["file"] == path.name
    }


def sample(samples: Path, name: str) -> tuple[bytes, list[int]]:
    """The bytes, and where transactions end."""
    return (samples / "manticore" / name).read_bytes(), list(transactions(samples, name))


def refuses(data: bytes, done: dict[int, Transaction], size: int) -> bool:
    """Whether the server refuses to start on these first bytes of a log (specification 8.2, 10 and 12.3).

    It refuses without a whole magic, and before version 15 also without a whole header. It refuses a torn transaction
    where the operation is missing, and from version 14 on where it was to be applied: ADD_INDEX and ADD_CACHE never
    are. Before version 15 a missing id of ADD_INDEX is read as 0 and refused where another is due: Sphinx 2.2 says
    "indexadd: unexpected index id (id=0, expected=1)".
    """
    version = data[4]
    if size < 8:
        return 0 < size < (8 if version < 15 else 4)
    rest = size - max([8, *(end for end in done if end <= size)])
    op, id_ = next(one for end, one in done.items() if end > size)
    applied = version >= 14 and op not in ("ADD_INDEX", "ADD_CACHE")
    without_id = version < 15 and op == "ADD_INDEX" and rest == 5 and id_ != 0
    return rest > 0 and (rest < 5 or applied or without_id)


@pytest.mark.full
@each_file
def test_a_file_cut_anywhere_ends_with_its_last_whole_transaction(samples: Path, name: str) -> None:
    data, ends = sample(samples, name)
    short, done = Path(name).name, transactions(samples, name)
    steps = (
        range(len(data))
        if EXHAUSTIVE or name == FILES[0]
        else sorted({*range(16), *range(0, len(data), 13), *ends[:-1]})
    )
    for size in steps:
        report = verified(short, data[:size])
        whole = max([8, *(end for end in ends if end <= size)]) if size >= 8 else 0
        assert (report.durable_end, report.records) == (whole, sum(end <= size for end in ends)), size
        tails = [one for one in report.findings if one.id == "torn-tail"]
        assert [(one.offset, one.length) for one in tails] == ([(whole, size - whole)] if size > whole else []), size
        errors = [one for one in report.findings if one.severity >= Severity.ERROR]
        assert errors == (tails if refuses(data, done, size) else []), size


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for bit in range(0, 8 * len(data), STEP):
        yield bit // 8, data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def uncovered(name: str, data: bytes) -> set[int]:
    """The map: byte 4 holds the version, which only binlog.meta knows better; flushed TIDs under a checksum 0."""
    if name == "v16-cache/binlog.0000":  # ADD_CACHE: 7 rt_main 1 4 0, 6 rt_crc 1 1 0
        end = len(data) - 4
        return {end - 1, end - 1 - 3 - 7}
    return {4} if name.startswith("sphinx") else set()


@pytest.mark.full
@each_file
def test_a_flipped_bit_is_noticed_but_for_the_map(samples: Path, name: str) -> None:
    data, _ = sample(samples, name)
    short, silent = Path(name).name, set()
    for at, changed in flips(data):
        report = verified(short, changed)
        assert sum(report.bytes.values()) == len(data)
        if not any(one.severity > Severity.NOTE for one in report.findings):
            silent.add(at)
    assert silent <= uncovered(name, data)
    if EXHAUSTIVE:
        assert silent == uncovered(name, data)


def test_the_map_is_true(samples: Path) -> None:
    """Its bytes can be changed unnoticed, so the promise in help.md is not smaller than it could be."""
    for name in FILES:
        data, _ = sample(samples, name)
        for at in uncovered(name, data):
            mask = 2 if at == 4 else 1
            report = verified(Path(name).name, data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
            assert not any(one.severity > Severity.NOTE for one in report.findings), (name, at)


def test_the_meta_file_has_no_checksum_but_contradicts_the_directory(tmp_path: Path) -> None:
    first = log(add_index(0, b"t"), add_txn(0, 1, killed(1)), add_cache((b"t", 1, 1, 0)))
    (tmp_path / "binlog.0000").write_bytes(first)
    (tmp_path / "binlog.0001").write_bytes(log(add_index(0, b"t"), add_txn(0, 2, killed(1))))
    whole = meta([0, 1])
    for at, changed in ((bit // 8, bit) for bit in range(8 * len(whole))):
        data = whole[:at] + bytes([whole[at] ^ 1 << changed % 8]) + whole[at + 1 :]
        (tmp_path / "binlog.meta").write_bytes(data)
        seen = Directory(tmp_path)
        found = [one for file in seen.judged for one in seen.judged[file].report.findings]
        found += [one for _, one in seen.found]
        assert any(one.severity is Severity.ERROR for one in found), (at, changed % 8)


def test_the_meta_file_cut_anywhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "binlog.0000").write_bytes(log(add_index(0, b"t"), add_txn(0, 1, killed(1))))
    whole = meta([0])
    for size in range(len(whole)):
        (tmp_path / "binlog.meta").write_bytes(whole[:size])
        report = Directory(tmp_path).report("binlog.meta")
        assert any(one.severity is Severity.ERROR for one in report.findings), size


# -- the kernels say the same as the schemas ---------------------------------------------------------------------------


def ends(schema_: Construct, data: bytes) -> int | None:
    """Where the value ends by its schema; None = it is none."""
    try:
        return int(Struct("value" / schema_, "end" / Tell).parse(data).end)
    except (ConstructError, OverflowError):
        return None


def skipped_end(schema_: Construct, data: bytes) -> int | None:
    """Return the end that the kernel finds by the table made from the schema."""
    table = create_skip_table(schema_)
    end = int(skip_fields_by_program(data, 0, len(data), table, table[0]))
    return None if end < 0 else end


_OLD = (OldOp.COMMIT, OldOp.UPDATE_ATTRS, OldOp.PQ_ADD, OldOp.PQ_DELETE, OldOp.PQ_ADD_DELETE)


def payloads(samples: Path) -> list[bytes]:
    out = []
    for name in ("v16-cache", "v16-mixed"):
        data, _ = sample(samples, f"{name}/binlog.0000")
        for line in (samples / "manticore" / name / "expected.jsonl").read_text().splitlines():
            one = json.loads(line)
            if one["op"] == "ADD_TXN":
                end = one["offset"] + one["size"] - 4
                out.append(data[end - one["usize"] : end])
    columnar = b"".join(
        [
            b"\x05\x00\x00\x00",
            b"\x01\0\0\0" + bytes(8) + b"\x02\0\0\0" + bytes(8),
            b"\x04\0\0\0" + bytes(8) + b"\x03\0\0\0" + bytes(3),
            b"\x06\0\0\0" + bytes(8) + b"\x01\0\0\0" + bytes(8),
            b"\x07\0\0\0" + b"\x01\0\0\0" + bytes(8) + b"\x04\0\0\0abcd",
            b"\x02\0\0\x40" + b"\x01\0\0\0" + bytes(4) + b"\x01\0\0\0" + bytes(8),
        ]
    )
    out.append(b"\x01\x01\x07" + b"\x00" * 7 + b"\x00\x01" + columnar + zint(1) + bytes(8))
    return out


def mutated(data: bytes, noise: random.Random, count: int) -> Iterator[bytes]:
    yield data
    for _ in range(count):
        changed = bytearray(data[: noise.randrange(len(data) + 1)] if noise.random() < 0.3 else data)
        for _ in range(noise.randrange(1, 3)):
            if changed:
                changed[noise.randrange(len(changed))] = noise.choice((0, 1, 0x80, 0xFF, noise.randrange(256)))
        yield bytes(changed)


def test_payload_kernels_and_schemas_agree(samples: Path) -> None:
    noise, agreed = random.Random(7), 0
    for data in payloads(samples):
        assert skipped_end(schema.PAYLOAD, data) == ends(schema.PAYLOAD, data) == len(data)
        for changed in mutated(data, noise, 40):
            expected = ends(schema.PAYLOAD, changed)
            assert skipped_end(schema.PAYLOAD, changed) == expected, changed.hex()
            agreed += expected is not None
    assert agreed > 300


@pytest.mark.full
@pytest.mark.parametrize("ids", [4, 8])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_kernels_and_schemas_of_versions_2_to_4_agree(version: int, ids: int) -> None:
    noise, agreed = random.Random(version), 0
    commit = (
        b"\x01\x03abc\x01\x05\x81\x02\x01d\x02hh\x02" + bytes(8) + b"\x01s" + b"\x01" * 30 + bytes(4) + b"\x02k" * 9
    )
    update = b"\x02\x03gid\x01\x02ab\x05\x02" + bytes(8) + b"\x01" + bytes(ids) + b"\x01" + bytes(4)
    for op, body in ((OldOp.COMMIT, commit), (OldOp.UPDATE_ATTRS, update)):
        for changed in mutated(body, noise, 2000):
            payload = schema.create_v2_to_v14_payload_schema(version, op, ids)
            expected = ends(payload, changed)
            assert skipped_end(payload, changed) == expected, (op, changed.hex())
            agreed += expected is not None
    assert agreed > 100


@pytest.mark.full
@pytest.mark.parametrize("version", range(5, 15))
def test_kernels_and_schemas_of_old_payloads_agree(samples: Path, version: int) -> None:
    """Real payloads of another version are mostly no payloads of this one: both must say the same of them."""
    noise = random.Random(version)
    for name, own in (("v14-mixed/binlog.001", 14), ("sphinx-mixed/binlog.001", 5)):
        data, _ = sample(samples, name)
        at, agreed = 8, 0
        while at < len(data):
            frame = schema.create_v2_to_v14_frame_schema(own).parse(data[at:])
            op = OldOp(int(frame.op))
            if op in _OLD:
                for changed in mutated(bytes(frame.body.payload), noise, 6):
                    for kind in _OLD:
                        payload = schema.create_v2_to_v14_payload_schema(version, kind)
                        expected = ends(payload, changed)
                        assert skipped_end(payload, changed) == expected, (kind, changed.hex())
                        agreed += expected is not None
            at += int(frame.covered_end) + 4
        assert agreed > 20


def test_the_kernel_of_add_cache_and_its_schema_agree() -> None:
    noise = random.Random(3)
    body = add_cache((b"t0", 1, 300, 2), (b"other", 5, 70000, 0))[5:-4]
    for changed in mutated(body, noise, 3000):
        assert skipped_end(schema.CACHE, changed) == ends(schema.CACHE, changed), changed.hex()


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"), (1, "01"), (127, "7F"), (128, "81 00"), (255, "81 7F"), (300, "82 2C"), (16383, "FF 7F"),
        (16384, "81 80 00"), (70000, "84 A2 70"), (4294967295, "8F FF FF FF 7F"),
        (1795232047671669, "83 98 98 90 C3 F6 D2 75"), (2**63 - 1, "FF FF FF FF FF FF FF FF 7F"),
        (2**64 - 1, "81 FF FF FF FF FF FF FF FF 7F"),
    ],
)  # fmt: skip
def test_zints_are_those_of_the_specification(value: int, data: str) -> None:
    raw = bytes.fromhex(data)
    assert schema.Zint().parse(raw) == value
    assert schema.Zint().build(value) == raw
    assert schema.Zint(signed=True).parse(raw) == value - (1 << 64 if value >= 1 << 63 else 0)


def test_a_longer_zint_builds_back_and_eleven_bytes_are_refused() -> None:
    for raw in (b"\x80\x05", b"\x80\x80\x00", b"\x80" * 9 + b"\x01"):
        assert schema.Zint().build(schema.Zint().parse(raw)) == raw
    with pytest.raises(ConstructError):
        schema.Zint().parse(b"\x80" * 10 + b"\x01")
    assert schema.Zint(32, True).parse(bytes.fromhex("8FFFFFFF7F")) == -1
    assert schema.Zint(32, True).build(-1) == bytes.fromhex("8FFFFFFF7F")
