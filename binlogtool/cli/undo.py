"""`binlogtool undo`: undo a repair."""

from __future__ import annotations

import click

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import PATH, network_option, option, require_paths
from binlogtool.cli.truncate_to_durable import has_terminal, report_unprinted_changes
from binlogtool.errors import RefusedError


def _run_undo(
    run: CommandRun, undo_files: tuple[str, ...], apply: bool, yes: bool, allow_network_file_system: bool
) -> int:
    import binlogtool
    from binlogtool.format_api.encode_json import encode_document
    from binlogtool.report.verify_and_plan_text import render_undo_applied_text, render_undo_text, undo_to_json

    as_json = run.settings.choose_output_format(("text", "json")) == "json"
    if apply and not yes and not has_terminal():
        raise RefusedError("no terminal for the confirmation prompt; use --yes (nothing was changed)")
    require_paths(undo_files)
    with run.open_output(text=not as_json, inputs=undo_files, page=not apply, defers_errors=True) as out:
        plan = binlogtool.plan_undo(undo_files)
        run.status = 1 if plan.reasons else 0
        for text in () if as_json else render_undo_text(plan, will_apply=apply):
            out.write_line(text)
        applied = None
        if apply:
            if plan.reasons:
                raise RefusedError(f"{plan.reasons[0]}; nothing was changed")
            out.flush()
            if not yes and not run.confirm("Undo the repair as planned?"):
                raise RefusedError("not confirmed; nothing was changed")
            run.cancel_time_limit()
            applied = binlogtool.undo(plan.undo, network=allow_network_file_system)
        if as_json:
            out.write(encode_document(undo_to_json(plan, applied)))
        for text in () if as_json or applied is None else render_undo_applied_text(applied):
            out.write_line(text)
        out.flush()
        if applied is not None and out.write_error is not None:
            report_unprinted_changes(run, applied)
    return run.status


command = Command(
    "undo",
    callback=_run_undo,
    params=[
        click.Argument(["undo_files"], nargs=-1, type=PATH, metavar="UNDO_FILE..."),
        option("--apply", "Carry out the undo.", allow_from_autoenv=False, is_common=True),
        network_option(),
        option("-y --yes", "Do not ask.", allow_from_autoenv=False, is_common=True),
    ],
    help="""Undo a repair.

    Shows how the files that the repair changed would be restored; with --apply, their bytes, modes and times (owners
    where allowed) are restored. Files that changed since the repair are refused. If several undo files, or a
    directory of them, are named, the newest repair that is not undone yet is undone.
    """,
    examples=(
        ("what would be restored", "binlogtool undo 42.xlog.binlogtool-undo-20260101T000000Z-00112233"),
        ("restore it", "binlogtool undo --apply 42.xlog.binlogtool-undo-20260101T000000Z-00112233"),
    ),
)
