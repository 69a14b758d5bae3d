"""The result of a repair, verified before anything is written: the planned bytes, read as if they were a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.formats.layouts import Read
from binlogtool.limits import Limits
from binlogtool.log.named import Group
from binlogtool.log.opened_file import Around, LogFile, open_file, read_beside
from binlogtool.log.source import BytesSource, FileSource, read_range
from binlogtool.recovery.plan import Piece
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.verify import Examination, Judged, Options, examine, judge_file


class PiecesSource:
    """Pieces of a file as a source of their own."""

    def __init__(self, path: str, pieces: tuple[Piece, ...]) -> None:
        self.name = path
        self.size: int | None = sum(p.size for p in pieces)
        self._file = FileSource(os.path.realpath(path)) if any(p.kept for p in pieces) else BytesSource(path, b"")
        self._pieces = pieces

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fills `view` from `offset`, piece by piece."""
        done = at = 0
        for piece in self._pieces:
            skip = offset + done - at
            if 0 <= skip < piece.size and done < len(view):
                done += self._from(piece, skip, view[done : done + piece.size - skip])
            at += piece.size
        return done

    def _from(self, piece: Piece, skip: int, view: memoryview) -> int:
        if piece.kept:
            return self._file.read_at(piece.start + skip, view)
        if piece.data is None:
            view[:] = bytes(len(view))
            return len(view)
        part = piece.data[skip : skip + len(view)]
        view[: len(part)] = part
        return len(part)

    def skip_hole(self, offset: int) -> int:
        """Holes are read as zeros."""
        return offset

    def changed(self) -> Finding | None:
        """The file below."""
        return self._file.changed()

    def close(self) -> None:
        """Closes the file below."""
        self._file.close()


def predicted(
    path: str, pieces: tuple[Piece, ...], format_: Format, limits: Limits, backend: str, hints: Hints
) -> Judged:
    """What `verify` would say of the result, by itself."""
    source = PiecesSource(path, pieces)
    file = open_file(path, os.path.basename(path), format_, limits, source, hints=hints)
    try:
        return judge_file(file, Options(limits=limits, backend=backend, hints=hints))
    finally:
        file.source.close()


def predicted_log(
    group: Group,
    results: Mapping[str, tuple[Piece, ...] | None],
    options: Options,
    known: Mapping[str, Judged] = MappingProxyType({}),
) -> Examination:
    """What `verify` would say of a whole log.

    results: by path, of the files that change or are new; None = it is gone. known: files that were judged already, by
    name; those that stay as they are need not be read again.
    """
    assert group.format is not None

    def beside(path: str, name: str) -> Read | None:
        other = os.path.join(os.path.dirname(path), os.path.basename(name))
        if other not in results:
            return read_beside(path, name)
        pieces = results[other]
        return None if pieces is None else partial(read_pieces, other, pieces)

    def opened(path: str, name: str, format_: Format | None, limits: Limits, around: Around, hints: Hints) -> LogFile:
        pieces = results.get(path)
        source = None if pieces is None else PiecesSource(path, pieces)
        return open_file(path, name, format_, limits, source, replace(around, beside=partial(beside, path)), hints)

    left = [name for name in group.names if results.get(group.member_path(name), ()) is not None]
    there = {group.member_path(name) for name in group.names}
    new = [os.path.relpath(path, group.path) for path in results if path not in there]
    names = (group.format.files.order or sorted)([*left, *new]) if new else left
    same = {name: one for name, one in known.items() if group.member_path(name) not in results}
    return examine(replace(group, names=tuple(names)), options, opened, same)


def read_pieces(path: str, pieces: tuple[Piece, ...], offset: int, size: int) -> bytes:
    """The bytes `[offset, offset + size)` of pieces of a file."""
    source = PiecesSource(path, pieces)
    try:
        return read_range(source, offset, size)
    finally:
        source.close()


def not_clean(report: FileReport, *, salvage: bool = False, open_end: bool = False) -> list[str]:
    """Why a result is none: errors, and ends that would have to be cut again. In a salvaged log rows may be missing.

    open_end: a log may end as a crash leaves it, or go on in the next file: there nothing was cut.
    """
    least = Severity.WARNING if open_end else Severity.NOTE
    wrong = [f for f in report.findings if f.severity is Severity.ERROR or (f.id in CUTTABLE and f.severity >= least)]
    return [f"{f.id}: {f.message}" for f in wrong if not (salvage and f.id == "gap-in-sequence")]
