"""`binlogtool schema`: print the JSON Schema of an output."""

from __future__ import annotations

import click

from binlogtool.cli import options
from binlogtool.cli.command import Command, CommandRun
from binlogtool.errors import unknown_name_error


def _run_schema(run: CommandRun, name: str | None) -> int:
    from binlogtool.core.json_text import encode_document
    from binlogtool.report.json_schema import SCHEMAS

    if name is not None and name not in SCHEMAS:
        raise unknown_name_error("schema", name, SCHEMAS)
    with run.open_output(text=True) as out:
        if name is not None:
            out.write(encode_document(SCHEMAS[name]))
            return 0
        for schema_name, schema in SCHEMAS.items():
            out.write_line(f"{schema_name:<12}{schema['title']}")
    return 0


command = Command(
    "schema",
    callback=_run_schema,
    params=[click.Argument(["name"], required=False, shell_complete=options.complete_schema_name)],
    help="Print the JSON Schema of an output, or list the outputs that have one.",
    examples=(("the lines of `dump -O jsonl`", "binlogtool schema record"),),
)
