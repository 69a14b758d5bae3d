"""What a shell offers for the values of options and arguments (`shell_complete` of click)."""

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
"""An expression up to its last word, and that."""


def format_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--format`."""
    from binlogtool import formats

    return _begun(("auto", "list", *formats.names()), incomplete)


def known_formats(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The formats that `formats` describes."""
    from binlogtool import formats

    return _begun(formats.names(), incomplete)


def output_formats(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--output-format`: what the command has."""
    return _begun(getattr(ctx.command, "outputs", ()), incomplete)


def type_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--type`: the record types of the format, or of the log, that the line names already; else of all formats."""
    return _begun(
        ["list", *sorted({name for one in _named_formats(ctx) for name in one.output.types.values()})], incomplete
    )


def conditions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--where`: the expression so far, with each name that its last word can become. Behind `before.`, `after.` and
    `body.` come the names in the log that the line names already."""
    from binlogtool.log.where_grammar import INSIDE, MEMBERS

    before, word = _PATH.fullmatch(incomplete).groups()  # type: ignore[union-attr]  # it fits every text
    if before.count("'") % 2 or "`" in word:
        return []
    inside, dot, _ = word.partition(".")
    if dot:
        return [f"{before}{inside}.{name}" for name in _begun(_names_in(ctx, inside), word.partition(".")[2])]
    return [before + name for name in _begun((*MEMBERS, *(f"{one}." for one in INSIDE)), word)]


def finding_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--ignore`."""
    from binlogtool.findings import EXPLANATIONS

    return _begun(EXPLANATIONS, incomplete)


def severities(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`--severity ID=LEVEL`: the ids, then the levels."""
    from binlogtool.findings import EXPLANATIONS

    id_, equals, _ = incomplete.partition("=")
    return _begun(
        [f"{id_}={level}" for level in _LEVELS] if equals else [f"{one}=" for one in EXPLANATIONS], incomplete
    )


def explained(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`explain`: findings and exit statuses."""
    from binlogtool.findings import EXPLANATIONS
    from binlogtool.report.statuses import STATUSES

    return _begun([*EXPLANATIONS, *(code for key in STATUSES for code in key.split(", "))], incomplete)


def report_kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`--report KIND=FILE`: the kinds; files behind them."""
    from click.shell_completion import CompletionItem

    if "=" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one)
        for one in _begun(("junit=", "sarif=", "gitlab=", "json=", "markdown=", "html=", "github"), incomplete)
    ]


def schema_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`schema`."""
    from binlogtool.report.schemas import SCHEMAS

    return _begun(SCHEMAS, incomplete)


def command_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """`man`."""
    from binlogtool.cli.commands import COMMANDS

    return _begun(COMMANDS, incomplete)


def _names_in(ctx: click.Context, inside: str) -> list[str]:
    """Names of members of bodies, or of columns, among the first records of the log on the line.

    Plain ones only: in the quotes of a shell others could be more than a name.
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
        pass  # a wrong path is no matter of completion
    return sorted(name for name in found if _PLAIN.fullmatch(name))


def _keys(body: Any, inside: str) -> Iterator[str]:
    """The members of a body, or of one side of its rows."""
    rows = body.get("rows") if isinstance(body, dict) else None
    images = [body]
    if inside != "body":
        images = [row.get(inside) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for one in images:
        if isinstance(one, dict):
            yield from one


_FIRST = 2000
"""Records that are looked at for names: a key that is pressed waits for an answer."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _files_on_the_line(ctx: click.Context) -> list[str]:
    words = (*(ctx.params.get("paths") or ()), *ctx.args)  # the latter where an option still lacks its value
    return [word for word in words if os.path.isfile(word)]


def _begun(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _named_formats(ctx: click.Context) -> list[Format]:
    """The format that `--format` or the first path says; all, if that cannot be told."""
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
        pass  # a wrong path is no matter of completion
    return list(formats.each())
