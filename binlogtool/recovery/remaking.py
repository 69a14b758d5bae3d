"""Build the plans for files of a log that change together, and count the complete records that each loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from binlogtool.formats.repair_rules import Remade
from binlogtool.log.named import Group
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport


def plans(
    log: Group, reports: Sequence[FileReport], remade: Mapping[str, Remade], after: Mapping[str, FileReport]
) -> tuple[FilePlan, ...]:
    """Return the plan for each file, not yet bound to its bytes.

    Args:
        rewritten: What the format makes of files, by path.
        after: What `verify` says of the result, by path.
    """
    paths = [one.path for one in reports]
    derived = _derived(log)
    files = [_plan(one, remade.get(one.path), after.get(one.path), derived) for one in reports]
    new = [_new(path, log, one, after.get(path)) for path, one in remade.items() if path not in paths]
    return (*files, *new)


def _derived(log: Group) -> frozenset[str]:
    assert log.format is not None
    return log.format.repair.derived


def _gone(report: FileReport, after: FileReport | None, but: frozenset[str] = frozenset()) -> Counter[str]:
    """Count the complete records that are not in the result, by type."""
    gone = Counter(report.record_types)
    gone.subtract({} if after is None else after.record_types)
    return Counter({name: count for name, count in gone.items() if count > 0 and name not in but})


def repeated(
    log: Group, reports: Sequence[FileReport], files: Sequence[FilePlan], after: Mapping[str, FileReport]
) -> Iterator[str]:
    """Yield notes about removed records that only repeat what other records say."""
    known = {one.path: one for one in reports}
    for file in files:
        if file.action == "none" or file.path not in known:
            continue
        gone = _gone(known[file.path], after.get(file.path))
        for name in _derived(log) & gone.keys():
            yield f"{file.path}: {gone[name]:,} {name} goes, too: it only repeats what the records before say"


def _new(path: str, log: Group, remade: Remade, after: FileReport | None) -> FilePlan:
    """Return the plan for a file that does not exist yet."""
    assert remade.like is not None
    records = 0 if after is None else after.records or 0
    last = None if after is None else after.last_seq
    proof: dict[str, Any] = {"records": 0, "last_seq": last, "durable_end": remade.durable_end, **remade.proof}
    proof["records_kept"] = records
    like = log.member_path(remade.like)
    end, pieces = remade.durable_end, remade.pieces
    return FilePlan(path, 0, remade.action, end, 0, 0, proof, None, None, pieces=pieces, made_like=like)


def _plan(report: FileReport, remade: Remade | None, after: FileReport | None, derived: frozenset[str]) -> FilePlan:
    """Return the plan for one file, not yet bound to its bytes."""
    end = report.durable_end
    proof: dict[str, Any] = {"records": report.records, "last_seq": report.last_seq, "durable_end": end}
    if remade is None:
        return FilePlan(report.path, report.size, "none", end, 0, 0, proof, None, None)
    end = remade.durable_end
    behind = [f for f in report.findings if f.id in CUTTABLE or (end is not None and (f.offset or 0) >= end)]
    told = [{"id": f.id, "offset": f.offset, "length": f.length, "message": f.message} for f in behind]
    proof |= {"durable_end": end, "behind": told, **remade.proof}
    left = (after.records or 0) if after is not None else 0
    proof["last_seq"] = None if after is None else after.last_seq
    if left != report.records:
        proof["records_kept"] = left
    lost = sum(_gone(report, after, derived).values())
    pieces = remade.pieces
    return FilePlan(report.path, report.size, remade.action, end, remade.lost, lost, proof, None, None, pieces=pieces)
