"""`binlogtool explain`, `formats`, `schema` and `help`: what findings, formats, JSON outputs and commands mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import click

from binlogtool.cli import options
from binlogtool.cli.click_command_tree import Command, CommandRun, print_help
from binlogtool.cli.command_table import COMMANDS
from binlogtool.cli.options import print_formats, print_json
from binlogtool.errors import UsageError, format_name_suggestions, unknown_name_error
from binlogtool.exit_status_texts import STATUSES, StatusExplanation, find_status_key
from binlogtool.findings import EXPLANATIONS, Explanation
from binlogtool.terminal.escape_and_fold_text import escape

if TYPE_CHECKING:
    from binlogtool.format_api.format import Format

# --- `binlogtool explain` ---


def _run_explain(run: CommandRun, ids: tuple[str, ...]) -> int:
    for id_ in ids:
        if id_ not in EXPLANATIONS and find_status_key(id_) is None:
            suggestion = format_name_suggestions(id_, EXPLANATIONS) or "; `binlogtool explain` lists them"
            raise UsageError(f"there is no finding or exit status {id_!r}{suggestion}")
    if run.settings.choose_output_format(_EXPLAIN_FORMS) == "json":
        return _write_explanations_json(run, ids)
    with run.open_output(text=True) as out:
        width = min(100, out.columns or 100)
        for number, id_ in enumerate(ids):
            for line in ([""] if number else []) + list(render_explanation(id_, width)):
                out.write_line(line)
        for line in render_explanation_list() if not ids else ():
            out.write_line(line)
    return 0


def _write_explanations_json(run: CommandRun, ids: tuple[str, ...]) -> int:
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import explanation_to_json, status_to_json

    findings = [explanation_to_json(id_) for id_ in ids or EXPLANATIONS if id_ in EXPLANATIONS]
    keys = [key for id_ in ids if (key := find_status_key(id_)) is not None] if ids else STATUSES
    value = {"schema": "binlogtool/explain/1", "findings": findings, "statuses": [status_to_json(key) for key in keys]}
    with run.open_output(text=False) as out:
        out.write(encode_document(value))
    return 0


_EXPLAIN_FORMS = ("text", "json")
explain_command = Command(
    "explain",
    callback=_run_explain,
    outputs=_EXPLAIN_FORMS,
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


# --- `binlogtool formats` ---


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


formats_command = Command(
    "formats",
    callback=_run_formats,
    params=[click.Argument(["name"], required=False, shell_complete=options.complete_format_name)],
    help="List the log formats, or describe one: layout, record types, what is checked, references.",
    examples=(("what can be read", "binlogtool formats"), ("one format", "binlogtool formats tarantool")),
)


# --- `binlogtool schema` ---


def _run_schema(run: CommandRun, name: str | None) -> int:
    from binlogtool.format_api.encode_json import encode_document
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


schema_command = Command(
    "schema",
    callback=_run_schema,
    params=[click.Argument(["name"], required=False, shell_complete=options.complete_schema_name)],
    help="Print the JSON Schema of an output, or list the outputs that have one.",
    examples=(("the lines of `dump -O jsonl`", "binlogtool schema record"),),
)


# --- `binlogtool help` ---


def _run_help(run: CommandRun, name: str | None) -> int:
    context = click.get_current_context()
    group = context.find_root()
    if name is None:
        print_help(group, is_full=True)
        return 0
    if name not in COMMANDS:
        raise unknown_name_error("command", name, COMMANDS)
    assert isinstance(group.command, click.Group)
    command = group.command.get_command(group, name)
    assert command is not None
    print_help(click.Context(command, info_name=name, parent=group, obj=run), is_full=True)
    return 0


help_command = Command(
    "help",
    callback=_run_help,
    outputs=(),
    params=[
        click.Argument(["name"], required=False, metavar="[COMMAND]", shell_complete=options.complete_command_name)
    ],
    help="Show the help of a command, or of binlogtool, with the global options.",
    examples=(("one command", "binlogtool help verify"),),
)
