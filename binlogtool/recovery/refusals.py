"""Reasons to refuse the cut of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.repair_rules import SERVER_TRUNCATES
from binlogtool.recovery.report import FileReport

if TYPE_CHECKING:
    from binlogtool.recovery.plan import FilePlan, RepairPolicy

CUTTABLE = ("torn-tail", "zero-tail", "garbage-tail")
"""What a cut removes without a question. Space that the writer reserved (preallocated-tail) stays."""
EMPTY_RESULT = "no record would be kept"
"""The refusal of a plan that leaves nothing, in its own words."""
UNFINISHED_ADVICE = "--apply finishes it first"
WHOLE_LOG_ADVICE = "name the directory"
LIST_FIX_OPTION = "--fix-meta"
"""Reasons that name it may go away with it."""
UNCERTAIN_DIALECT = "dialect not certain"
"""The diagnosis of a log that can be read in two ways: what is no record in one of them may be one in the other."""


def collect_refusals(report: FileReport, plan: FilePlan, policy: RepairPolicy) -> list[str]:
    """Return the reasons against a file's plan, in words; none for a file that does not change."""
    reasons = []
    if report.is_encrypted:
        reasons.append(f"{report.path}: {describe_encrypted(report)}")
    elif plan.durable_end is None:
        reasons.append(f"{report.path}: the header cannot be read; no durable end can be given")
    if plan.action == "none":
        return reasons
    if plan.result_size < report.bytes.get("header", 0) <= report.size:
        reasons.append(f"{report.path}: the cut would lie inside the head of the file; it cannot be repaired by a cut")
    server_cuts = _does_server_cut(report)
    blocking = [f for f in report.findings if not _is_allowed(f, plan, policy, server_cuts)]
    reasons += [_describe_refusal(report, f) for f in sorted(blocking, key=_is_detail)]
    if not reasons:
        reasons += [f"{report.path}: the result would not be clean: {text}" for text in plan.proof.get("not_clean", ())]
    return reasons + check_loss_limits(plan, policy)


def describe_encrypted(report: FileReport) -> str:
    """Describe what is known of the end of an encrypted log without its key."""
    known_bytes = report.bytes.get("record", 0)
    sizes = f"the sizes of its events account for {known_bytes:,} of {report.size:,} bytes; " if known_bytes else ""
    return f"the log is encrypted; {sizes}where its durable part ends is only known with --keyfile FILE"


def check_loss_limits(plan: FilePlan, policy: RepairPolicy) -> list[str]:
    """Return the reasons against cutting more than --max-loss and --max-loss-records allow."""
    reasons = []
    if policy.max_loss is not None and plan.cut_bytes > policy.max_loss:
        reasons.append(f"{plan.path}: {plan.cut_bytes:,} bytes would be cut, --max-loss allows {policy.max_loss:,}")
    if policy.max_loss_records is not None and plan.cut_valid_records > policy.max_loss_records:
        lost, bound = plan.cut_valid_records, policy.max_loss_records
        reasons.append(f"{plan.path}: {lost:,} complete records would be cut, --max-loss-records allows {bound:,}")
    return reasons


def check_empty_result(plans: Sequence[FilePlan], *, allow_empty: bool) -> list[str]:
    """Return the reasons against a plan that cuts and keeps no record, or nothing of a file.

    Args:
        allow_empty: Accept an empty result.
    """
    cut = [one for one in plans if one.cut_bytes and one.made_like is None]
    if allow_empty or not cut:
        return []
    if not any(one.kept_records for one in plans):
        text = f"{EMPTY_RESULT}: it is no log, or nothing of it can be kept by a cut"
        return [f"{cut[0].path}: {text}"]
    return [f"{one.path}: nothing would be left of it" for one in cut if one.action != "remove" and not one.result_size]


def _does_server_cut(report: FileReport) -> bool:
    """Return True if the server itself cuts what follows the durable end; never if complete records follow."""
    return bool(report.details.get(SERVER_TRUNCATES)) and all(f.id != "valid-after-damage" for f in report.findings)


def _is_allowed(finding: Finding, plan: FilePlan, policy: RepairPolicy, server_cuts: bool) -> bool:
    """Return True if the file may be changed in spite of the finding.

    Args:
        server_cuts: The server itself cuts after the durable end.
    """
    if finding.id == "changed-while-read" or finding.facts.get("diagnosis") == UNCERTAIN_DIALECT:
        return False
    if finding.severity is not Severity.ERROR or finding.id in (*CUTTABLE, "damaged-range"):
        return True
    if finding.id == "gap-in-sequence":
        return False
    if policy.salvage and is_header_correction(finding):
        return True
    is_after_end = plan.durable_end is not None and finding.offset is not None and finding.offset >= plan.durable_end
    return is_after_end and (server_cuts or policy.allow_discard_valid or policy.salvage)


def _is_detail(finding: Finding) -> bool:
    """Return True for findings that are listed after those about lost records."""
    return finding.id not in ("valid-after-damage", "gap-in-sequence")


def _describe_refusal(report: FileReport, finding: Finding) -> str:
    if finding.id == "changed-while-read":
        return f"{report.path}: {finding.id}: {finding.message}; plan again when nobody writes to it"
    if finding.id == "valid-after-damage":
        return f"{report.path}: {finding.id}: {finding.message}; cutting would discard them"
    if finding.id == "gap-in-sequence":
        return f"{report.path}: {finding.id}: {finding.message}; cutting would hide that"
    return f"{report.path}: {finding.id} at {finding.offset or 0:#x}: {finding.message}"
