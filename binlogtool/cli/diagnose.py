"""`binlogtool diagnose`: why a database does not start, and what to do, on one screen."""

from __future__ import annotations

from typing import Any

import click

from binlogtool.cli.command import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    hint_options,
    option,
    pop_hints,
    redo_option,
    require_paths,
    server_version_option,
)
from binlogtool.report.policy import select_exit_code

_FORMS = ("text", "json", "markdown")


def _run_diagnose(run: CommandRun, paths: tuple[str, ...], **options: Any) -> int:
    import binlogtool
    from binlogtool.report.diagnosis import render_diagnosis_text
    from binlogtool.report.verify_and_plan import collect_read_options

    require_paths(paths)
    if "-" in paths:
        raise click.UsageError("diagnose needs files or directories; it cannot read standard input.")
    form, settings = run.settings.choose_output_format(_FORMS), run.settings
    next_command_options = collect_read_options(options, settings.format)
    read_options: dict[str, Any] = {"format": settings.format, "limits": settings.limits, "backend": settings.backend}
    version = options["server_version"]
    diagnoses = binlogtool.diagnose(
        paths, **read_options, hints=pop_hints(options), server_version=version, live=options["live"]
    )
    run.say_failures(diagnoses.failures)
    run.status = select_exit_code(diagnoses.exit_codes)
    with run.open_output(text=form == "text", inputs=paths) as out:
        if form != "text":
            out.write(binlogtool.render_diagnosis(diagnoses, form, next_command_options=next_command_options))
        else:
            from binlogtool.terminal.escape import make_painter

            paint = make_painter(run.use_colour(out))
            for line in render_diagnosis_text(diagnoses, next_command_options, paint):
                out.write_line(line)
    return run.status


command = Command(
    "diagnose",
    callback=_run_diagnose,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        server_version_option(),
        option(
            ["--live"],
            is_flag=True,
            help="A server is writing the files, also where this host does not show it: report only what lasts.",
        ),
        *hint_options(),
        redo_option(),
    ],
    help="""Find out why a database does not start, and what to do.

    Reads the logs of all formats in and below each directory as their server would. The report says: does the server
    start, and why not; what would it lose without an error; what can be kept; the commands in order, from the safety
    copy to the undo. Files that a running server has open are read up to a consistent end. Nothing is changed.
    Status 1: a problem was found.
    """,
    examples=(
        ("the database does not start", "binlogtool diagnose /var/lib/tarantool"),
        ("for a ticket", "binlogtool diagnose -O markdown /var/lib/manticore"),
        ("check all logs on this host", "binlogtool diagnose /var/lib/mysql /var/lib/tarantool"),
    ),
)
