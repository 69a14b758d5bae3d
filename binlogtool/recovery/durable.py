"""Where the durable part of a log ends, and the plan that would cut the rest. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, InputOutputError, RefusedError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format, Hints
from binlogtool.limits import Limits
from binlogtool.log.detect import by_name
from binlogtool.log.logset import members
from binlogtool.log.open import groups
from binlogtool.recovery import intent
from binlogtool.recovery.fileio import directory_of, three_hashes
from binlogtool.recovery.leftovers import leftovers
from binlogtool.recovery.plan import Asked, FilePlan, Piece, Plan
from binlogtool.recovery.predict import not_clean, predicted
from binlogtool.recovery.refusals import CUTTABLE, refusals
from binlogtool.recovery.report import FileReport, Report
from binlogtool.recovery.result import mended, result_of
from binlogtool.recovery.settle import settled
from binlogtool.recovery.system import READ, SYSTEM
from binlogtool.recovery.verify import verify_paths

MAX_GAPS = 20
"""Gaps of a salvaged log that are told one by one."""

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is read; the same for the plan and for the check of the result."""

    format: str
    limits: Limits
    backend: str
    hints: Hints | None = None

    def report(self, paths: list[str]) -> Report:
        """Everything that `verify` says.

        Raises:
            BinlogtoolError: a path cannot be worked on.
        """
        report = verify_paths(
            paths,
            format=self.format,
            depth="set",
            limits=self.limits,
            backend=self.backend,
            live=False,
            expect_closed=False,
            hints=self.hints,
        )
        for failure in report.failures:
            raise _raised(failure.message, failure.exit_code)
        return report

    def format_of(self, name: str) -> Format:
        """The description of a format, with the variant that the user fixed."""
        return formats.get(name) if self.format == "auto" else by_name(self.format)


def plan_truncate(
    path: str | os.PathLike[str],
    *,
    format: str,
    limits: Limits,
    backend: str,
    hints: Hints | None = None,
    asked: Asked,
) -> Plan:
    """See `binlogtool.plan_truncate`.

    Raises:
        UsageError: standard input was named. UnknownFormatError, InputOutputError.
    """
    name = os.fspath(path)
    if name == "-":
        raise UsageError("standard input cannot be repaired; name a file or a directory")
    return planned(name, Reading(format, limits, backend, hints), asked)


def planned(path: str, reading: Reading, asked: Asked) -> Plan:
    """The plan for one log; refused while an earlier repair of it is not finished."""
    plan = judged(path, reading, asked)[0]
    unfinished = _unfinished(path)
    reasons, notes = (*unfinished, *plan.reasons), (*plan.notes, *_left_behind(plan))
    return replace(plan, refused=plan.refused or bool(unfinished), reasons=reasons, notes=notes)


def judged(path: str, reading: Reading, asked: Asked) -> tuple[Plan, Report]:
    """The plan for one log, and the report that it was made from."""
    _refuse_compressed(path)
    report = reading.report([path])
    if report.incomplete:
        raise RefusedError(f"{path}: a limit ended the reading early; without the whole file there is no plan")
    if _settles(path, report):
        return _settled(path, report, reading, asked)
    drafts = [file_plan(one, reading, asked) for one in report.files]
    files = tuple(plan for plan, _ in drafts)
    notes = dict.fromkeys(note for _, own in drafts for note in own)
    report = _with_its_set(path, report, files, reading)
    reasons = [text for one, plan in zip(report.files, files, strict=True) for text in refusals(one, plan, asked)]
    lists = _lists(path, report, reading) if asked.fix_meta else {}
    solved = {id_ for _, ids in lists.values() for id_ in ids}
    reasons += [
        f"{one.path}: {f.id}: {f.message}"
        for one in report.sets
        for f in one.findings
        if f.severity is Severity.ERROR and f.id not in solved
    ]
    for name, (plan, _) in lists.items():
        reasons = [text for text in reasons if not text.startswith(f"{name}: ")]
        files = (*(one for one in files if one.path != name), plan)
    format_ = report.files[0].format
    return Plan(format_, bool(reasons), tuple(reasons), files, os.path.abspath(path), asked, tuple(notes)), report


def _settles(path: str, report: Report) -> bool:
    """Does the format itself say what becomes of all files of a log?

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
        _whole_transactions(report.files[0], reading.format_of(report.files[0].format))
    made = settled(path, report, reading, asked)
    files = tuple(one if one.action == "none" else bound(one) for one in made.files)
    reasons, target = made.reasons, os.path.abspath(path)
    return Plan(report.files[0].format, bool(reasons), reasons, files, target, asked, made.notes), made.report


def _lists(path: str, report: Report, reading: Reading) -> dict[str, tuple[FilePlan, tuple[str, ...]]]:
    """The files of the log's directory that are brought in line, by path, with the findings that this solves."""
    format_ = reading.format_of(report.files[0].format)
    out = {}
    for group in groups(path, format_.spec) if os.path.isdir(path) else ():
        for one in mended(group.path, group.names, format_):
            name = group.member_path(one.name)
            size = os.stat(name).st_size
            pieces = (Piece(data=one.content),)
            plan = FilePlan(name, size, "rewrite", None, 0, 0, {"why": one.why}, None, None, pieces=pieces)
            out[name] = bound(plan), one.solves
    return out


def file_plan(report: FileReport, reading: Reading, asked: Asked) -> tuple[FilePlan, tuple[str, ...]]:
    """What would happen to one file, and what the user should know of it."""
    end = report.durable_end
    format_ = reading.format_of(report.format)
    keep = report.size if end is None else keep_of(report, end)
    if asked.transactions and end is not None:
        keep = min(keep, _whole_transactions(report, format_))
    hints = reading.hints or Hints()
    result = result_of(report, keep, format_, asked, reading.limits, reading.backend, hints)
    pieces = result.pieces
    cut = report.size - sum(p.size for p in pieces if p.kept) if pieces else 0
    replaced = sum(p.size for p in pieces[:-1] if p.data is not None)
    cut -= replaced
    proof: dict[str, Any] = {
        "records": report.records,
        "last_seq": report.last_seq,
        "durable_end": end,
        "behind": [_brief(f) for f in report.findings if end is not None and (f.offset or 0) >= end],
    }
    if result.left_out:
        proof["left_out"] = list(result.left_out)
    action = "none" if not pieces else "truncate" if pieces == (Piece(0, keep),) else "rewrite"
    plan = FilePlan(report.path, report.size, action, end, cut, 0, proof, None, None, pieces=pieces)
    if action == "none":
        return plan, ()
    after = predicted(report.path, pieces, format_, reading.limits, reading.backend, hints)
    if after.records != report.records:
        proof["records_kept"] = after.records
        plan = replace(plan, cut_valid_records=max(0, (report.records or 0) - (after.records or 0)))
    proof |= {"not_clean": wrong} if (wrong := not_clean(after, salvage=asked.salvage)) else {}
    missing = [f"in the result: {f.message}" for f in after.findings if asked.salvage and f.id == "gap-in-sequence"]
    return bound(plan), (*result.notes, *missing[:MAX_GAPS])


def _whole_transactions(report: FileReport, format_: Format) -> int:
    """The end of the last whole transaction.

    Raises:
        UsageError: the format knows no other end than the durable one.
    """
    if format_.repair.transactions is None:
        text = "a log of this format never ends within a transaction behind its durable end"
        raise UsageError(f"{report.path}: --transactions does not fit: {text} ({format_.title})")
    return int(report.details[format_.repair.transactions])


def bound(plan: FilePlan) -> FilePlan:
    """The same plan with the hashes of the kept and the cut part, and which file it is about.

    Raises:
        InputOutputError: the file cannot be read, or is another one now.
    """
    path = os.path.realpath(plan.path)
    kept = [p for p in plan.pieces if p.kept]
    try:
        fd = SYSTEM.open(path, READ)
        try:
            status = os.fstat(fd)
            if status.st_size != plan.size:
                raise InputOutputError(f"{plan.path}: changed while it was read; plan again when nobody writes to it")
            hashes = three_hashes(SYSTEM, fd, kept, plan.size)
        finally:
            SYSTEM.close(fd)
    except OSError as error:
        raise InputOutputError(f"{plan.path}: cannot be read: {error.strerror}") from error
    return replace(plan, sha256_kept=hashes[0], sha256_cut=hashes[1], inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def keep_of(report: FileReport, end: int) -> int:
    """The bytes to keep: up to the durable end, or everything if what stands behind it is as it should be.

    That is the end mark, or space that the writer reserved.
    """
    cuttable = any(f.id in CUTTABLE and _ends_behind(f, end) for f in report.findings)
    if not report.closed:
        reserved = report.bytes.get("preallocated", 0)
        return report.size if end + reserved == report.size and not (reserved and cuttable) else end
    return end if any(_bars(f, end) for f in report.findings) else report.size


def result_check(plan: Plan, reading: Reading) -> Callable[[], list[str]]:
    """Looks at the files after the repair: says what is not as planned."""

    def check() -> list[str]:
        left = [one.path for one in plan.files if one.action == "remove" and os.path.lexists(one.path)]
        if left or all(one.action == "remove" for one in plan.files):
            return [f"{path}: is still there" for path in left]
        try:
            return _wrong(plan, *judged(plan.target, reading, replace(plan.asked, max_loss=None)))
        except BinlogtoolError as error:
            return [str(error)]

    return check


def _wrong(before: Plan, after: Plan, report: Report) -> list[str]:
    wrong = [text for text in after.reasons if text not in before.reasons]
    wrong += [f"{file.path}: still has something to cut" for file in after.changes]
    now = {file.path: file for file in after.files}
    for file in before.changes:
        found = now.get(file.path)
        if found is None or "records" not in file.proof:
            continue
        if found.proof["records"] != file.proof.get("records_kept", file.proof["records"]):
            wrong.append(f"{file.path}: other records than planned")
    changed = {file.path for file in before.changes}
    return wrong + [
        f"{one.path}: {f.id}: {f.message}"
        for one in report.files
        if one.path in changed
        for f in one.findings
        if f.severity is Severity.ERROR
    ]


def _with_its_set(path: str, report: Report, files: tuple[FilePlan, ...], reading: Reading) -> Report:
    """The same report with what the other files of the log say about a single file that would be changed."""
    if os.path.isdir(path) or files[0].action == "none":
        return report
    format_ = reading.format_of(report.files[0].format)
    if format_.judge_set is None:
        return report
    folder = os.path.dirname(path) or "."
    try:
        logs = members(folder, format_)
    except BinlogtoolError:
        return report
    here = os.path.realpath(path)
    if not any(os.path.realpath(os.path.join(log.home, name)) == here for log in logs for name in log.names):
        return report
    whole = replace(reading, format=format_.spec).report([folder])
    return Report(tuple(one for one in whole.files if os.path.realpath(one.path) == here) or report.files, ())


def _unfinished(path: str) -> list[str]:
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.lexists(os.path.join(folder, intent.NAME)):
        return []
    return [f"{folder}: a repair of several files was interrupted here; --apply finishes it first"]


def _left_behind(plan: Plan) -> list[str]:
    """What earlier runs left beside the files; nothing where that cannot be looked at."""
    homes: dict[str, list[str]] = {}
    for file in plan.files:
        homes.setdefault(os.path.realpath(directory_of(file.path)), []).append(os.path.basename(file.path))
    out = []
    for home, names in homes.items():
        with suppress(OSError):
            out += leftovers(SYSTEM, home, names)
    return out


def _refuse_compressed(path: str) -> None:
    try:
        if not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return  # what is wrong is said where the file is read
    if head.startswith(_COMPRESSED):
        raise RefusedError(f"{path}: is a compressed file; unpack it first; nothing was changed")


def _raised(message: str, exit_code: int) -> Exception:
    from binlogtool import errors

    kinds = (errors.UnknownFormatError, errors.RefusedError, errors.LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == exit_code), InputOutputError(message))


def _bars(found: Finding, end: int) -> bool:
    """Does it say that what stands behind the durable end is not as it should be?"""
    return (found.id in CUTTABLE or found.severity is Severity.ERROR) and _ends_behind(found, end)


def _ends_behind(found: Finding, end: int) -> bool:
    """Is it about anything from the durable end on?"""
    return found.offset is not None and found.offset + max(found.length, 1) > end


def _brief(found: Finding) -> dict[str, Any]:
    return {"id": found.id, "offset": found.offset, "length": found.length, "message": found.message}
