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

_LEVELS = ("note", "warning", "error")
_PATH = re.compile(r"(.*?)([\w.`@]*)", re.DOTALL)
"""Splits an expression into its beginning and its last word."""


def format_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--format`."""
    from binlogtool import formats

    return _begun(("auto", "list", *formats.names()), incomplete)


def known_formats(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `formats`."""
    from binlogtool import formats

    return _begun(formats.names(), incomplete)


def output_formats(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--output-format` with the outputs of the command."""
    return _begun(getattr(ctx.command, "outputs", ()), incomplete)


def type_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--type` with the record types of the format or log on the line, otherwise of all formats."""
    return _begun(
        ["list", *sorted({name for one in _named_formats(ctx) for name in one.output.types.values()})], incomplete
    )


def conditions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last word of a `--where` expression.

    After `before.`, `after.` and `body.`, names are taken from the log on the line.
    """
    from binlogtool.log.where_grammar import INSIDE, MEMBERS

    before, word = _PATH.fullmatch(incomplete).groups()  # type: ignore[union-attr]  # it fits every text
    if before.count("'") % 2 or "`" in word:
        return []
    inside, dot, _ = word.partition(".")
    if dot:
        return [f"{before}{inside}.{name}" for name in _begun(_names_in(ctx, inside), word.partition(".")[2])]
    return [before + name for name in _begun((*MEMBERS, *(f"{one}." for one in INSIDE)), word)]


def finding_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--ignore`."""
    from binlogtool.findings import EXPLANATIONS

    return _begun(EXPLANATIONS, incomplete)


def severities(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete `--severity ID=LEVEL`: the id, then the level."""
    from binlogtool.findings import EXPLANATIONS

    id_, equals, _ = incomplete.partition("=")
    return _begun(
        [f"{id_}={level}" for level in _LEVELS] if equals else [f"{one}=" for one in EXPLANATIONS], incomplete
    )


def explained(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the arguments of `explain`: findings and exit statuses."""
    from binlogtool.findings import EXPLANATIONS
    from binlogtool.report.statuses import STATUSES

    return _begun([*EXPLANATIONS, *(code for key in STATUSES for code in key.split(", "))], incomplete)


def report_kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `--report KIND=FILE`: the kind, then a file."""
    from click.shell_completion import CompletionItem

    if "=" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one)
        for one in _begun(("junit=", "sarif=", "gitlab=", "json=", "markdown=", "html=", "github"), incomplete)
    ]


def schema_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `schema`."""
    from binlogtool.report.schemas import SCHEMAS

    return _begun(SCHEMAS, incomplete)


def command_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the argument of `man`."""
    from binlogtool.cli.commands import COMMANDS

    return _begun(COMMANDS, incomplete)


def _names_in(ctx: click.Context, inside: str) -> list[str]:
    """Return names of body members or columns in the first records of the log on the line.

    Only plain names: others would need quoting in the shell.
    """
    import binlogtool
    from binlogtool.errors import BinlogtoolError

    found: set[str] = set()
    try:
        for path in _files_on_the_line(ctx)[:1]:
            with binlogtool.open(path) as log:
                for record in islice(log.records(), _FIRST):
                    found.update(_keys(record.body, inside))
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return sorted(name for name in found if _PLAIN.fullmatch(name))


def _keys(body: Any, inside: str) -> Iterator[str]:
    """Yield the members of a body, or of one image of its rows."""
    rows = body.get("rows") if isinstance(body, dict) else None
    images = [body]
    if inside != "body":
        images = [row.get(inside) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for one in images:
        if isinstance(one, dict):
            yield from one


_FIRST = 2000
"""Number of records that are searched for names, as the user waits for the completion."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _files_on_the_line(ctx: click.Context) -> list[str]:
    words = (*(ctx.params.get("paths") or ()), *ctx.args)  # ctx.args has them while an option still lacks its value
    return [word for word in words if os.path.isfile(word)]


def _begun(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _named_formats(ctx: click.Context) -> list[Format]:
    """Return the format given by `--format` or the first path; all formats if neither determines it."""
    import binlogtool
    from binlogtool import formats
    from binlogtool.errors import BinlogtoolError

    wanted = next((c.params["format"] for c in (ctx, ctx.parent) if c is not None and c.params.get("format")), None)
    if wanted in formats.names():
        return [formats.get(wanted)]
    paths = _files_on_the_line(ctx)
    try:
        if paths:
            with binlogtool.open(paths[0]) as log:
                return [log.files[0].format]
    except (BinlogtoolError, OSError):
        pass  # completion ignores wrong paths
    return list(formats.each())
