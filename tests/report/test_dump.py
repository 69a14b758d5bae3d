"""Records as CSV, JSON documents and raw bytes."""

from __future__ import annotations

import csv
import io
import json

import pytest

from binlogtool.format_api.encode_json import JsonStyle
from binlogtool.report.dump_output_formats import (
    CsvWriter,
    FieldJsonEncoder,
    JsonWriter,
    RawWriter,
    RecordJsonEncoder,
    neutralize_formula,
)
from tests.report.values import block

STYLE = JsonStyle()


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
