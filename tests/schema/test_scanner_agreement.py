"""A plain construct loop, the Python scanner and the native scanner say the same about every input."""

from __future__ import annotations

import ctypes
import io
import mmap
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import crc32c
import pytest
from construct import (
    Bytes,
    Check,
    CheckError,
    Computed,
    Const,
    ConstError,
    Construct,
    ConstructError,
    Enum,
    Float32l,
    If,
    Int8ub,
    Int8ul,
    Int16sb,
    Int16ul,
    Int24sb,
    Int24ul,
    Int32sl,
    Int32ub,
    Int32ul,
    Int64ub,
    Int64ul,
    Padding,
    Struct,
    Switch,
    Tell,
    stream_read,
    this,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binlogtool.format_api.layout import CRC32, CRC32C, CRC32C_RAW
from binlogtool.format_api.schema_fields import (
    MALFORMED,
    SHORT,
    CrcCheck,
    Int64s,
    Magic,
    MalformedError,
    MutableInt64s,
    NestedSchema,
    RecordKernel,
    ScalarForm,
    ScalarKernel,
    UInt8s,
    kernel,
)
from binlogtool.schema import frame_scan_loop as scanner_module
from binlogtool.schema.backends import PythonBackend
from binlogtool.schema.frame_scan_loop import Scanner, ScanStop, StopReason
from binlogtool.schema.lower_frame_schema import lower_schema
from tests.compiling import CompilingBackend

HOSTILE = (0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)


# -- field types with kernels ------------------------------------------------------------------------------------------


@kernel()
def read_number(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """One byte below 0x80, or 0xCC..0xCF and 1, 2, 4 or 8 bytes, big-endian."""
    if p >= n:
        return 0, SHORT
    tag = buf[p]
    if tag < 0x80:
        return tag, p + 1
    if tag < 0xCC or tag > 0xCF:
        return 0, MALFORMED
    width = 1 << (tag - 0xCC)
    if n - p <= width:
        return 0, SHORT
    value = 0
    for i in range(width):
        value = (value << 8) | buf[p + 1 + i]
    return value, p + 1 + width


@kernel()
def read_filler_size(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """0xA0..0xBF and that many bytes less 0xA0."""
    if p >= n:
        return 0, SHORT
    tag = buf[p]
    if tag < 0xA0 or tag > 0xBF:
        return 0, MALFORMED
    if tag - 0xA0 > n - p - 1:
        return 0, SHORT
    return tag - 0xA0, p + 1 + tag - 0xA0


@kernel(read_number, read_filler_size)
def read_header(buf: UInt8s, p: int, n: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Three numbers and a filler in exactly 15 bytes; `table` holds the number of numbers."""
    end = p + 15
    if end > n:
        return SHORT
    for i in range(table[0]):
        value, p = read_number(buf, p, end)
        if p < 0:
            return MALFORMED
        out[at + i] = value
    if p < end:
        _, p = read_filler_size(buf, p, end)
    return p if p == end else MALFORMED


@kernel(read_number)
def read_two(buf: UInt8s, p: int, n: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """Two numbers."""
    for i in range(2):
        out[at + i], p = read_number(buf, p, n)
        if p < 0:
            return p
    return p


NUMBER_FORMS = (
    ScalarForm(0, 0x7F),
    ScalarForm(0xCE, 0xCE, ">I"),
    ScalarForm(0xCC, 0xCC, ">B"),
    ScalarForm(0xCF, 0xCF, ">Q"),
)


class Number(Construct):
    def __init__(self, forms: tuple[ScalarForm, ...] = ()) -> None:
        super().__init__()
        self.scan = ScalarKernel(read_number, forms)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        tag = stream_read(stream, 1, path)[0]
        if tag < 0x80:
            return int(tag)
        if not 0xCC <= tag <= 0xCF:
            raise MalformedError("no number", path)
        return int.from_bytes(stream_read(stream, 1 << (tag - 0xCC), path), "big")


class Filler(Construct):
    def __init__(self, forms: tuple[ScalarForm, ...] = ()) -> None:
        super().__init__()
        self.scan = ScalarKernel(read_filler_size, forms)

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        tag = stream_read(stream, 1, path)[0]
        if not 0xA0 <= tag <= 0xBF:
            raise MalformedError("no filler", path)
        return len(stream_read(stream, tag - 0xA0, path))


class Header(Construct):
    kernel = RecordKernel(read_header, ("length", "unused", "crc"), (3,))

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        inner = io.BytesIO(stream_read(stream, 15, path))
        names = ("length", "unused", "crc")
        try:
            values = {name: Number()._parse(inner, context, path) for name in names}
            if inner.tell() < 15:
                Filler()._parse(inner, context, path)
        except ConstructError as error:
            raise MalformedError("broken header", path) from error
        if inner.tell() != 15:
            raise MalformedError("broken header", path)
        return values


class Two(Construct):
    scan = RecordKernel(read_two, ("one", "two"), ())

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return {name: Number()._parse(stream, context, path) for name in ("one", "two")}


# -- schemas -----------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    width = next(w for w in (1, 2, 4, 8) if value < 1 << (8 * w))
    return bytes([0xCC + width.bit_length() - 1]) + value.to_bytes(width, "big")


DRIZZLE = Struct(
    "type" / Magic(Int32ul, transaction=1, blob=2),
    "length" / Int32ul,
    Check(this.length > 0),
    Check(this.length <= 2**31 - 1),
    "message_start" / Tell,
    "message" / NestedSchema(Bytes(this.length), Struct()),
    "message_end" / Tell,
    "crc32" / Int32ul,
    "checksum" / CrcCheck(CRC32, this.crc32, this.message_start, this.message_end, absent=0),
)


def drizzle(payload: bytes, choice: int) -> bytes:
    crc = 0 if choice % 5 == 0 else zlib.crc32(payload)
    return struct.pack("<II", 1 + choice % 2, len(payload)) + payload + struct.pack("<I", crc)


MYSQL = Struct(
    "at" / Tell,
    "timestamp" / Int32ul,
    "type" / Int8ul,
    "server_id" / Int32ul,
    "event_size" / Int32ul,
    "log_pos" / Int32ul,
    "flags" / Int16ul,
    "body" / Bytes(this.event_size - 23),
    "end" / Tell,
    "crc" / Int32ul,
    "checksum" / CrcCheck(CRC32, this.crc, this.at, this.end),
)


def mysql(payload: bytes, choice: int) -> bytes:
    head = struct.pack("<IBIIIH", choice, choice & 255, 1, 23 + len(payload), 7, choice & 0xFFFF)
    return head + payload + struct.pack("<I", zlib.crc32(head + payload))


def tarantool_crc(payload: bytes) -> int:
    return crc32c.crc32c(payload, 0xFFFFFFFF) ^ 0xFFFFFFFF


def block_of(forms: tuple[ScalarForm, ...], filler_forms: tuple[ScalarForm, ...]) -> Struct:
    return Struct(
        "start" / Tell,
        "magic" / Magic(Int32ub, plain=0xD5BA0BAB, zstd=0xD5BA0BBA),
        "length" / Number(forms),
        "crc32p" / Number(forms),
        "crc32c" / Number(forms),
        "filler" / Filler(filler_forms),
        "payload_start" / Tell,
        Check(this.payload_start - this.start == 19),
        "payload" / Bytes(this.length),
        "payload_end" / Tell,
        "checksum" / CrcCheck(CRC32C_RAW, this.crc32c, this.payload_start, this.payload_end),
    )


TARANTOOL = block_of((), ())
TARANTOOL_FORMS = block_of(NUMBER_FORMS, (ScalarForm(0xA0, 0xBF, None, 0xA0, skips=True),))


TARANTOOL_RECORD = Struct(
    "magic" / Magic(Int32ub, plain=0xD5BA0BAB, zstd=0xD5BA0BBA),
    "header" / Header(),
    Check(this.header.length <= 2**31),
    "payload_start" / Tell,
    "payload" / Bytes(this.header.length),
    "payload_end" / Tell,
    "checksum" / CrcCheck(CRC32C_RAW, this.header.crc, this.payload_start, this.payload_end),
)


def tarantool(payload: bytes, choice: int) -> bytes:
    magic = (0xD5BA0BAB, 0xD5BA0BBA)[choice % 2].to_bytes(4, "big")
    length = number(len(payload))
    if choice % 7 == 0:
        length = b"\xce" + len(payload).to_bytes(4, "big")
    head = magic + length + number(choice % 3 % 2) + b"\xce" + tarantool_crc(payload).to_bytes(4, "big")
    left = 19 - len(head)
    return head + bytes([0xA0 + left - 1]) + bytes(left - 1) + payload


PAGES = Struct(
    "start" / Tell,
    "data" / Padding(60),
    "end" / Tell,
    "crc" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc, this.start, this.end),
)


def pages(payload: bytes, choice: int) -> bytes:
    data = (payload + bytes(60))[:60]
    return data + crc32c.crc32c(data).to_bytes(4, "big")


MIXED = Struct(
    "start" / Tell,
    "mark" / Const(b"REC"),
    "kind" / Enum(Int8ub, small=1, wide=2, flagged=3, plain=4),
    "order" / Const(0x1234, Int16ul),
    "head"
    / Struct(
        "delta" / Int16sb,
        "tiny" / Int24ul,
        "signed3" / Int24sb,
        "ratio" / Float32l,
        "number" / Int64ub,
        "outer" / Computed(this._.start + 1),
    ),
    "body"
    / Switch(
        this.kind,
        {
            "small": Struct("size" / Int8ub, "data" / Bytes(this.size)),
            "wide": Struct("value" / Number(NUMBER_FORMS), "data" / Bytes(this._.head.tiny), "size" / Int32sl),
            "flagged": Struct("flags" / Int8ub, "extra" / If((this.flags & 6) == 4, Int16sb), Check(this.flags != 255)),
        },
    ),
    "scaled" / Computed(this.head.delta * 8 % 7 + (this.head.tiny >> 2)),
    "stop" / Tell,
    Check((this.head.number >> 60) < 15),
    "sum" / Int32ul,
    "check1" / If(this.head.delta >= 0, CrcCheck(CRC32, this.sum, this.start, this.stop)),
)


def mixed(payload: bytes, choice: int) -> bytes:
    payload = payload[:200]
    kind = 1 + choice % 4
    delta = choice % 50 - 25
    head = b"REC" + bytes([kind]) + struct.pack("<H", 0x1234) + struct.pack(">h", delta)
    head += len(payload).to_bytes(3, "little") + (-choice & 0xFFFFFF).to_bytes(3, "big") + struct.pack("<f", 1.5)
    head += ((choice * 0x9E3779B97F4A7C15) & 0xEFFFFFFFFFFFFFFF).to_bytes(8, "big")
    flags = choice & 7
    head += {
        1: bytes([len(payload)]) + payload,
        2: number(choice) + payload + struct.pack("<i", -choice),
        3: bytes([flags]) + (b"\xff\xfe" if flags & 6 == 4 else b""),
        4: b"",
    }[kind]
    return head + struct.pack("<I", zlib.crc32(head))


LENGTHS = Struct(
    "size" / Int64ul,
    Check(this.size != 7),
    "first" / Bytes(this.size),
    "small" / Int32sl,
    "second" / Bytes(this.small),
)


def lengths(payload: bytes, choice: int) -> bytes:
    second = payload[: choice % 5]
    payload = payload + b"x" * (len(payload) == 7)
    return struct.pack("<Q", len(payload)) + payload + struct.pack("<i", len(second)) + second


TWO = Struct("pair" / Two(), "low" / Int8ub, "wide" / Int32ul, "data" / Bytes(this.low))


def two(payload: bytes, choice: int) -> bytes:
    head = number(choice) + number((0, 5, 70000)[choice % 3])
    return head + bytes([len(payload) & 31]) + struct.pack("<I", choice) + payload[: len(payload) & 31]


@dataclass(frozen=True)
class Sample:
    schema: Construct
    make: Callable[[bytes, int], bytes]
    columns: tuple[str, ...]
    checksum: str | None = "checksum"

    def file(self, seed: int, frames: int, most: int = 40) -> bytes:
        source = random.Random(seed)
        payloads = [source.randbytes(source.randint(1, most)) for _ in range(frames)]
        return b"".join(self.make(payload, source.randrange(1000)) for payload in payloads)


_BLOCK = ("magic", "length", "crc32c", "payload_start", "payload_end")
_RECORD = ("magic", "header.length", "header.crc", "payload_start", "payload_end")
_MIXED = (
    "start", "order", "head.delta", "head.tiny", "head.signed3", "head.number", "head.outer", "body.size",
    "body.value", "body.flags", "body.extra", "scaled", "stop", "sum",
)  # fmt: skip
SAMPLES = {
    "drizzle": Sample(DRIZZLE, drizzle, ("type", "length", "message_start", "message_end", "crc32")),
    "mysql": Sample(MYSQL, mysql, ("timestamp", "type", "event_size", "flags", "crc")),
    "tarantool": Sample(TARANTOOL, tarantool, (*_BLOCK, "crc32p", "filler")),
    "tarantool_forms": Sample(TARANTOOL_FORMS, tarantool, (*_BLOCK, "crc32p", "filler")),
    "tarantool_one_form": Sample(block_of((ScalarForm(0, 0x7F),), ()), tarantool, _BLOCK),
    "tarantool_forms_few_columns": Sample(TARANTOOL_FORMS, tarantool, ("payload_end",)),
    "tarantool_record": Sample(TARANTOOL_RECORD, tarantool, (*_RECORD, "header.unused")),
    "pages": Sample(PAGES, pages, ("start", "crc")),
    "mixed": Sample(
        MIXED,
        mixed,
        _MIXED,
        "check1",
    ),
    "two": Sample(TWO, two, ("pair.one", "pair.two", "low", "wide"), None),
    "lengths": Sample(LENGTHS, lengths, ("size", "small"), None),
}
ALL = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())


# -- the three engines -------------------------------------------------------------------------------------------------

Row = tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    rows: list[Row]
    reason: frozenset[StopReason]
    at: int


def as_signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def value_at(parsed: Any, path: str) -> int:
    for name in path.split("."):
        parsed = parsed.get(name) if parsed is not None else None
    return as_signed(int(parsed)) if parsed is not None else 0


def by_construct(sample: Sample, data: bytes, start: int, end: int) -> Outcome:
    """The oracle: parses frame by frame, and says which stop reasons would be right."""
    stream = io.BytesIO(data[:end])
    rows: list[Row] = []
    while start < end:
        stream.seek(start)
        try:
            parsed = sample.schema.parse_stream(stream)
        except ConstructError as error:
            return Outcome(rows, frozenset(reasons_for(error)), start)
        verdict = parsed[sample.checksum] if sample.checksum else None
        if verdict is not None and verdict.ok is False:
            return Outcome(rows, frozenset({StopReason.CHECKSUM}), start)
        mark = 0 if verdict is None else 1 if verdict.ok else 2
        rows.append((start, stream.tell(), mark, *(value_at(parsed, path) for path in sample.columns)))
        start = stream.tell()
    return Outcome(rows, frozenset({StopReason.END}), start)


def reasons_for(error: ConstructError) -> set[StopReason]:
    if isinstance(error, ConstError):
        return {StopReason.CONSTANT}
    if isinstance(error, CheckError):
        return {StopReason.BOUNDS}
    if isinstance(error, MalformedError):
        return {StopReason.CONSTANT if error.finding_id == "bad-magic" else StopReason.MALFORMED}
    return {StopReason.BOUNDS} if "non-negative" in str(error) else {StopReason.SHORT, StopReason.BOUNDS}


def scanned(scanner: Scanner, sample: Sample, buf: Any, start: int, end: int) -> tuple[list[Row], ScanStop]:
    rows: list[Row] = []
    while True:
        table, stop = scanner.scan(buf, start, end)
        names = ("offset", "end", "checksum", *sample.columns)
        rows += zip(*(map(int, list(table[name])[: table.count]) for name in names), strict=True)
        if stop.reason is not StopReason.FULL:
            return rows, stop
        assert stop.at > start
        start = stop.at


_SCANNERS: dict[tuple[int, int], tuple[Any, Any]] = {}


def scanners(sample: Sample, capacity: int = 5) -> tuple[Any, Any]:
    key = (id(sample), capacity)
    if key not in _SCANNERS:
        made = (PythonBackend(), CompilingBackend())
        python, native = (backend.make_scanner(sample.schema, sample.columns, capacity) for backend in made)
        _SCANNERS[key] = (python, native)
    return _SCANNERS[key]


def agree(sample: Sample, data: bytes, start: int = 0, end: int | None = None, capacity: int = 5) -> ScanStop:
    end = len(data) if end is None else end
    python, native = scanners(sample, capacity)
    native.interpreted_frames = 0
    expected = by_construct(sample, data, start, end)
    rows, stop = scanned(python, sample, data, start, end)
    assert rows == expected.rows
    assert stop.reason in expected.reason
    assert stop.at == expected.at
    assert (rows, stop) == scanned(native, sample, data, start, end)
    assert native.interpreted_frames == 0
    assert (rows, stop) == interpreted(sample, data, start, end)
    return stop


def interpreted(sample: Sample, data: bytes, start: int, end: int) -> tuple[list[Row], ScanStop]:
    """Every frame by the interpreter that has the last word on doubtful ones."""
    program = lower_schema(sample.schema, sample.columns)
    rows: list[Row] = []
    while start < end:
        found = scanner_module.interpret_frame(program, data, start, end)
        if isinstance(found, ScanStop):
            return rows, found
        rows.append((start, found.end, found.checksum, *(found.values[path] for path in sample.columns)))
        start = found.end
    return rows, ScanStop(StopReason.END, end)


# -- the properties ----------------------------------------------------------------------------------------------------


@pytest.mark.full
@ALL
def test_intact_files_are_read_to_the_end(sample: Sample) -> None:
    data = sample.file(seed=1, frames=200, most=300)
    stop = agree(sample, data, capacity=64)
    assert stop == ScanStop(StopReason.END, len(data))


@pytest.mark.full
@ALL
def test_a_file_cut_anywhere_stops_at_the_same_frame_for_the_same_reason(sample: Sample) -> None:
    data = sample.file(seed=2, frames=6)
    for end in range(len(data) + 1):
        assert agree(sample, data, 0, end) == agree(sample, data[:end])


class FencedPage:
    """Two pages of memory, the second of which may not be touched: one byte too far kills the process."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        library = ctypes.CDLL(None, use_errno=True)
        if library.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0):
            pytest.skip("this system has no mprotect")

    def holding(self, data: bytes) -> memoryview:
        """`data` at the very end of the page."""
        view = memoryview(self._map)[mmap.PAGESIZE - len(data) : mmap.PAGESIZE]
        view[:] = data
        return view


@pytest.mark.full
@ALL
def test_no_byte_beyond_the_end_of_memory_is_touched(sample: Sample) -> None:
    page, source = FencedPage(), random.Random(5)
    data = sample.file(seed=6, frames=4)
    _, native = scanners(sample)
    for end in range(len(data) + 1):
        scanned(native, sample, page.holding(data[:end]), 0, end)
    for _ in range(2000):
        changed = bytearray(data[: source.randint(1, len(data))])
        for _ in range(source.randint(1, 3)):
            changed[source.randrange(len(changed))] = source.choice([0, 1, 0x7F, 0x80, 0xCC, 0xCE, 0xCF, 0xFF])
        scanned(native, sample, page.holding(bytes(changed)), 0, len(changed))


@pytest.mark.full
@ALL
def test_any_flipped_bit_is_judged_alike(sample: Sample) -> None:
    data = bytearray(sample.file(seed=3, frames=4))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        agree(sample, bytes(data))
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.full
@ALL
def test_a_scan_may_start_anywhere(sample: Sample) -> None:
    data = sample.file(seed=4, frames=4)
    for start in range(len(data) + 1):
        agree(sample, data, start)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(("name", "place", "width", "order"), [
    ("drizzle", 4, 4, "little"),
    ("mysql", 9, 4, "little"),
    ("lengths", 0, 8, "little"),
    ("mixed", 8, 3, "little"),
])  # fmt: skip
def test_hostile_lengths_are_refused_alike(name: str, place: int, width: int, order: Any, value: int) -> None:
    sample = SAMPLES[name]
    frames = [sample.make(b"some payload", choice) for choice in (1, 1, 1)]
    wrong = bytearray(frames[1])
    wrong[place : place + width] = (value & (1 << 8 * width) - 1).to_bytes(width, order)
    agree(sample, frames[0] + bytes(wrong) + frames[2])


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", ["tarantool", "tarantool_forms", "tarantool_record"])
def test_hostile_lengths_in_every_encoding_are_refused_alike(name: str, value: int) -> None:
    sample = SAMPLES[name]
    good = sample.make(b"some payload", 1)
    for code, width in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        head = good[:4] + bytes([code]) + (value & (1 << 8 * width) - 1).to_bytes(width, "big") + good[5:11]
        left = 19 - len(head)
        wrong = (head + bytes([0xA0 + left - 1]) + bytes(left - 1) if left > 0 else head) + b"some payload"
        agree(sample, good + wrong + good)


@pytest.mark.full
@ALL
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
@given(data=st.data())
def test_files_of_any_frames_with_any_damage_are_judged_alike(sample: Sample, data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.tuples(st.binary(min_size=1, max_size=60), st.integers(0, 999)), max_size=6))
    file = bytearray(b"".join(sample.make(payload, choice) for payload, choice in parts))
    for _ in range(data.draw(st.integers(0, 3)) if file else 0):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    agree(sample, bytes(file), capacity=data.draw(st.sampled_from([1, 5])))


@pytest.mark.full
@ALL
def test_thousands_of_random_changes_are_judged_alike(sample: Sample) -> None:
    source = random.Random(7)
    data = sample.file(seed=8, frames=5)
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(source.randint(1, 4)):
            place, size = source.randrange(len(changed)), source.randint(1, 4)
            changed[place : place + size] = source.choice([b"", b"\x00", b"\xff" * size, source.randbytes(size)])
            if not changed:
                break
        agree(sample, bytes(changed))
