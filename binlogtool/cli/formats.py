"""`binlogtool formats`: list the log formats, or describe one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.listed import json_told, list_formats
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError
from binlogtool.render.escape import escape

if TYPE_CHECKING:
    from binlogtool.formats.base import Format

_PLUGGED = "A plug-in: native code is made for built-in formats only, so its kernels run as Python."


def _formats(run: Run, name: str | None) -> int:
    from binlogtool import formats

    if name is None:
        return list_formats(run)
    if name not in formats.names():
        raise UsageError(f"there is no format {name!r}; known: {', '.join(formats.names())}")
    described = formats.get(name)
    if run.settings.choose(("text", "json")) == "json":
        return json_told(run, _description(described))
    with run.output(text=True) as out:
        out.line(help_text(described))
    return 0


def help_text(described: Format) -> str:
    """Return the description of a format: its help.md, record types and references."""
    from binlogtool import formats

    page = formats.page(described.name)
    head = f"# {described.name}: {described.title}" if page is None else page.rstrip()
    types = "\n".join(f"  {code:>6}  {escape(name)}" for code, name in sorted(described.output.types.items()))
    references = "\n".join(f"  {text}" for text in described.references)
    parts = [
        head,
        _PLUGGED if formats.plugged(described.name) else "",
        f"Record types\n\n{types}" if types else "",
        f"References\n\n{references}" if references else "",
    ]
    return "\n\n".join(p for p in parts if p)


def _description(described: Format) -> dict[str, object]:
    return {
        "schema": "binlogtool/format/1",
        "name": described.name,
        "title": described.title,
        "members": list(described.files.patterns),
        "types": [{"code": code, "name": name} for code, name in sorted(described.output.types.items())],
        "schemas": sorted(described.reading.schemas),
        "references": list(described.references),
    }


command = Command(
    "formats",
    callback=_formats,
    params=[click.Argument(["name"], required=False, shell_complete=completing.known_formats)],
    help="List the log formats, or describe one: layout, record types, what is checked, references.",
    examples=(("what can be read", "binlogtool formats"), ("one format", "binlogtool formats tarantool")),
)
