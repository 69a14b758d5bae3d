"""`binlogtool diagnose`: why a database does not start, and what to do, on one screen."""

from __future__ import annotations

from typing import Any

import click

from binlogtool import __version__
from binlogtool.cli.command_classes import Command
from binlogtool.cli.options import PATH, hint_options, redo_option, server_version_option
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints
from binlogtool.report.policy import most_severe

_FORMS = ("text", "json", "markdown")


def _diagnose(run: Run, paths: tuple[str, ...], **options: Any) -> int:
    import binlogtool
    from binlogtool.report import diagnosis
    from binlogtool.report.following import reading
    from binlogtool.report.json import document

    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    if "-" in paths:
        raise click.UsageError("diagnose looks at files in their place: standard input has none.")
    form, settings = run.settings.choose(_FORMS), run.settings
    given = reading(options, settings.format)
    how: dict[str, Any] = {"format": settings.format, "limits": settings.limits, "backend": settings.backend}
    version = options["server_version"]
    found = binlogtool.diagnose(paths, **how, hints=hints(options), server_version=version)
    run.say_failures(found.failures)
    run.status = most_severe(found.codes)
    with run.output(text=form == "text", inputs=paths) as out:
        if form == "json":
            out.write(document(diagnosis.diagnosis_json(found, __version__, given)))
        elif form == "markdown":
            out.write(diagnosis.diagnosis_markdown(found, given).encode("utf-8", "backslashreplace"))
        else:
            for line in diagnosis.diagnosis_text(found, given):
                out.line(line)
    return run.status


command = Command(
    "diagnose",
    callback=_diagnose,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        server_version_option(),
        *hint_options(),
        redo_option(),
    ],
    help="""Say why a database does not start, or that all is well, and what to do.

    Finds the logs of all formats in and below each directory, verifies them, replays them as their server would, and
    plans the repair where one is needed. The answer: does the server start, and why not; what would it lose without a
    word; what can be kept; the commands in order, from the safe copy to the taking back. Nothing is changed. Status 1:
    something is wrong.
    """,
    examples=(
        ("the database does not start", "binlogtool diagnose /var/lib/tarantool"),
        ("for a ticket", "binlogtool diagnose -O markdown /var/lib/manticore"),
        ("is all well on this host?", "binlogtool diagnose /var/lib/mysql /var/lib/tarantool"),
    ),
)
