"""What `verify` would say of a log as the plan leaves it: no repair is begun whose result would not be clean."""

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
    """What would be wrong with a log afterwards, in words, and whether that is wrong already.

    made: results that were judged already, by path.
    """
    before = set(errors(one.found))
    return ((text, text in before) for text in errors(_after(one, files, made, options)))


def made_worse(one: Examined, file: FilePlan, made: Mapping[str, Judged], options: Options) -> list[str]:
    """The same for the one file that was named: what is wrong with the others of its log already does not count."""
    before = set(errors(one.found))
    after = errors(_after(one, [file], made, options))
    return [unclean(text) for text in after if text not in before or text.startswith(f"{file.path}: ")]


def _after(one: Examined, files: Sequence[FilePlan], made: Mapping[str, Judged], options: Options) -> Examination:
    """The log with what the plan makes of its files; those that stay as they are are not read again."""
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
    """Does it belong to this log? A new file does if it lies beside its files."""
    return file.path in names or (file.made_like is not None and file.made_like in names)


def errors(found: Examination) -> list[str]:
    """All damage of a log."""
    own = () if found.set is None else (found.set,)
    every: Iterable[FileReport | SetReport] = chain((one.report for one in found.files), own)
    failed = [f"{one.path}: {one.message}" for one in found.failures]
    return [f"{one.path}: {words(f)}" for one in every for f in damage(one.findings)] + failed


def damage(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those findings that are errors."""
    return (one for one in findings if one.severity is Severity.ERROR)


def words(found: Finding) -> str:
    """A finding in a reason."""
    return f"{found.id}: {found.message}"


def unclean(text: str) -> str:
    """The reason not to make such a result."""
    return f"the result would not be clean: {text}"


def unmended(text: str, remedy: str = "nothing that this command can mend") -> str:
    """The reason for damage that the plan leaves."""
    return f"{text} ({remedy})"
