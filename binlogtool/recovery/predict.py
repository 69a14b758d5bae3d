"""The result of a repair, verified before anything is written: the planned bytes, read as if they were a file."""

from __future__ import annotations

import os

from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Format, Hints
from binlogtool.limits import Limits
from binlogtool.log.open import open_file
from binlogtool.log.source import FileSource
from binlogtool.recovery.plan import Piece
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.verify import Options, judge_file


class PiecesSource:
    """Pieces of a file as a source of their own."""

    def __init__(self, path: str, pieces: tuple[Piece, ...]) -> None:
        self.name = path
        self.size: int | None = sum(p.size for p in pieces)
        self._file = FileSource(os.path.realpath(path))
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
        if piece.data is None:
            return self._file.read_at(piece.start + skip, view)
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
) -> FileReport:
    """What `verify` would say of the result, by itself."""
    source = PiecesSource(path, pieces)
    file = open_file(path, os.path.basename(path), format_, limits, source, hints=hints)
    try:
        return judge_file(file, Options(limits=limits, backend=backend, hints=hints)).report
    finally:
        file.source.close()


def not_clean(report: FileReport, *, salvage: bool) -> list[str]:
    """Why a result is none: errors, and ends that would have to be cut again. In a salvaged log rows may be missing."""
    wrong = [f for f in report.findings if f.severity is Severity.ERROR or f.id in CUTTABLE]
    return [f"{f.id}: {f.message}" for f in wrong if not (salvage and f.id == "gap-in-sequence")]
