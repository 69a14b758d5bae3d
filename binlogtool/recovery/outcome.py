"""Compare a log with what its plan promised: used on the prediction before a repair and on the files after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.predict import not_clean
from binlogtool.recovery.report import FileReport


class Standing(NamedTuple):
    """A log as a plan sees it.

    Attributes:
        files: The plan for each file.
        reasons: Why the plans must not be carried out.
        reports: What `verify` says of the files.
    """

    files: Sequence[FilePlan]
    reasons: Sequence[str]
    reports: Sequence[FileReport]


def wrong(before: Standing, after: Standing) -> list[str]:
    """Describe what is not as planned after `before` was carried out and the log is as in `after`."""
    changes = [file for file in before.files if file.action not in ("none", "remove")]
    found = [text for text in after.reasons if text not in before.reasons]
    found += [f"{file.path}: still has something to cut" for file in after.files if file.action != "none"]
    found += _other_records(changes, after.files)
    found += _unclean({file.path: file for file in changes}, after.reports)
    return list(dict.fromkeys(found))


def _other_records(changes: Iterable[FilePlan], after: Iterable[FilePlan]) -> Iterator[str]:
    now = {file.path: file for file in after}
    for file in changes:
        found = now.get(file.path)
        if found is None or "records" not in file.proof:
            continue
        if found.proof["records"] != file.proof.get("records_kept", file.proof["records"]):
            yield f"{file.path}: other records than planned"


def _unclean(changed: Mapping[str, FilePlan], reports: Iterable[FileReport]) -> Iterator[str]:
    for report in reports:
        file = changed.get(report.path)
        if file is not None:
            yield from (f"{report.path}: {text}" for text in not_clean(report, open_end=file.corrects))
