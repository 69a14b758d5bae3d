"""Every command of the guides is run, in order, on real logs, and prints what the page says."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Example, examples, make_place, matches, run, samples
from tests.docs.servers import SERVERS, mariadb
from tests.formats.mysql_binlog.server import Server
from tests.formats.mysql_binlog.server_trees import programs_of

ELSEWHERE = {"scale.md"}
"""Has tests of its own (Spark)."""
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if path.name not in ELSEWHERE
    and "reference" not in path.relative_to(ROOT).parts
    and examples(path.read_text("utf-8"))
)
MYSQLBINLOG = getattr(programs_of("mysql-9"), "binlog", None)  # MariaDB has one of this name, too
"""That of the tree of MySQL 9 (`.ci/server-tree mysql-9`), else an installed one."""


def can(example: Example) -> bool:
    """Is the server that the example needs here, and asked for?"""
    known = {"mariadbd": Server.program(), "mysqlbinlog": MYSQLBINLOG}
    program = known.get(example.server, shutil.which(example.server or "bash"))
    return not example.server or (SERVERS and program is not None)


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    place = make_place(tmp_path, samples(text))
    for command in re.findall(r"^<!-- first: (.*) -->$", text, re.MULTILINE):
        assert run(command, place)[0] == 0, command
    if MYSQLBINLOG is not None:
        (place / "shims" / "mysqlbinlog").write_text(f'#!/bin/sh\nexec {MYSQLBINLOG} "$@"\n')
        (place / "shims" / "mysqlbinlog").chmod(0o755)
    shown_here = [example for example in examples(text) if can(example)]
    with ExitStack() as servers:
        if any(example.server == "mariadbd" for example in shown_here):
            servers.enter_context(mariadb(place))
        for example in shown_here:
            _, shown = run(example.command, place)
            assert matches(example.output, shown), f"{page.name}:{example.line}\n" + "\n".join(shown)


TOOLS = sorted({one.server for page in PAGES for one in examples(page.read_text("utf-8")) if one.server})


@pytest.mark.server
@pytest.mark.parametrize(
    "tool", [pytest.param(one, marks=pytest.mark.nightly) if one == "mysqlbinlog" else one for one in TOOLS]
)
def test_no_block_is_left_out_because_its_tool_is_not_installed(tool: str) -> None:
    if not SERVERS:
        pytest.skip("BINLOGTOOL_SERVER=1 is not set: blocks that need a real server or tool are not run")
    assert can(Example(0, "", [], tool)), f"{tool} is not installed: what pages show of it was not run"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda p: p.stem)
def test_a_guide_says_when_not_to_do_it(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert any("not to" in heading.lower() for heading in headings)


def test_a_block_that_needs_a_server_is_known_by_the_comment_above_it() -> None:
    text = "<!-- server: mariadb-binlog -->\n```console\n$ a\n$ b\n```\n\n```console\n$ c\n```\n"
    assert [(one.command, one.server) for one in examples(text)] == [
        ("a", "mariadb-binlog"), ("b", "mariadb-binlog"), ("c", ""),
    ]  # fmt: skip
