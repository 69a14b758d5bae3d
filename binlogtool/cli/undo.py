"""`binlogtool undo`: take a repair back."""

from __future__ import annotations

import sys

import click

from binlogtool.cli.command import Command
from binlogtool.cli.options import PATH, network_option
from binlogtool.cli.run import Run
from binlogtool.errors import RefusedError


def _undo(run: Run, undo_file: str, apply: bool, yes: bool, allow_network_file_system: bool) -> int:
    import binlogtool
    from binlogtool.report.json import document
    from binlogtool.report.repair import undo_applied_text, undo_json, undo_text

    as_json = run.settings.choose(("text", "json")) == "json"
    if apply and not yes and not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError("there is no terminal to ask on; --yes agrees beforehand; nothing was changed")
    with run.output(text=not as_json, inputs=[undo_file], page=not apply) as out:
        plan = binlogtool.plan_undo(undo_file)
        for text in () if as_json else undo_text(plan, writes=apply):
            out.line(text)
        done = None
        if apply:
            if plan.reasons:
                raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
            out.flush()
            if not yes and not click.confirm("Take the repair back as planned?", err=True):
                raise RefusedError("not agreed; nothing was changed")
            done = binlogtool.undo(undo_file, network=allow_network_file_system)
        if as_json:
            out.write(document(undo_json(plan, done)))
        for text in () if as_json or done is None else undo_applied_text(done):
            out.line(text)
    return 1 if plan.reasons else 0


o = click.Option
command = Command(
    "undo",
    callback=_undo,
    params=[
        click.Argument(["undo_file"], type=PATH, metavar="UNDO_FILE"),
        o(["--apply"], is_flag=True, allow_from_autoenv=False, help="Carry it out."),
        network_option(),
        o(["-y", "--yes"], is_flag=True, allow_from_autoenv=False, help="Do not ask."),
    ],
    help="""Take a repair back.

    Says what would become of the files that the repair changed; with --apply, their bytes, modes and times (owners
    where allowed) are the original's again. Files that changed since the repair are refused.
    """,
    examples=(
        ("what would be restored", "binlogtool undo 42.xlog.binlogtool-undo-20260101T000000Z-00112233"),
        ("restore it", "binlogtool undo --apply 42.xlog.binlogtool-undo-20260101T000000Z-00112233"),
    ),
)
