"""Read position of a growing file, as a streaming query stores it, and how far the file can be read now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.limits import KIB, MIB
from binlogtool.log import marks
from binlogtool.log.open import LogReader
from binlogtool.log.parts import FilePart, ResumePoint, ResumePointFinder, compute_carried_state
from binlogtool.log.source import TruncatedSource, read_range

_FILE_START = ResumePoint(0, 0, 0)
_MIN_PIECE_BYTES = 4 * KIB
_PIECES_PER_LIMIT = 8
"""Number of possible end points within a byte limit."""


class ReadBudget(msgspec.Struct):
    """Number of files and bytes that may still be read; None = no limit."""

    files: int | None = None
    bytes: int | None = None

    @property
    def is_spent(self) -> bool:
        """True if nothing more may be read."""
        return (self.files is not None and self.files < 1) or (self.bytes is not None and self.bytes < 1)

    def spend(self, size: int) -> None:
        """Deduct one file with this many bytes."""
        if self.files is not None:
            self.files -= 1
        if self.bytes is not None:
            self.bytes -= size


class ReadPosition(msgspec.Struct, frozen=True):
    """How far one file was read.

    Args:
        place: position; offset 0 = nothing yet. Of a finished file, `carried` is what it carries over to the next
            one.
        done: the file was read to its end.
        mark: identity of the file, see `mark_of`; "" while no record was read.
        born: number of earlier files that had this name.
    """

    place: ResumePoint = _FILE_START
    format: str = "auto"
    done: bool = False
    mark: str = ""
    born: int = 0

    @property
    def begin(self) -> ResumePoint | None:
        """Position where reading continues; None = at the beginning of the file."""
        return self.place if self.place.offset else None

    def bytes_since(self, previous: ReadPosition | None) -> int:
        """Return the number of bytes between two positions."""
        is_same_file = previous is not None and previous.born == self.born
        return self.place.offset - (previous.place.offset if is_same_file and previous is not None else 0)

    def without_definitions(self) -> ReadPosition:
        """Return a finished file's position without what it carries over, which is not needed once the next file was
        started.
        """
        return replace(self, place=replace(self.place, carried=None)) if self.done else self

    def to_dict(self) -> dict[str, Any]:
        """Return the position as Spark stores it: texts and numbers."""
        values = asdict(self.place) | {"carried": json.dumps(self.place.carried, separators=(",", ":"))}
        return values | {"format": self.format, "done": self.done, "mark": self.mark, "born": self.born}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadPosition:
        """Restore a position from `to_dict`."""
        place = ResumePoint(values["offset"], values["record"], values["frame"], json.loads(values["carried"]))
        return cls(place, values["format"], values["done"], values["mark"], values["born"])


def advance_position(
    log: LogReader, position: ReadPosition, end: int, max_bytes: int | None, *, closed: bool
) -> ReadPosition | None:
    """Return how far the file of a log can be read, not beyond `end`; None = unchanged.

    max_bytes: maximum bytes, but at least up to the next possible point. closed: the file will not grow beyond `end`.
    """
    offset = position.place.offset
    if closed and (max_bytes is None or end - offset <= max_bytes):
        return _finish_file(log, position, end)
    place = _find_furthest_point(log, position.begin, end, max_bytes)
    if has_end_mark(log, position.place if place is None else place, end):
        return _finish_file(log, position, end)
    if place is not None:
        return replace(position, place=place, mark=file_mark(log, place.offset) if place.record else "")
    if closed:
        return _finish_file(log, position, end)
    return position if position.born and not offset else None


def has_end_mark(log: LogReader, place: ResumePoint, end: int) -> bool:
    """Return True if the mark by which a server ends a file for good is between `place` and the end of the file."""
    file = log.files[0]
    mark = file.layout.frame.end_mark if file.layout.final else None
    if mark is None or not place.record or (place.offset + len(mark), file.size) != (end, end):
        return False
    return read_range(file.source, place.offset, len(mark)) == mark


def _finish_file(log: LogReader, position: ReadPosition, end: int) -> ReadPosition:
    carried = compute_carried_state(log.make_scan(log.files[0]), FilePart(position.begin, end))
    return extend_position(
        log,
        replace(position, place=replace(_FILE_START, offset=position.place.offset, carried=carried), done=True),
        end,
    )


def extend_position(log: LogReader, position: ReadPosition, end: int) -> ReadPosition:
    """Return the position of the same file with its end at `end`."""
    end = max(end, position.place.offset)
    return replace(position, place=replace(position.place, offset=end), mark=file_mark(log, end))


def has_split_points(log: LogReader) -> bool:
    """Return True if the format of a log's file has points where reading can continue."""
    file = log.files[0]
    return file.format.reading.split_finder is not None and file.format.reading.split_finder(file.layout) is not None


def has_resume_point(log: LogReader, end: int) -> bool:
    """Return True if there is such a point after a record and before `end`."""
    return any(place.record for place in _resume_points(log, None, end, MIB))


def _find_furthest_point(
    log: LogReader, begin: ResumePoint | None, end: int, max_bytes: int | None
) -> ResumePoint | None:
    """Return the last point at most `max_bytes` bytes after `begin`, otherwise the first one."""
    offset, furthest = 0 if begin is None else begin.offset, None
    piece = MIB if max_bytes is None else min(MIB, max(_MIN_PIECE_BYTES, max_bytes // _PIECES_PER_LIMIT))
    for place in _resume_points(log, begin, end, piece) if end > offset else ():
        if furthest is not None and max_bytes is not None and place.offset > offset + max_bytes:
            break
        furthest = place
    return furthest


def _resume_points(log: LogReader, begin: ResumePoint | None, end: int, piece: int) -> Iterator[ResumePoint]:
    scan = log.make_scan(log.files[0])
    bounded_scan = replace(scan, source=TruncatedSource(scan.source, end))
    offset = 0 if begin is None else begin.offset
    return (
        place
        for place in ResumePointFinder(bounded_scan, piece, begin, skips_damage=True).find_all()
        if place.offset > offset
    )


def file_mark(log: LogReader, offset: int) -> str:
    """Return what distinguishes the log's file from another file of the same name (`log.marks`)."""
    return marks.hash_file_identity(log.files[0], offset)


def is_other_file(position: ReadPosition, log: LogReader) -> bool:
    """Return True if the log's file is not the one that was read before."""
    offset = position.place.offset
    return (log.files[0].size or 0) < offset or (position.mark != "" and file_mark(log, offset) != position.mark)
