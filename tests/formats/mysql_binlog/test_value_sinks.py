"""Values of row images, decoded once: their text as JSON and as SQL, and their cells, as Python and compiled."""

from __future__ import annotations

import struct
from array import array
from typing import Any, NamedTuple

import pytest

from binlogtool.format_api.json_text_kernels import build_text_table
from binlogtool.format_api.layout import Kernel
from binlogtool.formats.binlog_events.changes.typed_column_kernels import CellValueSink, decode_cell
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import VALUE_SPACE, JsonValueSink, write_json_value
from binlogtool.formats.binlog_events.sql.format_literals import SqlValueSink, write_sql_literal
from binlogtool.formats.binlog_events.values.column_types import ValueKind
from binlogtool.schema.backends import get_native_backend
from tests.package_figures.modules import ROOT, Code
from tests.readers_per_type import count_readers

_K = ValueKind
DAY = 86400 * 10**6


class Value(NamedTuple):
    """A value and its three forms; None = left to the general writer. A cell is a word, two words, or a text."""

    kind: ValueKind
    parameter: int
    raw: bytes
    json: str | None
    sql: str | None
    cell: int | tuple[int, int] | bytes | None


VALUES = [
    Value(_K.SIGNED, 1, b"\x80", "-128", "-128", -128),
    Value(_K.SIGNED, 3, b"\xff\xff\x7f", "8388607", "8388607", 8388607),
    Value(_K.SIGNED, 8, b"\0\0\0\0\0\0\0\x80", "-9223372036854775808", "-9223372036854775808", -(1 << 63)),
    Value(_K.UNSIGNED, 2, b"\xff\xff", "65535", "65535", 65535),
    Value(_K.UNSIGNED, 8, b"\xff" * 8, "18446744073709551615", "18446744073709551615", (-1, 0)),
    Value(_K.FLOAT, 4, b"\0\0\xc0\x3f", "1.5", "1.5e0", 0x3FC00000),
    Value(_K.DOUBLE, 8, b"\0\0\0\0\0\0\x02\xc0", "-2.25", "-2.25e0", -0x3FFE000000000000),
    Value(_K.DECIMAL, 5 << 8 | 2, b"\x80\x7b\x2d", '"123.45"', "123.45", (12345, 0)),
    Value(_K.DECIMAL, 5 << 8 | 2, b"\x7f\x84\xd2", '"-123.45"', "-123.45", (-12345, -1)),
    Value(_K.DECIMAL, 2 << 8 | 2, b"\x87", '"0.07"', "0.07", (7, 0)),
    Value(_K.DECIMAL, 20 << 8, b"\x87\x05\xf5\xe1\x00\x00\x00\x00\x01", '"7100000000000000001"', "7100000000000000001",
          (7100000000000000001, 0)),
    Value(_K.DECIMAL, 2 << 8, b"\xe4", None, None, None),  # 100 in two digits
    Value(_K.BIT, 10, b"\x02\x01", "513", "b'1000000001'", 513),
    Value(_K.YEAR, 0, b"\x7e", "2026", "2026", 2026),
    Value(_K.YEAR, 0, b"\0", "0", "0", 0),
    Value(_K.DATE, 0, b"\x21\xc0\x0f", '"2016-01-01"', "'2016-01-01'", 16801),
    Value(_K.DATE, 0, b"\0\0\0", '"0000-00-00"', "'0000-00-00'", None),
    Value(_K.TIME2, 2, b"\x7f\xff\xff\xf6", '"-00:00:00.10"', "'-00:00:00.10'", b"-00:00:00.10"),
    Value(_K.TIME2, 0, b"\xb4\x6e\xfb", '"838:59:59"', "'838:59:59'", b"838:59:59"),
    Value(_K.DATETIME2, 3, bytes.fromhex("99b5ce8a1f04d2"), '"2025-02-07 08:40:31.123"', "'2025-02-07 08:40:31.123'",
          20126 * DAY + (8 * 3600 + 40 * 60 + 31) * 10**6 + 123400),
    Value(_K.DATETIME2, 0, b"\x7f\0\0\0\0", None, None, None),
    Value(_K.DATETIME2, 1, bytes.fromhex("99b5ce8a1f64"), None, None, None),  # 100 hundredths of a second
    Value(_K.TIMESTAMP2, 0, b"\0\x01\x51\x80", '"1970-01-02 00:00:00"', "'1970-01-02 00:00:00'", DAY),
    Value(_K.TIMESTAMP2, 0, b"\0\0\0\0", '"0000-00-00 00:00:00"', "'0000-00-00 00:00:00'", None),
    Value(_K.TIME, 0, (-8385959).to_bytes(3, "little", signed=True), '"-838:59:59"', "'-838:59:59'", b"-838:59:59"),
    Value(_K.DATETIME, 0, (19700102000000).to_bytes(8, "little"), '"1970-01-02 00:00:00"', "'1970-01-02 00:00:00'",
          DAY),
    Value(_K.DATETIME, 0, (19701602000000).to_bytes(8, "little"), None, None, None),  # month 16
    Value(_K.DATETIME, 3, b"\0" * 7, None, None, None),  # MariaDB's old fractions
    Value(_K.TIMESTAMP, 0, b"\x80\x51\x01\0", '"1970-01-02 00:00:00"', "'1970-01-02 00:00:00'", DAY),
    Value(_K.ENUM, 1, b"\x02", '"b"', "'b'", 2),
    Value(_K.ENUM, 1, b"\x03", "3", None, None),
    Value(_K.SET, 1, b"\x03", '["a","b"]', "'a,b'", 3),
    Value(_K.UTF8, 40, "é'".encode(), '"é\'"', "'é'''", "é'".encode()),
    Value(_K.UTF8, 40, b"\xff", '{"$bytes":"ff"}', None, None),
    Value(_K.TEXT, 255, b"\xe9", '"é"', "'é'", "é".encode()),
    Value(_K.TEXT, 127, b"\xe9", None, None, None),
    Value(_K.BYTES, 3, b"\x01", '{"$bytes":"01"}', "X'010000'", b"\x01\0\0"),
    Value(_K.GEOMETRY, 4, b"\0\0\0\0\x01", None, "X'0000000001'", None),
    Value(_K.UUID, 16, bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"',
          "'00010203-0405-0607-0809-0a0b0c0d0e0f'", b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
    Value(_K.UUID, 16, b"\x01", None, None, None),
    Value(_K.INET4, 4, b"\xc0\0\x02\x63", '"192.0.2.99"', "'192.0.2.99'", b"192.0.2.99"),
    Value(_K.JSON, 4, b"\x04\0", None, None, None),
]  # fmt: skip


def compiled_or_not(function: Kernel, compiled: bool) -> Any:
    backend = get_native_backend()
    if compiled and backend is None:
        pytest.skip("there is no library for this machine")
    made = backend.compile_kernel(function) if compiled and backend is not None else function
    assert (made is function) != compiled, "build the library again"
    return made


def text_of(function: Any, sink: type, quote: int, texts: bytes, value: Value) -> str | None:
    out = bytearray(512)
    where = sink(quote, texts, 0 if texts else -1, 0, out, len(out))
    end = function(value.raw + bytes(8), 0, len(value.raw), int(value.kind), value.parameter, where, 0)
    return None if end < 0 else out[:end].decode()


@pytest.mark.parametrize("compiled", [False, True])
def test_values_are_json(compiled: bool) -> None:
    put = compiled_or_not(write_json_value, compiled)
    choices = build_text_table({0: b'"a"', 1: b'"b"'})
    found = [text_of(put, JsonValueSink, 34, choices, value) for value in VALUES]
    assert found == [value.json for value in VALUES]


LONGEST = [
    (_K.SIGNED, 8, b"\0\0\0\0\0\0\0\x80", "-9223372036854775808"),
    (_K.UNSIGNED, 8, b"\xff" * 8, "18446744073709551615"),
    (_K.FLOAT, 4, struct.pack("<f", -8388607.5), "-8388607.5"),
    (_K.DOUBLE, 8, struct.pack("<d", -0.30000000000000004), "-0.30000000000000004"),
    (_K.DECIMAL, 65 << 8 | 30, b"\x80" + bytes(29), "0." + "0" * 30),
    (_K.TIMESTAMP2, 6, b"\xff" * 4 + b"\x0f\x42\x3f", "2106-02-07 06:28:15.999999"),
]


@pytest.mark.parametrize(("kind", "parameter", "raw", "text"), LONGEST)
def test_a_value_fits_into_the_space_that_a_row_leaves_it(kind: _K, parameter: int, raw: bytes, text: str) -> None:
    out = bytearray(VALUE_SPACE)
    sink = JsonValueSink(34, b"", -1, 0, out, len(out))
    end = write_json_value(raw + bytes(8), 0, len(raw), int(kind), parameter, sink, 0)
    assert out[:end].decode().strip('"') == text


@pytest.mark.parametrize("compiled", [False, True])
def test_values_are_literals(compiled: bool) -> None:
    put = compiled_or_not(write_sql_literal, compiled)
    tables = {_K.ENUM: build_text_table({0: b"'a'", 1: b"'b'"}), _K.SET: build_text_table({0: b"a", 1: b"b"})}
    found = [text_of(put, SqlValueSink, 39, tables.get(value.kind, b""), value) for value in VALUES]
    assert found == [value.sql for value in VALUES]


def cell_of(function: Any, value: Value) -> int | tuple[int, int] | bytes | None:
    cells, out = array("q", [77, 77, 77]), bytearray(512)
    sink = CellValueSink({_K.ENUM: 2, _K.SET: 3}.get(value.kind, 0), cells, out)
    end = function(value.raw + bytes(8), 0, len(value.raw), int(value.kind), value.parameter, sink, 1)
    if end < 0:
        return None
    if isinstance(value.cell, bytes):
        return bytes(out[1:end])
    assert (end, cells[0]) == (1, 77)
    return (cells[1], cells[2]) if isinstance(value.cell, tuple) else cells[1]


@pytest.mark.parametrize("compiled", [False, True])
def test_values_are_cells(compiled: bool) -> None:
    decode = compiled_or_not(decode_cell, compiled)
    assert [cell_of(decode, value) for value in VALUES] == [value.cell for value in VALUES]


DECIDES = {
    "changes.typed_column_kernels.store_cell_value_and_get_status",
    "values.decode_value_to_sink_kernels.decode_old_temporal",
}
"""Compiled code that asks for the type of a value and does not choose its decoder: how a cell of an invalid value is
stored; which of three types a decoder of three has."""


def test_each_value_type_has_one_compiled_reader() -> None:
    for kind, readers in count_readers(Code(ROOT)).items():
        found = readers.compiled - DECIDES
        assert len(found) <= 1, f"{kind.name} is read by {sorted(found)}: use values.decoders"
