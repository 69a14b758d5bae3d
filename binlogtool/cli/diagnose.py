"""`binlogtool diagnose`: show, on one screen, why a database does not start and what to do."""

from __future__ import annotations

import click
import msgspec

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    PATH,
    HintOptions,
    hint_options,
    option,
    redo_option,
    require_paths,
    server_version_option,
)
from binlogtool.report.finding_policy import select_most_severe_exit_code

_FORMS = ("text", "json", "markdown")


class DiagnoseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command."""

    paths: tuple[str, ...]
    server_version: str | None
    live: bool
    hints: HintOptions


def _run_diagnose(run: CommandRun, options: DiagnoseOptions) -> int:
    import binlogtool
    from binlogtool.report.diagnosis_and_replay import render_diagnosis_text

    require_paths(options.paths)
    if "-" in options.paths:
        raise click.UsageError("diagnose needs files or directories; it cannot read standard input.")
    form, settings = run.settings.choose_output_format(_FORMS), run.settings
    next_command_options = options.hints.to_read_options(settings.format)
    diagnoses = binlogtool.diagnose(
        options.paths,
        **settings.make_read_options(options.hints.read_hint_files()),
        server_version=options.server_version,
        live=options.live,
    )
    run.report_failures(diagnoses.failures)
    run.status = select_most_severe_exit_code(diagnoses.exit_codes)
    with run.open_output(text=form == "text", inputs=options.paths) as out:
        if form != "text":
            out.write(binlogtool.render_diagnosis(diagnoses, form, next_command_options=next_command_options))
        else:
            from binlogtool.terminal.escape_and_fold_text import make_painter

            paint = make_painter(run.is_colour_used(out))
            for line in render_diagnosis_text(diagnoses, next_command_options, paint):
                out.write_line(line)
    return run.status


command = Command(
    "diagnose",
    callback=_run_diagnose,
    options_type=DiagnoseOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        server_version_option(),
        option("--live",
            "A server is writing the files, even if this host cannot see it: report only damage that lasts."),
        *hint_options(),
        redo_option(),
    ],
    help="""Find out why a database does not start, and what to do.

    Reads the logs of all formats in and below each directory as their server would. The report says: does the server
    start, and why not; what would it lose without an error; what can be kept; the commands in order, from the safety
    copy to the undo. Files that a running server has open are read up to a consistent end. Nothing is changed.
    """,
    examples=(
        ("the database does not start", "binlogtool diagnose /var/lib/tarantool"),
        ("for a ticket", "binlogtool diagnose -O markdown /var/lib/manticore"),
        ("check all logs on this host", "binlogtool diagnose /var/lib/mysql /var/lib/tarantool"),
    ),
)  # fmt: skip
