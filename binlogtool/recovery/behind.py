"""Find stale logs: the server already appends to a newer file of the log set, so their torn ends are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from binlogtool.findings import Severity
from binlogtool.log.named import LogGroup
from binlogtool.log.rotated import find_later, find_newest
from binlogtool.recovery.draft import FilePlanDraft, plan_no_change
from binlogtool.recovery.plan import FilePlan, RepairPolicy
from binlogtool.recovery.reading import is_same_path
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport, Report

_BENEFIT_OF_CUT = "only readers that do not stop at its end would gain by a cut"


def leave_stale_files(
    log: LogGroup, report: Report, drafts: Mapping[str, FilePlanDraft], policy: RepairPolicy
) -> dict[str, FilePlanDraft]:
    """Return the files of a directory whose torn end needs no cut, by path, each with a plan that changes nothing.

    Only files that a newer one of the same kind follows, and whose server reads over the torn end.
    """
    if not log.is_set or policy.write_close_marker:
        return {}
    truncated = {path: draft for path, draft in drafts.items() if draft.plan.action == "truncate" and not draft.reasons}
    if not truncated:
        return {}
    paths, newest_names = {log.member_path(name): name for name in log.names}, find_newest(log.names)
    unchanged_drafts = {}
    for file_report in report.files:
        newer_name = (
            find_later(paths[file_report.path], newest_names)
            if file_report.path in truncated and file_report.path in paths
            else None
        )
        if newer_name is not None and _is_harmless_tail(file_report):
            unchanged_drafts[file_report.path] = FilePlanDraft(
                plan_no_change(file_report),
                (f"{file_report.path}: {_describe_newer_file(newer_name)}; name the file to cut it",),
            )
    return unchanged_drafts


def _is_harmless_tail(report: FileReport) -> bool:
    """Return True if the server accepts every end-of-file finding of the file, so that no cut is needed."""
    ends = [f for f in report.findings if f.id in CUTTABLE]
    return bool(ends) and all(f.severity < Severity.ERROR and f.facts.get("server") != "refuse" for f in ends)


def describe_stale_file(path: str, log: LogGroup, plans: Sequence[FilePlan]) -> tuple[str, ...]:
    """Return a note for a stale file that was named itself: it is truncated all the same; empty if it is not stale."""
    name = next((name for name in log.names if is_same_path(log.member_path(name), path)), None)
    newer_name = None if name is None or not log.is_set else find_later(name, find_newest(log.names))
    return (
        ()
        if newer_name is None or all(one.action == "none" for one in plans)
        else (f"{path}: {_describe_newer_file(newer_name)}",)
    )


def _describe_newer_file(newer_name: str) -> str:
    return f"{newer_name} came after it: the server will not append here; {_BENEFIT_OF_CUT}"
