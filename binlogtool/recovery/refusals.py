"""Reasons to refuse the cut of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.repair_rules import SERVER_CUTS
from binlogtool.recovery.report import FileReport

if TYPE_CHECKING:
    from binlogtool.recovery.plan import Asked, FilePlan

CUTTABLE = ("torn-tail", "zero-tail", "garbage-tail")
"""What a cut removes without a question. Space that the writer reserved (preallocated-tail) stays."""
EMPTY = "no record would be kept"
"""The refusal of a plan that leaves nothing, in its own words."""
UNFINISHED = "--apply finishes it first"
WHOLE_LOG = "name the directory"
LIST = "--fix-meta"
"""Reasons that name it may go away with it."""
UNCERTAIN = "dialect not certain"
"""The diagnosis of a log that can be read in two ways: what is no record in one of them may be one in the other."""


def refusals(report: FileReport, plan: FilePlan, asked: Asked) -> list[str]:
    """Return the reasons against a file's plan, in words; none for a file that does not change."""
    reasons = []
    if report.encrypted:
        reasons.append(f"{report.path}: {sealed(report)}")
    elif plan.durable_end is None:
        reasons.append(f"{report.path}: the header cannot be read; no durable end can be given")
    if plan.action == "none":
        return reasons
    if plan.result_size < report.bytes.get("header", 0) <= report.size:
        reasons.append(f"{report.path}: the cut would lie inside the head of the file; it cannot be repaired by a cut")
    cuts = _server_cuts(report)
    barred = [f for f in report.findings if not _allowed(f, plan, asked, cuts)]
    reasons += [_words(report, f) for f in sorted(barred, key=_is_detail)]
    if not reasons:
        reasons += [f"{report.path}: the result would not be clean: {text}" for text in plan.proof.get("not_clean", ())]
    return reasons + beyond(plan, asked)


def sealed(report: FileReport) -> str:
    """Describe what is known of the end of an encrypted log without its key."""
    known = report.bytes.get("record", 0)
    sizes = f"the sizes of its events account for {known:,} of {report.size:,} bytes; " if known else ""
    return f"the log is encrypted; {sizes}where its durable part ends is only known with --keyfile FILE"


def beyond(plan: FilePlan, asked: Asked) -> list[str]:
    """Return the reasons against cutting more than --max-loss and --max-loss-records allow."""
    reasons = []
    if asked.max_loss is not None and plan.cut_bytes > asked.max_loss:
        reasons.append(f"{plan.path}: {plan.cut_bytes:,} bytes would be cut, --max-loss allows {asked.max_loss:,}")
    if asked.max_loss_records is not None and plan.cut_valid_records > asked.max_loss_records:
        lost, bound = plan.cut_valid_records, asked.max_loss_records
        reasons.append(f"{plan.path}: {lost:,} complete records would be cut, --max-loss-records allows {bound:,}")
    return reasons


def empties(plans: Sequence[FilePlan], *, forced: bool) -> list[str]:
    """Return the reasons against a plan that cuts and keeps no record, or nothing of a file.

    Args:
        allow_empty: Accept an empty result.
    """
    cut = [one for one in plans if one.cut_bytes and one.made_like is None]
    if forced or not cut:
        return []
    if not any(one.kept_records for one in plans):
        text = f"{EMPTY}: it is no log, or nothing of it can be kept by a cut"
        return [f"{cut[0].path}: {text}"]
    return [f"{one.path}: nothing would be left of it" for one in cut if one.action != "remove" and not one.result_size]


def _server_cuts(report: FileReport) -> bool:
    """Return True if the server itself cuts what follows the durable end; never if complete records follow."""
    return bool(report.details.get(SERVER_CUTS)) and all(f.id != "valid-after-damage" for f in report.findings)


def _allowed(found: Finding, plan: FilePlan, asked: Asked, cuts: bool) -> bool:
    """Return True if the file may be changed in spite of the finding.

    Args:
        server_cuts: The server itself cuts after the durable end.
    """
    if found.id == "changed-while-read" or found.facts.get("diagnosis") == UNCERTAIN:
        return False
    if found.severity is not Severity.ERROR or found.id in (*CUTTABLE, "damaged-range"):
        return True
    if found.id == "gap-in-sequence":
        return False
    if asked.salvage and is_corrected(found):
        return True
    behind = plan.durable_end is not None and found.offset is not None and found.offset >= plan.durable_end
    return behind and (cuts or asked.allow_discard_valid or asked.salvage)


def _is_detail(found: Finding) -> bool:
    """Return True for findings that are listed after those about lost records."""
    return found.id not in ("valid-after-damage", "gap-in-sequence")


def _words(report: FileReport, found: Finding) -> str:
    if found.id == "changed-while-read":
        return f"{report.path}: {found.id}: {found.message}; plan again when nobody writes to it"
    if found.id == "valid-after-damage":
        return f"{report.path}: {found.id}: {found.message}; cutting would discard them"
    if found.id == "gap-in-sequence":
        return f"{report.path}: {found.id}: {found.message}; cutting would hide that"
    return f"{report.path}: {found.id} at {found.offset or 0:#x}: {found.message}"
