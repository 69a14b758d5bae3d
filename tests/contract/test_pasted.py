"""What is printed as something to type can be typed: help, explanations, pages, and the lines `next:` of reports."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from binlogtool.cli.click_command_tree import build_command_group
from binlogtool.cli.command_table import COMMANDS
from binlogtool.exit_status_texts import STATUSES
from binlogtool.findings import EXPLANATIONS
from tests.cli.invoke import invoke
from tests.docs.forking import shim
from tests.docs.pages import ROOT, run

GROUP = build_command_group()
CONTEXT = click.Context(GROUP, info_name="binlogtool")
_COMMAND = re.compile(rf"binlogtool (?:{'|'.join(map(re.escape, COMMANDS))})\b(?!:)[^`\n]*")
_ENDS = {"|", ">", "<", "&&", ";", "||", ">&", "&", "|&", ">>", ")"}
STAND_INS = {
    "N": "1", "POS": "1", "SIZE": "1", "T": "2026-01-01", "SET": "0-1-1", "ID": "torn-tail", "STATUS": "1",
    "NAME": "tarantool", "EXPR": "seq = 1", "DURATION": "1s", "COMMAND": "verify", "SHELL": "bash",
}  # fmt: skip
"""What a page writes for any value, where an option does not take every text."""


def words_of(text: str) -> list[str]:
    """The words of the first command of a line, as a shell takes them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in _ENDS:
            break
        words.append(word)
    return words


def wrong(text: str) -> str:
    """Why the command line does not parse; nothing if it does."""
    try:
        words = words_of(text)
    except ValueError as error:
        return f"{error}"
    words = [STAND_INS.get(word, word) for word in words if word not in ("…", "...")]
    command = GROUP.get_command(CONTEXT, words[1])
    assert command is not None
    if len(words) == 2:  # a sentence that names the command
        return ""
    try:
        with command.make_context(words[1], words[2:], parent=CONTEXT):
            return ""
    except click.exceptions.Exit:  # --help
        return ""
    except click.ClickException as error:
        return error.format_message()


def pages() -> Iterator[tuple[str, str]]:
    """(where it stands, text) of all that is written for people."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if "reference" not in path.relative_to(ROOT).parts:
            yield path.name, path.read_text("utf-8")
    for path in sorted((ROOT / "docs" / "ci").iterdir()):
        yield path.name, path.read_text("utf-8")
    for path in sorted((ROOT / "formats").glob("*/help.md")):
        yield f"{path.parent.name}/help.md", path.read_text("utf-8")
    for name in COMMANDS:
        yield f"{name} --help", invoke(name, "--help").text
    for one in (*EXPLANATIONS, *(code for key in STATUSES for code in key.split(", "))):
        yield f"explain {one}", invoke("explain", one).text


def commands(text: str) -> list[str]:
    """The command lines in a text; of code in a sentence only what is between the signs."""
    text = re.sub(r"\\\n(?:> ?)?", " ", text)
    found = [one.partition(");")[0].rstrip() for one in _COMMAND.findall(text)]
    return [one.removesuffix("'") if one.count("'") % 2 else one for one in found if "[OPTIONS]" not in one]


def test_what_help_explanations_and_pages_show_is_a_command_line_that_parses() -> None:
    found = [(place, one) for place, text in pages() for one in commands(text)]
    mistaken = [(place, one, why) for place, one in found if (why := wrong(one))]
    assert mistaken == []
    assert len(found) > 250 and len({place for place, _ in found}) >= 40


# -- what reports print, for names that a shell would take apart -------------------------------------------------------

HOSTILE = ('it\'s $(here) & "there"', "-rf", "ends in \\", "a;b|c>d", "~", "new\nline")
SAMPLES = {
    "guides/tarantool-flipped": 3, "guides/sphinx-torn": 3, "guides/mariadb-crashed": 1, "guides/tarantool-torn": 1,
    "manticore/damaged/flip-payload": 2, "readme/flipped-bit": 2,
}  # fmt: skip
"""Damaged logs -> how many commands their reports print at least."""
FIRST = ("verify", "truncate-to-durable", "replay-dry-run", "diagnose")


def printed(lines: list[str]) -> list[str]:
    """The commands in a report: behind `next:` or `undo`, and below the steps of `diagnose`."""
    found = []
    for line in lines:
        if match := re.fullmatch(r"(?:next:? +|undo +| {12}|read +|       +)((?:binlogtool|cp) .*)", line):
            found.append(match[1])
    return found


def place_of(folder: Path) -> Path:
    """Where `binlogtool` is a command."""
    (folder / "shims").mkdir()
    (folder / "shims" / "binlogtool").write_text(shim())
    (folder / "shims" / "binlogtool").chmod(0o755)
    return folder


EACH = [
    pytest.param(one, name, id=f"{one}-{number}", marks=[] if place in (0, number) else [pytest.mark.nightly])
    for place, one in enumerate(SAMPLES)
    for number, name in enumerate(HOSTILE)
]
"""The first sample by each name, the others by one; nightly all by all."""


@pytest.mark.full
@pytest.mark.parametrize(("sample", "name"), EACH)
def test_what_a_report_prints_runs_as_it_stands_whatever_the_log_is_called(
    sample: str, name: str, samples: Path, tmp_path: Path
) -> None:
    place = place_of(tmp_path)
    shutil.copytree(samples / sample, place / name)
    started = sorted(one.name for one in place.iterdir())
    waiting = [f"binlogtool {first} -- {shlex.quote(name)}" for first in FIRST]
    done: dict[str, int] = {}
    while waiting and len(done) < 40:
        command = waiting.pop(0)
        if command in done:
            continue
        asks = "--apply" in command or "--to-file" in command
        text = re.sub(r"^binlogtool ([\w-]+)", r"binlogtool \1 --yes", command) if asks else command
        done[command], said = run(text, place)
        assert done[command] in (0, 1, 5, 6), f"{command}\n" + "\n".join(said)
        waiting += [one for one in printed(said) if one not in done]
    assert not waiting and len(done) - len(FIRST) >= SAMPLES[sample], done
    made = [one.name for one in place.iterdir() if one.name not in started]
    assert all(".copy" in one or ".salvaged" in one for one in made), made
