"""Public calls that render results (JSON, JUnit, SARIF, …) and collect statistics over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.calls import Path
    from binlogtool.formats.detecting import Hints
    from binlogtool.log.how import Means
    from binlogtool.log.select import Selection
    from binlogtool.pipeline.manifest import Manifest
    from binlogtool.recovery.diagnosis_result import Diagnoses
    from binlogtool.recovery.plan import Applied, Plan
    from binlogtool.recovery.replay_result import Replayed
    from binlogtool.recovery.report import Report
    from binlogtool.report.series import Counted


def report_as(
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
        from binlogtool.report.pictured import pictured_page

        return pictured_page(report, limits, backend, hints)
    if kind not in _KINDS:
        raise UsageError(f"there is no report {kind!r}; choose one of {', '.join(REPORTS)}")
    return _KINDS[kind](report, fail_on)


def plan_as_json(plan: Plan, done: Applied | None = None) -> bytes:
    """Render a plan as `truncate-to-durable -O json` does (binlogtool/plan/1); `load_plan` reads it.

    Args:
        plan: the plan.
        result: what was carried out of it; None = nothing yet.
    """
    from binlogtool.report.json import document, plan_json

    return document(plan_json(plan, done))


def replay_as_json(replayed: Replayed) -> bytes:
    """Render a replay as `replay-dry-run -O json` does (binlogtool/replay/1)."""
    from binlogtool.report.json import document
    from binlogtool.report.replay import replay_json

    return document(replay_json(replayed))


def manifest_as_json(manifest: Manifest) -> bytes:
    """Render a manifest as `convert -O json` does (binlogtool/manifest/1)."""
    from binlogtool.report.json import document

    return document(manifest.as_value())


def diagnoses_as(diagnoses: Diagnoses, kind: str) -> bytes:
    """Render a diagnosis as `diagnose -O KIND` does.

    Args:
        report: the result of `diagnose`.
        kind: "json" (binlogtool/diagnose/1) or "markdown".

    Raises:
        UsageError: the kind is unknown.
    """
    from binlogtool import __version__
    from binlogtool.report.diagnosis import diagnosis_json, diagnosis_markdown
    from binlogtool.report.json import document

    if kind == "json":
        return document(diagnosis_json(diagnoses, __version__))
    if kind == "markdown":
        return diagnosis_markdown(diagnoses).encode("utf-8", "backslashreplace")
    raise UsageError(f"a diagnosis is told as json or markdown, not as {kind!r}")


def stats(
    paths: Path | Iterable[Path],
    *,
    by: str = "object",
    bucket: str = "auto",
    selection: Selection | None = None,
    **how: Unpack[Means],
) -> Counted:
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
    import binlogtool
    from binlogtool.log.records import Block
    from binlogtool.log.select import Selection, hints_for
    from binlogtool.report.series import BUCKETS, BY, Series

    if by not in BY or bucket not in ("auto", *BUCKETS):
        raise UsageError(f"figures are by {', '.join(BY)}, in steps of auto, {', '.join(BUCKETS)}")
    wanted, series = selection or Selection(), Series(by, bucket)
    how["hints"] = hints_for(wanted, how.get("hints"))
    with binlogtool.open(paths, **how) as log:
        for part in log.blocks(wanted, decode="frame"):
            if isinstance(part, Block):
                series.block(part)
    return series.end()


def _json(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool import __version__
    from binlogtool.report.json import verify_document

    return b"".join(verify_document(report, __version__))


def _junit(report: Report, fail_on: Severity | None) -> bytes:
    from binlogtool.report.junit import junit

    return junit(report, fail_on=fail_on)


def _sarif(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool import __version__
    from binlogtool.report.json import document
    from binlogtool.report.sarif import sarif

    return document(sarif(report, __version__))


def _gitlab(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.report.gitlab import gitlab
    from binlogtool.report.json import document

    return document(gitlab(report))


def _markdown(report: Report, _fail_on: Severity | None) -> bytes:
    from binlogtool.report.markdown import markdown

    return markdown(report).encode("utf-8", "backslashreplace")


_KINDS: Mapping[str, Callable[[Report, Severity | None], bytes]] = {
    "junit": _junit,
    "sarif": _sarif,
    "gitlab": _gitlab,
    "json": _json,
    "markdown": _markdown,
}
REPORTS = (*_KINDS, "html")
"""The kinds of `report_as`."""
