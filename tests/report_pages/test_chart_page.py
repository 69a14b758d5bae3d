"""`stats --chart FILE.html`: the chart and its figures as one page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.invoke import invoke
from tests.cli.samples import insert
from tests.report_pages.markup import MARKUP, XLOG
from tests.report_pages.pages import held_to, parts


def test_the_page_has_the_chart_and_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "chart.html"
    assert invoke("stats", "--by", "type", "--chart", str(file), str(XLOG)).code == 1  # it is damaged
    page = parts(file.read_bytes())
    held_to(page)
    assert "svg" in page.tags
    at = page.text.index("REPLACE", page.text.index("type"))
    assert "95" in page.text[at : at + 3]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    file, log = tmp_path / "chart.html", tmp_path / "<img src=x>\u202e.log"
    log.write_bytes(insert(1, MARKUP.encode(), b"\x1b<b>", b"x"))
    assert invoke("stats", "--chart", str(file), str(log)).code == 0
    page = parts(file.read_bytes())
    held_to(page)
    assert not page.tags & {"img", "b", "script"}
    assert any(MARKUP in text for text in page.text)
    assert not set("\x1b\u202e") & set(file.read_text("utf-8"))


def test_a_narrow_window_scrolls_the_chart_and_not_the_page(tmp_path: Path, show: Callable[..., Any]) -> None:
    file = tmp_path / "chart.html"
    assert invoke("stats", "--chart", str(file), str(XLOG)).code == 1
    page = show(file, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    text = "document.querySelector('.chart text').getBoundingClientRect().height"
    assert page.evaluate(f"{text}") >= 10  # CSS pixels: it can be read
    assert page.evaluate("(c => c.scrollWidth > c.clientWidth)(document.querySelector('.chart'))")
