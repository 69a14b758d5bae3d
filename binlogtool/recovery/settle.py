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
from binlogtool.formats.layouts import Read
from binlogtool.formats.repair_rules import Piece, Remade, Settled, Stand
from binlogtool.log.named import Group, groups
from binlogtool.log.opened_file import readable
from binlogtool.recovery.corrected import WAY, corrected, flips, told
from binlogtool.recovery.outcome import Standing, wrong
from binlogtool.recovery.plan import Asked, FilePlan
from binlogtool.recovery.predict import not_clean, predicted_log, read_pieces
from binlogtool.recovery.reading import Reading, raw
from binlogtool.recovery.refusals import WHOLE_LOG, beyond
from binlogtool.recovery.remaking import plans, repeated
from binlogtool.recovery.report import FileReport, Report, SetReport
from binlogtool.recovery.verify import Examination


class Settlement(NamedTuple):
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


Results = Mapping[str, "tuple[Piece, ...] | None"]
"""The pieces of files that change, by path; None = the file goes."""


class _Log(NamedTuple):
    """A log as it is, or as it would be after the repair.

    Attributes:
        read: Path -> the bytes of the file.
        named_path: The single file that was named, else None.
    """

    group: Group
    reports: Sequence[FileReport]
    sets: Sequence[SetReport]
    read: Callable[[str], Read]
    only: str | None = None


def settled(path: str, report: Report, reading: Reading, asked: Asked) -> Settlement:
    """Plan the joint repair of the logs that a path names; for a single file, its whole log set is examined."""
    format_ = reading.format_of(report.files[0].format)
    whole = os.path.isdir(path)
    logs = groups(path, format_.spec) if whole else [_log_of(path, format_.spec)]
    if any(log.is_set for log in logs) and not whole:
        report = reading.report(logs[0].path)
    made = [_one(_log(log, report, None if whole else os.path.realpath(path)), reading, asked) for log in logs]
    files = tuple(one for part in made for one in part.files)
    reasons = [text for part in made for text in part.reasons]
    notes = tuple(dict.fromkeys(note for part in made for note in part.notes))
    if not whole:
        files, alone = _alone(path, files)
        reasons += alone
    return Settlement(files, tuple(dict.fromkeys(reasons)), notes, report)


def _log_of(path: str, format_name: str) -> Group:
    """Return the log set that a file belongs to; the file by itself if it belongs to none."""
    here = os.path.realpath(path)
    try:
        found = groups(os.path.dirname(path) or ".", format_name)
    except BinlogtoolError:
        found = []
    alone = groups(path, format_name)[0]
    return next((log for log in found if any(os.path.realpath(log.member_path(n)) == here for n in log.names)), alone)


def _log(log: Group, report: Report, only: str | None) -> _Log:
    paths = [log.member_path(name) for name in log.names]
    places = {one.path: place for place, one in enumerate(report.files)}
    reports = [report.files[places[path]] for path in paths]
    return _Log(log, reports, [one for one in report.sets if one.path == log.path], raw, only)


def _alone(path: str, files: Sequence[FilePlan]) -> tuple[tuple[FilePlan, ...], list[str]]:
    """Return the plan of the one file that was named, and a reason against it if other files have to change with it."""
    here = os.path.realpath(path)
    own = tuple(one for one in files if os.path.realpath(one.path) == here)
    others = [one.path for one in files if one.action != "none" and one not in own]
    if not others or all(one.action == "none" for one in own):
        return own, []
    text = f"{path}: other files of the log change with it ({', '.join(map(os.path.basename, others[:5]))})"
    return own, [f"{text}; {WHOLE_LOG}"]


def _one(log: _Log, reading: Reading, asked: Asked) -> Settlement:
    """Plan the repair of one log."""
    group = log.group
    made = _made(log, reading, asked)
    remade = {group.member_path(one.name): one for one in made.files}
    results = {path: None if one.action == "remove" else one.pieces for path, one in remade.items()}
    found = _predicted(log, results, reading)
    after = {} if found is None else {one.report.path: one.report for one in found.files}
    files = plans(group, log.reports, remade, after)
    reasons = [*_barred(log, made), *_lost(group, made, files, asked)]
    before = Standing(files, reasons, log.reports)
    reasons += [] if made.reasons else _shortcomings(log, before, results, found, reading, asked)
    reasons += [text for one in files for text in beyond(one, asked)]
    notes = (*made.notes, *repeated(group, log.reports, files, after), *([] if asked.salvage else _flips(log, reading)))
    return Settlement(files, tuple(reasons), notes, Report(tuple(log.reports), tuple(log.sets)))


def _made(log: _Log, reading: Reading, asked: Asked) -> Settled:
    """Return what becomes of the files: as the format decides, or in a salvage, what the stored checksums prove."""
    group, hints = log.group, reading.hints
    assert group.format is not None
    repair = group.format.repair
    assert repair.settle is not None
    if asked.salvage:
        right = _corrected(log)
        return Settled(right, () if right else (f"cannot be salvaged: {repair.no_salvage()}",))
    stands = [
        Stand(name, one.size, one.durable_end, one.record_types, one.findings, log.read(one.path))
        for name, one in zip(group.names, log.reports, strict=True)
    ]
    redo = None if hints is None or hints.redo is None else readable(hints.redo)
    return repair.settle(stands, redo, asked.allow_discard_valid)


def _corrected(log: _Log) -> tuple[Remade, ...]:
    """Return the files with flipped bits put back; only the named one, if a file was named."""
    every = zip(log.group.names, log.reports, strict=True)
    chosen = [(name, one) for name, one in every if log.only in (None, os.path.realpath(one.path))]
    made = [corrected(one, name, log.read(one.path)) for name, one in chosen]
    return tuple(one for one in made if one is not None)


def _predicted(log: _Log, results: Results, reading: Reading) -> Examination | None:
    """Verify the log as it would be; None where nothing changes, or no file is left."""
    if not results or all(results.get(one.path, ()) is None for one in log.reports):
        return None
    return predicted_log(log.group, results, reading.options)


# -- what is wrong with it ---------------------------------------------------------------------------------------------


def _barred(log: _Log, made: Settled) -> list[str]:
    """Return the format's reasons against the repair, and the files that changed while they were read."""
    moved = [f"{one.path}: {f.id}: {f.message}" for one in log.reports for f in one.findings if _moved(f)]
    return [*(f"{log.group.path}: {text}" for text in made.reasons), *moved]


def _moved(found: Finding) -> bool:
    return found.id == "changed-while-read"


def _lost(group: Group, made: Settled, files: Sequence[FilePlan], asked: Asked) -> list[str]:
    """Return a reason if complete records would be discarded without consent, and are not proven never to have been
    durable.
    """
    lost = sum(one.cut_valid_records for one in files)
    if not lost or made.reasons or made.proven or asked.allow_discard_valid:
        return []
    return [f"{group.path}: {lost:,} complete {'record' if lost == 1 else 'records'} would be discarded"]


def _shortcomings(
    log: _Log, before: Standing, results: Results, found: Examination | None, reading: Reading, asked: Asked
) -> list[str]:
    """Return what would be wrong after the repair, by the same check that the repair ends with."""
    if found is None:
        return _errors(log.reports, log.sets) if not results else []
    reports = [one.report for one in found.files]
    sets = () if found.set is None else (found.set,)
    others = _errors(log.reports, log.sets) if asked.salvage and log.only else []  # a copy of one file is made
    left = [text for text in _errors(reports, sets) if text not in others]
    names = tuple(one.member.name for one in found.files)
    after = _Log(replace(log.group, names=names), reports, sets, partial(_read, results), log.only)
    left += wrong(before, _again(after, reading, asked))
    failed = [f"{one.path}: {one.message}" for one in found.failures]
    return [*(f"the result would not be clean: {text}" for text in dict.fromkeys(left)), *failed]


def _again(log: _Log, reading: Reading, asked: Asked) -> Standing:
    """Return what a second plan would make of the result; a salvaged copy is only verified."""
    made = Settled() if asked.salvage else _made(log, reading, asked)
    remade = {log.group.member_path(one.name): one for one in made.files}
    return Standing(plans(log.group, log.reports, remade, {}), _barred(log, made), log.reports)


def _read(results: Results, path: str) -> Read:
    """Return a function that reads the bytes of a file of the result."""
    pieces = results.get(path)
    return raw(path) if pieces is None else partial(read_pieces, path, pieces)


def _errors(files: Iterable[FileReport], sets: Iterable[SetReport]) -> list[str]:
    """Return the errors of files and sets in words."""
    every: list[FileReport | SetReport] = [*files, *sets]
    return [f"{one.path}: {f.id}: {f.message}" for one in every for f in one.findings if f.severity is Severity.ERROR]


def _flips(log: _Log, reading: Reading) -> list[str]:
    """Return notes about files whose damage single flipped bits explain completely."""
    said = []
    for name, one in zip(log.group.names, log.reports, strict=True):
        made = corrected(one, name, log.read(one.path))
        if made is None:
            continue
        found = _predicted(log, {one.path: made.pieces}, reading)
        after = [] if found is None else [file.report for file in found.files if file.report.path == one.path]
        if not any(not_clean(report, open_end=True) for report in after):
            bits = " and ".join(map(told, flips(one)))
            said.append(f"{one.path}: a flipped bit explains the damage: {bits}; {WAY}")
    return said
