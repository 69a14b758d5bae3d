"""What can be lowered, what is refused and how it is named, and what a stop says."""

from __future__ import annotations

import struct
from typing import Any

import construct
import pytest
from construct import (
    Array,
    Bytes,
    Check,
    Computed,
    Const,
    Enum,
    GreedyBytes,
    Int8ub,
    Int16ub,
    Int32sl,
    Int32ul,
    Int64ub,
    Int64ul,
    Struct,
    Switch,
    Tell,
    len_,
    this,
)

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import CrcCheck
from binlogtool.schema import frame_scan_loop as scanner_module
from binlogtool.schema.backends import PythonBackend
from binlogtool.schema.frame_scan_loop import ScanStop, StopReason
from binlogtool.schema.lower_frame_schema import UnlowerableError, lower_schema
from tests.compiling import CompilingBackend

BACKENDS: list[Any] = [PythonBackend(), CompilingBackend()]
EACH = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)


@pytest.mark.parametrize(("schema", "path", "why"), [
    (Struct("a" / Struct("list" / Array(3, Int8ub))), "a.list", "Array cannot be lowered"),
    (Struct("rest" / GreedyBytes), "rest", "GreedyBytes"),
    (Struct("n" / Int8ub, "b" / Struct("data" / Bytes(lambda ctx: 1))), "b.data", "opaque"),
    (Struct("n" / Int8ub, "ok" / Check(lambda ctx: True)), "ok", "opaque"),
    (Struct("n" / Int8ub, "twice" / Computed(lambda ctx: ctx.n)), "twice", "opaque"),
    (Struct("data" / Bytes(4), "n" / Computed(len_(this.data))), "n", "cannot be lowered"),
    (Struct("data" / Bytes(4), "n" / Computed(this.data + 1)), "n", "its value is bytes"),
    (Struct("data" / Bytes(this.size), "size" / Int8ub), "data", "not a field before this one"),
    (Struct("f" / construct.Float32b, "n" / Computed(this.f * 2)), "n", "float"),
    (Struct("a" / Int8ub, "n" / Computed(this.a / 2)), "n", "operator|constant"),
    (Struct("a" / Int8ub, "b" / Int8ub, "n" / Computed(this.a % this.b)), "n", "must be a constant"),
    (Struct("a" / Int64ub, "b" / Int32sl, Check(this.a > this.b)), "check2", "may be negative"),
    (Struct("flag" / construct.Flag), "flag", "cannot be lowered"),
    (Struct("f" / construct.FormatField(">", "?")), "f", "Flag"),
    (Struct("v" / construct.VarInt), "v", "VarInt"),
    (Struct("e" / Enum(Int8ub, a=1), "n" / Computed(this.e + 1)), "n", "by name"),
    (Struct("e" / Enum(Int8ub, a=1), Check(this.e == "b")), "check1", "is not a name"),
    (Struct("x" / construct.OneOf(Int8ub, [1, 2])), "x", "cannot be lowered"),
    (Struct("start" / Tell, "sum" / CrcCheck(len, 0, this.start, this.start)), "sum", "not a Checksum"),
    (Struct("n" / Int8ub, "x" / Computed(2**70)), "x", "64-bit"),
])  # fmt: skip
def test_what_cannot_be_lowered_is_named_by_its_path(schema: Any, path: str, why: str) -> None:
    with pytest.raises(UnlowerableError, match=why) as caught:
        lower_schema(schema)
    assert caught.value.path == path
    assert str(caught.value).startswith(path + ": ")


def test_columns_must_be_integer_fields() -> None:
    schema = Struct("n" / Int8ub, "data" / Bytes(1), "end" / Tell)
    for column in ("data", "m", "end"):
        with pytest.raises(UnlowerableError, match=column):
            lower_schema(schema, (column,))


@pytest.mark.full
@EACH
@pytest.mark.parametrize(("schema", "data", "stop"), [
    (Struct("n" / Int8ub, "d" / Bytes(this.n)), b"\x05ab", ScanStop(StopReason.SHORT, 0, "d", 6)),
    (Struct("h" / Struct("n" / Int16ub)), b"\x05", ScanStop(StopReason.SHORT, 0, "h.n", 2)),
    (Struct("a" / Int8ub, "b" / Int16ub, "c" / Int8ub), b"\0\0", ScanStop(StopReason.SHORT, 0, "b", 3)),
    (Struct("n" / Int32sl, "d" / Bytes(this.n)), b"\xff" * 4, ScanStop(StopReason.BOUNDS, 0, "d")),
    (Struct("n" / Int64ul, "d" / Bytes(this.n)), b"\xff" * 8, ScanStop(StopReason.BOUNDS, 0, "d")),
    (Struct("m" / Const(b"AB"), "n" / Int8ub), b"AC", ScanStop(StopReason.CONSTANT, 0, "m")),
    (Struct("m" / Const(b"AB"), "n" / Int8ub), b"AB", ScanStop(StopReason.SHORT, 0, "n", 3)),
    (Struct("m" / Const(7, Int8ub)), b"\x08", ScanStop(StopReason.CONSTANT, 0, "m")),
    (Struct("x" / Struct("n" / Int8ub), Check(this.x.n < 3)), b"\x03", ScanStop(StopReason.BOUNDS, 0, "x.n")),
    (Struct("n" / Int8ub, "d" / Switch(this.n, {1: Int16ub})), b"\x01\x00", ScanStop(StopReason.SHORT, 0, "d", 3)),
    (Struct("at" / Tell), b"abc", ScanStop(StopReason.EMPTY, 0)),
    (
        Struct("s" / Tell, "d" / Bytes(3), "e" / Tell, "v" / CrcCheck(CRC32, 1, this.s, this.e), "tail" / Int8ub),
        b"abcd",
        ScanStop(StopReason.CHECKSUM, 0, "v", 4),
    ),
    (
        Struct("d" / Bytes(3), "v" / CrcCheck(CRC32, 1, 0, 9)),
        b"abcd",
        ScanStop(StopReason.SHORT, 0, "v", 9),
    ),
    (
        Struct("d" / Bytes(3), "e" / Tell, "v" / CrcCheck(CRC32, 1, this.e, 0)),
        b"abcd",
        ScanStop(StopReason.BOUNDS, 0, "v"),
    ),
])  # fmt: skip
def test_a_stop_says_why_and_where(backend: Any, schema: Any, data: bytes, stop: ScanStop) -> None:
    table, got = backend.make_scanner(schema, ()).scan(data, 0, len(data))
    assert table.count == 0
    assert got == stop


@pytest.mark.full
@EACH
@pytest.mark.parametrize(("expression", "expected"), [
    (this.b * this.b, lambda s, b: b * b),
    (-this.s + 3, lambda s, b: -s + 3),
    (this.s // 7, lambda s, b: s // 7),
    (this.s % 7, lambda s, b: s % 7),
    (this.s >> 3, lambda s, b: s >> 3),
    (this.b << 5, lambda s, b: b << 5),
    ((this.s & 0xFF) ^ (this.b | 1), lambda s, b: (s & 0xFF) ^ (b | 1)),
    ((this.s < 0) & (this.b > 9), lambda s, b: int(s < 0 and b > 9)),
    ((this.s < 0) | ~(this.b != 9), lambda s, b: int(s < 0 or b == 9)),
    ((this.s < 0) + 2, lambda s, b: int(s < 0) + 2),
    (this.s * 2**40 * 2**40, lambda s, b: 0),
    (this.s * 2**33, lambda s, b: ((s * 2**33 + 2**63) & (2**64 - 1)) - 2**63),
])  # fmt: skip
def test_expressions_compute_in_64_bits(backend: Any, expression: Any, expected: Any) -> None:
    schema = Struct("s" / Int32sl, "b" / Int8ub, "x" / Computed(expression))
    scanner = backend.make_scanner(schema, ("x",))
    for s in (0, 1, -1, 100, -100, 2**31 - 1, -(2**31)):
        for b in (0, 9, 255):
            table, stop = scanner.scan(struct.pack("<iB", s, b), 0, 5)
            assert (stop.reason, table.count) == (StopReason.END, 1)
            found = scanner_module.interpret_frame(lower_schema(schema), struct.pack("<iB", s, b), 0, 5)
            assert isinstance(found, scanner_module.InterpretedFrame)
            assert table["x"][0] == found.values["x"] == expected(s, b)


@pytest.mark.full
@EACH
@pytest.mark.parametrize(("test", "expected"), [
    (this.u < 2**62, lambda u: u < 2**62),
    (this.u >= 2**63 + 5, lambda u: u >= 2**63 + 5),
    (this.u == 2**64 - 1, lambda u: u == 2**64 - 1),
    ((this.u >> 60) == 15, lambda u: u >> 60 == 15),
    ((this.u // 10) > 2**60, lambda u: u // 10 > 2**60),
    ((this.u % 10) == 5, lambda u: u % 10 == 5),
    ((this.u & 0x8000000000000000) != 0, lambda u: u >= 2**63),
])  # fmt: skip
def test_unsigned_64_bit_fields_are_compared_exactly(backend: Any, test: Any, expected: Any) -> None:
    schema = Struct("u" / Int64ub, Check(test))
    scanner = backend.make_scanner(schema, ("u",))
    for u in (0, 5, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1):
        table, stop = scanner.scan(u.to_bytes(8, "big"), 0, 8)
        assert (stop.reason is StopReason.END) == expected(u)
        assert isinstance(
            scanner_module.interpret_frame(lower_schema(schema), u.to_bytes(8, "big"), 0, 8),
            scanner_module.InterpretedFrame,
        ) == expected(u)
        assert [int(value) & (2**64 - 1) for value in table["u"][: table.count]] == [u] * expected(u)


@EACH
def test_a_checksum_does_not_reach_back_before_its_frame(backend: Any) -> None:
    schema = Struct("d" / Bytes(3), "e" / Tell, "crc" / Int32ul, "v" / CrcCheck(CRC32, this.crc, 0, this.e))
    data = b"abc" + CRC32(b"abc").to_bytes(4, "little") + b"def"
    data += CRC32(data).to_bytes(4, "little")
    table, stop = backend.make_scanner(schema, ()).scan(data, 0, len(data))
    assert table.count == 1
    assert stop == ScanStop(StopReason.BOUNDS, 7, "v")


@EACH
def test_the_root_of_a_path_is_the_outermost_struct(backend: Any) -> None:
    inner = Struct("b" / Struct("data" / Bytes(this._root.n), "more" / Bytes(this._._.n)))
    table, stop = backend.make_scanner(Struct("n" / Int8ub, "a" / inner), ("n",)).scan(b"\x02abcd\x00", 0, 6)
    assert (table.count, stop.reason) == (2, StopReason.END)


@EACH
def test_fields_of_a_case_not_taken_are_zero(backend: Any) -> None:
    case = Switch(this.n, {1: Struct("x" / Int8ub)}, default=Struct("y" / Int8ub))
    table, _ = backend.make_scanner(Struct("n" / Int8ub, "c" / case), ("c.x", "c.y")).scan(
        b"\x01\x07\x02\x09\x01\x08", 0, 6
    )
    assert [list(table[name])[:3] for name in ("c.x", "c.y")] == [[7, 0, 8], [0, 9, 0]]


@EACH
def test_the_buffer_range_is_checked(backend: Any) -> None:
    for start, end in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="not inside"):
            backend.make_scanner(Struct("n" / Int8ub), ()).scan(b"abc", start, end)


def test_two_scanners_of_one_schema_do_not_share_their_columns() -> None:
    schema = Struct("n" / Int8ub)
    for backend in BACKENDS:
        one, two = (backend.make_scanner(schema, ("n",)) for _ in range(2))
        first, _ = one.scan(b"\x01", 0, 1)
        two.scan(b"\x02", 0, 1)
        assert first["n"][0] == 1
