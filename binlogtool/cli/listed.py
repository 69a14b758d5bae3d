"""`--format list`: list the formats that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binlogtool.cli.run import Run


def list_formats(run: Run) -> int:
    """Print all formats, one a line."""
    from binlogtool import formats

    known = list(formats.each())
    if run.settings.choose(("text", "json")) == "json":
        return json_told(run, [{"name": f.name, "title": f.title, "members": list(f.files.patterns)} for f in known])
    with run.output(text=True, page=False) as out:
        for f in known:
            out.line(f"{f.name:<24}{f.title}")
            out.line(f"{'':<24}{' '.join(f.files.patterns)}")
    for name, why in formats.broken().items():
        run.say(f"the plug-in format {name} cannot be loaded: {why}")
    return 0


def json_told(run: Run, value: object) -> int:
    """Print a value as JSON."""
    from binlogtool.report.json import document

    with run.output(text=False) as out:
        out.write(document(value))
    return 0
