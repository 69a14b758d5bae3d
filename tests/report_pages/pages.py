"""What a page is made of, read by the standard library's own parser."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Parts(HTMLParser):
    """Tags and attributes that occur, and the contents of scripts and styles by tag and type."""

    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    contents: list[tuple[str, str | None, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    pieces: list[tuple[bool, str]] = field(default_factory=list)
    """Is it of unpacked bytes, and its data."""
    policy: str = ""
    links: list[str] = field(default_factory=list)
    _open: tuple[str, str | None] | None = None
    _packed: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(known)
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""
        if "href" in known:
            self.links.append(known["href"] or "")
        if tag == "section":
            self._packed = "data-packed" in known
        if tag in ("script", "style"):
            self._open = tag, known.get("type")

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open:
            if self._open[1] == "application/deflate":
                data = zlib.decompress(base64.b64decode(data), -15).decode()
            self.contents.append((*self._open, data))
            if self._open[1]:
                self.pieces.append((self._packed, data))
        else:
            self.text.append(data)


def parts(page: bytes) -> Parts:
    found = Parts()
    found.feed(page.decode("utf-8"))
    found.close()
    return found


def held_to(page: Parts) -> None:
    """The policy allows nothing but what the page holds, by its hash, and the page has nothing that it would stop."""
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    for tag in ("script", "style"):
        run = [text for kind, type_, text in page.contents if kind == tag and type_ is None]
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
        assert rules[f"{tag}-src"].split() == ([f"'sha256-{digest}'" for digest in digests] or ["'none'"])
    assert not {name for name in page.attributes if name.startswith("on") or name in ("style", "src", "srcset")}


def shows(locator: Any, count: int) -> None:
    """So many are there, now or as soon as the page has drawn it: a piece is drawn when it comes into view."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(count)
