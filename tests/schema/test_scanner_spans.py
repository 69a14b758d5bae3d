"""Rows in spans: tiled exactly, handed out span by span, never read beyond a span's end."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from construct import Bytes, Construct, ConstructError, Int8ub, StreamError, Struct, stream_read, this
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.errors import LimitError
from binlogtool.format_api.schema_fields import (
    MALFORMED,
    SHORT,
    Int64s,
    MalformedError,
    MutableInt64s,
    RecordKernel,
    UInt8s,
    kernel,
)
from binlogtool.schema.backends import PythonBackend
from binlogtool.schema.frame_scan_loop import ScanStop, StopReason
from tests.compiling import CompilingBackend

KEYS = (3, 5, 9)
COLUMNS_OF_KEYS = len(KEYS)  # kernels cannot ask an array for its length


@kernel()
def read_value(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """A byte that counts the big-endian bytes behind it (at most 8)."""
    if p >= n:
        return 0, SHORT
    size = buf[p]
    if size > 8:
        return 0, MALFORMED
    if size > n - p - 1:
        return 0, SHORT
    value = 0
    for i in range(size):
        value = (value << 8) | buf[p + 1 + i]
    return value, p + 1 + size


@kernel(read_value)
def read_keyed(buf: UInt8s, p: int, n: int, table: Int64s, out: MutableInt64s, at: int) -> int:
    """A count of pairs (below 0x80), each a key byte and a value; `table` names the keys that have a column."""
    if p >= n:
        return SHORT
    count = buf[p]
    if count >= 0x80:
        return MALFORMED
    start = p
    p += 1
    for i in range(COLUMNS_OF_KEYS):
        out[at + i] = -1
    for _ in range(count):
        if p >= n:
            return SHORT
        key = buf[p]
        value, p = read_value(buf, p + 1, n)
        if p < 0:
            return p
        for i in range(COLUMNS_OF_KEYS):
            if table[i] == key:
                out[at + i] = value
    out[at + COLUMNS_OF_KEYS] = start
    return p


class Keyed(Construct):
    kernel = RecordKernel(read_keyed, ("three", "five", "nine", "where"), KEYS)

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, int]:
        where = stream.tell()
        values = dict.fromkeys(KEYS, -1)
        count = stream_read(stream, 1, path)[0]
        if count >= 0x80:
            raise MalformedError("count", path)
        for _ in range(count):
            key, size = stream_read(stream, 1, path)[0], stream_read(stream, 1, path)[0]
            if size > 8:
                raise MalformedError("size", path)
            value = int.from_bytes(stream_read(stream, size, path), "big")
            if key in values:
                values[key] = value - 2**64 if value >= 2**63 else value
        return {"three": values[3], "five": values[5], "nine": values[9], "where": where}


KEYED = Struct("row" / Keyed())
COLUMNS = ("row.nine", "row.three", "row.where", "row.five")
BARE = Keyed()
SIZED = Struct("size" / Int8ub, "data" / Bytes(this.size))


def keyed(source: random.Random) -> bytes:
    pairs = []
    for _ in range(source.randint(0, 4)):
        size = source.choice([0, 1, 1, 2, 8])
        pairs.append(bytes([source.choice([*KEYS, 4]), size]) + source.randbytes(size))
    return bytes([len(pairs)]) + b"".join(pairs)


def spans_of(seed: int, count: int, most: int = 5) -> tuple[bytes, list[int], list[int]]:
    """Spans of rows with bytes between them that would be rows too."""
    source = random.Random(seed)
    data, starts, ends = b"", [], []
    for _ in range(count):
        data += source.choice([b"", b"\x00", keyed(source)])
        starts.append(len(data))
        data += b"".join(keyed(source) for _ in range(source.randint(0, most)))
        ends.append(len(data))
    return data + b"\x00\x01\x03\x00", starts, ends


def by_construct(data: bytes, starts: list[int], ends: list[int]) -> tuple[list[tuple[int, ...]], ScanStop]:
    rows: list[tuple[int, ...]] = []
    for span, (start, end) in enumerate(zip(starts, ends, strict=True)):
        stream, made = io.BytesIO(data[:end]), []
        while start < end:
            stream.seek(start)
            try:
                row = KEYED.parse_stream(stream)["row"]
            except ConstructError as error:
                short = isinstance(error, StreamError)
                return rows, ScanStop(StopReason.SHORT if short else StopReason.MALFORMED, start, "row", -1, span)
            made.append((span, start, stream.tell(), row["nine"], row["three"], row["where"], row["five"]))
            start = stream.tell()
        rows += made
    return rows, ScanStop(StopReason.END, 0)


def in_batches(scanner: Any, data: Any, starts: Any, ends: Any) -> tuple[list[tuple[int, ...]], ScanStop]:
    first, rows = 0, []
    while True:
        table, stop = scanner.scan_spans(data, starts, ends, first, len(starts))
        names = ("span", "offset", "end", *COLUMNS)
        rows += zip(*(map(int, list(table[name])[: table.count]) for name in names), strict=True)
        if stop.reason is not StopReason.FULL:
            return rows, stop
        assert stop.span > first
        first = stop.span


def agree(data: bytes, starts: list[int], ends: list[int], capacity: int) -> ScanStop:
    expected, wanted = by_construct(data, starts, ends)
    results = []
    for backend in (PythonBackend(), CompilingBackend()):
        scanner = backend.make_scanner(KEYED, COLUMNS, capacity)
        rows, stop = in_batches(scanner, data, starts, ends)
        assert rows == expected
        assert stop.reason is wanted.reason
        if stop.reason is not StopReason.END:
            assert stop == wanted
        results.append(stop)
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("capacity", [1, 3, 1000])
def test_rows_of_intact_spans_come_span_by_span(capacity: int) -> None:
    data, starts, ends = spans_of(seed=1, count=60)
    assert agree(data, starts, ends, capacity).reason is StopReason.END


def test_a_span_cut_short_anywhere_gives_none_of_its_rows() -> None:
    data, starts, ends = spans_of(seed=2, count=3, most=6)
    for end in range(starts[1], ends[1]):
        agree(data, starts, [ends[0], end, ends[2]], 100)


def test_every_flipped_bit_is_judged_alike() -> None:
    data, starts, ends = spans_of(seed=3, count=4)
    changed = bytearray(data)
    for bit in range(8 * len(data)):
        changed[bit // 8] ^= 1 << bit % 8
        agree(bytes(changed), starts, ends, 4)
        changed[bit // 8] ^= 1 << bit % 8


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=40), st.integers(0, 400), st.sampled_from([1, 2, 50]))
def test_any_damage_is_judged_alike(seed: int, damage: bytes, place: int, capacity: int) -> None:
    data, starts, ends = spans_of(seed, count=5)
    place %= len(data)
    agree((data[:place] + damage + data[place + len(damage) :])[: len(data)], starts, ends, capacity)


@pytest.mark.parametrize("backend", [PythonBackend(), CompilingBackend()], ids=["python", "native"])
class TestEachBackend:
    def test_a_span_with_more_rows_than_the_columns_hold_makes_them_larger(self, backend: Any) -> None:
        scanner = backend.make_scanner(SIZED, ("size",), 4)
        data = b"\x01a" * 50 + b"\x00" * 3
        table, stop = scanner.scan_spans(data, [0, 100], [100, 103], 0, 2)
        assert (table.count, stop.reason, stop.span) == (53, StopReason.END, 2)
        assert list(table["offset"]) == [*range(0, 100, 2), 100, 101, 102]

    def test_a_span_with_too_many_rows_is_refused(self, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        scanner = backend.make_scanner(SIZED, (), 4)
        monkeypatch.setattr(type(scanner), "max_span_rows", 8)
        with pytest.raises(LimitError, match="more than 8 records"):
            scanner.scan_spans(b"\x00" * 9, [0], [9], 0, 1)

    def test_no_spans_are_no_rows(self, backend: Any) -> None:
        table, stop = backend.make_scanner(SIZED, ()).scan_spans(b"", [], [], 0, 0)
        assert (table.count, stop.reason) == (0, StopReason.END)

    def test_a_span_outside_of_the_buffer_is_an_error_of_the_caller(self, backend: Any) -> None:
        for start, end in ((-1, 2), (2, 1), (0, 4)):
            with pytest.raises(ValueError, match="not inside"):
                backend.make_scanner(SIZED, ()).scan_spans(b"\x00\x00\x00", [start], [end], 0, 1)

    def test_a_kernel_may_be_the_whole_schema(self, backend: Any) -> None:
        table, stop = backend.make_scanner(BARE, ("three", "where")).scan(b"\x01\x03\x02\x01\x00\x00", 0, 6)
        assert (list(table["three"])[:2], list(table["where"])[:2]) == ([256, -1], [0, 5])
        assert stop == ScanStop(StopReason.END, 6)

    def test_values_are_bit_patterns_of_64_bits(self, backend: Any) -> None:
        table, _ = backend.make_scanner(BARE, ("three",)).scan(b"\x01\x03\x08" + b"\xff" * 7 + b"\xfe", 0, 11)
        assert table["three"][0] == -2

    def test_a_bad_row_names_its_span_and_place(self, backend: Any) -> None:
        scanner = backend.make_scanner(SIZED, ())
        table, stop = scanner.scan_spans(b"\x01a\x00\x03abc\x00\x02", [0, 2, 6], [2, 3, 9], 0, 3)
        assert table.count == 2
        assert stop.span == 2
        assert (stop.reason, stop.at, stop.field) == (StopReason.SHORT, 6, "data")
