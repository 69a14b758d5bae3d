"""`--format list`: list the formats that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binlogtool.cli.run import CommandRun


def print_formats(run: CommandRun) -> int:
    """Print all formats, one a line."""
    from binlogtool import formats

    known_formats = list(formats.iter_formats())
    if run.settings.choose_output_format(("text", "json")) == "json":
        return print_json(
            run, [{"name": f.name, "title": f.title, "members": list(f.files.patterns)} for f in known_formats]
        )
    with run.open_output(text=True, page=False) as out:
        for format_ in known_formats:
            out.write_line(f"{format_.name:<24}{format_.title}")
            out.write_line(f"{'':<24}{' '.join(format_.files.patterns)}")
    for name, reason in formats.find_broken_plugins().items():
        run.say(f"the plug-in format {name} cannot be loaded: {reason}")
    return 0


def print_json(run: CommandRun, value: object) -> int:
    """Print a value as JSON."""
    from binlogtool.report.json import encode_document

    with run.open_output(text=False) as out:
        out.write(encode_document(value))
    return 0
