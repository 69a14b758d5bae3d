"""Plan the bytes of a repaired file: the parts that stay, and the few bytes that the format adds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.repair_rules import ByteEdit, FileFix
from binlogtool.limits import Limits
from binlogtool.log.named import LogGroup
from binlogtool.log.opened_file import LogFile, open_file
from binlogtool.recovery import corrected
from binlogtool.recovery.plan import RepairPolicy, ResultPiece
from binlogtool.recovery.reading import make_raw_reader
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.salvage import SalvagedContent, salvage_file


class PlannedContent(NamedTuple):
    """The planned bytes of a file.

    Attributes:
        pieces: Empty if the file stays.
        salvaged: The account of a salvaged log.
        reasons: Why it must not be made.
    """

    pieces: tuple[ResultPiece, ...]
    notes: tuple[str, ...] = ()
    salvaged: SalvagedContent = SalvagedContent()
    reasons: tuple[str, ...] = ()


def plan_content(
    report: FileReport,
    keep_size: int,
    format_: Format,
    policy: RepairPolicy,
    limits: Limits,
    backend: str,
    hints: Hints,
) -> PlannedContent:
    """Plan the bytes of one file.

    Args:
        keep_size: Offset of a plain cut.
    """
    plain_cut = PlannedContent((ResultPiece(0, keep_size),) if keep_size != report.size else ())
    if report.durable_end is None or not (policy.fix_meta or policy.write_close_marker or policy.salvage):
        return plain_cut
    file = open_file(report.path, os.path.basename(report.path), format_, limits, hints=hints)
    try:
        return _plan_special_content(file, report, keep_size, policy, limits, backend)
    finally:
        file.source.close()


def _plan_special_content(
    file: LogFile, report: FileReport, keep_size: int, policy: RepairPolicy, limits: Limits, backend: str
) -> PlannedContent:
    pieces: tuple[ResultPiece, ...] = (ResultPiece(0, keep_size),)
    notes: list[str] = []
    salvaged = SalvagedContent(pieces)
    if policy.salvage and report.findings:
        salvaged = salvage_file(file, limits, backend)
        pieces = apply_edits(salvaged.pieces, corrected.plan_header_corrections(report, make_raw_reader(file.path)))
    if policy.fix_meta:
        edits = plan_header_edits(file)
        pieces = apply_edits(pieces, edits)
        notes += [file.format.repair.edits_note] if edits else []
    if policy.write_close_marker and not _ends_with_mark(pieces, report, file):
        pieces += _make_end_mark(file)
    reasons = _explain_no_salvage(file) if salvaged.left_out else ()
    return PlannedContent(() if pieces == (ResultPiece(0, report.size),) else pieces, tuple(notes), salvaged, reasons)


def _explain_no_salvage(file: LogFile) -> tuple[str, ...]:
    why = file.format.repair.find_salvage_obstacle(file.layout)
    return () if why is None else (f"{file.path}: cannot be salvaged: {why}",)


def plan_header_edits(file: LogFile) -> tuple[ByteEdit, ...]:
    """Return the edits that `--fix-meta` makes in the file itself."""
    if file.format.repair.head_edits is None:
        return ()
    return tuple(file.format.repair.head_edits(file.layout, make_raw_reader(file.path)))


def collect_file_fixes(log: LogGroup) -> tuple[FileFix, ...]:
    """Return the files without records of a log's directory that `--fix-meta` corrects.

    Raises:
        InputOutputError.
    """
    make_fixes = None if log.format is None else log.format.repair.fix_files
    return (
        () if make_fixes is None else tuple(make_fixes(log.names, lambda name: make_raw_reader(log.member_path(name))))
    )


def apply_edits(pieces: tuple[ResultPiece, ...], edits: Sequence[ByteEdit]) -> tuple[ResultPiece, ...]:
    """Return the pieces with some bytes replaced; the edits are inside the first piece, in order."""
    first, *more = pieces
    edited: list[ResultPiece] = []
    position = first.start
    for edit in edits:
        if edit.offset + len(edit.new) <= first.end:  # else that part is cut off
            edited += [ResultPiece(position, edit.offset), ResultPiece(data=edit.new)]
            position = edit.offset + len(edit.new)
    rest = ResultPiece(position, first.end)
    return (*edited, *((rest,) if rest.size or not edited else ()), *more)


def _ends_with_mark(pieces: tuple[ResultPiece, ...], report: FileReport, file: LogFile) -> bool:
    """Return True if the result already ends with the end mark."""
    mark = file.layout.frame.end_mark
    last = pieces[-1]
    if mark is None or last.data is not None:
        return last.data == mark
    return make_raw_reader(report.path)(max(0, last.end - len(mark)), len(mark)) == mark and bool(report.closed)


def _make_end_mark(file: LogFile) -> tuple[ResultPiece, ...]:
    close_mark = file.format.repair.close_mark
    mark = None if close_mark is None else close_mark(file.layout)
    return () if mark is None else (ResultPiece(data=mark),)
