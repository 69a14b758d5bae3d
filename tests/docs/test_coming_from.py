"""docs/coming-from.md: each option of the other tools is in the table, each of ours exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import click
import pytest

from binlogtool.cli.click_command_tree import build_command_group
from binlogtool.cli.command_table import COMMANDS
from tests.docs.pages import ROOT
from tests.formats.mysql_binlog.server_trees import programs_of

TEXT = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
GROUP = build_command_group()
ROOTS = click.Context(GROUP, info_name="binlogtool")


def rows(tool: str) -> list[tuple[list[str], list[str]]]:
    """The table below a heading: options of the tool, and what to type here."""
    part = re.split(r"^## ", TEXT.split(f"\n## {tool}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]
    return [(re.findall(r"`(--[\w-]+)`", c[0]), re.findall(r"`([^`]+)`", c[1]) or [c[1]]) for c in cells[1:]]


def told(tool: str) -> set[str]:
    return {option for options, _ in rows(tool) for option in options}


def ours(command: str | None) -> set[str]:
    """The options of one of our commands; without one: those of all."""
    found = GROUP.get_command(ROOTS, command) if command else GROUP
    assert found is not None, command
    return {word for parameter in found.params for word in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def shown(*command: str) -> set[str]:
    """The options at the beginning of the lines of a tool's help."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return set(re.findall(r"^ {2,6}(?:-\S,? +)?(--[\w-]+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("tool", ["mariadb-binlog", "mysqlbinlog", "tarantoolctl", "tt"])
def test_what_the_table_says_to_type_exists(tool: str) -> None:
    assert len(rows(tool)) >= 3
    for options, here in rows(tool):
        assert options and here, (tool, options, here)
        for one in here:
            words = one.split()
            if one.startswith("--"):
                assert one in ours(None), one
            elif one != "-":
                assert words[0] in COMMANDS, one
                assert {word for word in words if word.startswith("--")} <= ours(words[0]), one


def here(program: str) -> str:
    found = shutil.which(program)
    if found is None or os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip(f"{program} is not installed, or BINLOGTOOL_SERVER=1 is not set")
    return found


@pytest.mark.server
def test_every_option_of_mariadb_binlog_is_told() -> None:
    found = shown(here("mariadb-binlog"), "--no-defaults", "--help")
    assert len(found) > 40
    assert found == told("mariadb-binlog")


@pytest.mark.server
def test_every_option_of_tarantoolctl_cat_and_play_is_told() -> None:
    done = subprocess.run([here("tarantoolctl"), "cat", "--help"], capture_output=True, text=True, check=False)
    assert set(re.findall(r"\* (--[\w-]+)", done.stdout + done.stderr)) == told("tarantoolctl")


@pytest.mark.nightly
def test_every_option_of_mysqlbinlog_is_told() -> None:
    programs = programs_of("mysql-9")
    if programs is None:
        pytest.skip("there is no tree of MySQL 9 (.ci/server-tree)")
    found = shown(programs.binlog, "--no-defaults", "--help")
    assert len(found) > 40
    assert found <= told("mysqlbinlog") | told("mariadb-binlog")
    assert told("mysqlbinlog") <= found, "options that this version has"
    assert not told("mysqlbinlog") & told("mariadb-binlog")
