"""Pages that are made of what the program knows: `python -m docs.made [FOLDER]`; the site does it when it is built.

Formats (their help.md), findings and exit statuses (`explain`), commands (`--help`), the JSON Schema of each output.
Default: docs/made, which no commit holds.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from binlogtool.cli.command import Command, build_command_group
from binlogtool.cli.command_table import COMMANDS
from binlogtool.core.json_text import encode_document
from binlogtool.exit_status import STATUSES
from binlogtool.findings import EXPLANATIONS, Severity
from binlogtool.formats import list_names, read_help_page
from binlogtool.report.json_schema import SCHEMAS


def pages() -> dict[str, str]:
    """Path below the folder -> its Markdown."""
    made = {"findings.md": _findings(), "statuses.md": _statuses()}
    made |= {"commands.md": _commands(), "outputs.md": _listed("JSON outputs", "outputs", SCHEMAS)}
    made |= {f"outputs/{name}.md": _output(name) for name in SCHEMAS}
    made["formats.md"] = _listed("Formats", "formats", list_names())
    for name in list_names():
        text = read_help_page(name)
        if text is not None:
            made[f"formats/{name}.md"] = text
    return made


def write(folder: Path) -> None:
    """Makes the pages anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _lines(*parts: Iterator[str] | tuple[str, ...]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"


def _listed(title: str, folder: str, members: object) -> str:
    assert isinstance(members, (dict, tuple, list))
    tree = ("```{toctree}", ":maxdepth: 1", "", *(f"{folder}/{name}" for name in members), "```")
    return _lines((f"# {title}", ""), tree)


def _findings() -> str:
    def rows() -> Iterator[str]:
        for severity in sorted(Severity, reverse=True):
            yield from (f"## Severity by default: {severity.label}", "")
            for id_, known in EXPLANATIONS.items():
                if known.severity is severity:
                    yield from (f"### {id_}", "", known.meaning, "", f"Causes: {known.causes}", "")
                    yield from (f"What to do: {known.action}", "")

    head = ("# Findings", "", "`binlogtool explain ID` prints the same. `--severity ID=LEVEL` changes a severity,")
    return _lines((*head, "`--ignore ID` leaves a finding out.", ""), rows())


def _statuses() -> str:
    def rows() -> Iterator[str]:
        for code, known in STATUSES.items():
            yield from (f"## {code}", "", known.meaning, "", f"Causes: {known.causes}", "")
            yield from (f"What to do: {known.action}", "")

    head = ("# Exit statuses", "", "Over several inputs the most severe wins: 70, 7, 5, 4, 3, 6, 1, 0. Treat any other")
    return _lines((*head, "status as a failure. `binlogtool explain STATUS` prints the same.", ""), rows())


def _commands() -> str:
    group = build_command_group()
    root = click.Context(group, info_name="binlogtool", terminal_width=100)

    def helps() -> Iterator[str]:
        yield from ("## binlogtool: commands and global options", "", "```text", group.get_help(root), "```", "")
        for name in COMMANDS:
            command = group.get_command(root, name)
            assert isinstance(command, Command)
            context = click.Context(command, info_name=name, parent=root, terminal_width=100)
            yield from (f"## {name}", "", "```text", command.get_help(context))
            for paragraph in command.notes.split("\n\n") if command.notes else ():
                yield from ("", textwrap.fill(" ".join(paragraph.split()), 100))
            yield from ("```", "")

    return _lines(("# Commands", ""), helps())


def _output(name: str) -> str:
    title = str(SCHEMAS[name]["title"])
    head = (f"# {name}: {title}", "", f"`binlogtool schema {name}` prints this JSON Schema. Members may be added,")
    return _lines(
        (*head, "never changed or removed.", "", "```json", encode_document(SCHEMAS[name]).decode().rstrip(), "```")
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "made")
