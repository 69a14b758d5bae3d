"""Compare a log with what its plan promised: used on the prediction before a repair and on the files after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.predict import list_unclean_findings
from binlogtool.recovery.report import FileReport


class PlanSnapshot(NamedTuple):
    """A log as a plan sees it.

    Attributes:
        files: The plan for each file.
        reasons: Why the plans must not be carried out.
        reports: What `verify` says of the files.
    """

    files: Sequence[FilePlan]
    reasons: Sequence[str]
    reports: Sequence[FileReport]


def compare_with_plan(before: PlanSnapshot, after: PlanSnapshot) -> list[str]:
    """Describe what is not as planned after `before` was carried out and the log is as in `after`."""
    changes = [file for file in before.files if file.action not in ("none", "remove")]
    differences = [text for text in after.reasons if text not in before.reasons]
    differences += [f"{file.path}: still has something to cut" for file in after.files if file.action != "none"]
    differences += _compare_record_counts(changes, after.files)
    differences += _describe_unclean_files({file.path: file for file in changes}, after.reports)
    return list(dict.fromkeys(differences))


def _compare_record_counts(changes: Iterable[FilePlan], after: Iterable[FilePlan]) -> Iterator[str]:
    now = {file.path: file for file in after}
    for file in changes:
        new_plan = now.get(file.path)
        if new_plan is None or "records" not in file.proof:
            continue
        if new_plan.proof["records"] != file.proof.get("records_kept", file.proof["records"]):
            yield f"{file.path}: other records than planned"


def _describe_unclean_files(changed: Mapping[str, FilePlan], reports: Iterable[FileReport]) -> Iterator[str]:
    for report in reports:
        file = changed.get(report.path)
        if file is not None:
            yield from (
                f"{report.path}: {text}" for text in list_unclean_findings(report, allow_open_end=file.corrects_bits)
            )
