"""Logs of version 4, written by Sphinx 2.0: numbers begin with their lowest bits, document ids have 4 or 8 bytes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.format_api.layout import U64
from binlogtool.format_api.schema_fields import Varint, read_varint
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import infer_id_size
from tests.cli.invoke import program

pytestmark = pytest.mark.full_corpus
UPDATE, COMMIT = "found-3/sphinx-v4-update", "found-3/sphinx-v4-id64"


@pytest.mark.parametrize("name", [UPDATE, COMMIT])
def test_whole_logs_have_nothing_damaged(corpus: Path, name: str) -> None:
    report = binlogtool.verify([corpus / name])
    assert [one.id for file in report.files for one in file.findings if one.severity.name == "ERROR"] == []
    assert all(file.bytes.get("damaged", 0) == 0 for file in report.files)


def test_the_server_that_wrote_document_ids_of_4_bytes_starts_with_them(corpus: Path) -> None:
    (one,) = binlogtool.diagnose([corpus / UPDATE]).logs
    assert one.start == "yes" and one.is_healthy


def test_logs_proven_to_have_ids_of_8_bytes_do_not_start_where_the_meta_file_says_4(
    corpus: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(corpus / COMMIT, tmp_path / "log"))
    meta = bytearray((folder / "binlog.meta").read_bytes())
    (folder / "binlog.meta").chmod(0o644)
    meta[8] = 0
    (folder / "binlog.meta").write_bytes(meta)
    assert binlogtool.diagnose([folder]).logs[0].start == "no"


@pytest.mark.parametrize(("name", "ids"), [(UPDATE, 4), (COMMIT, 8)])
def test_every_byte_is_read_with_document_ids_as_wide_as_the_meta_file_says(corpus: Path, name: str, ids: int) -> None:
    data = (corpus / name / "binlog.001").read_bytes()
    assert infer_id_size(data, 4, ids) == ids
    at, values = schema.HEADER_SIZE, []
    while at < len(data):
        frame = schema.get_frame_schema(4, ids).parse(data[at:])
        assert frame.checksum.ok
        values.append(frame.body.tid)
        at += frame.covered_end + 4
    assert at == len(data) and values == ([1, 1] if ids == 4 else [109, 109, 110, 111, 112])


def test_the_document_that_was_updated_is_number_6(corpus: Path) -> None:
    """Read with ids of 8 bytes, which fit as well, it would be 4294967302."""
    done = program("dump", str(corpus / UPDATE / "binlog.001"), "--fields", "type,seq,time,object,body.payload.docids")
    assert done.stdout.splitlines()[-1].split(b"\t")[-1] == b"[6]"


def test_numbers_are_built_as_they_were_read() -> None:
    rng = random.Random(4)
    for _ in range(500):
        value = rng.getrandbits(rng.randrange(1, 65))
        data = Varint().build(value)
        number, end = read_varint(data, 0, len(data))
        assert (number & U64, end) == (value, len(data))
        assert Varint().build(Varint().parse(data + b"\x00")) == data
    assert Varint().build(Varint().parse(b"\x81\x80\x00")) == b"\x81\x80\x00"
