"""Write the reference pages from the program: `python -m docs.reference_pages [FOLDER]`; the site build runs it.

Formats (their help.md), findings and exit statuses (`explain`), commands (their help), the JSON Schema of each output.
Default folder: docs/reference, which git ignores.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import click

from binlogtool.cli.click_command_tree import Command, build_command_group
from binlogtool.cli.command_table import COMMANDS
from binlogtool.cli.help_page import OWN_GROUP, describe_option, fold_command, group_options
from binlogtool.exit_status_texts import STATUSES
from binlogtool.findings import EXPLANATIONS, Severity
from binlogtool.format_api.encode_json import encode_document
from binlogtool.formats import list_names, read_help_page
from binlogtool.report.json_schema import SCHEMAS


def make_pages() -> dict[str, str]:
    """Return the Markdown of each page by its path below the folder."""
    pages = {"findings.md": _findings(), "statuses.md": _statuses()}
    pages |= _command_pages() | {"outputs.md": _listed("JSON outputs", "outputs", SCHEMAS)}
    pages |= {f"outputs/{name}.md": _output(name) for name in SCHEMAS}
    pages["formats.md"] = _listed("Formats", "formats", list_names())
    for name in list_names():
        text = read_help_page(name)
        if text is not None:
            pages[f"formats/{name}.md"] = text
    return pages


def write_pages(folder: Path) -> None:
    """Write all pages; what was in the folder before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in make_pages().items():
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


def _command_pages() -> dict[str, str]:
    """Return the page of the global options, and one page for each command, with a heading for each option."""
    group = build_command_group()
    root = click.Context(group, info_name="binlogtool")
    pages = {"commands.md": _lines(_commands_page(group, root))}
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert isinstance(command, Command)
        pages[f"commands/{name}.md"] = _lines(
            _command_page(command, click.Context(command, info_name=name, parent=root))
        )
    return pages


def _commands_page(group: click.Group, context: click.Context) -> Iterator[str]:
    yield from ("# Commands and global options", "", group.help or "")
    yield from ("| command | what it does |", "|---|---|")
    yield from (f"| [{name}](commands/{name}.md) | {short} |" for name, (_, short) in COMMANDS.items())
    yield ""
    yield from _options(group.get_params(context), context)
    yield from ("```{toctree}", ":hidden:", "", *(f"commands/{name}" for name in COMMANDS), "```")


def _command_page(command: Command, context: click.Context) -> Iterator[str]:
    name = command.name or ""
    yield from (f"# {name}", "")
    yield from _shell_block([f"binlogtool {name} {' '.join(command.collect_usage_pieces(context))}"])
    yield from _paragraphs(command.help)
    if command.examples:
        yield from ("## Examples", "")
        for sentence, command_lines in command.examples:
            yield from (f"{sentence[:1].upper()}{sentence[1:]}:", "")
            yield from _shell_block(command_lines.splitlines())
    yield from _options(command.help_params, context)
    if command.outputs:
        yield from ("## Output formats", "", f"`-O`: {', '.join(command.outputs)}. Default: {command.outputs[0]}.", "")
    if command.notes:
        yield from ("## Notes", "", *_paragraphs(command.notes))
    yield "[Global options](../commands.md), [exit statuses](../statuses.md)"


def _options(params: Iterable[click.Parameter], context: click.Context) -> Iterator[str]:
    """Yield the options by their groups. The anchor of an option is its long name: `verify.md#--depth`."""
    for title, options in group_options(params).items():
        yield from (f"## {title if title == OWN_GROUP else f'{title} options'}", "")
        for param in options:
            term, text = describe_option(param, context)
            yield from (f"### {long_name(param)}", "", f"`{term}`", "", _escape_markdown(text), "")


def long_name(param: click.Option) -> str:
    """Return the name of an option that its anchor has."""
    return max(param.opts, key=len)


@cache
def _option_anchors() -> dict[str, dict[str, str]]:
    """Return, for each command and for "" (global options), the names of its options with their anchors."""
    group = build_command_group()
    root = click.Context(group, info_name="binlogtool")
    params: dict[str, Iterable[click.Parameter]] = {"": group.get_params(root)}
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert isinstance(command, Command)
        params[name] = command.help_params
    return {
        name: {
            word: long_name(option).strip("-")
            for options in group_options(own).values()
            for option in options
            for word in (*option.opts, *option.secondary_opts)
        }
        for name, own in params.items()
    }


def find_command_page(text: str) -> tuple[str, str] | None:
    """Return the page and the anchor ("" = its beginning) that describe a command or option written as code.

    An option without its command is that of the first command that has it.
    """
    words = text.split()
    words = words[1:] if words[:1] == ["binlogtool"] else words
    command = words[0] if words and words[0] in COMMANDS else ""
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    if not words or (not command and words[:1] != options[:1]):
        return None
    anchors = _option_anchors()
    for name in (command,) if command else ("", *COMMANDS):
        if len(options) == 1 and options[0] in anchors[name]:
            return f"reference/commands/{name}" if name else "reference/commands", anchors[name][options[0]]
    return (f"reference/commands/{command}", "") if command else None


def _shell_block(lines: Iterable[str]) -> Iterator[str]:
    yield "```sh"
    for line in lines:
        yield from fold_command(line, 100, "")
    yield from ("```", "")


def _paragraphs(text: str | None) -> Iterator[str]:
    for paragraph in (text or "").strip().split("\n\n"):
        yield from (_escape_markdown(" ".join(paragraph.split())), "")


def _escape_markdown(text: str) -> str:
    """Escape what Markdown would take for emphasis, links or HTML, outside of code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _output(name: str) -> str:
    title = str(SCHEMAS[name]["title"])
    head = (f"# {name}: {title}", "", f"`binlogtool schema {name}` prints this JSON Schema. Members may be added,")
    return _lines(
        (*head, "never changed or removed.", "", "```json", encode_document(SCHEMAS[name]).decode().rstrip(), "```")
    )


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "reference")
