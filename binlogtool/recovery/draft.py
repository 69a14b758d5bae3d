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
from binlogtool.formats.repair_rules import Repair
from binlogtool.recovery.fileio import sha256, three_hashes
from binlogtool.recovery.plan import Asked, FilePlan, FilePlans, KeptPlan, Piece, packed, unpacked
from binlogtool.recovery.predict import not_clean, predicted
from binlogtool.recovery.reading import Reading
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.result import result_of
from binlogtool.recovery.salvage import Salvage
from binlogtool.recovery.system import READ, SYSTEM
from binlogtool.recovery.verify import Judged

MAX_GAPS = 20
"""Gaps of a salvaged log that are told one by one."""


class Draft(NamedTuple):
    """The plan for one file, not yet approved.

    Attributes:
        notes: What the user should know of it.
        reasons: Why it must not be carried out.
        predicted_file: The result as `verify` would see it; None if the file stays.
    """

    plan: FilePlan
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    after: Judged | None = None


class Drafts:
    """The drafts for many files, in their order.

    A file that stays and has neither notes nor reasons is kept as its packed plan only: there may be very many.

    Attributes:
        noteworthy: All other drafts, by path.
    """

    def __init__(self) -> None:
        self.told: dict[str, Draft] = {}
        self._all: list[KeptPlan | str] = []

    def add(self, draft: Draft) -> None:
        """Append the draft for the next file."""
        plan = draft.plan
        if plan.action == "none" and not (draft.notes or draft.reasons):
            self._all.append(packed(plan))
        else:
            self._all.append(plan.path)
            self.told[plan.path] = draft

    def __iter__(self) -> Iterator[Draft]:
        return (self.told[one] if isinstance(one, str) else Draft(unpacked(one)) for one in self._all)

    def plans(self, *more: FilePlan) -> FilePlans:
        """Return the plans of all drafts, then the extra ones."""
        own = (self.told[one].plan if isinstance(one, str) else one for one in self._all)
        return FilePlans(chain(own, more))


def file_plan(report: FileReport, reading: Reading, asked: Asked) -> Draft:
    """Draft the plan for one file and predict its result."""
    end = report.durable_end
    format_ = reading.format_of(report.format)
    keep = report.size if end is None else keep_of(report, end)
    if asked.transactions and end is not None:
        keep = min(keep, whole_transactions(report, format_))
    hints = reading.hints or Hints()
    result = result_of(report, keep, format_, asked, reading.limits, reading.backend, hints)
    pieces = result.pieces
    cut = report.size - sum(p.size for p in pieces if p.kept) if pieces else 0
    replaced = sum(p.size for p in pieces[:-1] if p.data is not None)
    cut -= replaced
    proof: dict[str, Any] = {
        "records": report.records,
        "last_seq": report.last_seq,
        "durable_end": end,
        "behind": [_brief(f) for f in report.findings if end is not None and (f.offset or 0) >= end],
    }
    proof |= {"encrypted": True} if report.encrypted else {}
    told = {"left_out": result.salvaged.left_out, "mended": result.salvaged.mended}
    proof |= {name: list(parts) for name, parts in told.items() if parts}
    action = "none" if not pieces else "truncate" if pieces == (Piece(0, keep),) else "rewrite"
    plan = FilePlan(report.path, report.size, action, end, cut, 0, proof, None, None, pieces=pieces)
    if action == "none":
        return Draft(plan)
    judged_after = predicted(report.path, pieces, format_, reading.limits, reading.backend, hints)
    after = judged_after.report
    proof["last_seq"] = after.last_seq
    if after.records != report.records:
        proof["records_kept"] = after.records
        plan = replace(plan, cut_valid_records=max(0, (report.records or 0) - (after.records or 0)))
    proof |= {"not_clean": wrong} if (wrong := not_clean(after, salvage=asked.salvage)) else {}
    missing = _missing(result.salvaged, after, format_.repair) if asked.salvage else ()
    return Draft(bound(plan), (*result.notes, *missing), result.reasons, judged_after)


def unchanged(report: FileReport) -> FilePlan:
    """Return the plan for a file that stays."""
    end = report.durable_end
    proof = {"records": report.records, "last_seq": report.last_seq, "durable_end": end}
    return FilePlan(report.path, report.size, "none", end, 0, 0, proof, None, None)


def _missing(made: Salvage, after: FileReport, repair: Repair) -> tuple[str, ...]:
    """Return notes about records that are, or may be, missing in the middle of a salvaged log."""
    gaps = [f"in the result: {f.message}" for f in after.findings if f.id == "gap-in-sequence"]
    possible = bool(gaps) if repair.numbered else made.holes > 0
    return (*((repair.gaps,) if possible and repair.gaps else ()), *gaps[:MAX_GAPS])


def whole_transactions(report: FileReport, format_: Format) -> int:
    """Return the end of the last complete transaction, as an offset in the file.

    Raises:
        UsageError: the format has no other end than the durable one.
    """
    if format_.repair.transactions is None:
        text = "a log of this format never ends within a transaction behind its durable end"
        raise UsageError(f"{report.path}: --transactions does not fit: {text} ({format_.title})")
    return int(report.details[format_.repair.transactions])


def bound(plan: FilePlan) -> FilePlan:
    """Return the plan with the hashes of the kept and the cut bytes, and the identity of the file.

    Raises:
        InputOutputError: the file cannot be read, or was changed or replaced.
    """
    if plan.made_like is not None:
        nothing = sha256(())
        return replace(plan, sha256_kept=nothing, sha256_cut=nothing)
    path = os.path.realpath(plan.path)
    kept = [p for p in plan.pieces if p.kept]
    try:
        fd = SYSTEM.open(path, READ)
        try:
            status = os.fstat(fd)
            if status.st_size != plan.size:
                raise InputOutputError(f"{plan.path}: changed while it was read; plan again when nobody writes to it")
            hashes = three_hashes(SYSTEM, fd, kept, plan.size, entire=False)
        finally:
            SYSTEM.close(fd)
    except OSError as error:
        raise InputOutputError(f"{plan.path}: cannot be read: {error.strerror}") from error
    return replace(plan, sha256_kept=hashes[0], sha256_cut=hashes[1], inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def keep_of(report: FileReport, end: int) -> int:
    """Return how many bytes to keep: up to the durable end, or everything if what follows it belongs there.

    What may follow it is the end mark, or space that the writer reserved.
    """
    cuttable = any(f.id in CUTTABLE and _ends_behind(f, end) for f in report.findings)
    if not report.closed:
        reserved = report.bytes.get("preallocated", 0)
        return report.size if end + reserved == report.size and not (reserved and cuttable) else end
    return end if any(_bars(f, end) for f in report.findings) else report.size


def _bars(found: Finding, end: int) -> bool:
    """Return True if the finding says that the bytes after the durable end do not belong there."""
    return (found.id in CUTTABLE or found.severity is Severity.ERROR) and _ends_behind(found, end)


def _ends_behind(found: Finding, end: int) -> bool:
    """Return True if the finding covers any byte at or after the durable end."""
    return found.offset is not None and found.offset + max(found.length, 1) > end


def _brief(found: Finding) -> dict[str, Any]:
    return {"id": found.id, "offset": found.offset, "length": found.length, "message": found.message}
