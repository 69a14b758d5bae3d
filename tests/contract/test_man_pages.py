"""The manual pages in the repository are those of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from binlogtool.cli.click_command_tree import build_command_group
from binlogtool.cli.command_table import COMMANDS
from binlogtool.cli.man import page_file_name, write_pages
from binlogtool.cli.options import GLOBAL_NAMES, global_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page_file_name(name) for name in (None, *COMMANDS)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("man")
    write_pages(directory)
    return directory


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_generated_one(name: str, fresh: Path) -> None:
    assert (ROOT / "man" / name).read_bytes() == (fresh / name).read_bytes()


def test_there_are_no_other_pages() -> None:
    assert sorted(p.name for p in (ROOT / "man").iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_page(name: str) -> None:
    group = build_command_group()
    command = group.get_command(click.Context(group), name)
    assert command is not None
    text = (ROOT / "man" / page_file_name(name)).read_text("utf-8").replace("\\-", "-")
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden and param.name not in GLOBAL_NAMES:
            assert all(option in text for option in param.opts)
    assert "Global options: see binlogtool(1)" in text


def test_every_global_option_is_in_the_page_of_the_program() -> None:
    text = (ROOT / "man" / "binlogtool.1").read_text("utf-8").replace("\\-", "-")
    assert all(option in text for param in global_options() for option in param.opts)


@pytest.mark.parametrize(
    "section", ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES"]
)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_its_sections(name: str, section: str) -> None:
    assert f".SH {section}\n" in (ROOT / "man" / name).read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_in_the_pages_head(name: str) -> None:
    head = (ROOT / "man" / page_file_name(name)).read_text("utf-8").split(".SH SYNOPSIS")[0]
    assert COMMANDS[name][1][1:].rstrip(".").replace("-", "\\-") in head


def test_a_page_can_be_regenerated_from_the_command_line(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "binlogtool.cli.man", str(tmp_path)], check=True, timeout=60, cwd=ROOT)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(PAGES)
