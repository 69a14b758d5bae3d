"""Verify the result of a repair before anything is written: the planned bytes are read as if they were a file."""

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
    """A read-only source over the pieces of a planned result."""

    def __init__(self, path: str, pieces: tuple[Piece, ...]) -> None:
        self.name = path
        self.size: int | None = sum(p.size for p in pieces)
        self._file = FileSource(os.path.realpath(path)) if any(p.kept for p in pieces) else BytesSource(path, b"")
        self._pieces = pieces

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`; return the number of bytes."""
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
        """Return the offset unchanged: holes are read as zeros."""
        return offset

    def changed(self) -> Finding | None:
        """Return a finding if the underlying file changed while it was read."""
        return self._file.changed()

    def close(self) -> None:
        """Close the underlying file."""
        self._file.close()


def predicted(
    path: str, pieces: tuple[Piece, ...], format_: Format, limits: Limits, backend: str, hints: Hints
) -> Judged:
    """Verify the planned result of one file on its own."""
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
    """Verify a whole log as it would be after the repair.

    Args:
        results: The pieces of each file that changes or is new, by path; None = the file is removed.
        verified: Files that were verified already, by name; those that do not change are not read again.
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
    """Return the bytes `[offset, offset + size)` of a planned result."""
    source = PiecesSource(path, pieces)
    try:
        return read_range(source, offset, size)
    finally:
        source.close()


def not_clean(report: FileReport, *, salvage: bool = False, open_end: bool = False) -> list[str]:
    """Return, in words, the findings that forbid a result: errors, and ends that would have to be cut again.

    Args:
        salvage: Records may be missing, as in a salvaged log.
        allow_open_end: The log may end as a crash leaves it, or continue in the next file, because nothing was cut
            there.
    """
    least = Severity.WARNING if open_end else Severity.NOTE
    wrong = [f for f in report.findings if f.severity is Severity.ERROR or (f.id in CUTTABLE and f.severity >= least)]
    return [f"{f.id}: {f.message}" for f in wrong if not (salvage and f.id == "gap-in-sequence")]
