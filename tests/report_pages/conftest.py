"""A real browser for the tests of pages: Debian's chromium, driven by Playwright; skipped where either is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (the extra `dev`)")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file; at the end there must be no complaint of the browser, and nothing fetched but the file."""
    shown: list[Any] = []
    complaints: list[str] = []

    def opened(file: Path, *, width: int = 1280, place: str = "") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url[:5] != "file:" else None)
        page.goto(file.as_uri() + place)
        shown.append(page)
        return page

    yield opened
    for page in shown:
        page.close()
    assert complaints == []
