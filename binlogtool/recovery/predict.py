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
from binlogtool.formats.layouts import RangeReader
from binlogtool.limits import Limits
from binlogtool.log.named import LogGroup
from binlogtool.log.opened_file import LogFile, SiblingFiles, make_sibling_reader, open_file
from binlogtool.log.source import BytesSource, FileSource, read_range
from binlogtool.recovery.plan import ResultPiece
from binlogtool.recovery.refusals import CUTTABLE
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.verify import LogExamination, LogVerifyOptions, VerifiedMember, examine_log, verify_file


class PiecesSource:
    """A read-only source over the pieces of a planned result."""

    def __init__(self, path: str, pieces: tuple[ResultPiece, ...]) -> None:
        self.name = path
        self.size: int | None = sum(p.size for p in pieces)
        self._file = (
            FileSource(os.path.realpath(path)) if any(p.is_original for p in pieces) else BytesSource(path, b"")
        )
        self._pieces = pieces

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`; return the number of bytes."""
        filled = piece_start = 0
        for piece in self._pieces:
            skip = offset + filled - piece_start
            if 0 <= skip < piece.size and filled < len(view):
                filled += self._read_piece(piece, skip, view[filled : filled + piece.size - skip])
            piece_start += piece.size
        return filled

    def _read_piece(self, piece: ResultPiece, skip: int, view: memoryview) -> int:
        if piece.is_original:
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

    def find_change(self) -> Finding | None:
        """Return a finding if the underlying file changed while it was read."""
        return self._file.find_change()

    def close(self) -> None:
        """Close the underlying file."""
        self._file.close()


def verify_planned_file(
    path: str, pieces: tuple[ResultPiece, ...], format_: Format, limits: Limits, backend: str, hints: Hints
) -> VerifiedMember:
    """Verify the planned result of one file on its own."""
    source = PiecesSource(path, pieces)
    file = open_file(path, os.path.basename(path), format_, limits, source, hints=hints)
    try:
        return verify_file(file, LogVerifyOptions(limits=limits, backend=backend, hints=hints))
    finally:
        file.source.close()


def verify_planned_log(
    group: LogGroup,
    results: Mapping[str, tuple[ResultPiece, ...] | None],
    options: LogVerifyOptions,
    verified: Mapping[str, VerifiedMember] = MappingProxyType({}),
) -> LogExamination:
    """Verify a whole log as it would be after the repair.

    Args:
        results: The pieces of each file that changes or is new, by path; None = the file is removed.
        verified: Files that were verified already, by name; those that do not change are not read again.
    """
    assert group.format is not None

    def read_sibling(path: str, name: str) -> RangeReader | None:
        sibling = os.path.join(os.path.dirname(path), os.path.basename(name))
        if sibling not in results:
            return make_sibling_reader(path, name)
        pieces = results[sibling]
        return None if pieces is None else partial(read_pieces, sibling, pieces)

    def open_planned(
        path: str, name: str, format_: Format | None, limits: Limits, siblings: SiblingFiles, hints: Hints
    ) -> LogFile:
        pieces = results.get(path)
        source = None if pieces is None else PiecesSource(path, pieces)
        return open_file(
            path, name, format_, limits, source, replace(siblings, read_sibling=partial(read_sibling, path)), hints
        )

    remaining = [name for name in group.names if results.get(group.member_path(name), ()) is not None]
    present_paths = {group.member_path(name) for name in group.names}
    new_names = [os.path.relpath(path, group.path) for path in results if path not in present_paths]
    names = (group.format.files.sort_names or sorted)([*remaining, *new_names]) if new_names else remaining
    reusable = {name: one for name, one in verified.items() if group.member_path(name) not in results}
    return examine_log(replace(group, names=tuple(names)), options, open_planned, reusable)


def read_pieces(path: str, pieces: tuple[ResultPiece, ...], offset: int, size: int) -> bytes:
    """Return the bytes `[offset, offset + size)` of a planned result."""
    source = PiecesSource(path, pieces)
    try:
        return read_range(source, offset, size)
    finally:
        source.close()


def list_unclean_findings(report: FileReport, *, salvage: bool = False, allow_open_end: bool = False) -> list[str]:
    """Return, in words, the findings that forbid a result: errors, and ends that would have to be cut again.

    Args:
        salvage: Records may be missing, as in a salvaged log.
        allow_open_end: The log may end as a crash leaves it, or continue in the next file, because nothing was cut
            there.
    """
    min_severity = Severity.WARNING if allow_open_end else Severity.NOTE
    unclean = [
        f for f in report.findings if f.severity is Severity.ERROR or (f.id in CUTTABLE and f.severity >= min_severity)
    ]
    return [f"{f.id}: {f.message}" for f in unclean if not (salvage and f.id == "gap-in-sequence")]
