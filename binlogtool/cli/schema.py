"""`binlogtool schema`: the JSON Schema of an output."""

from __future__ import annotations

import click

from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError


def _schema(run: Run, name: str | None) -> int:
    from binlogtool.report.json import document
    from binlogtool.report.schemas import SCHEMAS

    if name is not None and name not in SCHEMAS:
        raise UsageError(f"there is no schema {name!r}; known: {', '.join(SCHEMAS)}")
    with run.output(text=True) as out:
        if name is not None:
            out.write(document(SCHEMAS[name]))
            return 0
        for known, schema in SCHEMAS.items():
            out.line(f"{known:<12}{schema['title']}")
    return 0


command = Command(
    "schema",
    callback=_schema,
    params=[click.Argument(["name"], required=False, shell_complete=completing.schema_names)],
    help="Print the JSON Schema of an output, or list the outputs that have one.",
    examples=(("the lines of `dump -O jsonl`", "binlogtool schema record"),),
)
