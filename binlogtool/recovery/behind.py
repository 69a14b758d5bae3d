"""Find stale logs: the server already appends to a newer file of the log set, so their torn ends are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from binlogtool.findings import Severity
from binlogtool.log.named import Group
from binlogtool.log.rotated import later, newest
from binlogtool.recovery.draft import Draft, unchanged
from binlogtool.recovery.plan import Asked, FilePlan
from binlogtool.recovery.reading import same_file
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport, Report

_GOOD_FOR = "only readers that do not stop at its end would gain by a cut"


def left_alone(log: Group, report: Report, drafts: Mapping[str, Draft], asked: Asked) -> dict[str, Draft]:
    """Return the files of a directory whose torn end needs no cut, by path, each with a plan that changes nothing.

    Only files that a newer one of the same kind follows, and whose server reads over the torn end.
    """
    if not log.is_set or asked.write_close_marker:
        return {}
    cut = {path: draft for path, draft in drafts.items() if draft.plan.action == "truncate" and not draft.reasons}
    if not cut:
        return {}
    paths, last = {log.member_path(name): name for name in log.names}, newest(log.names)
    stays = {}
    for one in report.files:
        after = later(paths[one.path], last) if one.path in cut and one.path in paths else None
        if after is not None and _is_left(one):
            stays[one.path] = Draft(unchanged(one), (f"{one.path}: {_words(after)}; name the file to cut it",))
    return stays


def _is_left(report: FileReport) -> bool:
    """Return True if the server accepts every end-of-file finding of the file, so that no cut is needed."""
    ends = [f for f in report.findings if f.id in CUTTABLE]
    return bool(ends) and all(f.severity < Severity.ERROR and f.facts.get("server") != "refuse" for f in ends)


def told(path: str, log: Group, plans: Sequence[FilePlan]) -> tuple[str, ...]:
    """Return a note for a stale file that was named itself: it is truncated all the same; empty if it is not stale."""
    name = next((name for name in log.names if same_file(log.member_path(name), path)), None)
    after = None if name is None or not log.is_set else later(name, newest(log.names))
    return () if after is None or all(one.action == "none" for one in plans) else (f"{path}: {_words(after)}",)


def _words(after: str) -> str:
    return f"{after} came after it: the server will not append here; {_GOOD_FOR}"
