"""Build the plans for files of a log that change together, and count the complete records that each loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from binlogtool.formats.repair_rules import RewrittenFile
from binlogtool.log.named import LogGroup
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport


def build_file_plans(
    log: LogGroup,
    reports: Sequence[FileReport],
    rewritten: Mapping[str, RewrittenFile],
    after: Mapping[str, FileReport],
) -> tuple[FilePlan, ...]:
    """Return the plan for each file, not yet bound to its bytes.

    Args:
        rewritten: What the format makes of files, by path.
        after: What `verify` says of the result, by path.
    """
    paths = [one.path for one in reports]
    derived_types = _derived_types(log)
    files = [_plan_file(one, rewritten.get(one.path), after.get(one.path), derived_types) for one in reports]
    new_plans = [
        _plan_new_file(path, log, one, after.get(path)) for path, one in rewritten.items() if path not in paths
    ]
    return (*files, *new_plans)


def _derived_types(log: LogGroup) -> frozenset[str]:
    assert log.format is not None
    return log.format.repair.derived


def _count_lost_records(
    report: FileReport, after: FileReport | None, ignored_types: frozenset[str] = frozenset()
) -> Counter[str]:
    """Count the complete records that are not in the result, by type."""
    lost = Counter(report.record_types)
    lost.subtract({} if after is None else after.record_types)
    return Counter({name: count for name, count in lost.items() if count > 0 and name not in ignored_types})


def note_derived_losses(
    log: LogGroup, reports: Sequence[FileReport], files: Sequence[FilePlan], after: Mapping[str, FileReport]
) -> Iterator[str]:
    """Yield notes about removed records that only repeat what other records say."""
    reports_by_path = {one.path: one for one in reports}
    for file in files:
        if file.action == "none" or file.path not in reports_by_path:
            continue
        lost = _count_lost_records(reports_by_path[file.path], after.get(file.path))
        for name in _derived_types(log) & lost.keys():
            yield f"{file.path}: {lost[name]:,} {name} goes, too: it only repeats what the records before say"


def _plan_new_file(path: str, log: LogGroup, rewritten: RewrittenFile, after: FileReport | None) -> FilePlan:
    """Return the plan for a file that does not exist yet."""
    assert rewritten.like is not None
    records = 0 if after is None else after.records or 0
    last = None if after is None else after.last_seq
    proof: dict[str, Any] = {"records": 0, "last_seq": last, "durable_end": rewritten.durable_end, **rewritten.proof}
    proof["records_kept"] = records
    like = log.member_path(rewritten.like)
    end, pieces = rewritten.durable_end, rewritten.pieces
    return FilePlan(path, 0, rewritten.action, end, 0, 0, proof, None, None, pieces=pieces, made_like=like)


def _plan_file(
    report: FileReport, rewritten: RewrittenFile | None, after: FileReport | None, derived_types: frozenset[str]
) -> FilePlan:
    """Return the plan for one file, not yet bound to its bytes."""
    end = report.durable_end
    proof: dict[str, Any] = {"records": report.records, "last_seq": report.last_seq, "durable_end": end}
    if rewritten is None:
        return FilePlan(report.path, report.size, "none", end, 0, 0, proof, None, None)
    end = rewritten.durable_end
    tail_findings = [f for f in report.findings if f.id in CUTTABLE or (end is not None and (f.offset or 0) >= end)]
    tail_summaries = [{"id": f.id, "offset": f.offset, "length": f.length, "message": f.message} for f in tail_findings]
    proof |= {"durable_end": end, "behind": tail_summaries, **rewritten.proof}
    remaining_records = (after.records or 0) if after is not None else 0
    proof["last_seq"] = None if after is None else after.last_seq
    if remaining_records != report.records:
        proof["records_kept"] = remaining_records
    lost = sum(_count_lost_records(report, after, derived_types).values())
    pieces = rewritten.pieces
    return FilePlan(
        report.path, report.size, rewritten.action, end, rewritten.lost, lost, proof, None, None, pieces=pieces
    )
