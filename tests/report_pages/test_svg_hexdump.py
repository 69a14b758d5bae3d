"""`hexdump-annotate -O svg`: a picture for a slide."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import raw_sql
from tests.report_pages.markup import MARKUP, XLOG

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


def test_a_file_without_records_is_drawn_as_its_header() -> None:
    empty = ROOT / "tests/corpus/eblob/empty.binlog"
    done = invoke("hexdump-annotate", "-O", "svg", "-f", "eblob", str(empty))
    said = texts(done.out)
    assert done.code == 0
    drawn = [text for text in said if len(text) == 2 and set(text) <= set("0123456789abcdef")]
    assert bytes.fromhex("".join(drawn[16:])) == empty.read_bytes()
    assert [text for text in said if " = " in text] == [
        "magic = 8 bytes", "version = 1", "pad1 = 6 bytes", "flags = 4", "pad2 = 232 bytes",
    ]  # fmt: skip


def test_an_empty_file_is_a_picture_without_bytes(tmp_path: Path) -> None:
    (empty := tmp_path / "e.log").write_bytes(b"")
    done = invoke("hexdump-annotate", "-O", "svg", "-f", "drizzle", str(empty))
    assert done.code == 0
    assert [text.strip() for text in texts(done.out)] == ["e.log", *(f"{column:02x}" for column in range(16))]


SHOP = ROOT / "tests" / "corpus" / "guides" / "mariadb"


def test_what_differs_is_drawn_with_its_bytes(tmp_path: Path) -> None:
    one, two = SHOP / "mariadb-bin.000002", tmp_path / "<b>&.log"
    data = bytearray(one.read_bytes())
    data[1099] ^= 0x58
    two.write_bytes(data)
    done = invoke("hexdump-annotate", "-O", "svg", str(one), "--diff", str(two))
    said = texts(done.out)
    assert done.code == 1
    assert "A mariadb-bin.000002 \u00b7 B <b>&.log" in said
    assert 'body.rows[0].before.total = "120.00"' in said
    assert not [one for one in said if one.startswith("not in this picture")]
    same = invoke("hexdump-annotate", "-O", "svg", str(one), "--diff", str(one))
    assert same.code == 0 and "nothing differs" in texts(same.out)


def test_what_is_not_in_the_picture_is_told() -> None:
    paths = [str(SHOP / f"mariadb-bin.00000{n}") for n in (1, 2)]
    done = invoke("hexdump-annotate", "-O", "svg", paths[0], "--diff", paths[1])
    whole = invoke("hexdump-annotate", "-O", "json", paths[0], "--diff", paths[1])
    places = sum(part["kind"] != "same" for part in json.loads(whole.out)["parts"])
    (told,) = [one for one in texts(done.out) if one.startswith("not in this picture: ")]
    drawn = sum(one in ("~", "+", "-") for one in texts(done.out) if one == "~")
    drawn += sum(" only in " in one for one in texts(done.out))
    assert told == f"not in this picture: {places - drawn} more differences; -O text, html and json show all of them"
