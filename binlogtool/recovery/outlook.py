"""Predict what `verify` would say of a log after a plan: no repair starts whose result would not be clean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from binlogtool.findings import Finding, Severity
from binlogtool.recovery.plan import FilePlan
from binlogtool.recovery.predict import predicted_log
from binlogtool.recovery.reading import Examined
from binlogtool.recovery.report import FileReport, SetReport
from binlogtool.recovery.verify import Examination, Judged, Options


def shortcomings(
    one: Examined, files: Sequence[FilePlan], made: Mapping[str, Judged], options: Options
) -> Iterator[tuple[str, bool]]:
    """Yield, in words, what would be wrong with a log after the plan, each with True if it is wrong already.

    Args:
        predictions: Results that were verified already, by path.
    """
    before = set(errors(one.found))
    return ((text, text in before) for text in errors(_after(one, files, made, options)))


def made_worse(one: Examined, file: FilePlan, made: Mapping[str, Judged], options: Options) -> list[str]:
    """Return reasons against the plan for a single file; present damage of other files of its log set does not
    count.
    """
    before = set(errors(one.found))
    after = errors(_after(one, [file], made, options))
    return [unclean(text) for text in after if text not in before or text.startswith(f"{file.path}: ")]


def _after(one: Examined, files: Sequence[FilePlan], made: Mapping[str, Judged], options: Options) -> Examination:
    """Verify the log as it would be after the plan; files that stay are not read again."""
    changed = [file for file in files if file.action != "none"]
    names = {one.log.member_path(name): name for name in one.log.names} if changed else {}
    results = {file.path: None if file.action == "remove" else file.pieces for file in changed if _is_of(file, names)}
    if not results:
        return one.found
    known = dict(one.found.alone)
    for path in results.keys() & made.keys():
        known[names[path]] = made[path].named(names[path])
    return predicted_log(one.log, results, options, known)


def _is_of(file: FilePlan, names: Mapping[str, str]) -> bool:
    """Return True if the file is one of the log, or a new file beside them."""
    return file.path in names or (file.made_like is not None and file.made_like in names)


def errors(found: Examination) -> list[str]:
    """Return all errors and failures of a log in words."""
    own = () if found.set is None else (found.set,)
    every: Iterable[FileReport | SetReport] = chain((one.report for one in found.files), own)
    failed = [f"{one.path}: {one.message}" for one in found.failures]
    return [f"{one.path}: {words(f)}" for one in every for f in damage(one.findings)] + failed


def damage(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings that are errors."""
    return (one for one in findings if one.severity is Severity.ERROR)


def words(found: Finding) -> str:
    """Return a finding as text for a reason."""
    return f"{found.id}: {found.message}"


def unclean(text: str) -> str:
    """Return the reason against a result that would not be clean."""
    return f"the result would not be clean: {text}"


def unmended(text: str, remedy: str = "nothing that this command can mend") -> str:
    """Return the reason for damage that the plan leaves."""
    return f"{text} ({remedy})"
