"""`binlogtool undo`: undo a repair."""

from __future__ import annotations

import click

from binlogtool.cli.command_classes import Command
from binlogtool.cli.options import PATH, network_option, o
from binlogtool.cli.run import Run
from binlogtool.cli.truncate_to_durable import has_terminal, tell_unread
from binlogtool.errors import RefusedError


def _undo(run: Run, undo_file: str, apply: bool, yes: bool, allow_network_file_system: bool) -> int:
    import binlogtool
    from binlogtool.report.json import document
    from binlogtool.report.repair import undo_applied_text, undo_json, undo_text

    as_json = run.settings.choose(("text", "json")) == "json"
    if apply and not yes and not has_terminal():
        raise RefusedError("there is no terminal to ask on; --yes agrees beforehand; nothing was changed")
    with run.output(text=not as_json, inputs=[undo_file], page=not apply, patient=True) as out:
        plan = binlogtool.plan_undo(undo_file)
        run.status = 1 if plan.reasons else 0
        for text in () if as_json else undo_text(plan, writes=apply):
            out.line(text)
        done = None
        if apply:
            if plan.reasons:
                raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
            out.flush()
            if not yes and not click.confirm("Take the repair back as planned?", err=True):
                raise RefusedError("not agreed; nothing was changed")
            run.no_time_limit()
            done = binlogtool.undo(undo_file, network=allow_network_file_system)
        if as_json:
            out.write(document(undo_json(plan, done)))
        for text in () if as_json or done is None else undo_applied_text(done):
            out.line(text)
        out.flush()
        if done is not None and out.lost is not None:
            tell_unread(run, done)
    return run.status


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
