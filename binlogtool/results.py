"""Public calls that render results (JSON, JUnit, SARIF, …) and collect statistics over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from binlogtool.calls import open
from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.calls import Path
    from binlogtool.formats.detecting import Hints
    from binlogtool.log.how import ReadOptionArguments
    from binlogtool.log.select import Selection
    from binlogtool.pipeline.manifest import Manifest
    from binlogtool.recovery.diagnosis_result import DiagnosisReport
    from binlogtool.recovery.plan import RepairPlan, RepairResult
    from binlogtool.recovery.replay_result import ReplayResult
    from binlogtool.recovery.report import Report
    from binlogtool.report.following import GivenReadOptions
    from binlogtool.report.series import LogStats


def render_report(
    report: Report,
    kind: str,
    *,
    fail_on: Severity | None = Severity.ERROR,
    limits: Limits = Limits(),
    backend: str = "auto",
    hints: Hints | None = None,
) -> bytes:
    """Render a report as `verify --report KIND=FILE` writes it.

    Args:
        report: the result of `verify`.
        kind: "json", "junit", "sarif", "gitlab", "markdown" or "html".
        fail_on: the lowest severity that counts as a failure in junit; None = none does.
        limits, backend, hints: for html alone, which reads damaged files again for their bytes, and all files for the
            records over time.

    Raises:
        UsageError: the kind is unknown.
    """
    if kind == "html":
        from binlogtool.report.pictured import build_verify_page

        return build_verify_page(report, limits, backend, hints)
    if kind not in _REPORT_RENDERERS:
        raise UsageError(f"there is no report {kind!r}; choose one of {', '.join(REPORT_KINDS)}")
    return _REPORT_RENDERERS[kind](report, fail_on)


def plan_as_json(plan: RepairPlan, result: RepairResult | None = None) -> bytes:
    """Render a plan as `truncate-to-durable -O json` does (binlogtool/plan/1); `load_plan` reads it.

    Args:
        plan: the plan.
        result: what was carried out of it; None = nothing yet.
    """
    from binlogtool.report.json import encode_document, plan_to_json

    return encode_document(plan_to_json(plan, result))


def replay_as_json(result: ReplayResult) -> bytes:
    """Render a replay as `replay-dry-run -O json` does (binlogtool/replay/1)."""
    from binlogtool.report.json import encode_document
    from binlogtool.report.replay import replay_to_json

    return encode_document(replay_to_json(result))


def manifest_as_json(manifest: Manifest) -> bytes:
    """Render a manifest as `convert -O json` does (binlogtool/manifest/1)."""
    from binlogtool.report.json import encode_document

    return encode_document(manifest.to_dict())


def render_diagnosis(
    report: DiagnosisReport, kind: str, *, next_command_options: GivenReadOptions | None = None
) -> bytes:
    """Render a diagnosis as `diagnose -O KIND` does.

    Args:
        report: the result of `diagnose`.
        kind: "json" (binlogtool/diagnose/1) or "markdown".
        next_command_options: the read options that the commands of the steps repeat; None = none.

    Raises:
        UsageError: the kind is unknown.
    """
    from binlogtool._version import __version__
    from binlogtool.report.diagnosis import diagnosis_to_json, render_diagnosis_markdown
    from binlogtool.report.following import NO_READ_OPTIONS
    from binlogtool.report.json import encode_document

    read_options = NO_READ_OPTIONS if next_command_options is None else next_command_options
    if kind == "json":
        return encode_document(diagnosis_to_json(report, __version__, read_options))
    if kind == "markdown":
        return render_diagnosis_markdown(report, read_options).encode("utf-8", "backslashreplace")
    raise UsageError(f"a diagnosis is told as json or markdown, not as {kind!r}")


def collect_stats(
    paths: Path | Iterable[Path],
    *,
    by: str = "object",
    bucket: str = "auto",
    selection: Selection | None = None,
    **read_options: Unpack[ReadOptionArguments],
) -> LogStats:
    """Count records and bytes over time; damaged ranges are skipped.

    Args:
        paths: files and directories of one log.
        by: "object", "type" or "origin".
        bucket: "1m", "1h", "1d" (time steps, UTC) or "auto".
        selection: the records to count; None = all.
        read_options: as for `open`.

    Returns:
        Totals by name (`groups`), and by time step and name (`cells`).

    Raises:
        UnknownFormatError, InputOutputError, UsageError.
        LimitError: too many time steps, or a limit ended the reading.
    """
    from binlogtool.log.records import RecordBlock
    from binlogtool.log.select import Selection, add_selection_hints
    from binlogtool.report.series import BUCKET_LENGTHS, BY, SeriesCounter

    if by not in BY or bucket not in ("auto", *BUCKET_LENGTHS):
        raise UsageError(f"figures are by {', '.join(BY)}, in steps of auto, {', '.join(BUCKET_LENGTHS)}")
    selected, series = selection or Selection(), SeriesCounter(by, bucket)
    read_options["hints"] = add_selection_hints(selected, read_options.get("hints"))
    with open(paths, **read_options) as log:
        for item in log.blocks(selected, decode="frame"):
            if isinstance(item, RecordBlock):
                series.encode_block(item)
    return series.finish()


def _render_json(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool._version import __version__
    from binlogtool.report.json import encode_verify_report

    return b"".join(encode_verify_report(report, __version__))


def _render_junit(report: Report, fail_on: Severity | None) -> bytes:
    from binlogtool.report.junit import render_junit

    return render_junit(report, fail_on=fail_on)


def _render_sarif(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool._version import __version__
    from binlogtool.report.json import encode_document
    from binlogtool.report.sarif import report_to_sarif

    return encode_document(report_to_sarif(report, __version__))


def _render_gitlab(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.report.gitlab import report_to_gitlab
    from binlogtool.report.json import encode_document

    return encode_document(report_to_gitlab(report))


def _render_markdown(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.report.markdown import render_markdown

    return render_markdown(report).encode("utf-8", "backslashreplace")


_REPORT_RENDERERS: Mapping[str, Callable[[Report, Severity | None], bytes]] = {
    "junit": _render_junit,
    "sarif": _render_sarif,
    "gitlab": _render_gitlab,
    "json": _render_json,
    "markdown": _render_markdown,
}
REPORT_KINDS = (*_REPORT_RENDERERS, "html")
"""The kinds of `report_as`."""
