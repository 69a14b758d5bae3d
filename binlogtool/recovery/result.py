"""How the bytes of a repaired file are made: what stays of it, and the few bytes that the format asks for."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from binlogtool.formats.base import Edit, Format
from binlogtool.log.open import LogFile, open_file
from binlogtool.log.source import FileSource, read_range
from binlogtool.recovery.plan import Asked, Piece
from binlogtool.recovery.report import FileReport

if TYPE_CHECKING:
    from binlogtool.recovery.durable import Reading


def pieces_of(report: FileReport, keep: int, format_: Format, reading: Reading, asked: Asked) -> tuple[Piece, ...]:
    """The pieces of the result; none where the file stays as it is."""
    unchanged = (Piece(0, report.size),)
    pieces: tuple[Piece, ...] = (Piece(0, keep),)
    if report.durable_end is not None and (asked.fix_meta or asked.write_close_marker):
        file = open_file(report.path, os.path.basename(report.path), format_, reading.limits)
        try:
            pieces = _with_edits(pieces, head_edits(file) if asked.fix_meta else ())
            pieces += _mark(file, report, keep) if asked.write_close_marker else ()
        finally:
            file.source.close()
    return () if pieces == unchanged else pieces


def head_edits(file: LogFile) -> tuple[Edit, ...]:
    """What `--fix-meta` changes in the file itself."""
    if file.format.repair.head_edits is None:
        return ()
    raw = FileSource(os.path.realpath(file.path))
    try:
        return tuple(file.format.repair.head_edits(file.layout, partial(read_range, raw)))
    finally:
        raw.close()


def _with_edits(pieces: tuple[Piece, ...], edits: tuple[Edit, ...]) -> tuple[Piece, ...]:
    """The pieces with some bytes replaced; edits lie inside the first piece, in order."""
    (first, *more) = pieces
    out: list[Piece] = []
    place = first.start
    for edit in edits:
        if edit.offset + len(edit.new) > first.end:
            continue  # that part is cut off
        out += [Piece(place, edit.offset), Piece(data=edit.new)]
        place = edit.offset + len(edit.new)
    return tuple(p for p in [*out, Piece(place, first.end), *more] if p.size or (p.data is None and not out))


def _mark(file: LogFile, report: FileReport, keep: int) -> tuple[Piece, ...]:
    close_mark = file.format.repair.close_mark
    mark = None if close_mark is None or (report.closed and keep == report.size) else close_mark(file.layout)
    return () if mark is None else (Piece(data=mark),)
