from __future__ import annotations

import struct
import subprocess
import sys

import pytest
from construct import CheckError, ConstructError
from hypothesis import given
from hypothesis import strategies as st

from binlogtool.format_api.format import FileHead
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.drizzle.format import FORMAT
from binlogtool.formats.drizzle.schema import CATALOG, ENTRY, Label, StatementType
from binlogtool.limits import Limits

# An entry of a real file: event STARTUP of transaction 1, server 2.
STARTUP = bytes.fromhex(
    "01000000200000000a160802100118e0c8b48c8cb4ae0220aaedb48c8cb4ae021a02080020012801c113ce50"
)  # fmt: skip


def test_an_entry_is_type_length_message_checksum() -> None:
    assert len(STARTUP) == 44
    entry = ENTRY.parse(STARTUP)
    assert (entry.type, entry.length, entry.message_start, entry.message_end) == (1, 32, 8, 40)
    assert entry.message == STARTUP[8:40]
    assert entry.crc32 == 0x50CE13C1
    assert entry.checksum.ok is True
    assert ENTRY.build(entry) == STARTUP


def test_a_stored_zero_means_that_no_checksum_was_computed() -> None:
    entry = ENTRY.parse(STARTUP[:40] + bytes(4))
    assert entry.checksum.ok is None


def test_a_stored_zero_is_right_where_the_computed_value_is_zero() -> None:
    message = bytes.fromhex("9d0ad96d")  # four bytes whose CRC-32 is 0
    entry = ENTRY.parse(struct.pack("<II", 2, 4) + message + bytes(4))
    assert entry.checksum.ok is True


def test_a_flipped_bit_makes_the_checksum_wrong() -> None:
    for bit in range(8 * 8, 8 * 44):
        damaged = bytearray(STARTUP)
        damaged[bit // 8] ^= 1 << bit % 8
        assert ENTRY.parse(damaged).checksum.ok is False


@pytest.mark.parametrize("kind", [0, 3, 0x01000000, 0x101])
def test_another_entry_type_is_refused(kind: int) -> None:
    with pytest.raises(MalformedError) as error:
        ENTRY.parse(struct.pack("<I", kind) + STARTUP[4:])
    assert error.value.finding_id == "bad-magic"


@pytest.mark.parametrize("length", [0, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(CheckError):
        ENTRY.parse(struct.pack("<II", 1, length) + STARTUP[8:])


@pytest.mark.parametrize("size", range(44))
def test_a_cut_entry_is_refused(size: int) -> None:
    with pytest.raises(ConstructError):
        ENTRY.parse(STARTUP[:size])


@given(st.binary(min_size=1, max_size=64), st.sampled_from([1, 2]))
def test_every_entry_builds_back(message: bytes, kind: int) -> None:
    import zlib

    for stored in (zlib.crc32(message), 0, 7):
        data = struct.pack("<II", kind, len(message)) + message + struct.pack("<I", stored)
        entry = ENTRY.parse(data)
        assert entry.message == message
        assert ENTRY.build(entry) == data


def test_the_table_has_the_messages_and_members_of_the_definition() -> None:
    statement = CATALOG.messages["Statement"]
    assert [member.number for member in statement.members] == list(range(1, 20))
    assert statement.by_number[18].name == "set_variable_statement"
    table = {member.name: member.number for member in CATALOG.messages["Table"].members}
    assert table["fk_constraint"] == 8
    assert table["access"] == 17
    assert [m.name for m in CATALOG.messages["UpdateRecord"].members] == [
        "key_value",
        "after_value",
        "before_value",
        "is_null",
    ]
    required = {m.name for m in CATALOG.messages["Index"].members if m.label is Label.REQUIRED}
    assert required == {"name", "is_primary", "is_unique", "type", "key_length"}
    assert StatementType.RAW_SQL == 99
    assert CATALOG.enums["FieldType"](9).name == "EPOCH"


def test_every_member_type_exists_and_numbers_and_names_are_unique() -> None:
    scalars = {"uint32", "uint64", "bool", "string", "bytes"}
    for message in CATALOG.messages.values():
        numbers = [member.number for member in message.members]
        assert sorted(set(numbers)) == numbers
        assert len({member.name for member in message.members}) == len(numbers)
        for member in message.members:
            assert member.type in scalars | set(CATALOG.messages) | set(CATALOG.enums)


def test_the_format_offers_every_message_as_a_schema() -> None:
    assert set(CATALOG.messages) | {"entry"} == set(FORMAT.reading.schemas)


def test_importing_the_format_and_reading_a_layout_loads_no_protobuf() -> None:
    code = (
        "import sys; from binlogtool.formats.drizzle.format import FORMAT;"
        "from binlogtool.format_api.format import FileHead;"
        "from binlogtool.limits import Limits; head = FileHead(bytes.fromhex(sys.argv[1]), 'x', 44);"
        "FORMAT.reading.detect(head); FORMAT.reading.layout(head, Limits());"
        "print([m for m in sys.modules if m.startswith('google')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, STARTUP.hex()], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# -- detection ------------------------------------------------------------------------------------------------------


def head(data: bytes, name: str = "x.log") -> FileHead:
    return FileHead(data, name, len(data))


def test_a_right_checksum_is_certainty() -> None:
    assert FORMAT.reading.detect(head(STARTUP)).score == 100


def test_a_first_entry_without_checksum_or_longer_than_the_head_is_recognised() -> None:
    assert FORMAT.reading.detect(head(STARTUP[:40] + bytes(4))).score == 85
    long = struct.pack("<II", 1, 100_000) + STARTUP[8:32]
    assert FORMAT.reading.detect(FileHead(long, "x", 100_012)).score == 85


def test_a_log_with_a_damaged_first_entry_is_recognised_by_the_second() -> None:
    damaged = b"\x03" + STARTUP[1:]
    assert FORMAT.reading.detect(head(damaged)).score < 20
    assert FORMAT.reading.detect(head(damaged + STARTUP)).score == 60


def test_an_empty_file_is_recognised_by_its_name_only() -> None:
    assert FORMAT.reading.detect(head(b"", "transaction.log")).score == 20
    assert FORMAT.reading.detect(head(b"", "other")).score == 0


@pytest.mark.parametrize(
    "data",
    [b"XLOG\n0.13\n", b"\xfebin" + bytes(40), bytes(64), b"\x01\x00\x00\x00" + b"\xff" * 60, b"hello world" * 9],
)
def test_other_files_are_not_recognised(data: bytes) -> None:
    assert FORMAT.reading.detect(head(data)).score == 0


@pytest.mark.parametrize("width", [8, 4])
def test_the_layouts_of_2009_are_named_and_not_walked(width: int) -> None:
    old = (32).to_bytes(width, "little") + STARTUP[8:40]
    assert FORMAT.reading.detect(head(old)).score == 55
    layout = FORMAT.reading.layout(head(old), Limits())
    assert not layout.readable
    (finding,) = layout.findings
    assert finding.id == "unsupported-version"
    assert finding.message == "no entry type: pre-October-2009 layout?"


def test_a_log_of_today_is_walked_from_offset_zero() -> None:
    layout = FORMAT.reading.layout(head(STARTUP), Limits())
    assert layout.readable
    assert layout.frames_at == 0
    assert layout.findings == ()
