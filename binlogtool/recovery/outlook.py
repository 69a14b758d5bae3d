"""Predict what `verify` would say of a log after a plan: no repair starts whose result would not be clean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.predict import verify_planned_log
from binlogtool.recovery.reading import ExaminedLog
from binlogtool.recovery.report import FileReport, SetReport
from binlogtool.recovery.verify import LogExamination, LogVerifyOptions, VerifiedMember


def predict_damage(
    log: ExaminedLog, files: Sequence[FilePlan], predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> Iterator[tuple[str, bool]]:
    """Yield, in words, what would be wrong with a log after the plan, each with True if it is wrong already.

    Args:
        predictions: Results that were verified already, by path.
    """
    before = set(list_errors(log.examination))
    return ((text, text in before) for text in list_errors(_predict_log(log, files, predictions, options)))


def predict_new_damage(
    log: ExaminedLog, file: FilePlan, predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> list[str]:
    """Return reasons against the plan for a single file; present damage of other files of its log set does not
    count.
    """
    before = set(list_errors(log.examination))
    after = list_errors(_predict_log(log, [file], predictions, options))
    return [format_unclean(text) for text in after if text not in before or text.startswith(f"{file.path}: ")]


def _predict_log(
    log: ExaminedLog, files: Sequence[FilePlan], predictions: Mapping[str, VerifiedMember], options: LogVerifyOptions
) -> LogExamination:
    """Verify the log as it would be after the plan; files that stay are not read again."""
    changed = [file for file in files if file.action != "none"]
    names = {log.log.member_path(name): name for name in log.log.names} if changed else {}
    results = {
        file.path: None if file.action == "remove" else file.pieces for file in changed if _belongs_to_log(file, names)
    }
    if not results:
        return log.examination
    verified = dict(log.examination.standalone_by_name)
    for path in results.keys() & predictions.keys():
        verified[names[path]] = predictions[path].with_name(names[path])
    return verify_planned_log(log.log, results, options, verified)


def _belongs_to_log(file: FilePlan, names: Mapping[str, str]) -> bool:
    """Return True if the file is one of the log, or a new file beside them."""
    return file.path in names or (file.made_like is not None and file.made_like in names)


def list_errors(examination: LogExamination) -> list[str]:
    """Return all errors and failures of a log in words."""
    set_reports = () if examination.set is None else (examination.set,)
    every: Iterable[FileReport | SetReport] = chain((one.report for one in examination.files), set_reports)
    failed = [f"{one.path}: {one.message}" for one in examination.failures]
    return [f"{one.path}: {describe_finding(f)}" for one in every for f in select_errors(one.findings)] + failed


def select_errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings that are errors."""
    return (one for one in findings if one.severity is Severity.ERROR)


def describe_finding(finding: Finding) -> str:
    """Return a finding as text for a reason."""
    return f"{finding.id}: {finding.message}"


def format_unclean(text: str) -> str:
    """Return the reason against a result that would not be clean."""
    return f"the result would not be clean: {text}"


def format_unrepaired(text: str, remedy: str = "nothing that this command can mend") -> str:
    """Return the reason for damage that the plan leaves."""
    return f"{text} ({remedy})"
