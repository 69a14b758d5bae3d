"""Records as text, CSV, JSON documents and raw bytes."""

from __future__ import annotations

import csv
import io
import json

import pytest
from msgspec.structs import replace

from binlogtool.core.record_selection import InnerPosition, RecordBlock, RecordChecksum
from binlogtool.findings import make_finding
from binlogtool.format_api.json_values import JsonStyle
from binlogtool.report.dump import (
    CsvWriter,
    FieldJsonEncoder,
    JsonWriter,
    RawWriter,
    RecordJsonEncoder,
    TextWriter,
    neutralize_formula,
)
from tests.report.values import block

STYLE = JsonStyle()


def text_of(*blocks: RecordBlock, **options: bool) -> str:
    """Everything that `-O text` prints."""
    writer = TextWriter(STYLE, **options)
    return (b"".join(map(writer.encode_block, blocks)) + writer.finish()).decode()


def test_a_text_line_has_the_fields_in_order() -> None:
    text = text_of(block([{"tuple": [1, "a b"]}]))
    assert text == '0x00000082     44 INSERT          100 2026-01-01T00:00:00.000000Z 512 : {"tuple":[1,"a b"]}\n'


def test_text_marks_a_bad_checksum_and_findings() -> None:
    found = make_finding("payload-undecodable", 130, 44, "no\x1bmap", record=0)
    made = block([None], checksum=[RecordChecksum("crc32c", 1, 2, False)], findings={0: (found,)})
    shown = text_of(made).splitlines()
    assert "CHECKSUM-BAD" in shown[0]
    assert shown[1] == "  ! payload-undecodable: no\\x1bmap"


def test_text_can_show_the_bytes() -> None:
    made = block([1], raw=[bytes(range(20))])
    shown = text_of(made, hex_bytes=True).splitlines()
    assert shown[1:] == ["  00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f", "  00000010  10 11 12 13"]


def test_text_names_each_of_several_files_once() -> None:
    shown = text_of(block([1]), block([2]), block([3], file="b\n.xlog"), headings=True).splitlines()
    heads = [line for line in shown if line.startswith("#") and not line.startswith("# transaction ")]
    assert heads == ["# a.xlog (tarantool)", "# b\\n.xlog (tarantool)"]


def test_text_without_offsets_starts_with_the_type() -> None:
    assert text_of(block([1]), offsets=False).startswith("INSERT ")


def transactions(*txns: str | None) -> RecordBlock:
    """Records of these transactions, in order."""
    made = block(list(range(len(txns))))
    return replace(made, envelope=replace(made.envelope, txn=list(txns)))


def units(text: str) -> list[str]:
    """The lines; of a record only its body."""
    return [line if line.startswith("#") or not line else line.rpartition(" : ")[2] for line in text.splitlines()]


def test_records_of_a_transaction_stand_between_a_heading_and_an_empty_line() -> None:
    shown = units(text_of(transactions(None, "0-1-1", "0-1-1", "0-1-2", "0-1-3", "0-1-3", None)))
    assert shown == ["0", "# transaction 0-1-1", "1", "2", "", "3", "# transaction 0-1-3", "4", "5", "", "6"]


def test_a_transaction_may_go_on_in_the_next_block() -> None:
    shown = units(text_of(transactions("a"), transactions("a", "b"), transactions("c", "b"), transactions("b")))
    assert shown == ["# transaction a", "0", "0", "", "1", "0", "# transaction b", "1", "0"]


def test_a_file_that_is_followed_shows_each_record_at_once() -> None:
    writer = TextWriter(STYLE, hold=False)
    assert units(writer.encode_block(transactions("a")).decode()) == ["0"]
    assert units(writer.encode_block(transactions("a", "b")).decode()) == ["# transaction a", "0", "", "1"]
    assert writer.finish() == b""


def test_the_name_of_a_transaction_is_escaped() -> None:
    assert "# transaction a\\x1b[2J\n" in text_of(transactions("a\x1b[2J", "a\x1b[2J"))


def test_a_record_inside_another_one_shows_its_place_in_there() -> None:
    made = block([1], inner=[InnerPosition(0x4B, 201)])
    assert text_of(made).startswith("0x00000082+0x4b    201 INSERT ")


def test_csv_can_be_read_back() -> None:
    writer = CsvWriter(STYLE)
    text = writer.encode_block(block([{"a": 'x "y", z'}])) + writer.encode_block(block([2])) + writer.finish()
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert len(rows) == 2
    assert json.loads(rows[0]["body"]) == {"a": 'x "y", z'}
    assert (rows[0]["offset"], rows[0]["checksum"], rows[0]["seq"]) == ("130", "ok", "100")


def test_csv_of_nothing_is_its_heading() -> None:
    assert CsvWriter(STYLE, columns=("seq", "type")).finish() == b"seq,type\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_formulas_are_neutralised_on_request(text: str) -> None:
    assert neutralize_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "1", "a=b", "'=1"])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert neutralize_formula(text) == text


def test_neutral_csv_changes_only_dangerous_cells() -> None:
    made = block([1])
    made.envelope.object[0] = "=cmd"
    plain, neutral = (
        CsvWriter(STYLE, neutralize=n, columns=("object", "type")).encode_block(made) for n in (False, True)
    )
    assert (plain, neutral) == (b"object,type\n=cmd,INSERT\n", b"object,type\n'=cmd,INSERT\n")


@pytest.mark.parametrize("counts", [(), (0,), (1,), (2, 0, 3)])
def test_the_json_document_is_whole_for_any_number_of_blocks(counts: tuple[int, ...]) -> None:
    writer = JsonWriter(FieldJsonEncoder(RecordJsonEncoder()))
    text = b"".join(writer.encode_block(block(list(range(n)))) for n in counts) + writer.finish()
    document = json.loads(text)
    assert document["schema"] == "binlogtool/record/1"
    assert [r["body"] for r in document["records"]] == [i for n in counts for i in range(n)]


def test_raw_output_is_the_exact_bytes() -> None:
    assert RawWriter().encode_block(block([0, 1], raw=[b"\x00\xff", b"\n"])) == b"\x00\xff\n"
