"""Plan a truncation to the durable end, for one file or for files that change together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core.open_file import detect_file_compression, is_url, make_readable_file
from binlogtool.core.resolve_paths import LogGroup, find_newer_file, find_newest_files, resolve_logs
from binlogtool.errors import BinlogtoolError, InputOutputError, LimitError, RefusedError, UsageError, name_os_errors
from binlogtool.findings import Finding, Severity, raise_if_limit
from binlogtool.format_api.format import (
    FileFix,
    Format,
    Hints,
    JointRepair,
    RepairRules,
    ResultPiece,
    RewrittenFile,
    VerifiedFile,
    is_header_correction,
)
from binlogtool.repair.execute_plan import describe_leftovers
from binlogtool.repair.plan_types import (
    CUTTABLE,
    FLIPPED_BIT_ADVICE,
    WHOLE_LOG_ADVICE,
    FilePlan,
    FilePlans,
    RepairPlan,
    RepairPolicy,
    collect_refusals,
    list_empty_result_reasons,
    list_exceeded_loss_limits,
)
from binlogtool.repair.repaired_content import (
    ExaminedLog,
    LogExaminer,
    PlanSnapshot,
    SalvagedContent,
    collect_file_fixes,
    describe_differences_from_plan,
    describe_finding,
    format_unclean,
    format_unrepaired,
    is_same_path,
    list_flipped_bits,
    list_unclean_findings,
    make_raw_reader,
    plan_content,
    predict_new_problems,
    predict_problems_after_plan,
    read_planned_range,
    rewrite_with_corrected_bits,
    select_errors,
    verify_planned_file,
    verify_planned_log,
)
from binlogtool.repair.system_calls import READ, SYSTEM, get_directory, hash_chunks, hash_kept_other_and_whole
from binlogtool.repair.undo_repair import explain_interrupted_repair
from binlogtool.verification.verify_logs import LogExamination, VerifiedMember, examine_log
from binlogtool.verification.verify_report import FileReport, Report, SetReport, merge_reports

if TYPE_CHECKING:
    from binlogtool.core.record_and_selection_types import ReadOptions
    from binlogtool.format_api.layout import RangeReader

# --- Plans for files that change together ---


def build_file_plans(
    log: LogGroup,
    reports: Sequence[FileReport],
    rewritten: Mapping[str, RewrittenFile],
    after: Mapping[str, FileReport],
) -> tuple[FilePlan, ...]:
    """Return the plan for each file, not yet bound to its bytes.

    Args:
        rewritten: Path -> the file as the format rewrites it.
        after: Path -> the report of `verify` on the result.
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
    """Count the complete records that are missing in the result, by type."""
    lost = Counter(report.record_types)
    lost.subtract({} if after is None else after.record_types)
    return Counter({name: count for name, count in lost.items() if count > 0 and name not in ignored_types})


def describe_removed_repetitions(
    log: LogGroup, reports: Sequence[FileReport], files: Sequence[FilePlan], after: Mapping[str, FileReport]
) -> Iterator[str]:
    """Yield a note for removed records that only repeat earlier records, so that no data is lost."""
    reports_by_path = {one.path: one for one in reports}
    for file in files:
        if file.action == "none" or file.path not in reports_by_path:
            continue
        lost = _count_lost_records(reports_by_path[file.path], after.get(file.path))
        for name in _derived_types(log) & lost.keys():
            yield f"{file.path}: also removed, because they only repeat earlier records: {lost[name]:,} of type {name}"


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


# --- Joint repair of several files ---


class JointRepairPlan(NamedTuple):
    """Joint plan for the files of one or more logs.

    Attributes:
        files: The file plans, not yet bound to the bytes of the files.
        reasons: Why the plans must not be applied.
        notes: Further information for the user.
        report: The report from which the plans were made.
    """

    files: tuple[FilePlan, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    report: Report


Results = Mapping[str, "tuple[ResultPiece, ...] | None"]
"""Path of a changed file -> the pieces of its result; None = the file is removed."""


class _LogState(NamedTuple):
    """State of a log, before or after the repair.

    Attributes:
        read: Function from a path to a reader of the file's bytes.
        named_path: The file that the user named; None if it was not a single file.
    """

    group: LogGroup
    reports: Sequence[FileReport]
    sets: Sequence[SetReport]
    read: Callable[[str], RangeReader]
    named_path: str | None = None


def plan_joint_repair(path: str, report: Report, examiner: LogExaminer, policy: RepairPolicy) -> JointRepairPlan:
    """Plan the joint repair of the logs that a path names; for a single file, its whole log set is examined."""
    format_ = examiner.get_format(report.files[0].format)
    is_directory = os.path.isdir(path)
    logs = resolve_logs(path, format_.spec) if is_directory else [_find_log_of_file(path, format_.spec)]
    if any(log.is_set for log in logs) and not is_directory:
        report = examiner.make_report(logs[0].path)
    log_plans = [
        _plan_log(_make_log_state(log, report, None if is_directory else os.path.realpath(path)), examiner, policy)
        for log in logs
    ]
    files = tuple(one for part in log_plans for one in part.files)
    reasons = [text for part in log_plans for text in part.reasons]
    notes = tuple(dict.fromkeys(note for part in log_plans for note in part.notes))
    if not is_directory:
        files, alone_reasons = _select_named_file(path, files)
        reasons += alone_reasons
    return JointRepairPlan(files, tuple(dict.fromkeys(reasons)), notes, report)


def _find_log_of_file(path: str, format_name: str) -> LogGroup:
    """Return the log set that a file belongs to; a log of only this file if it belongs to none."""
    real_path = os.path.realpath(path)
    try:
        candidates = resolve_logs(os.path.dirname(path) or ".", format_name)
    except BinlogtoolError:
        candidates = []
    single_file = resolve_logs(path, format_name)[0]
    return next(
        (log for log in candidates if any(os.path.realpath(log.member_path(n)) == real_path for n in log.names)),
        single_file,
    )


def _make_log_state(log: LogGroup, report: Report, named_path: str | None) -> _LogState:
    paths = [log.member_path(name) for name in log.names]
    positions = {one.path: place for place, one in enumerate(report.files)}
    reports = [report.files[positions[path]] for path in paths]
    return _LogState(log, reports, [one for one in report.sets if one.path == log.path], make_raw_reader, named_path)


def _select_named_file(path: str, files: Sequence[FilePlan]) -> tuple[tuple[FilePlan, ...], list[str]]:
    """Return the plan of the named file, and a reason against it if other files have to change with it."""
    real_path = os.path.realpath(path)
    named_plans = tuple(one for one in files if os.path.realpath(one.path) == real_path)
    other_changes = [one.path for one in files if one.action != "none" and one not in named_plans]
    if not other_changes or all(one.action == "none" for one in named_plans):
        return named_plans, []
    text = f"{path}: other files of the log change with it ({', '.join(map(os.path.basename, other_changes[:5]))})"
    return named_plans, [f"{text}; {WHOLE_LOG_ADVICE}"]


def _plan_log(log: _LogState, examiner: LogExaminer, policy: RepairPolicy) -> JointRepairPlan:
    """Plan the repair of one log."""
    group = log.group
    joint_repair = _decide_files(log, examiner, policy)
    rewritten = {group.member_path(one.name): one for one in joint_repair.files}
    results = {path: None if one.action == "remove" else one.pieces for path, one in rewritten.items()}
    predicted = _verify_log_after_repair(log, results, examiner)
    after = {} if predicted is None else {one.report.path: one.report for one in predicted.files}
    files = build_file_plans(group, log.reports, rewritten, after)
    reasons = [
        *_list_objections(log, joint_repair),
        *_list_reasons_against_lost_records(group, joint_repair, files, policy),
    ]
    before = PlanSnapshot(files, reasons, log.reports)
    reasons += (
        []
        if joint_repair.reasons
        else _predict_problems_after_repair(log, before, results, predicted, examiner, policy)
    )
    reasons += [text for one in files for text in list_exceeded_loss_limits(one, policy)]
    notes = (
        *joint_repair.notes,
        *describe_removed_repetitions(group, log.reports, files, after),
        *([] if policy.salvage else _describe_flipped_bits(log, examiner)),
    )
    return JointRepairPlan(files, tuple(reasons), notes, Report(tuple(log.reports), tuple(log.sets)))


def _decide_files(log: _LogState, examiner: LogExaminer, policy: RepairPolicy) -> JointRepair:
    """Decide the repair of the files: by the rules of the format, or, for a salvage, by the stored checksums."""
    group, hints = log.group, examiner.hints
    assert group.format is not None
    repair = group.format.repair
    assert repair.plan_joint_repair is not None
    if policy.salvage:
        corrected_files = _correct_flipped_bits_in_files(log)
        return JointRepair(
            corrected_files, () if corrected_files else (f"cannot be salvaged: {repair.explain_salvage_obstacle()}",)
        )
    verified_files = [
        VerifiedFile(name, one.size, one.durable_end, one.record_types, one.findings, log.read(one.path))
        for name, one in zip(group.names, log.reports, strict=True)
    ]
    redo = None if hints is None or hints.redo is None else make_readable_file(hints.redo)
    return repair.plan_joint_repair(verified_files, redo, policy.allow_discard_valid)


def _correct_flipped_bits_in_files(log: _LogState) -> tuple[RewrittenFile, ...]:
    """Return the files with flipped bits corrected; only the named file, if there is one."""
    members = zip(log.group.names, log.reports, strict=True)
    chosen = [(name, one) for name, one in members if log.named_path in (None, os.path.realpath(one.path))]
    rewritten = [rewrite_with_corrected_bits(one, name, log.read(one.path)) for name, one in chosen]
    return tuple(one for one in rewritten if one is not None)


def _verify_log_after_repair(log: _LogState, results: Results, examiner: LogExaminer) -> LogExamination | None:
    """Verify the log as it would be after the repair; None if nothing changes, or if no file would be left."""
    if not results or all(results.get(one.path, ()) is None for one in log.reports):
        return None
    return verify_planned_log(log.group, results, examiner.verify_options)


# -- objections to a repair --------------------------------------------------------------------------------------------


def _list_objections(log: _LogState, joint_repair: JointRepair) -> list[str]:
    """Return the format's reasons against the repair, and reasons for files that changed while they were read."""
    changed = [
        f"{one.path}: {f.id}: {f.message}" for one in log.reports for f in one.findings if f.id == "changed-while-read"
    ]
    return [*(f"{log.group.path}: {text}" for text in joint_repair.reasons), *changed]


def _list_reasons_against_lost_records(
    group: LogGroup, joint_repair: JointRepair, files: Sequence[FilePlan], policy: RepairPolicy
) -> list[str]:
    """Return a reason if complete records would be discarded without consent, unless they are proven to have never been
    durable.
    """
    lost = sum(one.cut_valid_records for one in files)
    if not lost or joint_repair.reasons or joint_repair.proven or policy.allow_discard_valid:
        return []
    return [f"{group.path}: {lost:,} complete {'record' if lost == 1 else 'records'} would be discarded"]


def _predict_problems_after_repair(
    log: _LogState,
    before: PlanSnapshot,
    results: Results,
    examination: LogExamination | None,
    examiner: LogExaminer,
    policy: RepairPolicy,
) -> list[str]:
    """Return what would be wrong after the repair, with the same check that a repair runs at its end."""
    if examination is None:
        return _list_errors(log.reports, log.sets) if not results else []
    reports = [one.report for one in examination.files]
    sets = () if examination.set is None else (examination.set,)
    present_errors = (
        _list_errors(log.reports, log.sets) if policy.salvage and log.named_path else []
    )  # only a copy of one file is written
    problems = [text for text in _list_errors(reports, sets) if text not in present_errors]
    names = tuple(one.member.name for one in examination.files)
    after = _LogState(
        replace(log.group, names=names), reports, sets, partial(_make_result_reader, results), log.named_path
    )
    problems += describe_differences_from_plan(before, _plan_repaired_log_again(after, examiner, policy))
    failed = [f"{one.path}: {one.message}" for one in examination.failures]
    return [*(f"the result would not be clean: {text}" for text in dict.fromkeys(problems)), *failed]


def _plan_repaired_log_again(log: _LogState, examiner: LogExaminer, policy: RepairPolicy) -> PlanSnapshot:
    """Plan the result of the repair again; a salvaged copy is only verified."""
    joint_repair = JointRepair() if policy.salvage else _decide_files(log, examiner, policy)
    rewritten = {log.group.member_path(one.name): one for one in joint_repair.files}
    return PlanSnapshot(
        build_file_plans(log.group, log.reports, rewritten, {}), _list_objections(log, joint_repair), log.reports
    )


def _make_result_reader(results: Results, path: str) -> RangeReader:
    """Return a function that reads the bytes of a file as it would be after the repair."""
    pieces = results.get(path)
    return make_raw_reader(path) if pieces is None else partial(read_planned_range, path, pieces)


def _list_errors(files: Iterable[FileReport], sets: Iterable[SetReport]) -> list[str]:
    """Return the errors of files and sets as texts."""
    reports: list[FileReport | SetReport] = [*files, *sets]
    return [f"{one.path}: {f.id}: {f.message}" for one in reports for f in one.findings if f.severity is Severity.ERROR]


def _describe_flipped_bits(log: _LogState, examiner: LogExaminer) -> list[str]:
    """Return notes about files whose damage is completely explained by single flipped bits."""
    notes = []
    for name, file_report in zip(log.group.names, log.reports, strict=True):
        rewritten = rewrite_with_corrected_bits(file_report, name, log.read(file_report.path))
        if rewritten is None:
            continue
        examination = verify_planned_log(log.group, {file_report.path: rewritten.pieces}, examiner.verify_options)
        after = [file.report for file in examination.files if file.report.path == file_report.path]
        if not any(list_unclean_findings(report, allow_open_end=True) for report in after):
            bits = " and ".join(map(str, list_flipped_bits(file_report.findings)))
            notes.append(f"{file_report.path}: a flipped bit explains the damage: {bits}; {FLIPPED_BIT_ADVICE}")
    return notes


# --- Repair of one file ---

MAX_GAPS = 20
"""Maximum number of gaps in a salvaged log that are listed one by one."""


class FilePlanDraft(NamedTuple):
    """Plan for one file that is not yet approved.

    Attributes:
        notes: Further information for the user.
        reasons: Why it must not be applied.
        predicted_file: The result of verifying the planned file; None if the file does not change.
    """

    plan: FilePlan
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    predicted_file: VerifiedMember | None = None


class FilePlanDrafts:
    """Drafts for many files, in the order of the files.

    The draft of an unchanged file without notes and reasons is stored as a packed plan only: there may be very many.

    Attributes:
        noteworthy: Path -> draft, for all other files.
    """

    def __init__(self) -> None:
        self.noteworthy: dict[str, FilePlanDraft] = {}
        self._items: list[FilePlan | bytes | str] = []

    def append_draft(self, draft: FilePlanDraft) -> None:
        """Append the draft for the next file."""
        plan = draft.plan
        if plan.action == "none" and not (draft.notes or draft.reasons):
            self._items.append(FilePlans.pack_if_packable(plan))
        else:
            self._items.append(plan.path)
            self.noteworthy[plan.path] = draft

    def __iter__(self) -> Iterator[FilePlanDraft]:
        return (
            self.noteworthy[one] if isinstance(one, str) else FilePlanDraft(FilePlans.unpack(one))
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
    proof: dict[str, Any] = {
        "records": report.records,
        "last_seq": report.last_seq,
        "durable_end": end,
        "behind": [_summarize_finding(f) for f in report.findings if end is not None and (f.offset or 0) >= end],
    }
    proof |= {"encrypted": True} if report.is_encrypted else {}
    salvaged = result.salvaged
    corrected = [flip.proof for flip in salvaged.flipped_bits]
    salvage_proof = {"left_out": salvaged.left_out, "mended": salvaged.fixed_frames, "corrected": corrected}
    proof |= {name: list(parts) for name, parts in salvage_proof.items() if parts}
    action = "none" if not pieces else "truncate" if pieces == (ResultPiece(0, keep_size),) else "rewrite"
    plan = FilePlan(report.path, report.size, action, end, result.cut_bytes, 0, proof, None, None, pieces=pieces)
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
    return FilePlanDraft(add_file_hashes(plan), (*result.notes, *missing), result.reasons, predicted_file)


def _describe_missing_records(salvaged: SalvagedContent, after: FileReport, repair: RepairRules) -> tuple[str, ...]:
    """Return notes about records that are or may be missing in the middle of a salvaged log."""
    gaps = [f"in the result: {f.message}" for f in after.findings if f.id == "gap-in-sequence"]
    possible = bool(gaps) if repair.numbered else salvaged.holes > 0
    return (*((repair.gaps,) if possible and repair.gaps else ()), *gaps[:MAX_GAPS])


def find_transaction_end(report: FileReport, format_: Format) -> int:
    """Return the end of the last complete transaction, as an offset in the file.

    Raises:
        UsageError: the format has no transactions that end before the durable end.
    """
    if format_.repair.transactions is None:
        text = "the durable end of a log of this format is never inside a transaction"
        raise UsageError(f"{report.path}: --transactions cannot be used: {text} ({format_.title})")
    return int(report.details[format_.repair.transactions])


def add_file_hashes(plan: FilePlan) -> FilePlan:
    """Return the plan with the hashes of the kept and the cut bytes, and the identity of the file.

    Raises:
        InputOutputError: the file cannot be read, or was changed or replaced.
    """
    if plan.made_like is not None:
        nothing = hash_chunks(())
        return replace(plan, sha256_kept=nothing, sha256_cut=nothing)
    path = os.path.realpath(plan.path)
    kept = [p for p in plan.pieces if p.is_original]
    with name_os_errors(plan.path, "cannot be read"):
        fd = SYSTEM.open(path, READ)
        try:
            status = os.fstat(fd)
            if status.st_size != plan.size:
                raise InputOutputError(f"{plan.path}: changed while it was read; plan again when nobody writes to it")
            hashes = hash_kept_other_and_whole(SYSTEM, fd, kept, plan.size, hash_whole=False)
        finally:
            SYSTEM.close(fd)
    return replace(plan, sha256_kept=hashes[0], sha256_cut=hashes[1], inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def find_keep_size(report: FileReport, end: int) -> int:
    """Return the number of bytes to keep: up to the durable end, or all if the bytes after it belong to the log.

    Only the end mark, or space that the writer reserved, belongs after the durable end.
    """
    cuttable = any(f.id in CUTTABLE and _reaches_past(f, end) for f in report.findings)
    if not report.closed:
        reserved = report.bytes.get("preallocated", 0)
        return report.size if end + reserved == report.size and not (reserved and cuttable) else end
    return end if any(_is_wrong_after(f, end) for f in report.findings) else report.size


def _is_wrong_after(finding: Finding, end: int) -> bool:
    """Return True if the finding means that the bytes after the durable end do not belong to the log."""
    return (finding.id in CUTTABLE or finding.severity is Severity.ERROR) and _reaches_past(finding, end)


def _reaches_past(finding: Finding, end: int) -> bool:
    """Return True if the finding covers any byte at or after the durable end."""
    return finding.offset is not None and finding.offset + max(finding.length, 1) > end


def _summarize_finding(finding: Finding) -> dict[str, Any]:
    return {"id": finding.id, "offset": finding.offset, "length": finding.length, "message": finding.message}


# --- Stale logs ---

_BENEFIT_OF_CUT = "truncating it helps only readers that do not stop at a torn end"


def keep_torn_ends_of_older_files(
    log: LogGroup, report: Report, drafts: Mapping[str, FilePlanDraft], policy: RepairPolicy
) -> dict[str, FilePlanDraft]:
    """Return path -> unchanged draft for the files of a directory whose torn end needs no cut.

    These are files that a newer file of the same kind follows, and whose torn end the server ignores.
    """
    if not log.is_set or policy.write_close_marker:
        return {}
    truncated = {path: draft for path, draft in drafts.items() if draft.plan.action == "truncate" and not draft.reasons}
    if not truncated:
        return {}
    paths, newest_names = {log.member_path(name): name for name in log.names}, find_newest_files(log.names)
    unchanged_drafts = {}
    for file_report in report.files:
        newer_name = (
            find_newer_file(paths[file_report.path], newest_names)
            if file_report.path in truncated and file_report.path in paths
            else None
        )
        if newer_name is not None and _is_tail_accepted_by_server(file_report):
            end = file_report.durable_end
            proof = {"records": file_report.records, "last_seq": file_report.last_seq, "durable_end": end}
            unchanged_drafts[file_report.path] = FilePlanDraft(
                FilePlan(file_report.path, file_report.size, "none", end, 0, 0, proof, None, None),
                (f"{file_report.path}: {_describe_newer_file(newer_name)}; name the file itself to truncate it",),
            )
    return unchanged_drafts


def _is_tail_accepted_by_server(report: FileReport) -> bool:
    """Return True if the server accepts every end-of-file finding of the file, so that no cut is needed."""
    ends = [f for f in report.findings if f.id in CUTTABLE]
    return bool(ends) and all(f.severity < Severity.ERROR and f.facts.get("server") != "refuse" for f in ends)


def describe_stale_file(path: str, log: LogGroup, plans: Sequence[FilePlan]) -> tuple[str, ...]:
    """Return a note for a stale file that the user named: it is truncated nevertheless; empty if it is not stale."""
    name = next((name for name in log.names if is_same_path(log.member_path(name), path)), None)
    newer_name = None if name is None or not log.is_set else find_newer_file(name, find_newest_files(log.names))
    return (
        ()
        if newer_name is None or all(one.action == "none" for one in plans)
        else (f"{path}: {_describe_newer_file(newer_name)}",)
    )


def _describe_newer_file(newer_name: str) -> str:
    return f"{newer_name} is newer: the server no longer appends here; {_BENEFIT_OF_CUT}"


# --- Repair of a log ---


def plan_truncate(
    path: str | os.PathLike[str],
    read_options: ReadOptions,
    policy: RepairPolicy,
) -> RepairPlan:
    """Plan the repair of a log, with the parameters of `binlogtool.plan_truncate`.

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
    """Plan the repair of one log; refuse it while an earlier repair of the log is unfinished."""
    plan = draft_plan(path, examiner, policy)[0]
    forced = policy.allow_empty_result and examiner.format != "auto" and not os.path.isdir(path)
    empty_reasons = list_empty_result_reasons(plan.files, allow_empty=forced)
    reasons, notes = (
        (*explain_interrupted_repair(path), *empty_reasons, *plan.reasons),
        (*plan.notes, *_describe_leftovers(plan)),
    )
    plan = replace(plan, refused=bool(reasons), reasons=reasons, notes=notes)
    return replace(plan, salvaged_copy=_plan_salvaged_copy(plan, examiner)) if plan.refused else plan


def _plan_salvaged_copy(plan: RepairPlan, examiner: LogExaminer) -> FilePlan | None:
    """Plan a salvaged copy of the file that makes a plan be refused; None if such a copy would not be allowed."""
    blocking_file, policy = plan.blocking_file, plan.policy
    if blocking_file is None or blocking_file.action == "none" or policy.salvage or policy.copy:
        return None
    for correct_bits in (True, False):
        copy_policy = replace(policy, salvage=True, correct_bits=correct_bits, copy=True)
        with suppress(BinlogtoolError):
            copy_plan = draft_plan(blocking_file.path, examiner, copy_policy)[0]
            files = [one for one in copy_plan.files if one.path == blocking_file.path]
            if correct_bits and any("corrected" in one.proof and not one.corrects_bits for one in files):
                continue  # other damage is left out: a copy of unchanged records is enough
            is_allowed = (
                bool(files) and not copy_plan.refused and not list_empty_result_reasons(files, allow_empty=False)
            )
            return files[0] if is_allowed else None
    return None


def draft_plan(path: str, examiner: LogExaminer, policy: RepairPolicy) -> tuple[RepairPlan, Report]:
    """Draft the plan for one log; return it with the report from which it was made."""
    if detect_file_compression(path) is not None:
        raise RefusedError(f"{path}: is a compressed file; unpack it first; nothing was changed")
    examined = examiner.examine_path(path)
    logs, report = examined.logs, examined.report
    if report.incomplete:
        why = next(one.details["incomplete"] for one in report.files if "incomplete" in one.details)
        raise LimitError(f"{path}: {why}; a plan needs the whole log")
    for file_report in report.files:
        for finding in file_report.findings:
            raise_if_limit(file_report.path, finding)
    if _needs_joint_repair(path, report):
        return _plan_joint_repair(path, report, examiner, policy)
    list_fixes = _plan_index_file_fixes(logs) if policy.fix_meta else {}
    drafts, newest_files = FilePlanDrafts(), _find_newest_files(logs)
    for file_report in _select_unlisted(report, list_fixes):
        drafts.append_draft(
            draft_file_plan(
                file_report, examiner, replace(policy, fix_meta=False) if file_report.path in newest_files else policy
            )
        )
    for entry in logs:
        drafts.noteworthy |= keep_torn_ends_of_older_files(entry.log, report, drafts.noteworthy, policy)
    if not os.path.isdir(path) and any(one.plan.action != "none" for one in drafts.noteworthy.values()):
        logs = _examine_owning_log_set(path, report, examiner) or logs
        report = _add_set_findings(path, report, logs)
    plans = drafts.collect_plans(*list_fixes.values())
    pairs = zip(_select_unlisted(report, list_fixes), drafts, strict=True)
    reasons = [text for own, draft in pairs for text in [*draft.reasons, *collect_refusals(own, draft.plan, policy)]]
    if policy.fix_meta:
        irregular = (f for one in report.sets for f in one.findings if f.facts.get("irregular"))
        reasons += [f"{path}: {f.message}; its line is not removed from the list of files" for f in irregular]
    reasons = reasons or _list_remaining_damage(path, logs, report, plans, drafts.noteworthy, examiner, policy)
    notes = tuple(dict.fromkeys(note for one in drafts.noteworthy.values() for note in one.notes))
    notes += () if os.path.isdir(path) else describe_stale_file(path, logs[0].log, plans)
    format_ = report.files[0].format
    target = os.path.abspath(path)
    return RepairPlan(format_, bool(reasons), tuple(reasons), plans, target, policy, notes, examined.skipped), report


def _find_newest_files(logs: Sequence[ExaminedLog]) -> frozenset[str]:
    """Return the newest file of each log set.

    Its in-use mark is kept: without it the server does not look for prepared transactions, and rolls back the
    transactions in the file (MySQL) or does not start (MariaDB).
    """
    newest_names = ((one.log, find_newest_files(one.log.names)) for one in logs if one.log.is_set)
    return frozenset(log.member_path(name) for log, names in newest_names for _, name in names.values())


def _select_unlisted(report: Report, list_fixes: Mapping[str, FilePlan]) -> Iterator[FileReport]:
    """Yield the reports of the files that a fix of the list does not rewrite as a whole."""
    return (one for one in report.files if one.path not in list_fixes)


def _list_remaining_damage(
    path: str,
    logs: Sequence[ExaminedLog],
    report: Report,
    plans: Sequence[FilePlan],
    drafts: Mapping[str, FilePlanDraft],
    examiner: LogExaminer,
    policy: RepairPolicy,
) -> list[str]:
    """Describe the damage that would remain after the plan."""
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
    (log,) = logs  # for a single file `collect_refusals` reports the problems
    member_path = next((one for one in map(log.log.member_path, log.log.names) if is_same_path(one, path)), path)
    return (
        predict_new_problems(
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
    for text, is_old in predict_problems_after_plan(log, plans, predictions, examiner.verify_options):
        if not is_old:
            yield format_unclean(text)
        elif not policy.fix_meta and collect_file_fixes(log.log):
            yield format_unrepaired(text, "--fix-meta may fix it")
        else:
            yield format_unrepaired(text)


def _needs_joint_repair(path: str, report: Report) -> bool:
    """Return True if the format itself plans the repair of all files of a log.

    Raises:
        UsageError: there are also logs of another format.
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
    files = tuple(one if one.action == "none" else add_file_hashes(one) for one in joint_plan.files)
    reasons, target = joint_plan.reasons, os.path.abspath(path)
    kind, left = report.files[0].format, report.skipped
    return RepairPlan(kind, bool(reasons), reasons, files, target, policy, joint_plan.notes, left), joint_plan.report


def _plan_index_file_fixes(logs: Sequence[ExaminedLog]) -> dict[str, FilePlan]:
    """Return path -> plan for the list files of the logs' directories that `--fix-meta` corrects."""
    plans = [
        _plan_index_file_fix(one.log, made) for one in logs if one.log.is_set for made in collect_file_fixes(one.log)
    ]
    return {plan.path: plan for plan in plans}


def _plan_index_file_fix(log: LogGroup, fix: FileFix) -> FilePlan:
    path, proof = log.member_path(fix.name), {"why": fix.reason}
    like = None if fix.like is None else log.member_path(fix.like)
    size = 0 if like is not None else os.stat(path).st_size
    if fix.content is None:
        return add_file_hashes(FilePlan(path, size, "remove", None, size, 0, proof, None, None))
    pieces = (ResultPiece(data=fix.content),)
    return add_file_hashes(
        FilePlan(path, size, "rewrite", None, 0, 0, proof, None, None, pieces=pieces, made_like=like)
    )


def make_result_check(plan: RepairPlan, examiner: LogExaminer) -> Callable[[], list[str]]:
    """Return a function that examines the files after the repair and lists the differences from the plan."""

    def check() -> list[str]:
        left = [one.path for one in plan.files if one.action == "remove" and os.path.lexists(one.path)]
        if left or all(one.action == "remove" for one in plan.files):
            return [f"{path}: still exists" for path in left]
        try:
            after, report = draft_plan(plan.target, examiner, replace(plan.policy, max_loss=None))
            return describe_differences_from_plan(
                PlanSnapshot(plan.files, plan.reasons, ()), PlanSnapshot(after.files, after.reasons, report.files)
            )
        except BinlogtoolError as error:
            return [str(error)]

    return check


def _examine_owning_log_set(path: str, report: Report, examiner: LogExaminer) -> list[ExaminedLog]:
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
    """Return the report on a single file, with the findings of its log set about it."""
    file_reports = [
        one for one in merge_reports(log.examination.report for log in logs).files if is_same_path(one.path, path)
    ]
    return Report(tuple(replace(one, path=path) for one in file_reports) or report.files, ())


def _describe_leftovers(plan: RepairPlan) -> list[str]:
    """Describe the files that aborted runs left beside the log; skip directories that cannot be read."""
    names_by_directory: dict[str, list[str]] = {}
    for file in plan.files:
        names_by_directory.setdefault(get_directory(file.path), []).append(os.path.basename(file.path))
    lines = []
    for directory, names in names_by_directory.items():
        with suppress(OSError):
            lines += describe_leftovers(SYSTEM, os.path.realpath(directory), names)
    return lines
