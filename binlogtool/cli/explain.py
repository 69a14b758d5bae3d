"""`binlogtool explain`: explain a finding or an exit status."""

from __future__ import annotations

import click

from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.run import CommandRun
from binlogtool.errors import UsageError
from binlogtool.findings import EXPLANATIONS


def _run_explain(run: CommandRun, ids: tuple[str, ...]) -> int:
    from binlogtool.report.statuses import find_status_key
    from binlogtool.report.text import render_explanation, render_explanation_list

    for id_ in ids:
        if id_ not in EXPLANATIONS and find_status_key(id_) is None:
            raise UsageError(f"there is no finding or exit status {id_!r}; `binlogtool explain` lists them")
    if run.settings.choose_output_format(FORMS) == "json":
        return _write_json(run, ids)
    with run.open_output(text=True) as out:
        width = min(100, out.columns or 100)
        for number, id_ in enumerate(ids):
            for line in ([""] if number else []) + list(render_explanation(id_, width)):
                out.write_line(line)
        for line in render_explanation_list() if not ids else ():
            out.write_line(line)
    return 0


def _write_json(run: CommandRun, ids: tuple[str, ...]) -> int:
    from binlogtool.report.json import encode_document, explanation_to_json, status_to_json
    from binlogtool.report.statuses import STATUSES, find_status_key

    findings = [explanation_to_json(id_) for id_ in ids or EXPLANATIONS if id_ in EXPLANATIONS]
    keys = [key for id_ in ids if (key := find_status_key(id_)) is not None] if ids else STATUSES
    value = {"schema": "binlogtool/explain/1", "findings": findings, "statuses": [status_to_json(key) for key in keys]}
    with run.open_output(text=False) as out:
        out.write(encode_document(value))
    return 0


FORMS = ("text", "json")
command = Command(
    "explain",
    callback=_run_explain,
    outputs=FORMS,
    params=[click.Argument(["ids"], nargs=-1, metavar="[ID]...", shell_complete=completing.complete_explain_id)],
    help="Say what a finding or an exit status means, its usual causes, and what to do. Without ID: list them all.",
    examples=(
        ("one finding", "binlogtool explain checksum-mismatch"),
        ("an exit status", "binlogtool explain 5"),
        ("all of them", "binlogtool explain"),
    ),
)
