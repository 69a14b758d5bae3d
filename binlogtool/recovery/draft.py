"""Draft the repair of one file: the cut at its durable end, or what else the policy allows. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.repair_rules import RepairRules
from binlogtool.recovery.fileio import hash_chunks, hash_parts
from binlogtool.recovery.plan import (
    FilePlan,
    FilePlans,
    PackableFilePlan,
    RepairPolicy,
    ResultPiece,
    pack_file_plan,
    unpack_file_plan,
)
from binlogtool.recovery.predict import list_unclean_findings, verify_planned_file
from binlogtool.recovery.reading import LogExaminer
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.result import plan_content
from binlogtool.recovery.salvage import SalvagedContent
from binlogtool.recovery.system import READ, SYSTEM
from binlogtool.recovery.verify import VerifiedMember

MAX_GAPS = 20
"""Gaps of a salvaged log that are told one by one."""


class FilePlanDraft(NamedTuple):
    """The plan for one file, not yet approved.

    Attributes:
        notes: What the user should know of it.
        reasons: Why it must not be carried out.
        predicted_file: The result as `verify` would see it; None if the file stays.
    """

    plan: FilePlan
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    predicted_file: VerifiedMember | None = None


class FilePlanDrafts:
    """The drafts for many files, in their order.

    A file that stays and has neither notes nor reasons is kept as its packed plan only: there may be very many.

    Attributes:
        noteworthy: All other drafts, by path.
    """

    def __init__(self) -> None:
        self.noteworthy: dict[str, FilePlanDraft] = {}
        self._items: list[PackableFilePlan | str] = []

    def add(self, draft: FilePlanDraft) -> None:
        """Append the draft for the next file."""
        plan = draft.plan
        if plan.action == "none" and not (draft.notes or draft.reasons):
            self._items.append(pack_file_plan(plan))
        else:
            self._items.append(plan.path)
            self.noteworthy[plan.path] = draft

    def __iter__(self) -> Iterator[FilePlanDraft]:
        return (
            self.noteworthy[one] if isinstance(one, str) else FilePlanDraft(unpack_file_plan(one))
            for one in self._items
        )

    def collect_plans(self, *extra_plans: FilePlan) -> FilePlans:
        """Return the plans of all drafts, then the extra ones."""
        drafted_plans = (self.noteworthy[one].plan if isinstance(one, str) else one for one in self._items)
        return FilePlans(chain(drafted_plans, extra_plans))


def draft_file_plan(report: FileReport, examiner: LogExaminer, policy: RepairPolicy) -> FilePlanDraft:
    """Draft the plan for one file and predict its result."""
    end = report.durable_end
    format_ = examiner.get_format(report.format)
    keep_size = report.size if end is None else find_keep_size(report, end)
    if policy.transactions and end is not None:
        keep_size = min(keep_size, find_transaction_end(report, format_))
    hints = examiner.hints or Hints()
    result = plan_content(report, keep_size, format_, policy, examiner.limits, examiner.backend, hints)
    pieces = result.pieces
    cut = report.size - sum(p.size for p in pieces if p.is_original) if pieces else 0
    replaced = sum(p.size for p in pieces[:-1] if p.data is not None)
    cut -= replaced
    proof: dict[str, Any] = {
        "records": report.records,
        "last_seq": report.last_seq,
        "durable_end": end,
        "behind": [_summarize_finding(f) for f in report.findings if end is not None and (f.offset or 0) >= end],
    }
    proof |= {"encrypted": True} if report.is_encrypted else {}
    salvage_proof = {"left_out": result.salvaged.left_out, "mended": result.salvaged.fixed_frames}
    proof |= {name: list(parts) for name, parts in salvage_proof.items() if parts}
    action = "none" if not pieces else "truncate" if pieces == (ResultPiece(0, keep_size),) else "rewrite"
    plan = FilePlan(report.path, report.size, action, end, cut, 0, proof, None, None, pieces=pieces)
    if action == "none":
        return FilePlanDraft(plan)
    predicted_file = verify_planned_file(report.path, pieces, format_, examiner.limits, examiner.backend, hints)
    after = predicted_file.report
    proof["last_seq"] = after.last_seq
    if after.records != report.records:
        proof["records_kept"] = after.records
        plan = replace(plan, cut_valid_records=max(0, (report.records or 0) - (after.records or 0)))
    proof |= {"not_clean": unclean} if (unclean := list_unclean_findings(after, salvage=policy.salvage)) else {}
    missing = _describe_missing_records(result.salvaged, after, format_.repair) if policy.salvage else ()
    return FilePlanDraft(bind_to_file(plan), (*result.notes, *missing), result.reasons, predicted_file)


def plan_no_change(report: FileReport) -> FilePlan:
    """Return the plan for a file that stays."""
    end = report.durable_end
    proof = {"records": report.records, "last_seq": report.last_seq, "durable_end": end}
    return FilePlan(report.path, report.size, "none", end, 0, 0, proof, None, None)


def _describe_missing_records(salvaged: SalvagedContent, after: FileReport, repair: RepairRules) -> tuple[str, ...]:
    """Return notes about records that are, or may be, missing in the middle of a salvaged log."""
    gaps = [f"in the result: {f.message}" for f in after.findings if f.id == "gap-in-sequence"]
    possible = bool(gaps) if repair.numbered else salvaged.holes > 0
    return (*((repair.gaps,) if possible and repair.gaps else ()), *gaps[:MAX_GAPS])


def find_transaction_end(report: FileReport, format_: Format) -> int:
    """Return the end of the last complete transaction, as an offset in the file.

    Raises:
        UsageError: the format has no other end than the durable one.
    """
    if format_.repair.transactions is None:
        text = "a log of this format never ends within a transaction behind its durable end"
        raise UsageError(f"{report.path}: --transactions does not fit: {text} ({format_.title})")
    return int(report.details[format_.repair.transactions])


def bind_to_file(plan: FilePlan) -> FilePlan:
    """Return the plan with the hashes of the kept and the cut bytes, and the identity of the file.

    Raises:
        InputOutputError: the file cannot be read, or was changed or replaced.
    """
    if plan.made_like is not None:
        nothing = hash_chunks(())
        return replace(plan, sha256_kept=nothing, sha256_cut=nothing)
    path = os.path.realpath(plan.path)
    kept = [p for p in plan.pieces if p.is_original]
    try:
        fd = SYSTEM.open(path, READ)
        try:
            status = os.fstat(fd)
            if status.st_size != plan.size:
                raise InputOutputError(f"{plan.path}: changed while it was read; plan again when nobody writes to it")
            hashes = hash_parts(SYSTEM, fd, kept, plan.size, hash_whole=False)
        finally:
            SYSTEM.close(fd)
    except OSError as error:
        raise InputOutputError(f"{plan.path}: cannot be read: {error.strerror}") from error
    return replace(plan, sha256_kept=hashes[0], sha256_cut=hashes[1], inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def find_keep_size(report: FileReport, end: int) -> int:
    """Return how many bytes to keep: up to the durable end, or everything if what follows it belongs there.

    What may follow it is the end mark, or space that the writer reserved.
    """
    cuttable = any(f.id in CUTTABLE and _reaches_past(f, end) for f in report.findings)
    if not report.closed:
        reserved = report.bytes.get("preallocated", 0)
        return report.size if end + reserved == report.size and not (reserved and cuttable) else end
    return end if any(_is_wrong_after(f, end) for f in report.findings) else report.size


def _is_wrong_after(finding: Finding, end: int) -> bool:
    """Return True if the finding says that the bytes after the durable end do not belong there."""
    return (finding.id in CUTTABLE or finding.severity is Severity.ERROR) and _reaches_past(finding, end)


def _reaches_past(finding: Finding, end: int) -> bool:
    """Return True if the finding covers any byte at or after the durable end."""
    return finding.offset is not None and finding.offset + max(finding.length, 1) > end


def _summarize_finding(finding: Finding) -> dict[str, Any]:
    return {"id": finding.id, "offset": finding.offset, "length": finding.length, "message": finding.message}
