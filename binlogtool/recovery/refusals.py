"""Why a file must not be cut as planned."""

from __future__ import annotations

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.plan import Asked, FilePlan
from binlogtool.recovery.report import FileReport

CUTTABLE = ("torn-tail", "zero-tail", "preallocated-tail", "garbage-tail")
_BLOCKING = ("valid-after-damage", "gap-in-sequence")


def refusals(report: FileReport, plan: FilePlan, asked: Asked) -> list[str]:
    """The reasons, in words; none for a file that does not change."""
    reasons = []
    if plan.durable_end is None:
        reasons.append(f"{report.path}: the header cannot be read; no durable end can be given")
    if plan.action == "none":
        return reasons
    reasons += [_words(report, f) for f in report.findings if not _allowed(f, plan, asked)]
    if asked.max_loss is not None and plan.cut_bytes > asked.max_loss:
        reasons.append(f"{report.path}: {plan.cut_bytes:,} bytes would be cut, --max-loss allows {asked.max_loss:,}")
    if asked.max_loss_records is not None and plan.cut_valid_records > asked.max_loss_records:
        lost, bound = plan.cut_valid_records, asked.max_loss_records
        reasons.append(f"{report.path}: {lost:,} complete records would be cut, --max-loss-records allows {bound:,}")
    return reasons


def _allowed(found: Finding, plan: FilePlan, asked: Asked) -> bool:
    """May the file be changed in spite of this finding?"""
    if found.id == "changed-while-read":
        return False
    if found.severity is not Severity.ERROR or found.id in (*CUTTABLE, "damaged-range"):
        return True
    if found.id == "gap-in-sequence":
        return False
    behind = plan.durable_end is not None and found.offset is not None and found.offset >= plan.durable_end
    return behind and (asked.allow_discard_valid or asked.salvage)


def _words(report: FileReport, found: Finding) -> str:
    if found.id == "changed-while-read":
        return f"{report.path}: {found.id}: {found.message}; plan again when nobody writes to it"
    if found.id in _BLOCKING:
        return f"{report.path}: {found.id}: {found.message}; cutting would discard them"
    return f"{report.path}: {found.id} at {found.offset or 0:#x}: {found.message}"
