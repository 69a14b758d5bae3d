"""Plan the bytes of a repaired file: the parts that stay, and the few bytes that the format adds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.repair_rules import Edit, Mended
from binlogtool.limits import Limits
from binlogtool.log.named import Group
from binlogtool.log.opened_file import LogFile, open_file
from binlogtool.recovery import corrected
from binlogtool.recovery.plan import Asked, Piece
from binlogtool.recovery.reading import raw
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.salvage import Salvage, salvage


class Result(NamedTuple):
    """The planned bytes of a file.

    Attributes:
        pieces: Empty if the file stays.
        salvaged: The account of a salvaged log.
        reasons: Why it must not be made.
    """

    pieces: tuple[Piece, ...]
    notes: tuple[str, ...] = ()
    salvaged: Salvage = Salvage()
    reasons: tuple[str, ...] = ()


def result_of(
    report: FileReport, keep: int, format_: Format, asked: Asked, limits: Limits, backend: str, hints: Hints
) -> Result:
    """Plan the bytes of one file.

    Args:
        keep_size: Offset of a plain cut.
    """
    plain = Result((Piece(0, keep),) if keep != report.size else ())
    if report.durable_end is None or not (asked.fix_meta or asked.write_close_marker or asked.salvage):
        return plain
    file = open_file(report.path, os.path.basename(report.path), format_, limits, hints=hints)
    try:
        return _special(file, report, keep, asked, limits, backend)
    finally:
        file.source.close()


def _special(file: LogFile, report: FileReport, keep: int, asked: Asked, limits: Limits, backend: str) -> Result:
    pieces: tuple[Piece, ...] = (Piece(0, keep),)
    notes: list[str] = []
    made = Salvage(pieces)
    if asked.salvage and report.findings:
        made = salvage(file, limits, backend)
        pieces = with_edits(made.pieces, corrected.head_edits(report, raw(file.path)))
    if asked.fix_meta:
        edits = head_edits(file)
        pieces = with_edits(pieces, edits)
        notes += [file.format.repair.edits_note] if edits else []
    if asked.write_close_marker and not _ends_with_mark(pieces, report, file):
        pieces += _mark(file)
    reasons = _no_holes(file) if made.left_out else ()
    return Result(() if pieces == (Piece(0, report.size),) else pieces, tuple(notes), made, reasons)


def _no_holes(file: LogFile) -> tuple[str, ...]:
    why = file.format.repair.no_salvage(file.layout)
    return () if why is None else (f"{file.path}: cannot be salvaged: {why}",)


def head_edits(file: LogFile) -> tuple[Edit, ...]:
    """Return the edits that `--fix-meta` makes in the file itself."""
    if file.format.repair.head_edits is None:
        return ()
    return tuple(file.format.repair.head_edits(file.layout, raw(file.path)))


def mended(log: Group) -> tuple[Mended, ...]:
    """Return the files without records of a log's directory that `--fix-meta` corrects.

    Raises:
        InputOutputError.
    """
    mend = None if log.format is None else log.format.repair.mend
    return () if mend is None else tuple(mend(log.names, lambda name: raw(log.member_path(name))))


def with_edits(pieces: tuple[Piece, ...], edits: Sequence[Edit]) -> tuple[Piece, ...]:
    """Return the pieces with some bytes replaced; the edits are inside the first piece, in order."""
    first, *more = pieces
    out: list[Piece] = []
    place = first.start
    for edit in edits:
        if edit.offset + len(edit.new) <= first.end:  # else that part is cut off
            out += [Piece(place, edit.offset), Piece(data=edit.new)]
            place = edit.offset + len(edit.new)
    rest = Piece(place, first.end)
    return (*out, *((rest,) if rest.size or not out else ()), *more)


def _ends_with_mark(pieces: tuple[Piece, ...], report: FileReport, file: LogFile) -> bool:
    """Return True if the result already ends with the end mark."""
    mark = file.layout.frame.end_mark
    last = pieces[-1]
    if mark is None or last.data is not None:
        return last.data == mark
    return raw(report.path)(max(0, last.end - len(mark)), len(mark)) == mark and bool(report.closed)


def _mark(file: LogFile) -> tuple[Piece, ...]:
    close_mark = file.format.repair.close_mark
    mark = None if close_mark is None else close_mark(file.layout)
    return () if mark is None else (Piece(data=mark),)
