"""`hexdump-annotate -O html`: the page as it is written, and as a browser shows it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from binlogtool.report import render_annotated_bytes
from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert, raw_sql
from tests.report_pages.markup import MARKUP, XLOG
from tests.report_pages.pages import held_to, parts, shows


def page_of(tmp_path: Path, source: Path, *words: str, code: int = 0) -> Path:
    file = tmp_path / "page.html"
    done = invoke("hexdump-annotate", "-O", "html", "-o", str(file), "--overwrite", *words, str(source))
    assert done.code == code, done.err
    return file


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    raw = MARKUP.encode()
    path = tmp_path / ("<img src=x onerror=alert(1)>" + '"\u202e.log')
    path.write_bytes(raw_sql(1, raw) + insert(2, raw, raw, raw) + raw)
    return path


def test_all_bytes_of_the_file_are_in_the_page(tmp_path: Path) -> None:
    page = parts(page_of(tmp_path, XLOG, code=1).read_bytes())
    held = bytearray(XLOG.stat().st_size)
    for start, data, *_ in (json.loads(text) for packed, text in page.pieces if not packed):
        piece = base64.b64decode(data)
        held[start : start + len(piece)] = piece
    assert bytes(held) == XLOG.read_bytes()


def test_the_page_holds_to_its_policy_and_links_findings_to_their_place(tmp_path: Path) -> None:
    page = parts(page_of(tmp_path, XLOG, code=1).read_bytes())
    held_to(page)
    assert "#0x1229" in page.links


def test_hostile_names_and_values_are_text(tmp_path: Path, hostile: Path) -> None:
    page = parts(page_of(tmp_path, hostile).read_bytes())
    held_to(page)
    assert not page.tags & {"img", "iframe", "svg", "object"}
    assert any("<img src=x onerror=alert(1)>" in text for text in page.text)
    values = [row[4] for _, text in page.pieces for row in json.loads(text)[2]]
    assert any(value.startswith('"</script><script>window.hurt=1') for value in values)


def test_a_large_log_is_refused_with_the_way_to_see_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_annotated_bytes, "MAX_PAGE_BYTES", 8000)
    done = invoke("hexdump-annotate", "-O", "html", str(XLOG))
    assert (done.code, done.out) == (6, b"")
    assert "--at POS --length 1MiB" in done.err
    assert invoke("hexdump-annotate", "-O", "html", "--at", "0x8a", "--length", "2kB", str(XLOG)).code == 0


def test_a_length_shows_what_holds_any_of_its_bytes() -> None:
    value = json.loads(invoke("hexdump-annotate", "-O", "json", "--at", "229", "--length", "2", str(XLOG)).out)
    tops = [(f["start"], f["end"]) for f in value["fields"] if "." not in f["path"]]
    assert tops == [(138, 230), (230, 277)]
    for words in (["--record", "1"], ["--at", "record:1"], ["--type", "INSERT"]):
        assert invoke("hexdump-annotate", *words, "--length", "5", str(XLOG)).code == 2


def diff_of(tmp_path: Path, one: Path, other: Path) -> Path:
    return page_of(tmp_path, other, "--diff", str(one), code=1)


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    """The same log with one bit changed in its head."""
    changed = bytearray(XLOG.read_bytes())
    changed[0x80] ^= 4
    path = tmp_path / "other.xlog"
    path.write_bytes(changed)
    return path


def test_a_page_of_two_logs_has_both_sides_of_what_differs(tmp_path: Path, flipped: Path) -> None:
    page = parts(diff_of(tmp_path, XLOG, flipped).read_bytes())
    held_to(page)
    (one, other) = (json.loads(text) for packed, text in page.pieces if not packed)
    assert [row[3] for row in one[2] if row[6] & 4] and one[3] == other[3]
    ((start, end),) = one[3]
    assert start <= 0x80 < end
    for start, data, *_ in (one, other):
        log = XLOG if data == one[1] else flipped
        assert base64.b64decode(data) == log.read_bytes()[start : start + len(base64.b64decode(data))]


def test_hostile_names_of_two_logs_are_text(tmp_path: Path, hostile: Path) -> None:
    other = tmp_path / "<b>.log"
    other.write_bytes(raw_sql(1, MARKUP.encode() + b"!"))
    raw = diff_of(tmp_path, hostile, other).read_bytes()
    page = parts(raw)
    held_to(page)
    assert not page.tags & {"img", "iframe", "svg", "object"}
    assert not set("\x1b\u202e") & set(raw.decode())


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(tmp_path: Path, show: Callable[..., Any]) -> Any:
    return show(page_of(tmp_path, XLOG, code=1))


@pytest.mark.full
def test_a_field_and_its_bytes_light_up_together(shown: Any) -> None:
    shown.hover(".row:has-text('prev_vclock')")
    assert "".join(shown.locator(".text i.on").all_inner_texts()) == "PrevVClock: {0: 10, 1: 101}."
    shown.hover(".text i >> nth=0")
    assert shown.inner_text(".row.on") == 'type = "XLOG"'


@pytest.mark.full
def test_search_keys_and_damage(shown: Any) -> None:
    shown.keyboard.press("/")
    shown.keyboard.type("prevvclock")
    shown.keyboard.press("Enter")
    assert shown.inner_text("#hits") == "1 of 1"
    shown.keyboard.press("Escape")
    shown.keyboard.press("d")
    assert "crc32c = 0x1f7679ed" in shown.inner_text(".row.on")
    assert shown.locator(".row.on").evaluate("node => node === document.activeElement")
    shown.keyboard.press("ArrowDown")
    assert shown.inner_text(".row.on").startswith("padding")


@pytest.mark.full
def test_what_is_closed_is_hidden_and_opens_again(shown: Any) -> None:
    first = shown.locator(".piece").nth(0)
    first.locator(".row").nth(0).click()
    count = first.locator(".row").count()
    shown.keyboard.press("ArrowLeft")
    shows(first.locator(".row:visible"), count - 7)  # the header of the file has 7 fields
    shown.keyboard.press("ArrowRight")
    shows(first.locator(".row:visible"), count)
    shown.keyboard.press("f")
    shows(shown.locator(".body:visible"), 0)


@pytest.mark.full
def test_a_link_leads_to_the_field_at_an_offset(tmp_path: Path, show: Callable[..., Any]) -> None:
    page = show(page_of(tmp_path, XLOG, code=1), place="#0x1230")
    assert "crc32c" in page.inner_text(".row.on")
    assert page.locator(".row.on").is_visible()


@pytest.mark.full
def test_a_narrow_screen_is_not_wider_than_itself(tmp_path: Path, show: Callable[..., Any]) -> None:
    page = show(page_of(tmp_path, XLOG, code=1), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.inner_text(".bytes > div >> nth=1").startswith("00000008")


@pytest.mark.full
def test_hostile_text_stays_text_in_a_browser(tmp_path: Path, hostile: Path, show: Callable[..., Any]) -> None:
    page = show(page_of(tmp_path, hostile))
    page.locator(".row", has_text="</script><script>window.hurt=1").first.wait_for()
    shows(page.locator("img"), 0)
    assert page.evaluate("window.hurt") is None


@pytest.mark.full
def test_bytes_that_differ_are_marked_on_both_sides(tmp_path: Path, flipped: Path, show: Callable[..., Any]) -> None:
    page = show(diff_of(tmp_path, XLOG, flipped), width=400)
    shows(page.locator(".side-a .bytes span:not(.text) > i.differs"), 1)
    shows(page.locator(".side-b .row.differs"), 1)
    page.keyboard.press("d")
    shows(page.locator(".row.on.differs"), 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.full
def test_the_flipped_byte_itself_is_marked(tmp_path: Path, show: Callable[..., Any]) -> None:
    log = ROOT / "tests/corpus/guides/tarantool-flipped/00000000000000000003.xlog"  # bit 2 of byte 0x542
    page = show(page_of(tmp_path, log, code=1), place="#0x542")
    page.wait_for_selector(".bytes i.differs")
    assert page.locator(".bytes span:not(.text) > i.differs").all_inner_texts() == ["36"]


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 400])
def test_bytes_stay_in_sight_and_headings_are_below_the_bar(
    tmp_path: Path, show: Callable[..., Any], width: int
) -> None:
    log = ROOT / "tests/corpus/guides/tarantool-flipped/00000000000000000003.xlog"
    page = show(page_of(tmp_path, log, code=1), width=width, place="#0x542")
    page.wait_for_selector(".bytes i.differs")
    bar, height = page.locator("header").bounding_box(), 900
    lit = page.locator(".bytes i.differs").first.bounding_box()
    assert bar["y"] + bar["height"] <= lit["y"] < height
    row = page.locator(".row.on").bounding_box()
    assert bar["y"] + bar["height"] <= row["y"] < height
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.full
def test_a_page_of_small_rows_is_small(tmp_path: Path, show: Callable[..., Any]) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(b"".join(insert(number, b"a", b"b", b"c") for number in range(1, 3000)))
    file = page_of(tmp_path, log)
    assert file.stat().st_size < 4 * log.stat().st_size
    page = show(file, place=f"#0x{log.stat().st_size - 1:x}")  # what is compressed can be read up to the end
    assert page.locator(".row.on").is_visible()
    page.fill("#query", "= 2500")
    page.press("#query", "Enter")
    assert "2500" in page.inner_text(".row.on")
