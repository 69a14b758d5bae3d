"""`verify --report html=FILE`: a map of each file, findings that lead to their bytes, a timeline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import insert, raw_sql
from tests.report_pages.markup import MARKUP, XLOG
from tests.report_pages.pages import held_to, parts


def report_of(tmp_path: Path, *paths: Path, code: int = 1) -> Path:
    file = tmp_path / "report.html"
    done = invoke("verify", "--report", f"html={file}", *map(str, paths))
    assert done.code == code, done.err
    return file


def test_the_page_says_what_every_byte_is_and_leads_to_the_damaged_ones(tmp_path: Path) -> None:
    raw = report_of(tmp_path, XLOG).read_bytes()
    page = parts(raw)
    held_to(page)
    assert {"header 142 (1.767 %)", "records 7,800 (97.06 %)", "damaged 94 (1.17 %)"} <= set(page.text)
    ids = set(re.findall(r' id="([^"]+)"', raw.decode()))
    assert page.links and {link[1:] for link in page.links} <= ids
    assert "#p0-1229" in page.links
    assert "REPLACE" in page.text  # the legend of the timeline


def test_intact_files_have_no_annotated_bytes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(raw_sql(1, b"select 1"))
    page = parts(report_of(tmp_path, log, code=0).read_bytes())
    assert (page.pieces, page.links) == ([], [])


def test_a_path_that_is_no_log_is_told(tmp_path: Path) -> None:
    other = tmp_path / "x"
    other.write_bytes(b"not a log at all, in any way")
    assert "not read" in parts(report_of(tmp_path, other, code=3).read_bytes()).text


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    raw = MARKUP.encode()
    path = tmp_path / ("<img src=x onerror=alert(1)>" + '"\u202e\x1b.log')
    bad = bytearray(insert(2, raw, raw, raw))
    bad[-1] ^= 1
    path.write_bytes(raw_sql(1, raw) + bytes(bad) + insert(3, raw, raw, raw))
    return path


def test_hostile_names_and_values_are_text(tmp_path: Path, hostile: Path) -> None:
    raw = report_of(tmp_path, hostile).read_bytes()
    page = parts(raw)
    held_to(page)
    assert "img" not in page.tags
    assert not set("\x1b\u202e") & set(raw.decode())
    assert page.pieces


@pytest.mark.full
def test_a_click_on_a_finding_shows_its_bytes(tmp_path: Path, hostile: Path, show: Callable[..., Any]) -> None:
    page = show(report_of(tmp_path, hostile), width=400)
    page.click(".found-list a[href^='#p'] >> nth=0")
    assert page.locator(".spot:target .row").count() > 3
    assert page.locator(".spot:target .row.bad").first.is_visible()
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def bars(raw: str) -> list[tuple[str, float, float]]:
    """(class, left, width) of the second strip."""
    strip = raw.split("What every byte is</h3>")[1].split("</svg>")[0]
    found = re.findall(r'<rect class="k-(\w+)" x="([\d.]+)" y="0" width="([\d.]+)"', strip)
    return [(name, float(left), float(width)) for name, left, width in found]


def test_the_strip_shows_each_class_where_it_is(tmp_path: Path) -> None:
    raw = report_of(tmp_path, XLOG).read_text("utf-8")
    size, bad = XLOG.stat().st_size, 0x1229
    found = bars(raw)
    assert [name for name, _, _ in found] == ["header", "record", "damaged", "record", "header"]  # the end mark
    assert abs(found[2][1] - 1000 * bad / size) < 1 and abs(found[2][2] - 1000 * 94 / size) < 2
    assert abs(sum(width for _, _, width in found) - 1000) < 0.1
    assert re.search(r'<a href="#p0-1229"><rect class="k-damaged"', raw)
    assert "1,000 cells of up to 9 B; each has the colour of the worst byte in it." in raw


@pytest.mark.full
def test_a_torn_tail_is_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(raw_sql(1, b"select 1") + raw_sql(2, b"select 2" * 400)[:2000])
    found = bars(report_of(tmp_path, log, code=0).read_text("utf-8"))
    assert [name for name, _, _ in found] == ["record", "torn_tail"]


def test_the_page_begins_with_a_summary_and_the_files_with_findings(tmp_path: Path) -> None:
    guides = ROOT / "tests" / "corpus" / "guides"
    out = tmp_path / "verify.html"
    logs = [str(guides / "mariadb"), str(guides / "tarantool-flipped")]
    assert invoke("verify", "--report", f"html={out}", *logs).code == 1
    text = out.read_text()
    summary = text[text.index('id="summary"') : text.index("</article>")]
    assert "6 files" in summary and "3 errors" in summary and "DAMAGED" in summary
    assert summary.count("<li>") == 1
    assert text.index("00000000000000000003.xlog <span") < text.index("mariadb-bin.000001 <span")


@pytest.mark.full
@pytest.mark.parametrize("words", [["stats", "--chart"], ["verify", "--report"]])
def test_charts_fit_a_narrow_screen(tmp_path: Path, show: Callable[..., Any], words: list[str]) -> None:
    out = tmp_path / "page.html"
    place = f"html={out}" if words[0] == "verify" else str(out)
    invoke(*words, place, str(ROOT / "tests" / "corpus" / "guides" / "mariadb"))
    page = show(out, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".chart").bounding_box()["width"] <= 400  # the drawing in it scrolls: its text stays readable
