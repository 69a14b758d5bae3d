"""The annotated parse of whole entries, through the engine's tracer."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.formats.drizzle.schema import ENTRY
from binlogtool.limits import Limits
from binlogtool.schema.annotated_parse import parse_to_field_rows
from tests.formats.drizzle.make import insert, message, update
from tests.formats.drizzle.walk import entries, pack

NAMES = ("basic-checksum.log", "blob-entries.log", "rare-statements.log", "transaction_writer.log")


def leaves(data: bytes) -> dict[str, object]:
    """Path and value of every leaf; they must tile the entry."""
    traced = parse_to_field_rows(ENTRY, data, 0, Limits())
    assert traced.errors == []
    end, out = 0, {}
    for row in traced.rows:
        if row.leaf and row.end > row.start:
            assert row.start == end
            end = row.end
            out[row.path] = row.value
    assert end == len(data)
    return out


def test_every_byte_of_an_entry_is_named_by_the_definition() -> None:
    got = leaves(pack(message(300, update(), insert(values=2))))
    assert got["type"] == 1
    assert got["message.transaction_context.transaction_id.value"] == 300
    assert got["message.statement[0].update_data.record[0].after_value[0].value"] == b"2"
    assert got["message.statement[1].insert_data.record[0].insert_value[1].tag"] == 0x0A
    assert got["message.statement[1].insert_header.field_metadata[0].name.value"] == b"c"
    assert list(got)[-1] == "crc32"


def test_a_blob_entry_has_one_opaque_message() -> None:
    assert list(leaves(pack(b"opaque", kind=2))) == ["type", "length", "message", "crc32"]


def test_a_broken_message_is_named_up_to_the_damage() -> None:
    data = bytearray(pack(message(1, insert())))
    data[9] = 0x7F  # the length of the context
    traced = parse_to_field_rows(ENTRY, bytes(data), 0, Limits())
    assert traced.error is not None
    assert traced.error.position == 10
    assert "127 bytes declared" in traced.error.message
    context = "message.transaction_context"
    assert [(row.path, row.start, row.end) for row in traced.rows if row.leaf] == [
        ("type", 0, 4), ("length", 4, 8), (f"{context}.tag", 8, 9), (f"{context}.length", 9, 10),
        (f"{context}.unmapped", 10, len(data) - 4), ("crc32", len(data) - 4, len(data)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_the_samples_is_named(samples: Path, name: str) -> None:
    data = (samples / "drizzle" / name).read_bytes()
    for offset, entry in entries(data):
        paths = leaves(data[offset : offset + 12 + entry.length])
        assert not any("unmapped" in path or "unknown" in path for path in paths)
