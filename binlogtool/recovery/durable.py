"""Plan the repair of a log: find where its durable part ends, and what to cut. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, LimitError, RefusedError, UsageError
from binlogtool.formats.heads import is_header_correction
from binlogtool.formats.repair_rules import FileFix
from binlogtool.log.how import ReadOptions
from binlogtool.log.named import LogGroup, resolve_logs
from binlogtool.log.rotated import find_newest
from binlogtool.log.source import is_url
from binlogtool.recovery.behind import describe_stale_file, leave_stale_files
from binlogtool.recovery.corrected import FLIPPED_BIT_ADVICE
from binlogtool.recovery.draft import FilePlanDraft, FilePlanDrafts, bind_to_file, draft_file_plan, find_transaction_end
from binlogtool.recovery.fileio import get_directory
from binlogtool.recovery.interrupted import explain_unfinished
from binlogtool.recovery.leftovers import describe_leftovers
from binlogtool.recovery.outcome import PlanSnapshot, compare_with_plan
from binlogtool.recovery.outlook import (
    describe_finding,
    format_unclean,
    format_unrepaired,
    predict_damage,
    predict_new_damage,
    select_errors,
)
from binlogtool.recovery.plan import FilePlan, RepairPlan, RepairPolicy, ResultPiece
from binlogtool.recovery.reading import ExaminedLog, LogExaminer, is_same_path
from binlogtool.recovery.refusals import check_empty_result, collect_refusals
from binlogtool.recovery.report import FileReport, Report, merge_reports
from binlogtool.recovery.result import collect_file_fixes
from binlogtool.recovery.settle import plan_joint_repair
from binlogtool.recovery.system import SYSTEM
from binlogtool.recovery.verify import VerifiedMember, examine_log

_COMPRESSED_MAGICS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def plan_truncate(
    path: str | os.PathLike[str],
    read_options: ReadOptions,
    policy: RepairPolicy,
) -> RepairPlan:
    """See `binlogtool.plan_truncate`.

    Raises:
        UsageError: standard input was named. UnknownFormatError, InputOutputError.
    """
    name = os.fspath(path)
    if name == "-":
        raise UsageError("standard input cannot be repaired; name a file or a directory")
    if is_url(name):
        raise UsageError(f"{name}: repair is for local files only; copy the log to a disk first")
    return make_plan(name, LogExaminer.from_read_options(read_options), policy)


def make_plan(path: str, examiner: LogExaminer, policy: RepairPolicy) -> RepairPlan:
    """Plan the repair of one log; refuse it while an earlier repair of the log is not finished."""
    plan = draft_plan(path, examiner, policy)[0]
    forced = policy.allow_empty_result and examiner.format != "auto" and not os.path.isdir(path)
    empty_reasons = check_empty_result(plan.files, allow_empty=forced)
    reasons, notes = (*explain_unfinished(path), *empty_reasons, *plan.reasons), (*plan.notes, *_list_leftovers(plan))
    plan = replace(plan, refused=bool(reasons), reasons=reasons, notes=notes)
    return replace(plan, copyable_path=_find_copyable_file(plan, examiner)) if plan.refused else plan


def _find_copyable_file(plan: RepairPlan, examiner: LogExaminer) -> str | None:
    """Return the file that a plan is refused for, if a salvaged copy of it would not be refused; else None."""
    blocking_file, policy = plan.blocking_file, plan.policy
    if blocking_file is None or blocking_file.action == "none" or policy.salvage or policy.copy:
        return None
    try:
        copy_plan = draft_plan(blocking_file.path, examiner, replace(policy, salvage=True, copy=True))[0]
    except BinlogtoolError:
        return None
    return None if copy_plan.refused or check_empty_result(copy_plan.files, allow_empty=False) else blocking_file.path


def draft_plan(path: str, examiner: LogExaminer, policy: RepairPolicy) -> tuple[RepairPlan, Report]:
    """Draft the plan for one log; return it with the report that it was made from."""
    _refuse_compressed(path)
    examined = examiner.examine_path(path)
    logs, report = examined.logs, examined.report
    if report.incomplete:
        why = next(one.details["incomplete"] for one in report.files if "incomplete" in one.details)
        raise LimitError(f"{path}: {why}; without the whole log there is no plan")
    if _needs_joint_repair(path, report):
        return _plan_joint_repair(path, report, examiner, policy)
    list_fixes = _plan_list_fixes(logs) if policy.fix_meta else {}
    drafts, newest_files = FilePlanDrafts(), _find_newest_files(logs)
    for file_report in _select_unlisted(report, list_fixes):
        drafts.add(
            draft_file_plan(
                file_report, examiner, replace(policy, fix_meta=False) if file_report.path in newest_files else policy
            )
        )
    for entry in logs:
        drafts.noteworthy |= leave_stale_files(entry.log, report, drafts.noteworthy, policy)
    if not os.path.isdir(path) and any(one.plan.action != "none" for one in drafts.noteworthy.values()):
        logs = _find_owning_log(path, report, examiner) or logs
        report = _add_set_findings(path, report, logs)
    plans = drafts.collect_plans(*list_fixes.values())
    pairs = zip(_select_unlisted(report, list_fixes), drafts, strict=True)
    reasons = [text for own, draft in pairs for text in _list_refusals(own, draft, policy)]
    reasons = reasons or _list_remaining_damage(path, logs, report, plans, drafts.noteworthy, examiner, policy)
    notes = tuple(dict.fromkeys(note for one in drafts.noteworthy.values() for note in one.notes))
    notes += () if os.path.isdir(path) else describe_stale_file(path, logs[0].log, plans)
    format_ = report.files[0].format
    target = os.path.abspath(path)
    return RepairPlan(format_, bool(reasons), tuple(reasons), plans, target, policy, notes, examined.skipped), report


def _find_newest_files(logs: Sequence[ExaminedLog]) -> frozenset[str]:
    """Return the newest file of each log set.

    Its in-use mark stays: without it the server does not look for prepared transactions, and rolls back what the file
    holds (MySQL) or does not start (MariaDB).
    """
    newest_names = ((one.log, find_newest(one.log.names)) for one in logs if one.log.is_set)
    return frozenset(log.member_path(name) for log, names in newest_names for _, name in names.values())


def _select_unlisted(report: Report, list_fixes: Mapping[str, FilePlan]) -> Iterator[FileReport]:
    """Yield the reports of files that are not rewritten as a whole by a list fix."""
    return (one for one in report.files if one.path not in list_fixes)


def _list_refusals(report: FileReport, draft: FilePlanDraft, policy: RepairPolicy) -> list[str]:
    return [*draft.reasons, *collect_refusals(report, draft.plan, policy)]


def _list_remaining_damage(
    path: str,
    logs: Sequence[ExaminedLog],
    report: Report,
    plans: Sequence[FilePlan],
    drafts: Mapping[str, FilePlanDraft],
    examiner: LogExaminer,
    policy: RepairPolicy,
) -> list[str]:
    """Describe what would still be wrong after the plan."""
    predictions = {name: one.predicted_file for name, one in drafts.items() if one.predicted_file is not None}
    if os.path.isdir(path):
        return [text for one in logs for text in _list_remaining_in_log(one, plans, predictions, examiner, policy)]
    (plan,), (file_report,) = plans, report.files
    if (
        policy.salvage and plan.action != "none"
    ):  # rows may be missing; `collect_refusals` reports what else would be wrong
        return []
    if plan.action == "none":
        unrepaired = [
            f for f in select_errors(file_report.findings) if not (policy.salvage and f.id == "gap-in-sequence")
        ]
        return [
            format_unrepaired(
                f"{path}: {describe_finding(f)}", *([FLIPPED_BIT_ADVICE] if is_header_correction(f) else ())
            )
            for f in unrepaired
        ]
    (log,) = logs  # for a single file `collect_refusals` reports what would be wrong
    member_path = next((one for one in map(log.log.member_path, log.log.names) if is_same_path(one, path)), path)
    return (
        predict_new_damage(
            log, replace(plan, path=member_path), {member_path: predictions[path]}, examiner.verify_options
        )
        if log.log.is_set
        else []
    )


def _list_remaining_in_log(
    log: ExaminedLog,
    plans: Sequence[FilePlan],
    predictions: Mapping[str, VerifiedMember],
    examiner: LogExaminer,
    policy: RepairPolicy,
) -> Iterator[str]:
    for text, is_old in predict_damage(log, plans, predictions, examiner.verify_options):
        if not is_old:
            yield format_unclean(text)
        elif not policy.fix_meta and collect_file_fixes(log.log):
            yield format_unrepaired(text, "--fix-meta may mend it")
        else:
            yield format_unrepaired(text)


def _needs_joint_repair(path: str, report: Report) -> bool:
    """Return True if the format decides itself what becomes of all files of a log.

    Raises:
        UsageError: there are logs of another format, too.
    """
    kinds = {one.format for one in report.files}
    if all(formats.load_format(kind).repair.plan_joint_repair is None for kind in kinds):
        return False
    if len(kinds) > 1:
        raise UsageError(f"{path}: logs of several formats ({', '.join(sorted(kinds))}); choose one with --format")
    return True


def _plan_joint_repair(
    path: str, report: Report, examiner: LogExaminer, policy: RepairPolicy
) -> tuple[RepairPlan, Report]:
    if policy.transactions:
        find_transaction_end(report.files[0], examiner.get_format(report.files[0].format))
    joint_plan = plan_joint_repair(path, report, examiner, policy)
    files = tuple(one if one.action == "none" else bind_to_file(one) for one in joint_plan.files)
    reasons, target = joint_plan.reasons, os.path.abspath(path)
    kind, left = report.files[0].format, report.skipped
    return RepairPlan(kind, bool(reasons), reasons, files, target, policy, joint_plan.notes, left), joint_plan.report


def _plan_list_fixes(logs: Sequence[ExaminedLog]) -> dict[str, FilePlan]:
    """Return the plans for the list files of the logs' directories that `--fix-meta` corrects, by path."""
    plans = [_plan_list_fix(one.log, made) for one in logs if one.log.is_set for made in collect_file_fixes(one.log)]
    return {plan.path: plan for plan in plans}


def _plan_list_fix(log: LogGroup, fix: FileFix) -> FilePlan:
    path, proof = log.member_path(fix.name), {"why": fix.reason}
    like = None if fix.like is None else log.member_path(fix.like)
    size = 0 if like is not None else os.stat(path).st_size
    if fix.content is None:
        return bind_to_file(FilePlan(path, size, "remove", None, size, 0, proof, None, None))
    pieces = (ResultPiece(data=fix.content),)
    return bind_to_file(FilePlan(path, size, "rewrite", None, 0, 0, proof, None, None, pieces=pieces, made_like=like))


def make_result_check(plan: RepairPlan, examiner: LogExaminer) -> Callable[[], list[str]]:
    """Return a function that examines the files after the repair and lists what is not as planned."""

    def check() -> list[str]:
        left = [one.path for one in plan.files if one.action == "remove" and os.path.lexists(one.path)]
        if left or all(one.action == "remove" for one in plan.files):
            return [f"{path}: is still there" for path in left]
        try:
            after, report = draft_plan(plan.target, examiner, replace(plan.policy, max_loss=None))
            return compare_with_plan(
                PlanSnapshot(plan.files, plan.reasons, ()), PlanSnapshot(after.files, after.reasons, report.files)
            )
        except BinlogtoolError as error:
            return [str(error)]

    return check


def _find_owning_log(path: str, report: Report, examiner: LogExaminer) -> list[ExaminedLog]:
    """Return the examined log set that a single file is a member of, if its format validates log sets; else an empty
    list.
    """
    format_ = examiner.get_format(report.files[0].format)
    if format_.validation.validate_set is None:
        return []
    try:
        logs = resolve_logs(os.path.dirname(path) or ".", format_.spec)
    except BinlogtoolError:
        return []
    owning = [log for log in logs if any(is_same_path(log.member_path(name), path) for name in log.names)]
    return [ExaminedLog(log, examine_log(log, examiner.verify_options)) for log in owning]


def _add_set_findings(path: str, report: Report, logs: Sequence[ExaminedLog]) -> Report:
    """Return the report on a single file with what the other files of its log set say about it."""
    file_reports = [
        one for one in merge_reports(log.examination.report for log in logs).files if is_same_path(one.path, path)
    ]
    return Report(tuple(replace(one, path=path) for one in file_reports) or report.files, ())


def _list_leftovers(plan: RepairPlan) -> list[str]:
    """Describe what earlier runs left beside the files; skip directories that cannot be read."""
    names_by_directory: dict[str, list[str]] = {}
    for file in plan.files:
        names_by_directory.setdefault(get_directory(file.path), []).append(os.path.basename(file.path))
    lines = []
    for directory, names in names_by_directory.items():
        with suppress(OSError):
            lines += describe_leftovers(SYSTEM, os.path.realpath(directory), names)
    return lines


def _refuse_compressed(path: str) -> None:
    try:
        if not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return  # reported where the file is read
    if head.startswith(_COMPRESSED_MAGICS):
        raise RefusedError(f"{path}: is a compressed file; unpack it first; nothing was changed")
