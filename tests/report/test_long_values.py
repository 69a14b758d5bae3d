"""Values that are written in pieces: the output has the same bytes as with whole ones, in every form that does it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from binlogtool import limits
from binlogtool.core import decode_batches
from binlogtool.core.decode_batches import LongValueWriter, extract_long_values
from binlogtool.format_api.encode_json import JsonStyle
from binlogtool.format_api.format import LongValue, make_long_value
from tests.cli.invoke import ROOT, invoke
from tests.harness.mysql_writer import MARIADB, binlog, block, query

FORMS = (
    ("jsonl",), ("json",), ("csv",), ("csv", "--csv-safe"), ("jsonl", "--bytes", "base64"),
    ("jsonl", "--tail", "3"),
    ("json", "--where", "body.error_code = 0 and body.sql != '5'"), ("jsonl", "--fields", "body"),
)  # fmt: skip
CORPUS = ROOT / "tests" / "corpus"
LOGS = (
    "tarantool/chain", "drizzle/blob-entries.log", "drizzle/rare-statements.log", "eblob/instance-a.binlog",
    "manticore/v16-mixed", "mariadb-innodb-binlog/xa", "mysql_binlog/changes",
)  # fmt: skip
QUERY_COMPRESSED = 165


def statements(*texts: bytes, packed: bool) -> bytes:
    if packed:
        return binlog([query(block(text), code=QUERY_COMPRESSED) for text in texts], MARIADB)
    return binlog([query(text) for text in texts], MARIADB)


def files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file() and p.suffix != ".json")


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("place", LOGS)
def test_pieces_make_the_same_output(place: str, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything of more than four bytes in pieces of seven."""
    for log in files(CORPUS / place):
        whole = invoke("dump", "-O", *form, str(log))
        with monkeypatch.context() as patched:
            patched.setattr(limits, "LONG_VALUE_BYTES", 4)
            patched.setattr(decode_batches, "PIECE_SIZE", 7)
            patched.setattr("binlogtool.format_api.format.PIECE_SIZE", 7)
            pieces = invoke("dump", "-O", *form, str(log))
        assert pieces == whole, log


TEXTS = (
    b"INSERT INTO t VALUES ('" + 3000 * 'aé"\\\n\x7f\u202e€😀'.encode() + b"')",
    b"SET @x = '" + 5000 * b"\xff\x00a" + b"'",
    b"SELECT '" + 4000 * "ж".encode() + b"\xd0",
)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_statement_is_written_as_a_whole_one(
    tmp_path: Path, packed: bool, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(statements(*TEXTS, b"short", packed=packed))
    whole = invoke("dump", "-O", *form, str(log))
    assert whole.code == 0 and len(whole.out) > 5_000
    monkeypatch.setattr(limits, "LONG_VALUE_BYTES", 100)
    monkeypatch.setattr("binlogtool.format_api.format.PIECE_SIZE", 997)
    monkeypatch.setattr("binlogtool.formats.binlog_events.wire_format._PIECE_BYTES", 997)
    assert invoke("dump", "-O", *form, str(log)) == whole


def test_text_shows_a_long_statement_in_full_only_with_v(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, statement = tmp_path / "bin.000001", TEXTS[0].decode()
    log.write_bytes(statements(TEXTS[0], packed=False))
    monkeypatch.setattr(limits, "LONG_VALUE_BYTES", 100)
    monkeypatch.setattr("binlogtool.format_api.format.PIECE_SIZE", 997)
    (line,) = [one for one in invoke("dump", "-v", str(log)).text.splitlines() if one.startswith('    "')]
    assert json.loads(line) == statement
    short = invoke("dump", str(log)).text
    assert "    INSERT INTO t VALUES ('aé\"\\" in short and len(short) < len(statement) / 2
    assert not re.search("@[0-9a-f]{32}@", short)


def test_a_converted_long_statement_is_the_dumped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, out = tmp_path / "bin.000001", tmp_path / "out"
    log.write_bytes(statements(*TEXTS, packed=True))
    whole = invoke("dump", "-O", "jsonl", str(log))
    monkeypatch.setattr(limits, "LONG_VALUE_BYTES", 100)
    monkeypatch.setattr("binlogtool.formats.binlog_events.wire_format._PIECE_BYTES", 997)
    assert invoke("convert", "--to", "jsonl", "-o", str(out), str(log)).code == 0
    assert out.read_bytes() == whole.out


def test_a_block_that_is_not_of_its_size_is_told_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog([query(block(TEXTS[0], len(TEXTS[0]) + 1), code=QUERY_COMPRESSED)], MARIADB))
    whole = invoke("dump", "-O", "jsonl", str(log))
    monkeypatch.setattr(limits, "LONG_VALUE_BYTES", 100)
    assert "compression-error" in whole.text and invoke("dump", "-O", "jsonl", str(log)) == whole


def test_marks_in_the_data_stay_what_they_are() -> None:
    mark = f"@{os.urandom(16).hex()}@"
    body, taken = extract_long_values({"a": mark, "b": "x" * 50}, 40)
    text = json.dumps(body).encode()
    assert json.loads(b"".join(LongValueWriter().fill_placeholders(text, taken))) == {"a": mark, "b": "x" * 50}


@pytest.mark.parametrize("form", ["hex", "base64", "escape"])
def test_bytes_in_pieces_of_any_length(form: str) -> None:
    data = bytes(range(256)) * 3
    pieces = [data[:1], data[1:3], b"", data[3:100], data[100:]]
    mark = f"@{'0' * 32}@"
    value = LongValue(lambda: iter(pieces), False)
    made = b"".join(LongValueWriter(JsonStyle(form)).fill_placeholders(json.dumps(mark).encode(), {mark: value}))
    assert json.loads(made) == JsonStyle(form).encode_bytes(data)


@pytest.mark.parametrize(("data", "is_text"), [("é€😀" * 9, True), (b"\xc3", False), (b"a\xffb", False), (b"", True)])
def test_a_sign_may_be_cut_between_pieces(data: str | bytes, is_text: bool) -> None:
    raw = data.encode() if isinstance(data, str) else data
    assert make_long_value(lambda: (raw[i : i + 1] for i in range(len(raw)))).is_text is is_text


def test_text_that_is_none_stays_whole() -> None:
    assert extract_long_values({"a": "x\udcff" * 50}, 10) == ({"a": "x\udcff" * 50}, {})
