"""`binlogtool explain`: explain a finding or an exit status."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

import click

from binlogtool.cli import options
from binlogtool.cli.command import Command, CommandRun
from binlogtool.errors import UsageError, suggest_names
from binlogtool.exit_status import STATUSES, StatusExplanation, find_status_key
from binlogtool.findings import EXPLANATIONS, Explanation


def _run_explain(run: CommandRun, ids: tuple[str, ...]) -> int:
    from binlogtool.exit_status import find_status_key

    for id_ in ids:
        if id_ not in EXPLANATIONS and find_status_key(id_) is None:
            suggestion = suggest_names(id_, EXPLANATIONS) or "; `binlogtool explain` lists them"
            raise UsageError(f"there is no finding or exit status {id_!r}{suggestion}")
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
    from binlogtool.core.json_text import encode_document
    from binlogtool.exit_status import STATUSES, find_status_key
    from binlogtool.report.verify_and_plan_text import explanation_to_json, status_to_json

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
    params=[click.Argument(["ids"], nargs=-1, metavar="[ID]...", shell_complete=options.complete_explain_id)],
    help="Explain a finding or an exit status, its usual causes, and what to do. Without ID: list all.",
    examples=(
        ("one finding", "binlogtool explain checksum-mismatch"),
        ("an exit status", "binlogtool explain 5"),
        ("all of them", "binlogtool explain"),
    ),
)


def render_explanation(id_: str, width: int = 100) -> Iterator[str]:
    """Yield the lines about one finding id or exit status."""
    explanation: Explanation | StatusExplanation
    if (key := find_status_key(id_)) is not None:
        explanation, title = STATUSES[key], f"exit status {id_}"
    else:
        explanation = EXPLANATIONS[id_]
        title = f"{id_}  (default severity: {explanation.severity.label})"
    yield title
    for title, text in (
        ("meaning", explanation.meaning),
        ("causes", explanation.causes),
        ("what to do", explanation.action),
    ):
        yield ""
        yield title
        yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def render_explanation_list() -> Iterator[str]:
    """Yield all finding ids, the most serious first, and the exit statuses."""
    ordered = sorted(EXPLANATIONS.items(), key=lambda item: -item[1].severity)
    for severity, group in groupby(ordered, key=lambda item: item[1].severity):
        yield f"{severity.label}:"
        for id_, explanation in group:
            yield f"  {id_:<24}{explanation.meaning}"
    yield "exit statuses:"
    for code, status in STATUSES.items():
        yield f"  {code:<24}{status.meaning}"
