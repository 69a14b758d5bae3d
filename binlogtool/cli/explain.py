"""`binlogtool explain`: explain a finding or an exit status."""

from __future__ import annotations

import click

from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError
from binlogtool.findings import EXPLANATIONS


def _explain(run: Run, ids: tuple[str, ...]) -> int:
    from binlogtool.report.statuses import status_of
    from binlogtool.report.text import explain_list, explain_text

    for id_ in ids:
        if id_ not in EXPLANATIONS and status_of(id_) is None:
            raise UsageError(f"there is no finding or exit status {id_!r}; `binlogtool explain` lists them")
    if run.settings.choose(FORMS) == "json":
        return _json(run, ids)
    with run.output(text=True) as out:
        width = min(100, out.columns or 100)
        for number, id_ in enumerate(ids):
            for line in ([""] if number else []) + list(explain_text(id_, width)):
                out.line(line)
        for line in explain_list() if not ids else ():
            out.line(line)
    return 0


def _json(run: Run, ids: tuple[str, ...]) -> int:
    from binlogtool.report.json import document, explanation_json, status_json
    from binlogtool.report.statuses import STATUSES, status_of

    findings = [explanation_json(id_) for id_ in ids or EXPLANATIONS if id_ in EXPLANATIONS]
    keys = [key for id_ in ids if (key := status_of(id_)) is not None] if ids else STATUSES
    value = {"schema": "binlogtool/explain/1", "findings": findings, "statuses": [status_json(key) for key in keys]}
    with run.output(text=False) as out:
        out.write(document(value))
    return 0


FORMS = ("text", "json")
command = Command(
    "explain",
    callback=_explain,
    outputs=FORMS,
    params=[click.Argument(["ids"], nargs=-1, metavar="[ID]...", shell_complete=completing.explained)],
    help="Say what a finding or an exit status means, its usual causes, and what to do. Without ID: list them all.",
    examples=(
        ("one finding", "binlogtool explain checksum-mismatch"),
        ("an exit status", "binlogtool explain 5"),
        ("all of them", "binlogtool explain"),
    ),
)
