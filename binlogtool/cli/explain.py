"""`binlogtool explain`: what a finding means."""

from __future__ import annotations

import click

from binlogtool.cli.command import Command
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError
from binlogtool.findings import EXPLANATIONS


def _explain(run: Run, ids: tuple[str, ...]) -> int:
    from binlogtool.report.text import explain_list, explain_text

    for id_ in ids:
        if id_ not in EXPLANATIONS:
            raise UsageError(f"there is no finding {id_!r}; `binlogtool explain` lists them")
    if run.settings.choose(("text", "json")) == "json":
        return _json(run, ids or tuple(EXPLANATIONS))
    with run.output(text=True) as out:
        for number, id_ in enumerate(ids):
            for line in ([""] if number else []) + list(explain_text(id_)):
                out.line(line)
        for line in explain_list() if not ids else ():
            out.line(line)
    return 0


def _json(run: Run, ids: tuple[str, ...]) -> int:
    from binlogtool.report.json import document, explanation_json

    with run.output(text=False) as out:
        out.write(document({"schema": "binlogtool/explain/1", "findings": [explanation_json(i) for i in ids]}))
    return 0


command = Command(
    "explain",
    callback=_explain,
    params=[click.Argument(["ids"], nargs=-1, metavar="[ID]...")],
    help="Say what a finding means, its usual causes, and what to do. Without ID: list all findings.",
    examples=(("one finding", "binlogtool explain checksum-mismatch"), ("all findings", "binlogtool explain")),
)
