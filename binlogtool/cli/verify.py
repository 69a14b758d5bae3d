"""`binlogtool verify`: verify logs, and report the result in the requested formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from binlogtool import __version__
from binlogtool.cli import completing
from binlogtool.cli.command_classes import Command
from binlogtool.cli.on_spark import master_of, spark_options
from binlogtool.cli.options import DURATION, PATH, hint_options, o, redo_option
from binlogtool.cli.run import Run
from binlogtool.cli.selector import hints
from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import Severity
from binlogtool.recovery.report import Report
from binlogtool.report import policy

if TYPE_CHECKING:
    from binlogtool.report.following import Given

_FORMS = ("text", "json")
_LEVELS = {"note": Severity.NOTE, "warning": Severity.WARNING, "error": Severity.ERROR, "never": None}


def _rules(o: dict[str, Any]) -> policy.Policy:
    """Remove the options about severities and ignored findings from `o`, and return them as a policy."""
    severity, ignore, baseline = o.pop("severity"), o.pop("ignore"), o.pop("baseline")
    return policy.Policy(
        dict(policy.parse_severity(text) for text in severity),
        [policy.Ignore.parse(text) for text in ignore],
        policy.baseline_from(_read(baseline)) if baseline else frozenset(),
    )


def _verify(
    run: Run,
    paths: tuple[str, ...],
    *,
    fail_on: str,
    write_baseline: str | None,
    report: tuple[str, ...],
    **work: Any,
) -> int:
    import binlogtool
    from binlogtool.cli.collect import Work, collect

    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    form = run.settings.choose(_FORMS)
    wanted = [_report_kind(text) for text in report]
    rules = _rules(work)
    from binlogtool.report.following import reading

    given = reading(work, run.settings.format)
    known = hints(work)
    work["master"] = master_of(work)
    if work["state"] is not None:
        from msgspec.structs import asdict

        from binlogtool.cli.state_file import State, fingerprint

        context = click.get_current_context()
        values = {**context.params, **asdict(run.settings)}
        work["state"] = State.load(work["state"], fingerprint(context.command.params, values))
    found = rules.apply(collect(run, paths, Work(**work, hints=known)))
    level = _LEVELS[fail_on]
    run.status = policy.exit_code(found, level)
    inputs = (*paths, *(f.path for f in found.files))
    how: dict[str, Any] = {"limits": run.settings.limits, "backend": run.settings.backend, "hints": known}
    for kind, target in wanted:
        if kind == "github":
            _write_summary(found)
        else:
            run.save(target, binlogtool.report_as(found, kind, fail_on=level, **how), inputs=inputs)
    if write_baseline:
        from binlogtool.report.json import document

        run.save(write_baseline, document(policy.baseline_json(found)), inputs=inputs)
    _print(run, found, form, inputs, "github" in [kind for kind, _ in wanted], given)
    return run.status


def _print(run: Run, found: Report, form: str, inputs: tuple[str, ...], github: bool, given: Given) -> None:
    run.say_failures(found.failures)
    with run.output(text=form == "text", inputs=inputs) as out:
        if form == "json":
            from binlogtool.report.json import verify_document

            for piece in verify_document(found, __version__):
                out.write(piece)
        else:
            from binlogtool.render.style import painter
            from binlogtool.report.text import verify_text

            names = run.settings.verbosity > 0
            for line in verify_text(
                found, exit_code=run.status, paint=painter(run.colour(out)), names=names, given=given
            ):
                out.line(line)
        if github:
            from binlogtool.report.github import workflow_commands

            for line in workflow_commands(found):
                out.line(line)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputOutputError(f"{path}: {error.strerror}") from None


def _report_kind(text: str) -> tuple[str, str]:
    from binlogtool.results import REPORTS

    kind, equals, target = text.partition("=")
    if kind not in (*REPORTS, "github") or bool(equals) == (kind == "github") or (equals and not target):
        raise UsageError(f"--report {text}: write github, or one of {', '.join(f'{k}=FILE' for k in REPORTS)}")
    return kind, target


def _write_summary(found: Report) -> None:
    """Append the report to the step summary when running in GitHub Actions."""
    import binlogtool

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with open(summary, "ab") as file:
                file.write(binlogtool.report_as(found, "markdown"))
        except OSError as error:
            raise InputOutputError(f"{summary}: {error.strerror}") from None


command = Command(
    "verify",
    callback=_verify,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        o(
            ["--depth"],
            type=click.Choice(["frame", "checksum", "payload", "set"]),
            default="set",
            help="How deep to look; each level includes the ones before (default: set).",
        ),
        o(
            ["--fail-on"],
            type=click.Choice(list(_LEVELS)),
            default="error",
            help="The least severity that makes the exit status 1 (default: error).",
        ),
        o(
            ["--severity"],
            multiple=True,
            metavar="ID=LEVEL",
            shell_complete=completing.severities,
            help="Another severity for a finding; repeatable.",
        ),
        o(
            ["--ignore"],
            multiple=True,
            metavar="ID[@FILE[:OFFSET]]",
            shell_complete=completing.finding_ids,
            help="A finding to leave out; repeatable.",
        ),
        o(["--baseline"], type=PATH, metavar="FILE", help="Leave out the findings that FILE knows."),
        o(["--write-baseline"], type=PATH, metavar="FILE", help="Save the findings as a baseline."),
        o(
            ["--report"],
            multiple=True,
            metavar="KIND=FILE",
            shell_complete=completing.report_kinds,
            help="A further report: junit, sarif, gitlab (code quality), json, markdown or html (a page with a map of "
            "each file) into FILE, or github (annotations); repeatable.",
        ),
        o(["--state"], type=PATH, metavar="FILE", help="Skip what FILE says is verified and unchanged; appended to."),
        o(
            ["--max-duration"],
            type=DURATION,
            metavar="DURATION",
            help="Stop in time; go on later with --state. Status 6.",
        ),
        o(
            ["--expect-closed"],
            is_flag=True,
            help="The logs are not in use: a torn end is an error, a missing end mark a warning.",
        ),
        o(["--live"], is_flag=True, help="The files may grow: an unfinished tail is no finding."),
        *spark_options(),
        *hint_options(),
        redo_option(),
    ],
    help="""Check logs: framing, checksums, content, order of sequence numbers, agreement of the files of a set.

    Reads only. Every byte is accounted for, and the account adds up to the file size. The last line names the command
    to use next.
    """,
    examples=(
        ("a directory as one log", "binlogtool verify /var/lib/tarantool"),
        ("for scripts", "binlogtool verify -O json 00000000000000000042.xlog"),
        ("in CI", "binlogtool verify --report junit=verify.xml --report sarif=verify.sarif logs/"),
        ("a page for people", "binlogtool verify --report html=verify.html /var/lib/tarantool"),
        ("only checksums", "binlogtool verify --depth checksum transaction.log"),
        (
            "thousands of logs on a cluster",
            "binlogtool verify --master spark://10.0.0.5:7077 -O json /fleet > fleet.json",
        ),
    ),
)
