"""Plan the repair of a log: find where its durable part ends, and what to cut. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, LimitError, RefusedError, UsageError
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.repair_rules import Mended
from binlogtool.log.how import How
from binlogtool.log.named import Group, groups
from binlogtool.log.rotated import newest
from binlogtool.log.source import is_url
from binlogtool.recovery.behind import left_alone, told
from binlogtool.recovery.corrected import WAY
from binlogtool.recovery.draft import Draft, Drafts, bound, file_plan, whole_transactions
from binlogtool.recovery.fileio import directory_of
from binlogtool.recovery.interrupted import unfinished
from binlogtool.recovery.leftovers import leftovers
from binlogtool.recovery.outcome import Standing, wrong
from binlogtool.recovery.outlook import damage, made_worse, shortcomings, unclean, unmended, words
from binlogtool.recovery.plan import Asked, FilePlan, Piece, Plan
from binlogtool.recovery.reading import Examined, Reading, same_file
from binlogtool.recovery.refusals import empties, refusals
from binlogtool.recovery.report import FileReport, Report, joined
from binlogtool.recovery.result import mended
from binlogtool.recovery.settle import settled
from binlogtool.recovery.system import SYSTEM
from binlogtool.recovery.verify import Judged, examine

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def plan_truncate(
    path: str | os.PathLike[str],
    how: How,
    asked: Asked,
) -> Plan:
    """See `binlogtool.plan_truncate`.

    Raises:
        UsageError: standard input was named. UnknownFormatError, InputOutputError.
    """
    name = os.fspath(path)
    if name == "-":
        raise UsageError("standard input cannot be repaired; name a file or a directory")
    if is_url(name):
        raise UsageError(f"{name}: repair is for local files only; copy the log to a disk first")
    return planned(name, Reading.of(how), asked)


def planned(path: str, reading: Reading, asked: Asked) -> Plan:
    """Plan the repair of one log; refuse it while an earlier repair of the log is not finished."""
    plan = judged(path, reading, asked)[0]
    forced = asked.allow_empty_result and reading.format != "auto" and not os.path.isdir(path)
    empty = empties(plan.files, forced=forced)
    reasons, notes = (*unfinished(path), *empty, *plan.reasons), (*plan.notes, *_left_behind(plan))
    plan = replace(plan, refused=bool(reasons), reasons=reasons, notes=notes)
    return replace(plan, copyable=_copyable(plan, reading)) if plan.refused else plan


def _copyable(plan: Plan, reading: Reading) -> str | None:
    """Return the file that a plan is refused for, if a salvaged copy of it would not be refused; else None."""
    about, asked = plan.about, plan.asked
    if about is None or about.action == "none" or asked.salvage or asked.copy:
        return None
    try:
        copy = judged(about.path, reading, replace(asked, salvage=True, copy=True))[0]
    except BinlogtoolError:
        return None
    return None if copy.refused or empties(copy.files, forced=False) else about.path


def judged(path: str, reading: Reading, asked: Asked) -> tuple[Plan, Report]:
    """Draft the plan for one log; return it with the report that it was made from."""
    _refuse_compressed(path)
    seen = reading.examined(path)
    logs, report = seen.logs, seen.report
    if report.incomplete:
        why = next(one.details["incomplete"] for one in report.files if "incomplete" in one.details)
        raise LimitError(f"{path}: {why}; without the whole log there is no plan")
    if _settles(path, report):
        return _settled(path, report, reading, asked)
    lists = _lists(logs) if asked.fix_meta else {}
    drafts, newest_files = Drafts(), _newest_files(logs)
    for own in _others(report, lists):
        drafts.add(file_plan(own, reading, replace(asked, fix_meta=False) if own.path in newest_files else asked))
    for one in logs:
        drafts.told |= left_alone(one.log, report, drafts.told, asked)
    if not os.path.isdir(path) and any(one.plan.action != "none" for one in drafts.told.values()):
        logs = _its_log(path, report, reading) or logs
        report = _with_its_set(path, report, logs)
    plans = drafts.plans(*lists.values())
    pairs = zip(_others(report, lists), drafts, strict=True)
    reasons = [text for own, draft in pairs for text in _refusals(own, draft, asked)]
    reasons = reasons or _left(path, logs, report, plans, drafts.told, reading, asked)
    notes = tuple(dict.fromkeys(note for one in drafts.told.values() for note in one.notes))
    notes += () if os.path.isdir(path) else told(path, logs[0].log, plans)
    format_ = report.files[0].format
    target = os.path.abspath(path)
    return Plan(format_, bool(reasons), tuple(reasons), plans, target, asked, notes, seen.left), report


def _newest_files(logs: Sequence[Examined]) -> frozenset[str]:
    """Return the newest file of each log set.

    Its in-use mark stays: without it the server does not look for prepared transactions, and rolls back what the file
    holds
    (MySQL) or does not start (MariaDB).
    """
    newest_names = ((one.log, newest(one.log.names)) for one in logs if one.log.is_set)
    return frozenset(log.member_path(name) for log, names in newest_names for _, name in names.values())


def _others(report: Report, lists: Mapping[str, FilePlan]) -> Iterator[FileReport]:
    """Yield the reports of files that are not rewritten as a whole by a list fix."""
    return (one for one in report.files if one.path not in lists)


def _refusals(report: FileReport, draft: Draft, asked: Asked) -> list[str]:
    return [*draft.reasons, *refusals(report, draft.plan, asked)]


def _left(
    path: str,
    logs: Sequence[Examined],
    report: Report,
    plans: Sequence[FilePlan],
    drafts: Mapping[str, Draft],
    reading: Reading,
    asked: Asked,
) -> list[str]:
    """Describe what would still be wrong after the plan."""
    made = {name: one.after for name, one in drafts.items() if one.after is not None}
    if os.path.isdir(path):
        return [text for one in logs for text in _left_of(one, plans, made, reading, asked)]
    (plan,), (own,) = plans, report.files
    if (
        asked.salvage and plan.action != "none"
    ):  # rows may be missing; `collect_refusals` reports what else would be wrong
        return []
    if plan.action == "none":
        kept = [f for f in damage(own.findings) if not (asked.salvage and f.id == "gap-in-sequence")]
        return [unmended(f"{path}: {words(f)}", *([WAY] if is_corrected(f) else ())) for f in kept]
    (log,) = logs  # for a single file `collect_refusals` reports what would be wrong
    here = next((one for one in map(log.log.member_path, log.log.names) if same_file(one, path)), path)
    return made_worse(log, replace(plan, path=here), {here: made[path]}, reading.options) if log.log.is_set else []


def _left_of(
    one: Examined, plans: Sequence[FilePlan], made: Mapping[str, Judged], reading: Reading, asked: Asked
) -> Iterator[str]:
    for text, is_old in shortcomings(one, plans, made, reading.options):
        if not is_old:
            yield unclean(text)
        elif not asked.fix_meta and mended(one.log):
            yield unmended(text, "--fix-meta may mend it")
        else:
            yield unmended(text)


def _settles(path: str, report: Report) -> bool:
    """Return True if the format decides itself what becomes of all files of a log.

    Raises:
        UsageError: there are logs of another format, too.
    """
    kinds = {one.format for one in report.files}
    if all(formats.get(kind).repair.settle is None for kind in kinds):
        return False
    if len(kinds) > 1:
        raise UsageError(f"{path}: logs of several formats ({', '.join(sorted(kinds))}); choose one with --format")
    return True


def _settled(path: str, report: Report, reading: Reading, asked: Asked) -> tuple[Plan, Report]:
    if asked.transactions:
        whole_transactions(report.files[0], reading.format_of(report.files[0].format))
    made = settled(path, report, reading, asked)
    files = tuple(one if one.action == "none" else bound(one) for one in made.files)
    reasons, target = made.reasons, os.path.abspath(path)
    kind, left = report.files[0].format, report.left
    return Plan(kind, bool(reasons), reasons, files, target, asked, made.notes, left), made.report


def _lists(logs: Sequence[Examined]) -> dict[str, FilePlan]:
    """Return the plans for the list files of the logs' directories that `--fix-meta` corrects, by path."""
    plans = [_list(one.log, made) for one in logs if one.log.is_set for made in mended(one.log)]
    return {plan.path: plan for plan in plans}


def _list(log: Group, made: Mended) -> FilePlan:
    name, proof = log.member_path(made.name), {"why": made.why}
    like = None if made.like is None else log.member_path(made.like)
    size = 0 if like is not None else os.stat(name).st_size
    if made.content is None:
        return bound(FilePlan(name, size, "remove", None, size, 0, proof, None, None))
    pieces = (Piece(data=made.content),)
    return bound(FilePlan(name, size, "rewrite", None, 0, 0, proof, None, None, pieces=pieces, made_like=like))


def result_check(plan: Plan, reading: Reading) -> Callable[[], list[str]]:
    """Return a function that examines the files after the repair and lists what is not as planned."""

    def check() -> list[str]:
        left = [one.path for one in plan.files if one.action == "remove" and os.path.lexists(one.path)]
        if left or all(one.action == "remove" for one in plan.files):
            return [f"{path}: is still there" for path in left]
        try:
            after, report = judged(plan.target, reading, replace(plan.asked, max_loss=None))
            return wrong(Standing(plan.files, plan.reasons, ()), Standing(after.files, after.reasons, report.files))
        except BinlogtoolError as error:
            return [str(error)]

    return check


def _its_log(path: str, report: Report, reading: Reading) -> list[Examined]:
    """Return the examined log set that a single file is a member of, if its format validates log sets; else an empty
    list.
    """
    format_ = reading.format_of(report.files[0].format)
    if format_.judging.judge_set is None:
        return []
    try:
        logs = groups(os.path.dirname(path) or ".", format_.spec)
    except BinlogtoolError:
        return []
    own = [log for log in logs if any(same_file(log.member_path(name), path) for name in log.names)]
    return [Examined(log, examine(log, reading.options)) for log in own]


def _with_its_set(path: str, report: Report, logs: Sequence[Examined]) -> Report:
    """Return the report on a single file with what the other files of its log set say about it."""
    found = [one for one in joined(log.found.report for log in logs).files if same_file(one.path, path)]
    return Report(tuple(replace(one, path=path) for one in found) or report.files, ())


def _left_behind(plan: Plan) -> list[str]:
    """Describe what earlier runs left beside the files; skip directories that cannot be read."""
    homes: dict[str, list[str]] = {}
    for file in plan.files:
        homes.setdefault(directory_of(file.path), []).append(os.path.basename(file.path))
    out = []
    for home, names in homes.items():
        with suppress(OSError):
            out += leftovers(SYSTEM, os.path.realpath(home), names)
    return out


def _refuse_compressed(path: str) -> None:
    try:
        if not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return  # reported where the file is read
    if head.startswith(_COMPRESSED):
        raise RefusedError(f"{path}: is a compressed file; unpack it first; nothing was changed")
