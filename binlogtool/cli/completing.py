"""Shell completion of option and argument values (click's `shell_complete`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from binlogtool.formats.base import Format

_SEVERITY_LEVELS = ("note", "warning", "error")
_LAST_WORD = re.compile(r"(.*?)([\w.`@]*)", re.DOTALL)
"""Splits an expression into its beginning and its last word."""


def complete_format_option(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--format`."""
    from binlogtool import formats

    return _filter_by_prefix(("auto", "list", *formats.list_names()), incomplete)


def complete_format_name(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `formats`."""
    from binlogtool import formats

    return _filter_by_prefix(formats.list_names(), incomplete)


def complete_output_format(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--output-format` with the outputs of the command."""
    return _filter_by_prefix(getattr(ctx.command, "outputs", ()), incomplete)


def complete_record_type(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--type` with the record types of the format or log on the line, otherwise of all formats."""
    return _filter_by_prefix(
        ["list", *sorted({name for one in _candidate_formats(ctx) for name in one.output.types.values()})], incomplete
    )


def complete_condition(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last word of a `--where` expression.

    After `before.`, `after.` and `body.`, names are taken from the log on the line.
    """
    from binlogtool.log.where_grammar import BODY_MEMBERS, MEMBERS

    before, word = _LAST_WORD.fullmatch(incomplete).groups()  # type: ignore[union-attr]  # it fits every text
    if before.count("'") % 2 or "`" in word:
        return []
    inside, dot, _ = word.partition(".")
    if dot:
        return [
            f"{before}{inside}.{name}"
            for name in _filter_by_prefix(_find_names_in_log(ctx, inside), word.partition(".")[2])
        ]
    return [before + name for name in _filter_by_prefix((*MEMBERS, *(f"{one}." for one in BODY_MEMBERS)), word)]


def complete_finding_id(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--ignore`."""
    from binlogtool.findings import EXPLANATIONS

    return _filter_by_prefix(EXPLANATIONS, incomplete)


def complete_severity(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--severity ID=LEVEL`: the id, then the level."""
    from binlogtool.findings import EXPLANATIONS

    id_, equals, _ = incomplete.partition("=")
    return _filter_by_prefix(
        [f"{id_}={level}" for level in _SEVERITY_LEVELS] if equals else [f"{one}=" for one in EXPLANATIONS], incomplete
    )


def complete_explain_id(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the arguments of `explain`: findings and exit statuses."""
    from binlogtool.findings import EXPLANATIONS
    from binlogtool.report.statuses import STATUSES

    return _filter_by_prefix([*EXPLANATIONS, *(code for key in STATUSES for code in key.split(", "))], incomplete)


def complete_report(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `--report KIND=FILE`: the kind, then a file."""
    from click.shell_completion import CompletionItem

    if "=" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one)
        for one in _filter_by_prefix(
            ("junit=", "sarif=", "gitlab=", "json=", "markdown=", "html=", "github"), incomplete
        )
    ]


def complete_schema_name(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `schema`."""
    from binlogtool.report.schemas import SCHEMAS

    return _filter_by_prefix(SCHEMAS, incomplete)


def complete_command_name(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `man`."""
    from binlogtool.cli.commands import COMMANDS

    return _filter_by_prefix(COMMANDS, incomplete)


def _find_names_in_log(ctx: click.Context, inside: str) -> list[str]:
    """Return names of body members or columns in the first records of the log on the line.

    Only plain names: others would need quoting in the shell.
    """
    import binlogtool
    from binlogtool.errors import BinlogtoolError

    names: set[str] = set()
    try:
        for path in _files_on_command_line(ctx)[:1]:
            with binlogtool.open(path) as log:
                for record in islice(log.records(), _MAX_SCANNED_RECORDS):
                    names.update(_body_keys(record.body, inside))
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return sorted(name for name in names if _PLAIN_NAME.fullmatch(name))


def _body_keys(body: Any, inside: str) -> Iterator[str]:
    """Yield the members of a body, or of one image of its rows."""
    rows = body.get("rows") if isinstance(body, dict) else None
    images = [body]
    if inside != "body":
        images = [row.get(inside) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for image in images:
        if isinstance(image, dict):
            yield from image


_MAX_SCANNED_RECORDS = 2000
"""Number of records that are searched for names, as the user waits for the completion."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _files_on_command_line(ctx: click.Context) -> list[str]:
    words = (*(ctx.params.get("paths") or ()), *ctx.args)  # ctx.args has them while an option still lacks its value
    return [word for word in words if os.path.isfile(word)]


def _filter_by_prefix(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _candidate_formats(ctx: click.Context) -> list[Format]:
    """Return the format given by `--format` or the first path; all formats if neither determines it."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.errors import BinlogtoolError

    format_name = next(
        (c.params["format"] for c in (ctx, ctx.parent) if c is not None and c.params.get("format")), None
    )
    if format_name in formats.list_names():
        return [formats.load_format(format_name)]
    paths = _files_on_command_line(ctx)
    try:
        if paths:
            with binlogtool.open(paths[0]) as log:
                return [log.files[0].format]
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return list(formats.iter_formats())
