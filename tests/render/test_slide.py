"""`hexdump-annotate -O svg`: a picture for a slide."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import raw_sql
from tests.render.test_annotated_page import MARKUP, XLOG

TEXT = "{http://www.w3.org/2000/svg}text"


def texts(picture: bytes) -> list[str]:
    return [one.text or "" for one in ET.fromstring(picture).iter(TEXT)]


def test_bytes_and_fields_of_a_damaged_block_are_drawn() -> None:
    done = invoke("hexdump-annotate", "-O", "svg", "--at", "0x1229", str(XLOG))
    said = texts(done.out)
    assert done.code == 1
    assert any(one.startswith("! header.crc32c = 0x1f7679ed  WRONG") for one in said)
    drawn = [one for one in said if len(one) == 2 and set(one) <= set("0123456789abcdef")]
    assert bytes.fromhex("".join(drawn[16:])) == XLOG.read_bytes()[0x1229 : 0x1229 + 94]


def test_a_depth_draws_fields_whole() -> None:
    done = invoke("hexdump-annotate", "-O", "svg", "--record", "0", "--depth", "1", str(XLOG))
    assert [one for one in texts(done.out) if one in ("header", "payload")] == ["header", "payload"]


def test_more_than_a_slide_shows_is_refused() -> None:
    done = invoke("hexdump-annotate", "-O", "svg", str(XLOG))
    assert (done.code, done.out) == (6, b"")
    assert "--depth N" in done.err


@pytest.mark.parametrize("text", [MARKUP, "\x1b[31m\u202e]]>&lt;"])
def test_hostile_text_is_only_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a<b>\x1b\u202e.log"
    path.write_bytes(raw_sql(1, text.encode()))
    done = invoke("hexdump-annotate", "-O", "svg", str(path))
    assert done.code == 0
    kinds = {one.tag.rpartition("}")[2] for one in ET.fromstring(done.out).iter()}
    assert kinds == {"svg", "style", "rect", "text"}
    assert not set("\x1b\u202e") & set(done.out.decode())


def test_a_file_without_any_field_is_an_empty_picture(tmp_path: Path) -> None:
    empty = ROOT / "tests/corpus/eblob/empty.binlog"
    done = invoke("hexdump-annotate", "-O", "svg", "-f", "eblob", str(empty))
    ET.fromstring(done.out)
