"""`binlogtool truncate-to-durable`: plan the cut to the durable end."""

from __future__ import annotations

from typing import Any

import click

from binlogtool.cli.command import Command
from binlogtool.cli.options import PATH, SIZE, hint_options
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints
from binlogtool.errors import RefusedError
from binlogtool.report.policy import most_severe

_LATER = ("apply", "apply_plan", "to_file", "undo_dir", "backup", "max_loss", "max_loss_records", "fix_meta", "yes")


def _truncate(run: Run, paths: tuple[str, ...], plan: str | None, **later: Any) -> int:
    asked = [name for name in (*_LATER, "allow_discard_valid") if later[name] is not None and later[name] is not False]
    if asked:
        raise RefusedError(f"--{asked[0].replace('_', '-')}: not in this version; nothing was changed")
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    return _plan(run, paths, plan, hints(later))


def _plan(run: Run, paths: tuple[str, ...], plan_file: str | None, known: Any) -> int:
    import binlogtool
    from binlogtool.report.json import document, line, plan_json
    from binlogtool.report.text import plan_text

    as_json = run.settings.choose(("text", "json")) == "json"
    if plan_file is not None and len(paths) > 1:
        raise click.UsageError("--plan takes one PATH: a plan is about one log.")
    codes = []
    with run.output(text=not as_json, inputs=paths) as out:
        for path in paths:
            plan = binlogtool.plan_truncate(
                path,
                format=run.settings.format,
                limits=run.settings.limits,
                backend=run.settings.backend,
                hints=known,
            )
            if plan_file is not None:
                run.save(plan_file, document(plan_json(plan)), inputs=paths)
            codes.append(1 if plan.refused else 0)  # the plan says data would be lost; carrying it out would be refused
            run.status = most_severe(codes)
            if as_json:
                out.write(document(plan_json(plan)) if len(paths) == 1 else line(plan_json(plan)))
            for text in () if as_json else plan_text(plan):
                out.line(text)
    return run.status


o = click.Option
command = Command(
    "truncate-to-durable",
    callback=_truncate,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(["--plan"], type=PATH, metavar="FILE", help="Save the plan."),
        o(["--apply"], is_flag=True, allow_from_autoenv=False, help="Carry the plan out (not in this version)."),
        o(["--apply-plan"], type=PATH, metavar="FILE", help="Carry a saved plan out (not in this version)."),
        o(["--to-file"], type=PATH, metavar="NEW", help="Write a repaired copy (not in this version)."),
        o(["--undo-dir"], type=PATH, metavar="DIR", help="Where the cut bytes are kept (not in this version)."),
        o(["--backup"], type=click.Choice(["tail", "full"]), help="What is kept (not in this version)."),
        o(["--max-loss"], type=SIZE, metavar="SIZE", help="Refuse to cut more (not in this version)."),
        o(["--max-loss-records"], type=int, metavar="N", help="Refuse to cut more records (not in this version)."),
        o(
            ["--allow-discard-valid"],
            is_flag=True,
            allow_from_autoenv=False,
            help="Cut valid records (not in this version).",
        ),
        o(["--fix-meta"], is_flag=True, help="Mend the meta file, too (not in this version)."),
        o(["-y", "--yes"], is_flag=True, allow_from_autoenv=False, help="Do not ask (not in this version)."),
        *hint_options(),
    ],
    help="""Plan the cut of a log to its durable end.

    Prints the durable end, the proof for it, and what a cut would remove. This version plans and changes nothing: the
    options that would change a file are refused with status 5.
    """,
    examples=(
        ("what a cut would remove", "binlogtool truncate-to-durable 00000000000000000042.xlog"),
        ("save the plan", "binlogtool truncate-to-durable --plan cut.json 00000000000000000042.xlog"),
    ),
)
