"""`binlogtool formats`: list the log formats, or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from binlogtool.cli import options
from binlogtool.cli.command import Command, CommandRun
from binlogtool.cli.options import print_formats, print_json
from binlogtool.errors import unknown_name_error
from binlogtool.terminal.escape import escape

if TYPE_CHECKING:
    from binlogtool.format_api.format import Format


_PLUGIN_NOTICE = "A plug-in: only built-in formats have native code, so its kernels run as Python."


def _run_formats(run: CommandRun, name: str | None) -> int:
    from binlogtool import formats

    if name is None:
        return print_formats(run)
    if name not in formats.list_names():
        raise unknown_name_error("format", name, formats.list_names())
    format_ = formats.load_format(name)
    if run.settings.choose_output_format(("text", "json")) == "json":
        return print_json(run, _format_to_dict(format_))
    with run.open_output(text=True) as out:
        out.write_line(format_page(format_))
    return 0


def format_page(format_: Format) -> str:
    """Return the description of a format: its help.md, record types and references."""
    from binlogtool import formats

    page = formats.read_help_page(format_.name)
    head = f"# {format_.name}: {format_.title}" if page is None else page.rstrip()
    types = "\n".join(f"  {code:>6}  {escape(name)}" for code, name in sorted(format_.output.types.items()))
    references = "\n".join(f"  {text}" for text in format_.references)
    parts = [
        head,
        _PLUGIN_NOTICE if formats.is_plugin(format_.name) else "",
        f"Record types\n\n{types}" if types else "",
        f"References\n\n{references}" if references else "",
    ]
    return "\n\n".join(p for p in parts if p)


def _format_to_dict(format_: Format) -> dict[str, object]:
    return {
        "schema": "binlogtool/format/1",
        "name": format_.name,
        "title": format_.title,
        "members": list(format_.files.patterns),
        "types": [{"code": code, "name": name} for code, name in sorted(format_.output.types.items())],
        "schemas": sorted(format_.reading.schemas),
        "references": list(format_.references),
    }


command = Command(
    "formats",
    callback=_run_formats,
    params=[click.Argument(["name"], required=False, shell_complete=options.complete_format_name)],
    help="List the log formats, or describe one: layout, record types, what is checked, references.",
    examples=(("what can be read", "binlogtool formats"), ("one format", "binlogtool formats tarantool")),
)
