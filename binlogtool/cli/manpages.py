"""Manual pages from the command group: `python -m binlogtool.cli.manpages man/` writes them all.

They have the same help texts and options; a test compares the committed pages byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from binlogtool import __version__
from binlogtool.cli.app import build
from binlogtool.cli.command_classes import Command
from binlogtool.cli.commands import COMMANDS
from binlogtool.cli.options import GLOBAL_NAMES
from binlogtool.report.statuses import STATUSES

EXIT_STATUS = tuple((code, known.meaning) for code, known in STATUSES.items())
"""With several inputs the most severe status is returned: 70, 7, 5, 4, 3, 6, 1, 0."""

ENVIRONMENT = (
    ("BINLOGTOOL_OPTION, BINLOGTOOL_COMMAND_OPTION", "The value of an option, e.g. BINLOGTOOL_VERIFY_FAIL_ON=warning. "
     "--apply, --yes and --allow-discard-valid cannot be set so."),
    ("BINLOGTOOL_CONFIG", "The configuration file."),
    ("BINLOGTOOL_PAGER, PAGER", "The pager (default: less, with LESS=FRX)."),
    ("NO_COLOR, FORCE_COLOR, TERM", "Whether there is colour."),
    ("COLUMNS", "The width of tables."),
    ("TMPDIR", "Where temporary files go."),
    ("BINLOGTOOL_JAVA_CACHE", "A folder of this user: what Java learns in a job of Spark's on this machine is kept "
     "there, and makes the next ones quicker."),
    ("SOURCE_DATE_EPOCH", "If set, reports hold no times of this run."),
    ("GITHUB_STEP_SUMMARY", "Where --report github writes its summary."),
)  # fmt: skip

FILES = (
    (
        "$XDG_CONFIG_HOME/binlogtool/config.toml",
        "Defaults of options, in TOML: global options at the top, a table per command. The command line comes before "
        "the environment, the environment before the file.",
    ),
)


def page_name(command: str | None) -> str:
    """Return the file name of a page. command: None = the page of binlogtool."""
    return "binlogtool.1" if command is None else f"binlogtool-{command}.1"


def page(command: str | None) -> str:
    """Return the roff source of a page."""
    group = build()
    root = click.Context(group, info_name="binlogtool", help_option_names=["-h", "--help"])
    if command is None:
        return "\n".join(_group_page(group, root)) + "\n"
    found = group.get_command(root, command)
    assert isinstance(found, Command)
    context = click.Context(found, info_name=command, parent=root)
    return "\n".join(_command_page(found, context)) + "\n"


def write_all(directory: Path) -> None:
    """Write every page into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for command in (None, *COMMANDS):
        (directory / page_name(command)).write_text(page(command), "utf-8")


def _group_page(group: click.Group, context: click.Context) -> Iterator[str]:
    yield from _head("binlogtool", "inspect, verify and repair database binary logs and write-ahead logs")
    yield from _synopsis("binlogtool", "[OPTIONS] COMMAND [OPTIONS] [PATH...]")
    yield from _section("DESCRIPTION", _paragraphs(group.help or ""))
    commands = [(f"binlogtool-{name}(1)", short) for name, (_, short) in COMMANDS.items()]
    yield from _section("COMMANDS", _list(commands))
    yield from _section("OPTIONS", _options([*group.params, group.get_help_option(context)], context))
    yield from _tail([])


def _command_page(command: Command, context: click.Context) -> Iterator[str]:
    name = command.name or ""
    yield from _head(
        f"binlogtool-{name}", COMMANDS[name][1].rstrip(".")[:1].lower() + COMMANDS[name][1].rstrip(".")[1:]
    )
    yield from _synopsis(f"binlogtool {name}", " ".join(command.collect_usage_pieces(context)))
    yield from _section("DESCRIPTION", _paragraphs(command.help or ""))
    options = [*command.own_params, command.get_help_option(context)]
    yield from _section("OPTIONS", _options(options, context))
    globals_ = [p for p in command.params if p.name in GLOBAL_NAMES]
    yield from _section("GLOBAL OPTIONS", _options(globals_, context))
    yield from _tail(command.examples)


def _tail(examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from _section("EXIT STATUS", _list(EXIT_STATUS))
    yield _text("With several inputs the most severe status is returned: 70, 7, 5, 4, 3, 6, 1, 0.", paragraph=True)
    yield from _section("ENVIRONMENT", _list(ENVIRONMENT))
    yield from _section("FILES", _list(FILES))
    if examples:
        yield ".SH EXAMPLES"
        for what, line in examples:
            yield from (".TP", _text(f"{what[:1].upper()}{what[1:]}:"), f".B {_text(line)}")
    yield ".SH SEE ALSO"
    yield ".BR binlogtool (1)"


def _head(name: str, short: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "binlogtool {__version__}" "binlogtool"'
    yield ".nh"
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_text(short)}"


def _synopsis(name: str, rest: str) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield f"\\fB{_text(name)}\\fR {_text(rest)}"


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    body = list(lines)
    if body:
        yield f".SH {title}"
        yield from body


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(p for p in text.strip().split("\n\n") if p.strip()):
        yield _text(" ".join(part.split()), paragraph=number > 0)


def _options(params: Sequence[click.Parameter | None], context: click.Context) -> Iterator[str]:
    records = [p.get_help_record(context) for p in params if isinstance(p, click.Option)]
    yield from _list([(names, text) for names, text in filter(None, records)])


def _list(items: Sequence[tuple[str, str]]) -> Iterator[str]:
    for term, text in items:
        yield from (".TP", f"\\fB{_text(term)}\\fR", _text(text))


_ROFF = {"\\": "\\e", "-": "\\-", "…": "...", "`": "\\(ga", "'": "\\(aq"}


def _text(text: str, *, paragraph: bool = False) -> str:
    """Return roff text in which backslashes, hyphens and leading dots are literal."""
    shown = "".join(_ROFF.get(char, char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text)
    if shown[:1] == ".":
        shown = f"\\&{shown}"
    return f".PP\n{shown}" if paragraph else shown


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
