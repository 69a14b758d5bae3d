"""`binlogtool verify`: verify logs, and report the result in the requested formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from binlogtool import __version__
from binlogtool.cli import options
from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.cli.options import (
    AGE,
    DURATION,
    PATH,
    HintOptions,
    build_master,
    hint_options,
    option,
    redo_option,
    require_paths,
    spark_options,
)
from binlogtool.errors import UsageError, name_os_errors
from binlogtool.findings import Severity
from binlogtool.report.finding_policy import (
    FindingPolicy,
    IgnoreRule,
    add_log_age_findings,
    baseline_to_json,
    compute_exit_code,
    parse_baseline,
    parse_severity,
)

if TYPE_CHECKING:
    from binlogtool.cli.run_verify_jobs import VerifyState
    from binlogtool.report.verify_and_plan_text import GivenReadOptions
    from binlogtool.verification.verify_report import Report


_FORMS = ("text", "json")
_LEVELS = {"note": Severity.NOTE, "warning": Severity.WARNING, "error": Severity.ERROR, "never": None}


class VerifyCommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command. max_duration, max_age: seconds."""

    paths: tuple[str, ...]
    depth: str
    fail_on: str
    severity: tuple[str, ...]
    ignore: tuple[str, ...]
    baseline: str | None
    write_baseline: str | None
    report: tuple[str, ...]
    state: str | None
    max_duration: float | None
    max_age: float | None
    expect_closed: bool
    live: bool
    master: str | None
    conf: tuple[str, ...]
    hints: HintOptions

    def read_policy(self) -> FindingPolicy:
        """Return the options about severities and ignored findings as a policy.

        Raises:
            InputOutputError, UsageError: the baseline cannot be read; a value is invalid.
        """
        return FindingPolicy(
            dict(parse_severity(text) for text in self.severity),
            [IgnoreRule.parse(text) for text in self.ignore],
            parse_baseline(_read_file(self.baseline)) if self.baseline else frozenset(),
        )


def _run_verify(run: CommandRun, options: VerifyCommandOptions) -> int:
    import binlogtool
    from binlogtool.cli.run_verify_jobs import VerifyJob, VerifyOptions, verify_paths_into_one_report

    require_paths(options.paths)
    form, settings = run.settings.choose_output_format(_FORMS), run.settings
    reports = [_parse_report(text) for text in options.report]
    finding_policy = options.read_policy()
    log_hints = options.hints.read_hint_files()
    master = build_master(options.master, options.conf)
    state = None if options.state is None else _load_state(run, options.state)
    if options.max_age is not None and (options.depth not in ("payload", "set") or master is not None):
        raise UsageError("--max-age needs --depth payload or set, and cannot be combined with --master")
    job = VerifyJob(
        "", settings.format, options.depth, settings.limits, settings.backend, options.live, options.expect_closed,
        log_hints, times=options.max_age is not None,
    )  # fmt: skip
    collected = verify_paths_into_one_report(
        run, options.paths, VerifyOptions(job, state, options.max_duration, master)
    )
    if options.max_age is not None:
        from datetime import UTC, datetime

        collected = add_log_age_findings(collected, options.max_age, datetime.now(UTC))
    result = finding_policy.adjust_and_suppress_findings(collected)
    level = _LEVELS[options.fail_on]
    run.status = compute_exit_code(result, level)
    inputs = (*options.paths, *(f.path for f in result.files))
    for kind, target in reports:
        if kind == "github":
            _write_github_summary(result)
            continue
        data = binlogtool.render_report(
            result, kind, fail_on=level, limits=settings.limits, backend=settings.backend, hints=log_hints
        )
        run.save_file(target, data, inputs=inputs)
    if options.write_baseline:
        from binlogtool.format_api.encode_json import encode_document

        run.save_file(options.write_baseline, encode_document(baseline_to_json(result)), inputs=inputs)
    next_command_options = options.hints.to_read_options(settings.format)
    _print_report(run, result, form, options, next_command_options)
    return run.status


def _load_state(run: CommandRun, path: str) -> VerifyState:
    """Load the results of earlier runs that had the same options."""
    from msgspec.structs import asdict

    from binlogtool.cli.run_verify_jobs import VerifyState, fingerprint_options

    context = click.get_current_context()
    values = {**context.params, **asdict(run.settings)}
    return VerifyState.load(path, fingerprint_options(context.command.params, values))


def _print_report(
    run: CommandRun,
    report: Report,
    form: str,
    options: VerifyCommandOptions,
    next_command_options: GivenReadOptions,
) -> None:
    named_paths, fail_on = options.paths, _LEVELS[options.fail_on]
    inputs = (*named_paths, *(file.path for file in report.files))
    run.report_failures(report.failures)
    with run.open_output(text=form == "text", inputs=inputs) as out:
        if form == "json":
            from binlogtool.report.verify_and_plan_text import encode_verify_report

            for piece in encode_verify_report(report, __version__):
                out.write(piece)
        else:
            from binlogtool.report.verify_and_plan_text import render_verify_text
            from binlogtool.terminal.escape_and_fold_text import make_painter

            names = run.settings.verbosity > 0
            min_severity = None
            if run.settings.verbosity < 0:
                min_severity = Severity.NOTE if fail_on is Severity.NOTE else Severity.WARNING
            for line in render_verify_text(
                report,
                exit_code=run.status,
                paint=make_painter(run.is_colour_used(out)),
                list_names=names,
                min_severity=min_severity,
                named_paths=named_paths,
                read_options=next_command_options,
            ):
                out.write_line(line)
        if "github" in options.report:
            from binlogtool.report.ci_reports import render_workflow_commands

            for line in render_workflow_commands(report):
                out.write_line(line)


def _read_file(path: str) -> bytes:
    with name_os_errors(path), open(path, "rb") as file:
        return file.read()


def _parse_report(text: str) -> tuple[str, str]:
    from binlogtool.api import REPORT_KINDS

    kind, equals, target = text.partition("=")
    if kind not in (*REPORT_KINDS, "github") or bool(equals) == (kind == "github") or (equals and not target):
        raise UsageError(f"--report {text}: use github, or one of {', '.join(f'{k}=FILE' for k in REPORT_KINDS)}")
    return kind, target


def _write_github_summary(report: Report) -> None:
    """Append the report to the step summary when running in GitHub Actions."""
    import binlogtool

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with name_os_errors(summary), open(summary, "ab") as file:
            file.write(binlogtool.render_report(report, "markdown"))


command = Command(
    "verify",
    callback=_run_verify,
    options_type=VerifyCommandOptions,
    outputs=_FORMS,
    params=[
        click.Argument(["paths"], nargs=-1, type=PATH, metavar="PATH..."),
        option("--depth frame|checksum|payload|set",
            "Depth of the check: frame or checksum (the same check: frames and checksums), payload (also the content "
            "of records), set (default: also order and missing files).", is_common=True, default="set"),
        option("--fail-on",
            "Lowest severity of a finding that makes the exit status 1 (default: error).",
            click.Choice(list(_LEVELS)), is_common=True, default="error"),
        option("--severity ID=LEVEL",
            "Change the severity of a finding; repeatable.", multiple=True, shell_complete=options.complete_severity),
        option("--ignore ID[@FILE[:OFFSET]]",
            "Ignore a finding; repeatable.", is_common=True, multiple=True,
            shell_complete=options.complete_finding_id),
        option("--baseline FILE", "Ignore the findings listed in FILE.", PATH),
        option("--write-baseline FILE", "Save the findings as a baseline.", PATH),
        option("--report KIND=FILE",
            "Write an additional report into FILE. KIND is junit, sarif, gitlab (code quality), json, markdown or "
            "html (a page with a map of each file); or github, without FILE (annotations); repeatable.",
            is_common=True, multiple=True, shell_complete=options.complete_report),
        option("--state FILE",
            "Skip paths that FILE records as verified and unchanged. Results are appended to FILE. A path is "
            "unchanged if size, times and inode of all its files are; named files of one directory count as one path. "
            "Damage that changes none of these is not found: use a new FILE each week.", PATH, is_common=True),
        option("--max-duration DURATION",
            "Stop after this time with status 6; use --state to continue later.", DURATION),
        option("--expect-closed",
            "The logs are not in use: a torn end and a missing end mark are errors. A note says where a format has no "
            "end mark.", group="Damage", is_common=True),
        option("--max-age DURATION",
            "Report a log whose newest record is older than this, for example 26h: the backup stopped copying. "
            "Without times in the records, the modification time of the file counts.", AGE),
        option("--live",
            "The files may be growing: an unfinished tail is not a finding.", group="Damage", is_common=True),
        *spark_options(),
        *hint_options(),
        redo_option(),
    ],
    help="""Check logs: framing, checksums, content, and how the files of a log fit.

    Only reads. Files of one log that are named together are checked as a set, except with --master.
    Compressed files are read (.gz, .zst, .xz, .bz2; .lz4 with the Python package lz4). Every byte is accounted for. -q
    prints only files with warnings and errors, and with notes if --fail-on is note. The last line names the command to
    use next.
    """,
    examples=(
        ("a directory as one log", "binlogtool verify /var/lib/tarantool"),
        ("for scripts", "binlogtool verify -O json 00000000000000000042.xlog"),
        ("in CI", "binlogtool verify --report junit=verify.xml --report sarif=verify.sarif logs/"),
        ("an HTML page", "binlogtool verify --report html=verify.html /var/lib/tarantool"),
        ("only checksums", "binlogtool verify --depth checksum transaction.log"),
        ("a nightly copy", "binlogtool verify -q --expect-closed --max-age 26h /backup/binlogs"),
        (
            "thousands of logs on a cluster",
            "binlogtool verify --master spark://10.0.0.5:7077 -O json /fleet > fleet.json",
        ),
    ),
)  # fmt: skip
