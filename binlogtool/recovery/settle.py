"""Plan the repair of logs whose files change together: the format decides about each file, the engine proves the
result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.layouts import RangeReader
from binlogtool.formats.repair_rules import JointRepair, ResultPiece, RewrittenFile, VerifiedFile
from binlogtool.log.named import LogGroup, resolve_logs
from binlogtool.log.opened_file import make_readable_file
from binlogtool.recovery.corrected import (
    FLIPPED_BIT_ADVICE,
    correct_flipped_bits,
    describe_flipped_bit,
    select_flipped_bits,
)
from binlogtool.recovery.outcome import PlanSnapshot, compare_with_plan
from binlogtool.recovery.plan import FilePlan, RepairPolicy
from binlogtool.recovery.predict import list_unclean_findings, read_pieces, verify_planned_log
from binlogtool.recovery.reading import LogExaminer, make_raw_reader
from binlogtool.recovery.refusals import WHOLE_LOG_ADVICE, check_loss_limits
from binlogtool.recovery.remaking import build_file_plans, note_derived_losses
from binlogtool.recovery.report import FileReport, Report, SetReport
from binlogtool.recovery.verify import LogExamination


class JointRepairPlan(NamedTuple):
    """The joint plan for the files of logs.

    Attributes:
        files: The plans, not yet bound to the bytes of the files.
        reasons: Why they must not be carried out.
        notes: What the user should know.
        report: The report that they were made from.
    """

    files: tuple[FilePlan, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    report: Report


Results = Mapping[str, "tuple[ResultPiece, ...] | None"]
"""The pieces of files that change, by path; None = the file goes."""


class _LogState(NamedTuple):
    """A log as it is, or as it would be after the repair.

    Attributes:
        read: Path -> the bytes of the file.
        named_path: The single file that was named, else None.
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
    """Return the log set that a file belongs to; the file by itself if it belongs to none."""
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
    """Return the plan of the one file that was named, and a reason against it if other files have to change with it."""
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
    predicted = _verify_result(log, results, examiner)
    after = {} if predicted is None else {one.report.path: one.report for one in predicted.files}
    files = build_file_plans(group, log.reports, rewritten, after)
    reasons = [*_list_objections(log, joint_repair), *_check_lost_records(group, joint_repair, files, policy)]
    before = PlanSnapshot(files, reasons, log.reports)
    reasons += [] if joint_repair.reasons else _predict_shortcomings(log, before, results, predicted, examiner, policy)
    reasons += [text for one in files for text in check_loss_limits(one, policy)]
    notes = (
        *joint_repair.notes,
        *note_derived_losses(group, log.reports, files, after),
        *([] if policy.salvage else _note_flipped_bits(log, examiner)),
    )
    return JointRepairPlan(files, tuple(reasons), notes, Report(tuple(log.reports), tuple(log.sets)))


def _decide_files(log: _LogState, examiner: LogExaminer, policy: RepairPolicy) -> JointRepair:
    """Return what becomes of the files: as the format decides, or in a salvage, what the stored checksums prove."""
    group, hints = log.group, examiner.hints
    assert group.format is not None
    repair = group.format.repair
    assert repair.plan_joint_repair is not None
    if policy.salvage:
        corrected_files = _correct_files(log)
        return JointRepair(
            corrected_files, () if corrected_files else (f"cannot be salvaged: {repair.find_salvage_obstacle()}",)
        )
    verified_files = [
        VerifiedFile(name, one.size, one.durable_end, one.record_types, one.findings, log.read(one.path))
        for name, one in zip(group.names, log.reports, strict=True)
    ]
    redo = None if hints is None or hints.redo is None else make_readable_file(hints.redo)
    return repair.plan_joint_repair(verified_files, redo, policy.allow_discard_valid)


def _correct_files(log: _LogState) -> tuple[RewrittenFile, ...]:
    """Return the files with flipped bits put back; only the named one, if a file was named."""
    members = zip(log.group.names, log.reports, strict=True)
    chosen = [(name, one) for name, one in members if log.named_path in (None, os.path.realpath(one.path))]
    rewritten = [correct_flipped_bits(one, name, log.read(one.path)) for name, one in chosen]
    return tuple(one for one in rewritten if one is not None)


def _verify_result(log: _LogState, results: Results, examiner: LogExaminer) -> LogExamination | None:
    """Verify the log as it would be; None where nothing changes, or no file is left."""
    if not results or all(results.get(one.path, ()) is None for one in log.reports):
        return None
    return verify_planned_log(log.group, results, examiner.verify_options)


# -- what is wrong with it ---------------------------------------------------------------------------------------------


def _list_objections(log: _LogState, joint_repair: JointRepair) -> list[str]:
    """Return the format's reasons against the repair, and the files that changed while they were read."""
    changed = [
        f"{one.path}: {f.id}: {f.message}" for one in log.reports for f in one.findings if _is_changed_while_read(f)
    ]
    return [*(f"{log.group.path}: {text}" for text in joint_repair.reasons), *changed]


def _is_changed_while_read(finding: Finding) -> bool:
    return finding.id == "changed-while-read"


def _check_lost_records(
    group: LogGroup, joint_repair: JointRepair, files: Sequence[FilePlan], policy: RepairPolicy
) -> list[str]:
    """Return a reason if complete records would be discarded without consent, and are not proven never to have been
    durable.
    """
    lost = sum(one.cut_valid_records for one in files)
    if not lost or joint_repair.reasons or joint_repair.proven or policy.allow_discard_valid:
        return []
    return [f"{group.path}: {lost:,} complete {'record' if lost == 1 else 'records'} would be discarded"]


def _predict_shortcomings(
    log: _LogState,
    before: PlanSnapshot,
    results: Results,
    examination: LogExamination | None,
    examiner: LogExaminer,
    policy: RepairPolicy,
) -> list[str]:
    """Return what would be wrong after the repair, by the same check that the repair ends with."""
    if examination is None:
        return _list_errors(log.reports, log.sets) if not results else []
    reports = [one.report for one in examination.files]
    sets = () if examination.set is None else (examination.set,)
    present_errors = (
        _list_errors(log.reports, log.sets) if policy.salvage and log.named_path else []
    )  # a copy of one file is made
    problems = [text for text in _list_errors(reports, sets) if text not in present_errors]
    names = tuple(one.member.name for one in examination.files)
    after = _LogState(
        replace(log.group, names=names), reports, sets, partial(_make_result_reader, results), log.named_path
    )
    problems += compare_with_plan(before, _replan_result(after, examiner, policy))
    failed = [f"{one.path}: {one.message}" for one in examination.failures]
    return [*(f"the result would not be clean: {text}" for text in dict.fromkeys(problems)), *failed]


def _replan_result(log: _LogState, examiner: LogExaminer, policy: RepairPolicy) -> PlanSnapshot:
    """Return what a second plan would make of the result; a salvaged copy is only verified."""
    joint_repair = JointRepair() if policy.salvage else _decide_files(log, examiner, policy)
    rewritten = {log.group.member_path(one.name): one for one in joint_repair.files}
    return PlanSnapshot(
        build_file_plans(log.group, log.reports, rewritten, {}), _list_objections(log, joint_repair), log.reports
    )


def _make_result_reader(results: Results, path: str) -> RangeReader:
    """Return a function that reads the bytes of a file of the result."""
    pieces = results.get(path)
    return make_raw_reader(path) if pieces is None else partial(read_pieces, path, pieces)


def _list_errors(files: Iterable[FileReport], sets: Iterable[SetReport]) -> list[str]:
    """Return the errors of files and sets in words."""
    reports: list[FileReport | SetReport] = [*files, *sets]
    return [f"{one.path}: {f.id}: {f.message}" for one in reports for f in one.findings if f.severity is Severity.ERROR]


def _note_flipped_bits(log: _LogState, examiner: LogExaminer) -> list[str]:
    """Return notes about files whose damage single flipped bits explain completely."""
    notes = []
    for name, file_report in zip(log.group.names, log.reports, strict=True):
        rewritten = correct_flipped_bits(file_report, name, log.read(file_report.path))
        if rewritten is None:
            continue
        examination = _verify_result(log, {file_report.path: rewritten.pieces}, examiner)
        after = (
            []
            if examination is None
            else [file.report for file in examination.files if file.report.path == file_report.path]
        )
        if not any(list_unclean_findings(report, allow_open_end=True) for report in after):
            bits = " and ".join(map(describe_flipped_bit, select_flipped_bits(file_report)))
            notes.append(f"{file_report.path}: a flipped bit explains the damage: {bits}; {FLIPPED_BIT_ADVICE}")
    return notes
