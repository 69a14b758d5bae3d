"""The reference pages name every command, option, finding, status and output; their links exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from binlogtool.cli.command_table import COMMANDS
from docs import reference_pages
from tests.docs.pages import ROOT

PAGES = reference_pages.make_pages()


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
    own = {str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.md") if "reference" not in p.parts[:-1]}
    assert own - {"index"} <= set(listed)


def test_each_command_has_a_page_with_a_heading_for_each_of_its_own_options() -> None:
    verify = PAGES["commands/verify.md"]
    assert {"### --depth", "### --max-age", "### --report", "### --state"} <= set(verify.splitlines())
    assert "`--max-age DURATION`" in verify and "binlogtool verify -q --expect-closed" in verify
    assert "### --follow\n\n`-F, --follow`\n" in PAGES["commands/dump.md"]
    assert {f"commands/{name}.md" for name in COMMANDS} <= set(PAGES)


def test_global_options_are_described_once() -> None:
    assert "### --max-memory" in PAGES["commands.md"]
    assert not [name for name, text in PAGES.items() if name.startswith("commands/") and "### --max-memory" in text]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("verify", ("reference/commands/verify", "")),
        ("binlogtool verify --max-age 26h", ("reference/commands/verify", "max-age")),
        ("dump -F", ("reference/commands/dump", "follow")),
        ("dump -O jsonl", ("reference/commands/dump", "")),
        ("--max-memory", ("reference/commands", "max-memory")),
        ("--where EXPR", ("reference/commands/dump", "where")),
        ("mysqlbinlog --verbose", None),
        ("--result-file", None),
        ("", None),
    ],
)
def test_code_that_names_a_command_or_option_links_to_its_page(text: str, place: tuple[str, str] | None) -> None:
    assert reference_pages.find_command_page(text) == place


def test_the_code_of_pages_fits_100_columns() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if not {"reference", "spec"} & set(path.parts)]
    for path in (ROOT / "README.md", *pages):
        for number, line in lines_of_code(path.read_text("utf-8")):
            if not re.match(r"next: |\s+binlogtool ", line):  # a command that the program prints is whole
                assert len(line) <= 100, f"{path.name}:{number} has {len(line)} columns"
    for name, text in PAGES.items():
        if name.startswith("commands"):
            assert all(len(line) <= 100 for _, line in lines_of_code(text)), name


def lines_of_code(text: str) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside:
            yield number, line
