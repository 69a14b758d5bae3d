"""The plan for logs whose files change together: the format says what becomes of each, the engine proves the result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Hints
from binlogtool.formats.repairs import Remade, Settle, Settled, Stand
from binlogtool.log.open import Group, groups, readable
from binlogtool.recovery.plan import Asked, FilePlan
from binlogtool.recovery.predict import predicted_log
from binlogtool.recovery.reading import Reading, raw
from binlogtool.recovery.refusals import CUTTABLE, beyond
from binlogtool.recovery.report import FileReport, Report, SetReport


class Settlement(NamedTuple):
    """The plans for the files (not yet bound to their bytes), why they must not be carried out, what to know, and the
    report that they were made from."""

    files: tuple[FilePlan, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    report: Report


def settled(path: str, report: Report, reading: Reading, asked: Asked) -> Settlement:
    """What becomes of the logs that a path names. Of a single file, the whole log in its directory is looked at."""
    format_ = reading.format_of(report.files[0].format)
    logs = groups(path, format_.spec) if os.path.isdir(path) else [_log_of(path, format_.spec)]
    if any(log.is_set for log in logs) and not os.path.isdir(path):
        report = reading.report(logs[0].path)
    made = [_one(log, report, reading, asked) for log in logs]
    files = tuple(one for part in made for one in part.files)
    reasons = [text for part in made for text in part.reasons]
    notes = tuple(dict.fromkeys(note for part in made for note in part.notes))
    if not os.path.isdir(path):
        files, alone = _alone(path, files)
        reasons += alone
    return Settlement(files, tuple(dict.fromkeys(reasons)), notes, report)


def _log_of(path: str, format_name: str) -> Group:
    """The log that a file belongs to; the file by itself, if it belongs to none."""
    here = os.path.realpath(path)
    try:
        found = groups(os.path.dirname(path) or ".", format_name)
    except BinlogtoolError:
        found = []
    alone = groups(path, format_name)[0]
    return next((log for log in found if any(os.path.realpath(log.member_path(n)) == here for n in log.names)), alone)


def _alone(path: str, files: Sequence[FilePlan]) -> tuple[tuple[FilePlan, ...], list[str]]:
    """The plan of the one file that was named; it is not changed if others have to change with it."""
    here = os.path.realpath(path)
    own = tuple(one for one in files if os.path.realpath(one.path) == here)
    others = [one.path for one in files if one.action != "none" and one not in own]
    if not others or all(one.action == "none" for one in own):
        return own, []
    text = f"{path}: other files of the log change with it ({', '.join(map(os.path.basename, others[:5]))})"
    return own, [f"{text}; name the directory"]


def _one(log: Group, report: Report, reading: Reading, asked: Asked) -> Settlement:
    """One log."""
    assert log.format is not None
    repair, hints = log.format.repair, reading.hints or Hints()
    assert repair.settle is not None
    paths = [log.member_path(name) for name in log.names]
    reports = [next(one for one in report.files if one.path == path) for path in paths]
    sets = [one for one in report.sets if one.path == log.path]
    made = _made(repair.settle, log, reports, hints, asked)
    remade = {log.member_path(one.name): one for one in made.files}
    reasons = [f"{log.path}: {text}" for text in made.reasons]
    if asked.salvage and (why := repair.no_salvage()) is not None:
        reasons.append(f"{log.path}: cannot be salvaged: {why}")
    reasons += [f"{one.path}: {f.id}: {f.message}" for one in reports for f in one.findings if _moved(f)]
    after, wrong = _after(log, reports, sets, remade, reading)
    files = tuple(_plan(one, remade.get(one.path), after.get(one.path)) for one in reports)
    files += tuple(_new(path, log, one, after.get(path)) for path, one in remade.items() if path not in paths)
    reasons += [text for text in wrong if not made.reasons]
    reasons += [text for one in files for text in beyond(one, asked)]
    return Settlement(files, tuple(reasons), made.notes, report)


def _made(settle: Settle, log: Group, reports: Sequence[FileReport], hints: Hints, asked: Asked) -> Settled:
    stands = [
        Stand(name, one.size, one.durable_end, one.record_types, one.findings, raw(one.path))
        for name, one in zip(log.names, reports, strict=True)
    ]
    redo = None if hints.redo is None else readable(hints.redo)
    return settle(stands, redo, asked.allow_discard_valid)


def _moved(found: Finding) -> bool:
    return found.id == "changed-while-read"


def _after(
    log: Group,
    reports: Sequence[FileReport],
    sets: Sequence[SetReport],
    remade: dict[str, Remade],
    reading: Reading,
) -> tuple[dict[str, FileReport], list[str]]:
    """What `verify` would say of the result, by path; and what is wrong with it."""
    if not remade:
        return {}, _errors(reports, sets)
    results = {path: None if one.action == "remove" else one.pieces for path, one in remade.items()}
    if all(results.get(one.path, ()) is None for one in reports):
        return {}, []  # nothing is left
    found = predicted_log(log, results, reading.options)
    after = [one.report for one in found.files]
    wrong = _errors(after, () if found.set is None else (found.set,))
    wrong = [f"the result would not be clean: {text}" for text in wrong]
    return {one.path: one for one in after}, [*wrong, *(f"{f.path}: {f.message}" for f in found.failures)]


def _new(path: str, log: Group, remade: Remade, after: FileReport | None) -> FilePlan:
    """A file that is made."""
    assert remade.like is not None
    records = 0 if after is None else after.records or 0
    proof: dict[str, Any] = {"records": 0, "last_seq": None, "durable_end": remade.durable_end, **remade.proof}
    proof["records_kept"] = records
    like = log.member_path(remade.like)
    end, pieces = remade.durable_end, remade.pieces
    return FilePlan(path, 0, remade.action, end, 0, 0, proof, None, None, pieces=pieces, made_like=like)


def _errors(files: Iterable[FileReport], sets: Iterable[SetReport]) -> list[str]:
    """The damage, in words."""
    every: list[FileReport | SetReport] = [*files, *sets]
    return [f"{one.path}: {f.id}: {f.message}" for one in every for f in one.findings if f.severity is Severity.ERROR]


def _plan(report: FileReport, remade: Remade | None, after: FileReport | None) -> FilePlan:
    """One file, before it is bound to its bytes."""
    end = report.durable_end
    proof: dict[str, Any] = {"records": report.records, "last_seq": report.last_seq, "durable_end": end}
    if remade is None:
        return FilePlan(report.path, report.size, "none", end, 0, 0, proof, None, None)
    end = remade.durable_end
    behind = [f for f in report.findings if f.id in CUTTABLE or (end is not None and (f.offset or 0) >= end)]
    told = [{"id": f.id, "offset": f.offset, "length": f.length, "message": f.message} for f in behind]
    proof |= {"durable_end": end, "behind": told, **remade.proof}
    left = (after.records or 0) if after is not None else 0
    if left != report.records:
        proof["records_kept"] = left
    lost = max(0, (report.records or 0) - left)
    pieces = remade.pieces
    return FilePlan(report.path, report.size, remade.action, end, remade.lost, lost, proof, None, None, pieces=pieces)
