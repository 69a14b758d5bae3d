"""`binlogtool man`: show a manual page, wherever the package is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.options import option
from binlogtool.cli.run import CommandRun
from binlogtool.errors import InputOutputError, UsageError


def _run_man(run: CommandRun, name: str | None, path: bool) -> int:
    from binlogtool.cli.commands import COMMANDS
    from binlogtool.cli.manpages import page_file_name, render_page

    if name is not None and name not in COMMANDS:
        raise UsageError(f"there is no command {name!r}; known: {', '.join(COMMANDS)}")
    file = next(_find_page_files(page_file_name(name)), None)
    if path:
        if file is None:
            raise InputOutputError("the manual pages are not installed; `binlogtool man` shows them all the same")
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
    """Yield existing paths of the page: from the package's file list, in this prefix, beside the source."""
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
        click.Argument(["name"], required=False, metavar="[COMMAND]", shell_complete=completing.complete_command_name),
        option(["--path"], is_flag=True, help="Print where the page lies instead."),
    ],
    help="Show the manual page of a command, or of binlogtool. Away from a terminal: print its source.",
    examples=(("one command", "binlogtool man verify"),),
)
