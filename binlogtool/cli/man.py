"""`binlogtool man`: show manual pages, and write them from the command tree.

Pages and `--help` share texts and options; a test compares the committed pages byte for byte.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

from binlogtool import __version__
from binlogtool.cli import options
from binlogtool.cli.click_command_tree import Command, CommandRun, build_command_group
from binlogtool.cli.command_table import COMMANDS
from binlogtool.cli.help_page import OWN_GROUP, describe_option, group_options
from binlogtool.cli.options import option
from binlogtool.errors import InputOutputError, unknown_name_error
from binlogtool.exit_status_texts import STATUSES, list_command_statuses

# --- Manual pages from the command group ---

EXIT_STATUS = tuple((code, known.meaning) for code, known in STATUSES.items())
"""(status, meaning) pairs. With several inputs the most severe status is returned: 70, 7, 5, 4, 3, 6, 1, 0."""

ENVIRONMENT = (
    ("BINLOGTOOL_OPTION, BINLOGTOOL_COMMAND_OPTION", "The value of an option, e.g. BINLOGTOOL_VERIFY_FAIL_ON=warning. "
     "--apply, --yes and --allow-discard-valid cannot be set this way."),
    ("BINLOGTOOL_CONFIG", "The configuration file."),
    ("BINLOGTOOL_PAGER, PAGER", "The pager (default: less, with LESS=FRX)."),
    ("NO_COLOR, FORCE_COLOR, TERM", "Control colour."),
    ("COLUMNS", "The width of tables."),
    ("TMPDIR", "Where temporary files go."),
    ("SOURCE_DATE_EPOCH", "If set, reports contain no times of this run."),
    ("GITHUB_STEP_SUMMARY", "Where --report github writes its summary."),
)  # fmt: skip

FILES = (
    (
        "$XDG_CONFIG_HOME/binlogtool/config.toml",
        "Defaults of options, in TOML: global options at the top, a table per command. The command line overrides "
        "the environment, and the environment overrides the file.",
    ),
)


def page_file_name(command: str | None) -> str:
    """Return the file name of a page. command: None = the page of binlogtool."""
    return "binlogtool.1" if command is None else f"binlogtool-{command}.1"


def render_page(command: str | None) -> str:
    """Return the roff source of a page."""
    group = build_command_group()
    root = click.Context(group, info_name="binlogtool")
    if command is None:
        return "\n".join(_group_page_lines(group, root)) + "\n"
    command_object = group.get_command(root, command)
    assert isinstance(command_object, Command)
    context = click.Context(command_object, info_name=command, parent=root)
    return "\n".join(_command_page_lines(command_object, context)) + "\n"


def write_pages(directory: Path) -> None:
    """Write every page into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for command in (None, *COMMANDS):
        (directory / page_file_name(command)).write_text(render_page(command), "utf-8")


def _group_page_lines(group: click.Group, context: click.Context) -> Iterator[str]:
    yield from _page_header("binlogtool", "inspect, verify and repair database binary logs and write-ahead logs")
    yield from _synopsis_section("binlogtool", "[OPTIONS] COMMAND [OPTIONS] [PATH...]")
    yield from _section_lines("DESCRIPTION", _format_paragraphs(group.help or ""))
    commands = [(f"binlogtool-{name}(1)", short) for name, (_, short) in COMMANDS.items()]
    yield from _section_lines("COMMANDS", _format_list(commands))
    yield ".SH OPTIONS"
    for title, params in group_options(group.get_params(context)).items():
        yield from _subsection_lines(title, params, context)
    yield from _common_sections([], EXIT_STATUS)


def _command_page_lines(command: Command, context: click.Context) -> Iterator[str]:
    name = command.name or ""
    yield from _page_header(
        f"binlogtool-{name}", COMMANDS[name][1].rstrip(".")[:1].lower() + COMMANDS[name][1].rstrip(".")[1:]
    )
    yield from _synopsis_section(f"binlogtool {name}", " ".join(command.collect_usage_pieces(context)))
    yield from _section_lines("DESCRIPTION", _format_paragraphs(command.help or ""))
    yield ".SH OPTIONS"
    for title, group in group_options(command.help_params).items():
        yield from _subsection_lines(title, group, context)
    yield _escape_roff("Global options: see binlogtool(1).", paragraph=True)
    yield from _section_lines("NOTES", _format_paragraphs(command.notes))
    yield from _common_sections(command.examples, list_command_statuses(name))


def _subsection_lines(title: str, group: Sequence[click.Option], context: click.Context) -> Iterator[str]:
    if title != OWN_GROUP:
        yield f".SS {title}"
    yield from _format_list([describe_option(param, context) for param in group])


def _common_sections(examples: Sequence[tuple[str, str]], statuses: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from _section_lines("EXIT STATUS", _format_list(statuses))
    yield _escape_roff(
        "With several inputs the most severe status is returned: 70, 7, 5, 4, 3, 6, 1, 0.", paragraph=True
    )
    yield from _section_lines("ENVIRONMENT", _format_list(ENVIRONMENT))
    yield from _section_lines("FILES", _format_list(FILES))
    if examples:
        yield ".SH EXAMPLES"
        for description, line in examples:
            yield from (".TP", _escape_roff(f"{description[:1].upper()}{description[1:]}:"), f".B {_escape_roff(line)}")
    yield ".SH SEE ALSO"
    yield ".BR binlogtool (1)"


def _page_header(name: str, short: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "binlogtool {__version__}" "binlogtool"'
    yield ".nh"
    yield ".SH NAME"
    yield f"{_escape_roff(name)} \\- {_escape_roff(short)}"


def _synopsis_section(name: str, rest: str) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield f"\\fB{_escape_roff(name)}\\fR {_escape_roff(rest)}"


def _section_lines(title: str, lines: Iterator[str]) -> Iterator[str]:
    body = list(lines)
    if body:
        yield f".SH {title}"
        yield from body


def _format_paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(p for p in text.strip().split("\n\n") if p.strip()):
        yield _escape_roff(" ".join(part.split()), paragraph=number > 0)


def _format_list(items: Sequence[tuple[str, str]]) -> Iterator[str]:
    for term, text in items:
        yield from (".TP", f"\\fB{_escape_roff(term)}\\fR", _escape_roff(text))


_ROFF_ESCAPES = {"\\": "\\e", "-": "\\-", "…": "...", "`": "\\(ga", "'": "\\(aq"}


def _escape_roff(text: str, *, paragraph: bool = False) -> str:
    """Return roff text in which backslashes, hyphens and leading dots are literal."""
    escaped = "".join(_ROFF_ESCAPES.get(char, char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text)
    if escaped[:1] == ".":
        escaped = f"\\&{escaped}"
    return f".PP\n{escaped}" if paragraph else escaped


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))


# --- `binlogtool man` ---


def _run_man(run: CommandRun, name: str | None, path: bool) -> int:
    from binlogtool.cli.command_table import COMMANDS

    if name is not None and name not in COMMANDS:
        raise unknown_name_error("command", name, COMMANDS)
    file = next(_find_page_files(page_file_name(name)), None)
    if path:
        if file is None:
            raise InputOutputError("the manual pages are not installed as files; `binlogtool man` can show them")
        with run.open_output(text=True, page=False) as out:
            out.write_line(str(file))
        return 0
    text = render_page(name)
    if sys.stdout is None or not sys.stdout.isatty() or shutil.which("man") is None or run.settings.output:
        with run.open_output(text=True) as out:
            out.write(text.encode("utf-8"))
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".1", encoding="utf-8") as page_file:
        page_file.write(text)
        page_file.flush()
        return subprocess.run(["man", "-l", page_file.name], check=False).returncode and 4


def _find_page_files(name: str) -> Iterator[Path]:
    """Yield existing paths of a page: from the package's file list, below the prefix, beside the source."""
    try:
        installed = [Path(str(f.locate())) for f in files("binlogtool") or () if f.name == name]
    except PackageNotFoundError:
        installed = []
    source_path = Path(__file__).resolve().parents[2] / "man" / name
    for path in (*installed, Path(sys.prefix) / "share" / "man" / "man1" / name, source_path):
        if path.is_file():
            yield path.resolve()


command = Command(
    "man",
    callback=_run_man,
    outputs=(),
    params=[
        click.Argument(["name"], required=False, metavar="[COMMAND]", shell_complete=options.complete_command_name),
        option("--path", "Print the path of the page instead.", is_common=True),
    ],
    help="Show the manual page of a command, or of binlogtool. If the output is not a terminal, print its source.",
    examples=(("one command", "binlogtool man verify"),),
)
