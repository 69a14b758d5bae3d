"""Pages that are made of what the program knows hold it all; its generator checks the links."""

from __future__ import annotations

import json
import re

from docs import made
from tests.docs.pages import ROOT

PAGES = made.pages()


def test_each_finding_and_each_status_has_its_place() -> None:
    ids = re.findall(r"^### (\S+)$", PAGES["findings.md"], re.MULTILINE)
    assert len(ids) == len(set(ids)) > 30
    assert {"checksum-mismatch", "torn-tail", "valid-after-damage", "silent-loss"} <= set(ids)
    statuses = re.findall(r"^## (\S+)$", PAGES["statuses.md"], re.MULTILINE)
    assert statuses[:8] == ["0", "1", "2", "3", "4", "5", "6", "7"] and "70" in statuses


def test_each_format_has_the_page_that_is_in_its_folder() -> None:
    manuals = {path.read_text("utf-8") for path in ROOT.glob("formats/*/help.md")}
    shown = {text for name, text in PAGES.items() if name.startswith("formats/")}
    assert len(manuals) >= 6 and manuals <= shown


def test_the_schema_of_an_output_can_be_taken_from_its_page() -> None:
    block = re.search(r"```json\n(.*?)```", PAGES["outputs/verify.md"], re.DOTALL)
    assert block is not None and json.loads(block[1])["$id"] == "binlogtool/verify/1"


def test_every_page_is_reached_from_the_first_one() -> None:
    folder = ROOT / "docs"
    listed = re.findall(r"^([\w/.-]+)$", (folder / "index.md").read_text("utf-8"), re.MULTILINE)
    own = {str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.md") if "made" not in p.parts[:-1]}
    assert own - {"index"} <= set(listed)
