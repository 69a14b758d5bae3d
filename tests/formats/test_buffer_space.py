"""Kernels that write a number after other characters leave room for it: no byte outside of the buffer is written."""

from __future__ import annotations

import struct
from array import array

import pytest

from binlogtool.format_api.json_text_kernels import build_name_table
from binlogtool.formats.binlog_events.sql.kernels import event_script_kernels
from binlogtool.formats.binlog_events.sql.kernels.script_kernel_structs import ScriptMemory
from binlogtool.formats.tarantool.rows.json_line_kernels import write_space_member, write_transaction_member


@pytest.mark.parametrize("room", range(60))
def test_a_space_without_a_name_fits_or_is_refused(room: int) -> None:
    out = bytearray(room)
    end = write_space_member(b"", build_name_table({}) + bytes(8), array("q"), out, 0, room, 4294967295)
    assert (end, out) == ((12, b'"4294967295"'.ljust(room, b"\0")) if room >= 32 else (-1, bytes(room)))


@pytest.mark.parametrize("room", range(90))
def test_a_transaction_fits_or_is_refused(room: int) -> None:
    out = bytearray(room)
    end = write_transaction_member(b"", b"", array("q"), out, 0, room, 31, (1 << 63) - 1, 1)
    assert (end, out) == ((24, b'"31:9223372036854775806"'.ljust(room, b"\0")) if room >= 48 else (-1, bytes(room)))


@pytest.mark.parametrize(
    ("code", "body", "text"),
    [
        (5, b"\x02" + b"\xff" * 7 + b"\x7f", "SET INSERT_ID=9223372036854775807\n/*!*/;\n"),
        (5, b"\x01" + b"\xff" * 7 + b"\x7f", "SET LAST_INSERT_ID=9223372036854775807\n/*!*/;\n"),
        (
            13,
            (b"\xff" * 7 + b"\x7f") * 2,
            "SET @@RAND_SEED1=9223372036854775807, @@RAND_SEED2=9223372036854775807\n/*!*/;\n",
        ),
    ],
)
def test_a_variable_needs_at_most_three_bytes_for_each_of_its_event(code: int, body: bytes, text: str) -> None:
    """`write_change_statement` asks for that much, whatever the number of events before the statement."""
    texts, out = event_script_kernels.build_constant_texts({}), bytearray(256)
    body = body if code == 5 else struct.pack("<16s", body)
    memory = ScriptMemory(body, texts, out, len(out), b"", array("q", bytes(8 * event_script_kernels.STATE_SIZE)), b"")
    end = event_script_kernels.write_set_of_variable_event(code, 0, len(body), memory, 0)
    assert out[:end].decode() == text
    assert end <= 3 * (19 + len(body))
