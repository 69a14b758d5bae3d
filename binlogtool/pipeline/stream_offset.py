"""Read position of a growing file, as a streaming query stores it, and how far the file can be read now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from binlogtool.limits import KIB, MIB
from binlogtool.log import marks
from binlogtool.log.open import Log
from binlogtool.log.parts import Cuts, Part, Place, carried_over
from binlogtool.log.source import PartSource, read_range

_START = Place(0, 0, 0)
_LEAST_PIECE = 4 * KIB
_PIECES = 8
"""Number of possible end points within a byte limit."""


class Budget(msgspec.Struct):
    """Number of files and bytes that may still be read; None = no limit."""

    files: int | None = None
    bytes: int | None = None

    @property
    def spent(self) -> bool:
        """True if nothing more may be read."""
        return (self.files is not None and self.files < 1) or (self.bytes is not None and self.bytes < 1)

    def take(self, size: int) -> None:
        """Deduct one file with this many bytes."""
        if self.files is not None:
            self.files -= 1
        if self.bytes is not None:
            self.bytes -= size


class Reached(msgspec.Struct, frozen=True):
    """How far one file was read.

    Args:
        place: position; offset 0 = nothing yet. Of a finished file, `carried` is what it carries over to the next
            one.
        done: the file was read to its end.
        mark: identity of the file, see `mark_of`; "" while no record was read.
        born: number of earlier files that had this name.
    """

    place: Place = _START
    format: str = "auto"
    done: bool = False
    mark: str = ""
    born: int = 0

    @property
    def begin(self) -> Place | None:
        """Position where reading continues; None = at the beginning of the file."""
        return self.place if self.place.offset else None

    def bytes_since(self, before: Reached | None) -> int:
        """Return the number of bytes between two positions."""
        same = before is not None and before.born == self.born
        return self.place.offset - (before.place.offset if same and before is not None else 0)

    def without_definitions(self) -> Reached:
        """Return a finished file's position without what it carries over, which is not needed once the next file was
        started.
        """
        return replace(self, place=replace(self.place, carried=None)) if self.done else self

    def as_dict(self) -> dict[str, Any]:
        """Return the position as Spark stores it: texts and numbers."""
        made = asdict(self.place) | {"carried": json.dumps(self.place.carried, separators=(",", ":"))}
        return made | {"format": self.format, "done": self.done, "mark": self.mark, "born": self.born}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Reached:
        """Restore a position from `to_dict`."""
        place = Place(kept["offset"], kept["record"], kept["frame"], json.loads(kept["carried"]))
        return cls(place, kept["format"], kept["done"], kept["mark"], kept["born"])


def advanced(log: Log, before: Reached, end: int, most: int | None, *, closed: bool) -> Reached | None:
    """Return how far the file of a log can be read, not beyond `end`; None = unchanged.

    most: maximum bytes, but at least up to the next possible point. closed: the file will not grow beyond `end`.
    """
    at = before.place.offset
    if closed and (most is None or end - at <= most):
        return _done(log, before, end)
    place = _furthest(log, before.begin, end, most)
    if is_ended(log, before.place if place is None else place, end):
        return _done(log, before, end)
    if place is not None:
        return replace(before, place=place, mark=mark_of(log, place.offset) if place.record else "")
    if closed:
        return _done(log, before, end)
    return before if before.born and not at else None


def is_ended(log: Log, place: Place, end: int) -> bool:
    """Return True if the mark by which a server ends a file for good is between `place` and the end of the file."""
    file = log.files[0]
    mark = file.layout.frame.end_mark if file.layout.final else None
    if mark is None or not place.record or (place.offset + len(mark), file.size) != (end, end):
        return False
    return read_range(file.source, place.offset, len(mark)) == mark


def _done(log: Log, before: Reached, end: int) -> Reached:
    carried = carried_over(log.scan(log.files[0]), Part(before.begin, end))
    return grown(
        log, replace(before, place=replace(_START, offset=before.place.offset, carried=carried), done=True), end
    )


def grown(log: Log, before: Reached, end: int) -> Reached:
    """Return the position of the same file with its end at `end`."""
    end = max(end, before.place.offset)
    return replace(before, place=replace(before.place, offset=end), mark=mark_of(log, end))


def is_cut(log: Log) -> bool:
    """Return True if the format of a log's file has points where reading can continue."""
    file = log.files[0]
    return file.format.reading.cutter is not None and file.format.reading.cutter(file.layout) is not None


def has_place(log: Log, end: int) -> bool:
    """Return True if there is such a point after a record and before `end`."""
    return any(place.record for place in _places(log, None, end, MIB))


def _furthest(log: Log, begin: Place | None, end: int, most: int | None) -> Place | None:
    """Return the last point at most `most` bytes after `begin`, otherwise the first one."""
    at, found = 0 if begin is None else begin.offset, None
    piece = MIB if most is None else min(MIB, max(_LEAST_PIECE, most // _PIECES))
    for place in _places(log, begin, end, piece) if end > at else ():
        if found is not None and most is not None and place.offset > at + most:
            break
        found = place
    return found


def _places(log: Log, begin: Place | None, end: int, piece: int) -> Iterator[Place]:
    scan = log.scan(log.files[0])
    whole = replace(scan, source=PartSource(scan.source, end))
    at = 0 if begin is None else begin.offset
    return (place for place in Cuts(whole, piece, begin, skip=True).places() if place.offset > at)


def mark_of(log: Log, offset: int) -> str:
    """Return what distinguishes the log's file from another file of the same name (`log.marks`)."""
    return marks.mark_of(log.files[0], offset)


def is_other(before: Reached, log: Log) -> bool:
    """Return True if the log's file is not the one that was read before."""
    at = before.place.offset
    return (log.files[0].size or 0) < at or (before.mark != "" and mark_of(log, at) != before.mark)
